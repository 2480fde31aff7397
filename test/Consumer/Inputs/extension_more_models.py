"""Saves programs that call operators of more: extension_more_models.py OPERATORS.so FOLDER"""

import pathlib
import sys

import torch
from torch import nn

torch.ops.load_library(sys.argv[1])
folder = pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)


class InPlace(nn.Module):
    """The factor is the number of dims, which the program computes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 256)

    def forward(self, x):
        y = self.first(x)
        torch.ops.more.scale_(y, 3)
        return torch.ops.more.scale(y, y.dim())


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        first, second = torch.ops.more.parts([x, x * 2, x], self.bias, [3, 4])
        third, _ = torch.ops.more.parts([second], None, again=True)
        return first + third


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.ops.more.noise(x)


torch.manual_seed(0)
for model in (InPlace(), Parts(), Noise()):
    torch.jit.script(model.eval()).save(folder / f"{type(model).__name__.lower()}.pt")
