#!/usr/bin/env python3
"""Gradients that PyTorch lets share memory are those of plain PyTorch in tiles.

Usage: shared_gradients.py --counter libkoila-counter.so

PyTorch hands a leaf the gradient that comes first as it is, also if it is a view of what
another leaf gets, and adds the next one to it in place. Each case is a step whose weights,
or tensors on the way, get such views; it is compiled in float64 in tiles of 1, 2 and 4, run
twice, and may be 1e-12 off plain PyTorch's gradients, relative to their norm; where the
predicted peak is called exact, the measured one is that. The control is
plain PyTorch itself, one sample after the other: of weights that share memory it is wrong,
and as soon as no case shows that there is nothing to protect from.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys

import torch
from torch import Tensor, nn

import koila

sys.path[:0] = [os.path.join(os.path.dirname(__file__), *p) for p in [[], ["..", "oracle"]]]

from counter import Counter  # noqa: E402

BATCH, STEPS, WIDTH, TILES, ALLOWED = 7, 5, 4, (1, 2, 4), 1e-12


class Step(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.first = nn.Parameter(torch.randn(STEPS, WIDTH))
        self.second = nn.Parameter(torch.randn(STEPS, WIDTH))
        self.row = nn.Parameter(torch.randn(WIDTH))
        self.inner, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(STEPS)
        self.head = nn.Linear(STEPS * WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return CASES[self.name](self, x).sin().sum()


def two_of_one_sample(step: Step, x: Tensor) -> Tensor:
    """As positions and kinds of words."""
    return step.inner(x + step.first.unsqueeze(0) + step.second.unsqueeze(0))


def expanded(step: Step, x: Tensor) -> Tensor:
    first, second = step.first.expand(x.shape[0], -1, -1), step.second.expand(x.shape[0], -1, -1)
    return step.inner(x) + (first + second)


def part_and_whole(step: Step, x: Tensor) -> Tensor:
    """As the token of a class, in front of samples, and positions."""
    token = step.row.expand(x.shape[0], 1, -1)
    return torch.cat([token, step.inner(x)[:, 1:]], 1) + step.first.unsqueeze(0)


def behind_statistics(step: Step, x: Tensor) -> Tensor:
    x = step.norm(step.inner(x))
    return x + step.first.unsqueeze(0) + step.second.unsqueeze(0)


def two_orders(step: Step, x: Tensor) -> Tensor:
    """The gradient of the sum goes to both, a part of each to one tensor."""
    one, two = step.norm(step.inner(x)).split(2, 2)
    return torch.cat([one, two], 2) + torch.cat([two, one], 2)


def reshaped(step: Step, x: Tensor) -> Tensor:
    x = step.norm(step.inner(x))
    flat = x.flatten(1) + x.transpose(1, 2).reshape(x.shape[0], -1)
    return flat.view(x.shape) + x * step.first.unsqueeze(0)


def twice_in_one_batch(step: Step, x: Tensor) -> Tensor:
    """The second pass over the samples finds the gradients that the first has left."""

    def run(y: Tensor) -> Tensor:
        h = step.head((y + step.first.unsqueeze(0) + step.second.unsqueeze(0)).flatten(1))
        return (h - h.mean(0)) / h.std(0)

    one, two = run(x), run(x)
    return one.t() @ two


MAKERS = (
    twice_in_one_batch,
    two_of_one_sample,
    expanded,
    part_and_whole,
    behind_statistics,
    two_orders,
    reshaped,
)
CASES = {case.__name__: case for case in MAKERS}


def leave(step: nn.Module) -> dict[str, Tensor]:
    found = {n: w.grad.clone() for n, w in step.named_parameters() if w.grad is not None}
    step.zero_grad()
    return found


def distance(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    assert found.keys() == wanted.keys()
    whole = torch.cat([tensor.flatten() for tensor in wanted.values()]).norm()
    return max(float((found[name] - wanted[name]).norm() / whole) for name in wanted)


def accumulate(step: nn.Module, x: Tensor) -> dict[str, Tensor]:
    for row in x.split(1):
        step(row).backward()
    return leave(step)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    counter = Counter(parser.parse_args().counter)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    wrong, caught = 0, []
    for name in CASES:
        torch.manual_seed(0)
        step, x = Step(name), torch.randn(BATCH, STEPS, WIDTH)
        step(x).backward()
        wanted = leave(step)
        twice = {n: 2 * gradient for n, gradient in wanted.items()}
        mixes = "norm.weight" in wanted
        if not mixes and distance(accumulate(copy.deepcopy(step), x), wanted) > 1e-3:
            caught.append(name)
        worst, off = 0.0, 0
        for tile in TILES:
            source = copy.deepcopy(step)
            tiled = koila.compile(
                source,
                x,
                mode="train",
                tile=tile,
                budget=None,
                threads=1,
                guard="raise",
                check=False,
            )
            tiled.train_step(x)
            measured = counter.measure(tiled.train_step, (x,))[0]
            worst = max(worst, distance(leave(source), twice))
            report = tiled.report
            off = max(off, abs(measured - report.peak) if report.exact else 0)
        right = worst <= ALLOWED and off == 0
        wrong += not right
        print(
            f"{name:20} {worst:.1e} off, {off} bytes from what is called exact: "
            f"{'right' if right else 'WRONG'}"
        )
    print(f"{len(CASES)} steps, {wrong} wrong; plain PyTorch, one sample after the other: {caught}")
    return 1 if wrong or not caught else 0


if __name__ == "__main__":
    sys.exit(main())
