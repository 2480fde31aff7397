"""Makes scripted modules that read, assign and call what objects hold.

Usage: object_models.py FOLDER
"""

import pathlib
import sys
from typing import Optional

import torch
from torch import nn


@torch.jit.interface
class Stage(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass

    def scale(self, x: torch.Tensor, by: int, shift: Optional[torch.Tensor]) -> torch.Tensor:
        pass


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls

    def scale(self, x: torch.Tensor, by: int, shift: Optional[torch.Tensor]) -> torch.Tensor:
        return x * by if shift is None else x * by + shift


@torch.jit.script
class Mean:
    def __init__(self):
        self.sum = torch.zeros([4])
        self.count = 0

    def add(self, x: torch.Tensor):
        self.sum = self.sum + x.sum(0)
        self.count += x.size(0)


class Counter(nn.Module):
    """A buffer, numbers and a text of a submodule are replaced."""

    seen: Optional[torch.Tensor]

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(4))
            self.name = "none"

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.ones([], dtype=torch.int64))
        self.calls = 0
        self.seen = None
        self.inner = Counter.Inner()

    def forward(self, x):
        before = self.steps
        self.steps = self.steps + 1
        self.calls += 1
        self.inner.last = x[0] * self.steps
        self.inner.name = "some"
        self.seen = None
        return x * self.calls + self.inner.last, before


class Calls(nn.Module):
    """Methods that an interface declares; None and numbers are arguments."""

    stage: Stage

    def __init__(self):
        super().__init__()
        self.stage = Scaling()

    def forward(self, x):
        y = self.stage.forward(x)
        return self.stage.scale(y, 3, None) + self.stage.scale(x, 2, y)


class Objects(nn.Module):
    """An object of a class that the function makes."""

    def forward(self, x):
        mean = Mean()
        for _ in range(2):
            mean.add(x)
        return x - mean.sum / mean.count


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for model in (Counter, Calls, Objects):
        torch.jit.script(model().eval()).save(str(folder / f"{model.__name__}.pt"))


if __name__ == "__main__":
    main()
