"""How branches, loops and lists are run: figures against measured bytes.

Scripted programs of what people write, each with a figure that must be exact and
what PyTorch allocates, to the byte, at several batches: some turn as often as
there are samples. Usage: traced_programs.py
"""

import pathlib
import sys
import tempfile
import warnings

import torch
from torch import Tensor, nn

import memory
from koila import _compiler

BATCHES = (2, 5)
PROGRAMS = []


def program(cls):
    PROGRAMS.append(cls)
    return cls


@program
class ListOfSteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(64, 64)

    def forward(self, x):
        states: list[Tensor] = []
        h = torch.zeros_like(x)
        for _ in range(4):
            h = torch.tanh(self.cell(x) + h)
            states.append(h)
        return torch.stack(states).mean(0)


@program
class SkipsInReverse(nn.Module):
    def forward(self, x):
        skips: list[Tensor] = []
        for scale in [1.0, 2.0, 3.0]:
            x = torch.sin(x * scale)
            skips.append(x)
        while len(skips) > 0:
            x = torch.cat([x, skips.pop()], dim=1)
        return x


@program
class TurnsPerSample(nn.Module):
    def forward(self, x):
        rows: list[Tensor] = []
        for i in range(x.size(0)):
            rows.append(x[i].exp())
        return torch.stack(rows)


@program
class StopsEarly(nn.Module):
    def forward(self, x):
        y = x.exp()
        for i in range(10):
            if i == 3:
                break
            y = torch.cat([y, y[:, :8]], dim=1)
        return y.sin()


@program
class ReturnsEarly(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep = False

    def forward(self, x, mask: Tensor | None = None):
        y = x.exp()
        if mask is None and not self.deep:
            return y.cos().tanh()
        return (y * 2).sin()


@program
class KeptByABranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = True

    def forward(self, x):
        y = x.exp()
        if self.wide:
            z = y.sum(1, keepdim=True) * x
            z = torch.cat([z, z], dim=1).sin()
        else:
            z = y
        return z


@program
class KeptByALoop(nn.Module):
    def forward(self, x):
        y, z = x.exp(), x
        for i in range(3):
            if i == 0:
                z = z + y
            z = torch.cat([z, z], dim=1)
        return z


@program
class DictMethods(nn.Module):
    def forward(self, x):
        parts: dict[str, Tensor] = {"a": x.sin()}
        parts.update({"b": x.cos(), "a": x.exp()})
        gone = parts.pop("b")
        total = gone + parts["a"]
        for value in parts.values():
            total = total * value
        return total.tanh()


@torch.jit.script
class Average:
    def __init__(self, start: Tensor):
        self.value = start
        self.count = 1

    def add(self, x: Tensor):
        self.value = self.value + x
        self.count += 1


@program
class KeepsAnAverage(nn.Module):
    def forward(self, x):
        average = Average(x.exp())
        for i in range(3):
            average.add(x * i)
        return average.value / average.count


@program
class AsListsSay(nn.Module):
    """What lists of numbers and bools in attributes say."""

    def __init__(self):
        super().__init__()
        self.scales = [0.5, 2.0]
        self.doubled = [True, False]

    def forward(self, x):
        for i, doubled in enumerate(self.doubled):
            x = torch.cat([x, x.sin()], 1) if doubled else x * self.scales[i]
        return x.sum(1)


@program
class HandsOverWhatNobodyReads(nn.Module):
    """What a turn made last lives until the next one starts."""

    def forward(self, x):
        _last = x
        for _ in range(2):
            for scale in [1.0, 2.0]:
                _last = torch.cat([x, x, x], 1)
                x = torch.sin(x * scale) + x
        return x


def check(cls, folder):
    path = str(folder / f"{cls.__name__}.pt")
    torch.jit.script(cls().eval()).save(path)
    loaded = torch.jit.load(path)
    problems = []
    for batch in BATCHES:
        x = torch.rand(batch, 64)
        with torch.no_grad():
            measured = memory.peak_bytes(lambda x=x: loaded(x), calls=1)
        report = _compiler.analyze_script(
            path, ["float32[B,64]"], batch={"B": batch}, floor=False, batches=0
        )
        if not report["exact"]:
            problems.append(f"not exact at {batch}: {report['inexact']}")
        elif report["peak_bytes"] != measured:
            problems.append(f"predicted {report['peak_bytes']}, measured {measured}")
    return problems


def main():
    warnings.simplefilter("ignore")
    torch._C._jit_set_profiling_mode(False)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for cls in PROGRAMS:
            problems = check(cls, pathlib.Path(folder))
            failures += bool(problems)
            for problem in problems:
                print(f"{cls.__name__}: {problem}")
    print(f"{failures} of {len(PROGRAMS)} programs are wrong")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
