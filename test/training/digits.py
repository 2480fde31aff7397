"""Fifty steps of SGD on scikit-learn's digits, with `train_step` and without.

    digits.py make DTYPE MODEL.pt
    digits.py compare DTYPE MODEL.pt TILED.pt

The batches have 100 samples, and the last of each pass 97: neither is a multiple
of the tile. In float64 every loss agrees to 1e-6 of itself, in float32 the first
five to 1e-4, since rounding grows from step to step.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

STEPS, BATCH = 50, 100
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def make(dtype, path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ).to(DTYPES[dtype])
    torch.jit.trace(model, torch.randn(2, 1, 8, 8, dtype=DTYPES[dtype])).save(path)


def train(module, compute, dtype):
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=DTYPES[dtype]).view(-1, 1, 8, 8)
    labels = torch.tensor(labels, dtype=torch.int64)
    batches = list(zip(images.split(BATCH), labels.split(BATCH), strict=True))
    assert len(batches[-1][0]) == 97
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        x, target = batches[step % len(batches)]
        optimizer.zero_grad()
        losses.append(compute(module, x, target).item())
        optimizer.step()
    return losses


def step_plainly(module, x, target):
    loss = nn.functional.cross_entropy(module(x), target)
    loss.backward()
    return loss.detach()


def step_tiled(module, x, target):
    return module.train_step(x, target)


def compare(dtype, path, tiled_path):
    plain = train(torch.jit.load(path), step_plainly, dtype)
    tiled = train(torch.jit.load(tiled_path), step_tiled, dtype)
    assert plain[-1] < 0.5 * plain[0], "it does not learn"
    if dtype == "float64":
        torch.testing.assert_close(tiled, plain, rtol=1e-6, atol=0)
    else:
        torch.testing.assert_close(tiled[:5], plain[:5], rtol=1e-4, atol=0)
    worst = max(abs(mine - other) / other for mine, other in zip(tiled, plain, strict=True))
    print(
        f"{dtype}: {plain[0]:.4f} to {plain[-1]:.4f} in {STEPS} steps, "
        f"relative difference at most {worst:.1e}"
    )


if __name__ == "__main__":
    commands: dict = {"make": make, "compare": compare}
    commands[sys.argv[1]](*sys.argv[2:])
