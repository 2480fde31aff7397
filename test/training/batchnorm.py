"""Batch normalisation in training mode, each tile by itself.

    batchnorm.py make MODEL.pt
    batchnorm.py compare MODEL.pt TILED.pt

A step of the file with batchnorm=per-tile has to do what a loop in plain
PyTorch does over the same tiles, which accumulates the gradients of each one's
part of the loss: loss, gradients, running statistics. It must not give what the
whole batch gives; so the comparison can fail.
"""

import sys

import torch

TILE, FEATURES, CLASSES = 4, 6, 5
# How the batch is cut: no tile has a single sample.
CUTS = {2: [2], 8: [4, 4], 9: [5, 4], 10: [4, 4, 2], 11: [5, 4, 2]}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, FEATURES, 3),
            torch.nn.BatchNorm2d(FEATURES),
            torch.nn.ReLU(),
            torch.nn.Conv2d(FEATURES, FEATURES, 3),
            torch.nn.BatchNorm2d(FEATURES, momentum=0.3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(FEATURES * 16, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Linear(8, CLASSES),
        )

    def forward(self, x):
        return self.layers(x)


def make(path):
    torch.manual_seed(0)
    model = Model().double().train()
    # Statistics that are neither zero nor one.
    model(torch.randn(16, 3, 8, 8).double())
    torch.jit.trace(model, torch.randn(3, 3, 8, 8).double(), check_trace=False).save(path)


def get_state(module, loss):
    return [
        loss,
        *(weight.grad for weight in module.parameters()),
        *(buffer.clone() for buffer in module.buffers()),
    ]


def is_close(left, right, counters=True):
    return all(
        torch.allclose(one, other, rtol=1e-9, atol=1e-12)
        for one, other in zip(left, right, strict=True)
        if counters or one.is_floating_point()
    )


def run_plain(path, x, target, cuts):
    module = torch.jit.load(path)
    total, start = 0, 0
    for size in cuts:
        part = slice(start, start + size)
        loss = torch.nn.functional.cross_entropy(
            module(x[part]), target[part], reduction="sum"
        ) / len(x)
        loss.backward()
        total, start = total + loss.detach(), start + size
    return get_state(module, total)


def compare(original, tiled):
    for batch, cuts in CUTS.items():
        torch.manual_seed(batch)
        x = torch.randn(batch, 3, 8, 8).double()
        target = torch.randint(CLASSES, (batch,))
        module = torch.jit.load(tiled)
        state = get_state(module, module.train_step(x, target))
        # The batch is counted once, its statistics once a tile.
        assert is_close(state, run_plain(original, x, target, cuts), counters=False), batch
        whole = run_plain(original, x, target, [batch])
        assert is_close(state, whole) == (len(cuts) == 1), batch
        assert all(
            torch.equal(one, other)
            for one, other in zip(state, whole, strict=True)
            if not one.is_floating_point()
        ), batch
    print(f"{len(CUTS)} batches as a loop over their tiles")


if __name__ == "__main__":
    commands: dict = {"make": make, "compare": compare}
    commands[sys.argv[1]](*sys.argv[2:])
