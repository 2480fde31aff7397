"""Cases of backward_oracle.py: writes into tensors and views."""

import torch
import torch.nn.functional as F


def write_shifts(x, y):
    """A volume of shifts, as stereo has it."""
    volume = x.new_zeros(x.shape[0], 3, *x.shape[1:])
    for shift in range(3):
        volume[:, shift, :, shift:] = x[..., shift:] * y[..., : x.shape[2] - shift]
    return volume.tanh()


def write_between(x, y):
    """Views that are made before writes and read after them."""
    x = x * 2
    first, rest = x[:, 0], x[:, 1:]
    first.add_(y[:, 0])
    rest[..., :2].copy_(y[:, 1:, :2])
    return first.sum() + (rest * x[:, 1:]).sum()


def write_half(x, *_):
    x = x * 3
    x[..., :3] *= 2
    x[..., 3:] += 1
    return x * x


def write_before(x, y):
    """Read before a gradient comes to it, and after."""
    z = torch.ones(x.shape[0], 4, 6)
    read = z + x
    z[:, 1] = 2.0
    z[:, 2] = y[:, 0] * 2
    return read + z * y


def write_viewed(x, y):
    x = (x * y).view(-1, 24)
    x.narrow(1, 0, 12).copy_(y.flatten(1)[:, 12:])
    x.relu_()
    return x.view(-1, 4, 6) * y


CASES = {
    "write_shifts": (write_shifts, (4, 6), (4, 6)),
    "write_between": (write_between, (4, 6), (4, 6)),
    "write_half": (write_half, (4, 6)),
    "write_before": (write_before, (4, 6), (4, 6)),
    "write_viewed": (write_viewed, (4, 6), (4, 6)),
    "write_transposed": (
        lambda x, y: write_between(x.transpose(1, 2) * 2, y.transpose(1, 2)),
        (4, 6),
        (4, 6),
    ),
    "write_masked": (
        lambda x, y: (x * 2).select(1, 0).masked_fill_(y[:, 0] > 0, 0.5) * y[:, 1],
        (4, 6),
        (4, 6),
    ),
    "write_after_linear": (
        lambda x, w, b: write_half(F.linear(x, w[0], b[0])),
        (4, 6),
        (6, 6),
        (6,),
    ),
    "write_broadcast": (
        lambda x, y: write_shifts(x.expand(-1, 4, 6), y) * 2,
        (1, 6),
        (4, 6),
    ),
    "write_detached": (
        lambda x, y: write_half(x.detach()) * y,
        (4, 6),
        (4, 6),
    ),
}
