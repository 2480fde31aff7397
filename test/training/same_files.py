"""The same program and budget give the same file, byte for byte, in each run of the compiler:
addresses, by which sets of pointers are ordered, are others in each process."""

import argparse
import pathlib
import subprocess

import torch
from torch import nn
from torch.nn import functional as F

RUNS = 6


class Branches(nn.Module):
    """Blocks of which the branches are normalised in one loop."""

    def __init__(self, width=8, count=3):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, width, 3)
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
                for _ in range(4)
            )
            for _ in range(count)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x, y):
        x = self.stem(x)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            total = torch.zeros(())
            for branch in block:
                total = total + branch(x)
            x = total.relu()
        return F.cross_entropy(self.head(x.mean((2, 3))), y)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--koila-opt", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "branches.pt"
    example = torch.randn(3, 3, 12, 12), torch.tensor([0, 1, 2])
    torch.jit.trace(Branches(), example, check_trace=False).save(path)
    made = options.folder / "made.pt"
    inputs = ("--input=float32[B,3,12,12]", "--input=int64[B]{0:4}", "--batch", "B=64")
    how = "--koila-compile=mode=train budget=3MiB threads=1"
    found = set()
    for _ in range(RUNS):
        subprocess.run([options.koila_opt, path, *inputs, how, "-o", made], check=True)
        found.add(made.read_bytes())
    print(f"{RUNS} runs: {len(found)} file")


if __name__ == "__main__":
    main()
