"""Batch normalisation of half types, as under autocast, in tiles.

    half_norms.py make KIND MODEL.pt
    half_norms.py compare KIND MODEL.pt TILED.pt

Autocast hands half types to layers whose weights are in float32. A step of the file has to
be as near to float64 as plain PyTorch's step under autocast is: gradients that tiles add up
in a half type are not, nor is a normalisation of each tile by itself.
"""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, BATCHES = 5, (2, 9, 256)
# Of the error of plain PyTorch, for the order of sums.
MOST = 1.5


def make_rows():
    return nn.Sequential(
        nn.Linear(12, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 24),
        nn.BatchNorm1d(24, momentum=0.3),
        nn.GELU(),
        nn.Linear(24, 24),
        nn.BatchNorm1d(24, affine=False),
        nn.ReLU(),
        nn.Linear(24, CLASSES),
    )


def make_images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16, momentum=0.3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


KINDS = {"rows": (make_rows, (12,)), "images": (make_images, (3, 9, 9))}
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Loss(nn.Module):
    def __init__(self, layers, dtype):
        super().__init__()
        self.layers, self.dtype = layers, dtype

    def forward(self, x, y):
        # A cache of casts would hide them from the trace.
        with torch.autocast("cpu", self.dtype, cache_enabled=False):
            return F.cross_entropy(self.layers(x), y)


def make_model(kind):
    """Of a kind as `rows-bfloat16`, with statistics that are neither zero nor one."""
    name, dtype = kind.split("-")
    layers, shape = KINDS[name]
    torch.manual_seed(0)
    model = layers().train()
    model(torch.randn(16, *shape))
    return model, shape, TYPES[dtype]


def make_batch(batch, shape):
    torch.manual_seed(batch)
    y = torch.arange(batch) % CLASSES
    offsets = torch.randn(CLASSES, shape[0], *(1 for _ in shape[1:]))
    return torch.randn(batch, *shape) + offsets[y], y


def make(kind, path):
    model, shape, dtype = make_model(kind)
    loss = Loss(model, dtype)
    state = copy.deepcopy(loss.state_dict())
    traced = torch.jit.trace(loss, make_batch(3, shape), check_trace=False)
    # Without the update of the trace.
    traced.load_state_dict(state)
    traced.save(path)


def flatten(tensors):
    return torch.cat([tensor.double().flatten() for tensor in tensors])


def get_state(module, loss):
    return [
        flatten([loss.detach()]),
        flatten(weight.grad for weight in module.parameters()),
        flatten(buffer for buffer in module.buffers() if buffer.is_floating_point()),
    ]


def get_error(state, exact):
    return [
        float((one - other).norm() / other.norm()) for one, other in zip(state, exact, strict=True)
    ]


def step(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return get_state(model, loss)


def compare(kind, original, tiled):
    model, shape, _ = make_model(kind)
    for batch in BATCHES:
        x, y = make_batch(batch, shape)
        exact = step(copy.deepcopy(model).double(), x.double(), y)
        plain = torch.jit.load(original)
        loss = plain(x, y)
        loss.backward()
        module = torch.jit.load(tiled)
        errors = get_error(get_state(module, module.train_step(x, y)), exact)
        limits = get_error(get_state(plain, loss), exact)
        print(f"{batch}: {errors}, plain {limits}")
        # The loss is one number: its error may be next to nothing by chance.
        assert errors[0] <= 2.0**-7, batch
        for error, limit in zip(errors[1:], limits[1:], strict=True):
            assert error <= MOST * limit, (batch, error, limit)
    print(f"{len(BATCHES)} batches as near as plain PyTorch")


if __name__ == "__main__":
    commands: dict = {"make": make, "compare": compare}
    commands[sys.argv[1]](*sys.argv[2:])
