"""Small networks that the tests share."""

import torch
from torch import nn


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).eval()


def batch(size=64):
    torch.manual_seed(1)
    return torch.randn(size, 64), torch.randint(0, 10, (size,))


class Softmax(nn.Module):
    """Samples meet in the line of the softmax."""

    def forward(self, x):
        return torch.softmax(x, 0)  # here


class Unscriptable(nn.Module):
    """What TorchScript cannot express, and a trace can."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        parts = {name: value for name, value in [("a", self.linear(x)), ("b", x)]}
        return sum(parts.values()).reshape(x.shape[0], -1)


class FixedBatch(Unscriptable):
    """A trace of it holds for one batch only."""

    def forward(self, x):
        parts = {name: value for name, value in [("a", self.linear(x)), ("b", x)]}
        return sum(parts.values()) * float(len(list(x)))


class ByValue(Unscriptable):
    """A trace of it holds for one sign only."""

    def forward(self, x):
        parts = {name: value for name, value in [("a", self.linear(x)), ("b", x)]}
        if float(x.abs().sum()) > 0:  # here
            return sum(parts.values())
        return parts["b"]


class Printing(Unscriptable):
    """Scripted it prints in each call, traced it does not."""

    def forward(self, x):
        print("rows", x[:0])
        return self.linear(x).relu()


class Loss(nn.Module):
    """The squares of what a module is off."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, y):
        return (self.inner(x) - y).square().mean()


class OwnBatchNorm(nn.BatchNorm1d):
    """With a forward() of its own."""

    def forward(self, input):
        return super().forward(input) * 2.0


class Hardest(nn.Module):
    """The mean of the four largest losses of the batch."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)

    def forward(self, x, y):
        return (self.inner(x) - y).square().mean(1).topk(4).values.mean()


def rows(count):
    """Inputs and targets of Hardest."""
    torch.manual_seed(count)
    return torch.randn(count, 6), torch.randn(count, 8)


def line_of(function, text="# here"):
    """The line of the source of `function` that has `text`."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)
