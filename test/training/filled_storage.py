#!/usr/bin/env python3
"""Programs that fill tensors which they have made give in tiles what they give untiled.

Usage: filled_storage.py [--count N] [--seed S] [--only K...] [--print]
       filled_storage.py --only K --save MODEL.pt

Random programs make tensors of zeros, write what a recurrent cell gives to parts of them,
add to parts, read some in between, and now and then take a mean over the batch, which is
whole: in the middle of what is written, before it, after it. Each is compiled as inference
and as a training step, in float64, in tiles of 2 and 8, and run at batches that tiles divide
and that they do not; steps also with the smallest budget that works, where a backward pass
may be in parts. Results and gradients of the weights may be 1e-12 off.

koila may refuse a program with a sentence, or run it whole; --tiled bounds the share that is
in tiles. With every program runs a control: the same without its last write, which has to
differ.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import sys
import warnings

import torch
from torch import Tensor, nn

import koila

STEPS, WIDTH, CLASSES = 4, 6, 3
# The last tile of 13 and 9 is one sample.
BATCHES, TILES, ALLOWED = (8, 13, 9), (2, 8), 1e-12

# What copies several samples, and is a view of one.
START = [
    "h = torch.tanh(self.cell(x[:, 0])); o = self.head(h)",
    f"b = torch.zeros(x.shape[0], {CLASSES}, dtype=x.dtype)",
    f"t = torch.zeros({STEPS}, x.shape[0], {CLASSES}, dtype=x.dtype)",
    "b[:, 1] = o[:, 1]; t[1] = o",
]
CASES = [
    ["c = b.t().contiguous()", "b[:, 0] = o[:, 0]", "return b, c"],
    ["c = b.t().reshape(-1)", "b[:, 0] = o[:, 0]", "return b, c * 2"],
    ["c = t.transpose(0, 1).flatten(1)", "t[0] = o * 2", "c.add_(1)", "return t, c"],
    ["c = t.transpose(0, 1)[:, 1:3].contiguous()", "c[:, 0] = o * 2", "return t, c"],
    ["c = x.transpose(0, 1).contiguous()", "c[0] = c[1] + 1", "return c, x * 2"],
    ["c = b.t().contiguous()", "b[:, 0] = o[:, 0]", "return (b * c.t() + t[1]).pow(2).sum()"],
    # What is written to a tensor is read through a view of before.
    [
        *["h = torch.tanh(self.cell(h)); o = self.head(h)"] * 2,
        "c = x[:, :, :3] * 2; v = c[:, :2]; c += o.unsqueeze(1)",
        "return o.cos().sum() + v.pow(2).sum()",
    ],
]
# Of these, training steps.
STEP_CASES = (5, 6)


class Writer:
    """The lines of one program, in which ``h`` is (B, WIDTH) and ``o`` (B, CLASSES)."""

    def __init__(self, seed: int, trains: bool):
        self.rng = random.Random(seed)
        self.trains = trains
        self.lines = ["h = x[:, 0].clone()"]
        self.buffers: list[str] = []
        # Whether the batch is the first dim.
        self.first: dict[str, bool] = {}
        self.writes: list[int] = []
        self.kept: list[str] = []

    def write(self) -> list[str]:
        for _ in range(self.rng.randrange(1, 3)):
            self.make_buffer()
        self.depth = self.rng.choice([0, 3]) if self.trains else 0
        for _ in range(self.depth):
            self.lines.append("h = torch.tanh(self.cell(h)); a = self.head(h)")
        for step in range(STEPS):
            self.lines.append(f"h = torch.tanh(self.cell(x[:, {step}] + h)); o = self.head(h)")
            self.fill(step)
            if self.rng.random() < 0.3:
                self.fill(self.rng.randrange(STEPS))
            if self.rng.random() < 0.25:
                self.meet()
            if self.rng.random() < 0.3:
                self.read()
        self.finish()
        return self.lines

    def make_buffer(self) -> None:
        name = f"b{len(self.buffers)}"
        self.first[name] = self.rng.random() < 0.5
        shape = f"x.shape[0], {STEPS}" if self.first[name] else f"{STEPS}, x.shape[0]"
        make = self.rng.choice(["zeros({})", "ones({})", "full(({}), 0.5)"])
        text = make.format(f"{shape}, {CLASSES}")
        self.lines.append(f"{name} = torch.{text[:-1]}, dtype=x.dtype)")
        self.buffers.append(name)

    def part(self, name: str, step: int) -> str:
        return f"{name}[:, {step}]" if self.first[name] else f"{name}[{step}]"

    def fill(self, step: int) -> None:
        name = self.rng.choice(self.buffers)
        part = self.part(name, step)
        self.writes.append(len(self.lines))
        self.lines.append(
            self.rng.choice(
                [
                    f"{part} = o",
                    f"{part} = o * {self.rng.randrange(1, 4)}",
                    f"{part}[:, 1:] = o[:, 1:]",
                    f"{part}.copy_(o.relu())",
                    f"{part} += o",
                    f"{part}.add_(o, alpha=0.5)",
                    f"{part}[:, 0] = 0.25",
                ]
            )
        )

    def meet(self) -> None:
        """A mean over the batch, of what gradients do not flow through in a step."""
        source = self.rng.choice(["h", "o", *self.buffers])
        dim = 0 if source in "ho" or self.first[source] else 1
        self.lines.append(f"h = h + 0.1 * {source}.detach().mean({dim}).sum()")

    def read(self) -> None:
        name = self.rng.choice(self.buffers)
        if self.rng.random() < 0.5:
            # Copies of several samples, and views of one.
            rows = "b.transpose(0, 1)" if self.first[name] else "b"
            kept = f"k{len(self.kept)}"
            way = self.rng.choice([f"{rows}.contiguous()", f"{rows}.reshape(-1, {CLASSES})"])
            self.lines.append(f"{kept} = {way.replace('b', name, 1)}")
            self.kept.append(kept)
            if self.rng.random() < 0.3:
                self.lines.append(f"{kept}.mul_(2)")
            return
        self.lines.append(f"o = o + 0.5 * {self.part(name, self.rng.randrange(STEPS))}")

    def finish(self) -> None:
        reads = []
        for name in self.buffers:
            rows = f"{name}[:, 1:]" if self.first[name] else f"{name}[1:]"
            reads.append(
                self.rng.choice(
                    [
                        f"{rows}.reshape(-1, {CLASSES}).pow(2)",
                        f"({name} * 0.3).sin()",
                        f"{name}.pow(2)",
                    ]
                )
            )
        reads += [f"{name}.pow(2)" for name in self.kept]
        reads += ["a.cos()"] if self.depth else []
        if self.trains:
            self.lines.append("return " + " + ".join(f"{read}.sum()" for read in reads) + " / 7")
        else:
            self.lines.append("return " + ", ".join([*self.buffers, *self.kept, "o"]))


def build(lines: list[str]) -> nn.Module:
    """A module whose forward is these lines."""
    text = "def forward(self, x):\n" + "".join(f"    {line}\n" for line in lines)
    scope: dict = {"torch": torch}
    exec(text, scope)
    made = type("Program", (nn.Module,), {"forward": scope["forward"]})()
    torch.manual_seed(0)
    made.cell, made.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    return made.double()


def draw(batch: int) -> Tensor:
    torch.manual_seed(batch)
    scale = torch.linspace(0.5, 2, batch)[:, None, None]
    return (torch.randn(batch, STEPS, WIDTH) * scale).double()


def leave(module: nn.Module, result) -> list[Tensor]:
    results = result if isinstance(result, tuple) else (result,)
    gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
    return [tensor.detach().clone() for tensor in (*results, *gradients)]


def distance(one: list[Tensor], other: list[Tensor]) -> float:
    assert len(one) == len(other), (len(one), len(other))
    return max(
        float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in zip(one, other, strict=True)
    )


def run_plain(lines: list[str], x: Tensor, trains: bool) -> list[Tensor]:
    module = build(lines)
    with torch.set_grad_enabled(trains):
        result = module(x)
    if trains:
        result.backward()
    return leave(module, result)


def find_smallest_budget(lines: list[str]) -> int | None:
    """In bytes, for a training step; None where no budget is known to work."""
    try:
        koila.compile(build(lines), draw(8), budget=1, mode="train", check=False)
    except koila.BudgetError as error:
        return error.smallest_budget
    except koila.CompileError:
        pass
    return None


def check_random(seed: int, prints: bool) -> str:
    trains = seed % 2 == 0
    writer = Writer(seed, trains)
    lines = writer.write()
    if prints:
        print("\n".join(f"    {line}" for line in lines))
    last = writer.writes[-1]
    without = [line for index, line in enumerate(lines) if index != last]
    x = draw(8)
    if distance(run_plain(without, x, trains), run_plain(lines, x, trains)) < 1e6 * ALLOWED:
        return "blind"
    return check(str(seed), lines, trains, prints)


def check(name: str, lines: list[str], trains: bool, prints: bool) -> str:
    """What became of a program: `tiled`, `barriers`, `refused`, or `WRONG`."""
    verdict = "barriers"
    sizes: list[dict] = [{"tile": tile, "budget": None} for tile in TILES]
    if trains and (smallest := find_smallest_budget(lines)) is not None:
        sizes.append({"budget": smallest})
    for size in sizes:
        module = build(lines)
        options: dict = {"mode": "train", "recompute": "auto"} if trains else {}
        try:
            with torch.set_grad_enabled(trains):
                tiled = koila.compile(module, draw(8), guard="raise", **size, **options)
        except koila.CompileError as error:
            # koila compares what it has written, too; and what works, works.
            if "off by" in str(error) or isinstance(error, koila.BudgetError):
                print(f"    {name}: {size}: {error}")
                return "WRONG"
            if prints:
                print(f"    {str(error)[:600]}")
            return "refused"
        if not any(remark.name == "Barrier" for remark in tiled.remarks):
            verdict = "tiled"
        for batch in BATCHES:
            x = draw(batch)
            module.zero_grad()
            with torch.set_grad_enabled(trains):
                result = tiled.train_step(x) if trains else tiled(x)
            gap = distance(leave(module, result), run_plain(lines, x, trains))
            if not gap <= ALLOWED or not torch.equal(x, draw(batch)):
                print(f"    {name}: {size}, batch {batch}: {gap:.1e} off")
                return "WRONG"
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--print", action="store_true", dest="prints")
    parser.add_argument("--tiled", type=float, default=0.0)
    parser.add_argument("--save", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.save:
        (seed,) = arguments.only
        module = build(Writer(seed, seed % 2 == 0).write())
        torch.jit.trace(module, draw(8), check_trace=False).save(str(arguments.save))
        return 0
    warnings.simplefilter("ignore")
    counts: dict[str, int] = {}
    for number, case in enumerate(CASES):
        verdict = check(f"case {number}", START + case, number in STEP_CASES, arguments.prints)
        counts[verdict] = counts.get(verdict, 0) + 1
    for seed in arguments.only or range(arguments.seed, arguments.seed + arguments.count):
        verdict = check_random(seed, arguments.prints)
        if arguments.prints:
            print(f"{seed}: {verdict}")
        counts[verdict] = counts.get(verdict, 0) + 1
    seen = sum(counts.values()) - counts.get("blind", 0)
    enough = counts.get("tiled", 0) >= arguments.tiled * seen
    print(", ".join(f"{counts[key]} {key}" for key in sorted(counts)))
    wrong = counts.get("WRONG", 0)
    print(f"{seen} programs, {wrong} wrong, {'enough' if enough else 'TOO FEW'} in tiles")
    return 0 if enough and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
