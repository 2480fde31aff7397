"""Saves networks that call mylib::scaled_gelu: extension_models.py OPERATORS.so FOLDER"""

import pathlib
import sys

import torch
from torch import nn

torch.ops.load_library(sys.argv[1])
folder = pathlib.Path(sys.argv[2])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 256), nn.Linear(256, 4)

    def forward(self, x):
        return self.last(torch.ops.mylib.scaled_gelu(self.first(x), 1.5))


class Twice(nn.Module):
    """The scale is computed by the program, which the operation does not take."""

    def forward(self, x, scale: float):
        return torch.ops.mylib.scaled_gelu(x, 2.0 * scale)


torch.manual_seed(0)
folder.mkdir(exist_ok=True)
torch.jit.script(Network().eval()).save(folder / "network.pt")
torch.jit.script(Twice().eval()).save(folder / "twice.pt")
