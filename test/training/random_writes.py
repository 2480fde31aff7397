#!/usr/bin/env python3
"""Random programs of reads, views and writes in place do what plain PyTorch does.

Usage: random_writes.py [--count N] [--seed S] [--only K...] [--minutes M] [--print]

A program makes two tensors of a batch, of which one requires a gradient, and then a few calls
in any order: it writes to a tensor or a view of it, with a graph or without, reads numbers or
arrays, makes views, copies and detached tensors, changes shapes, lets tensors go. Then it
differentiates a loss of all that is left, and reads that. In float64, whole and with a budget
that asks for tiles.

Numbers that were read on the way, arrays that are still there, the loss, gradients, what
requires one and what is left of the tensors are those of plain PyTorch. What plain PyTorch
raises is no program here.

With every program runs a control in plain PyTorch that makes its last write to memory that
was read, or, where none was, its last write, to a copy: programs at which that is not seen
are replaced by others before koila sees them.

koila may raise a KoilaError that names a line; those are counted as refused.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import pathlib
import random
import sys
import time
import traceback
import warnings
from typing import Any, NamedTuple

import torch
from torch import nn

import koila

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "test" / "property"))
from conclude import conclude

SAMPLES, WIDTH = 8, 4
# In tiles, and whole.
BUDGETS = (1100, 1 << 30)
ALLOWED = 1e-9
WRITES = ("scale", "add", "part", "rectify", "mask", "data", "assign")
READS = ("array", "list", "number")
OTHERS = ("view", "turn", "detach", "detach_", "copy", "function", "unsqueeze", "same", "drop")
CALLS = (*WRITES, *READS, *READS, *OTHERS)
MOST_DIMS = 4


class Step(NamedTuple):
    """A call, and what it is made with: numbers that choose among what there is."""

    call: str
    target: int
    dim: int
    other: int
    has_graph: bool


# Those that have failed: fewer calls of them would not.
CASES = (
    (
        Step("copy", 3, 1, 4, True),
        Step("view", 4, 3, 7, True),
        Step("view", 3, 10, 8, True),
        Step("add", 1, 7, 7, True),
        Step("turn", 2, 11, 7, True),
        Step("list", 10, 3, 5, True),
        Step("rectify", 2, 10, 7, True),
    ),
    (
        Step("turn", 3, 1, 0, True),
        Step("add", 1, 7, 3, True),
        Step("number", 10, 0, 0, True),
        Step("copy", 6, 5, 3, False),
        Step("drop", 5, 3, 4, False),
    ),
    (
        Step("detach", 2, 4, 1, False),
        Step("rectify", 6, 1, 9, True),
        Step("unsqueeze", 9, 11, 11, False),
        Step("list", 5, 9, 4, False),
        Step("part", 11, 9, 9, True),
        Step("drop", 0, 4, 3, True),
    ),
    (
        Step("view", 11, 5, 5, True),
        Step("unsqueeze", 7, 0, 3, True),
        Step("same", 1, 3, 1, True),
        Step("array", 8, 8, 4, True),
        Step("add", 2, 0, 0, True),
    ),
    (
        Step("array", 8, 8, 9, True),
        Step("detach_", 10, 11, 10, True),
        Step("array", 0, 3, 1, True),
        Step("add", 8, 9, 2, True),
    ),
    (
        Step("array", 11, 3, 9, True),
        Step("detach_", 0, 4, 10, True),
        Step("array", 8, 6, 3, True),
        Step("add", 0, 5, 5, True),
    ),
    (
        Step("turn", 1, 11, 7, True),
        Step("add", 8, 0, 0, False),
        Step("copy", 3, 8, 9, True),
        Step("drop", 10, 1, 2, True),
    ),
    (
        Step("add", 4, 6, 7, True),
        Step("detach", 10, 3, 11, True),
        Step("copy", 5, 3, 11, True),
        Step("part", 10, 4, 11, True),
        Step("list", 10, 3, 7, True),
    ),
    (Step("copy", 4, 8, 6, True), Step("detach", 11, 7, 5, True), Step("assign", 7, 5, 4, True)),
    (Step("detach", 8, 7, 6, True), Step("assign", 11, 5, 0, True), Step("drop", 0, 1, 8, True)),
    (
        Step("detach", 4, 1, 3, True),
        Step("copy", 10, 3, 2, True),
        Step("number", 8, 4, 3, True),
        Step("rectify", 8, 6, 7, True),
        Step("data", 4, 5, 6, True),
    ),
    (
        Step("list", 1, 7, 1, True),
        Step("view", 11, 5, 6, True),
        Step("assign", 8, 5, 6, True),
        Step("same", 11, 5, 8, True),
        Step("part", 3, 6, 3, True),
    ),
)


def make_steps(random_numbers: random.Random) -> list[Step]:
    """Half of the programs make all calls with a graph."""
    is_mixed = random_numbers.random() < 0.5
    return [
        Step(
            random_numbers.choice(CALLS),
            random_numbers.randrange(12),
            random_numbers.randrange(12),
            random_numbers.randrange(12),
            not is_mixed or random_numbers.random() < 0.75,
        )
        for _ in range(random_numbers.randint(3, 9))
    ]


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)


class Program:
    """One run of some steps; ``lost`` is the place of a write that a copy gets."""

    def __init__(self, steps: list[Step], budget: int | None, lost: int | None = None) -> None:
        torch.manual_seed(0)
        self.steps, self.lost = steps, lost
        x: Any = torch.randn(SAMPLES, WIDTH, dtype=torch.float64)
        self.x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
        self.model = nn.Linear(WIDTH, WIDTH).double()
        self.tensors = [self.model(self.x) * 1, self.x * 2]
        # A program of before that is not gone would have it recorded, as samples beside a batch.
        assert (budget is None) == (type(self.tensors[0]) is torch.Tensor)
        self.seen: list[Any] = []
        self.arrays: list[Any] = []

    def run(self) -> list[Any]:
        for place, step in enumerate(self.steps):
            modes = contextlib.nullcontext() if step.has_graph else torch.no_grad()
            with modes:
                self._make(step, place == self.lost)
        required = [float(tensor.requires_grad) for tensor in self.tensors]
        loss = self.model(self.x).sum()
        for tensor in self.tensors:
            weights = torch.arange(1.0, tensor.numel() + 1, dtype=torch.float64)
            loss = loss + (tensor.cos() * weights.view(shape_of(tensor))).sum()
        loss.backward()
        gradients = [weight.grad for weight in self.model.parameters()]
        left = [tensor.detach().clone() for tensor in self.tensors]
        found = [*required, *self.seen, *self.arrays, loss.item(), *gradients, *left]
        return [torch.as_tensor(each).tolist() for each in found]

    def _make(self, step: Step, is_lost: bool) -> None:
        place = step.target % len(self.tensors)
        tensor = self.tensors[place]
        shape = shape_of(tensor)
        dim = step.dim % len(shape)
        if step.call in WRITES:
            self._write(step, tensor.detach().clone() if is_lost else tensor, dim)
        elif step.call == "array":
            array = tensor.detach().numpy()
            if step.other % 2:
                self.arrays.append(array)
            self.seen.append(array.sum())
        elif step.call == "list":
            self.seen.append(tensor.tolist())
        elif step.call == "number":
            self.seen.append(tensor.sum().item())
        elif step.call == "view":
            self.tensors.append(tensor.narrow(dim, 0, max(shape[dim] // 2, 1)))
        elif step.call == "turn":
            self.tensors.append(tensor.transpose(dim, step.other % len(shape)))
        elif step.call == "detach":
            self.tensors.append(tensor.detach())
        elif step.call == "detach_":
            tensor.detach_()
        elif step.call == "copy":
            self.tensors.append(tensor.clone())
        elif step.call == "function":
            self.tensors.append(tensor.sin() + 1)
        elif step.call == "unsqueeze" and len(shape) < MOST_DIMS:
            tensor.unsqueeze_(dim)
        elif step.call == "same":
            self.tensors.append(tensor.contiguous())
        elif step.call == "drop" and len(self.tensors) > 2:
            self.tensors.pop(place)

    def _write(self, step: Step, tensor: torch.Tensor, dim: int) -> None:
        if step.call == "scale":
            tensor.mul_((2, -1, 0.5)[step.other % 3])
        elif step.call == "rectify":
            torch.relu_(tensor)
        elif step.call == "part":
            tensor.narrow(dim, 0, max(shape_of(tensor)[dim] // 2, 1)).mul_(3)
        elif step.call == "mask":
            tensor.masked_fill_(tensor > 0.5, 0.25)
        elif step.call == "data":
            tensor.data.mul_(0.5)
        else:
            other = self.tensors[step.other % len(self.tensors)]
            is_like = shape_of(other) == shape_of(tensor)
            if step.call == "add":
                tensor.add_(other if is_like else other.sum())
                return
            half = max(shape_of(tensor)[dim] // 2, 1)
            given = other.narrow(dim, 0, half) if is_like else other.mean()
            tensor.narrow(dim, 0, half).copy_(given)


def run_plain(steps: list[Step], lost: int | None = None) -> list[Any] | None:
    """None where PyTorch raises."""
    try:
        return Program(steps, None, lost).run()
    except (RuntimeError, IndexError):
        return None


def find_lost(steps: list[Step]) -> int | None:
    """The last write behind a read, or the last one."""
    writes = [place for place, step in enumerate(steps) if step.call in WRITES]
    read = [place for place, step in enumerate(steps) if step.call in READS]
    behind = [place for place in writes if read and place > read[0]]
    return max(behind or writes, default=None)


def is_near(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(is_near, found, wanted))
    return abs(found - wanted) <= ALLOWED * (1 + abs(wanted))


def check(steps: list[Step], wanted: list[Any], budget: int) -> tuple[str, str]:
    """Whether it is equal, refused or failed, and how."""
    try:
        found = Program(steps, budget).run()
    except koila.KoilaError as error:
        return "refused", str(error)
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()
    try:
        return ("equal", "") if is_near(found, wanted) else ("failed", "other numbers")
    except TypeError:
        return "failed", "other shapes"


def shrink(steps: list[Step], budget: int, detail: str) -> list[Step]:
    """Fewer calls that fail in the same way."""
    place = 0
    while place < len(steps):
        fewer = steps[:place] + steps[place + 1 :]
        wanted = run_plain(fewer)
        if wanted is not None and check(fewer, wanted, budget) == ("failed", detail):
            steps = fewer
        else:
            place += 1
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="programs")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of programs to run again")
    parser.add_argument("--minutes", type=float, help="ends after so long")
    parser.add_argument("--print", action="store_true", help="prints the calls of each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", koila.KoilaWarning)
    start = time.monotonic()
    problems: list[str] = []
    verdicts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    programs = 0
    for place, case in enumerate(() if options.only else CASES):
        wanted = run_plain(list(case))
        assert wanted is not None
        for budget in BUDGETS:
            verdict, detail = check(list(case), wanted, budget)
            if verdict != "equal":
                problems.append(f"case {place}, {budget} bytes: {verdict}: {detail}")
                print(problems[-1], flush=True)
    for number in options.only or range(options.count):
        if options.minutes and time.monotonic() - start > 60 * options.minutes:
            break
        numbers = random.Random(f"{options.seed} {number}")
        while True:
            steps = make_steps(numbers)
            lost = find_lost(steps)
            wanted = run_plain(steps)
            if wanted is None or lost is None:
                continue
            other = run_plain(steps, lost)
            if other is None or not is_near(other, wanted):
                break
        programs += 1
        if options.print:
            print(number, *steps, sep="\n  ")
        for budget in BUDGETS:
            verdict, detail = check(steps, wanted, budget)
            verdicts[verdict] += 1
            if verdict == "refused":
                refusals[detail.split("\n")[0]] += 1
            if verdict == "failed":
                calls = "\n  ".join(map(str, shrink(steps, budget, detail)))
                problems.append(f"program {number}, {budget} bytes: {detail}\n  {calls}")
                print(problems[-1], flush=True)
    for what, count in refusals.most_common():
        print(f"{count:5}  refused: {what}")
    words = ", ".join(f"{verdicts[kind]} {kind}" for kind in ("equal", "refused", "failed"))
    print(
        f"{programs} programs, {sum(verdicts.values())} runs: {words}; the control differs at each"
    )
    if not verdicts["equal"]:
        problems.append("no program was compared")
    conclude("random_writes.py", start, problems)


if __name__ == "__main__":
    main()
