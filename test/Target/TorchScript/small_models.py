"""Models of few operators: small_models.py FOLDER."""

import pathlib
import sys
import warnings

import torch
from torch import nn


class Sized(nn.Module):
    """Tracing makes a tensor of the size, which only the view reads."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return self.linear(x).view(x.shape[0], 3, 2)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i):
        return self.head(self.embedding(i).tanh())


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    x = torch.randn(3, 6)
    torch.jit.trace(Sized(), x).save(folder / "sized.pt")
    torch.jit.trace(nn.Identity(), x).save(folder / "identity.pt")
    torch.jit.script(Tied()).save(folder / "tied.pt")


main()
