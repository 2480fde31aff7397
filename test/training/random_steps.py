#!/usr/bin/env python3
"""Random steps that mix samples leave what plain PyTorch leaves, within their budget.

Usage: random_steps.py [--lazy | --parts] [--count N] [--seed S] [--only K...] [--minutes M]
                       [--state FILE] [--max-refused SHARE] [--counter LIBRARY] [--print]

Steps of random_models.py, in float64, are compiled in tiles or for a budget between the
smallest that works and the untiled peak. Gradients of all weights, the loss and running
statistics may be 1e-11 off relative to their norm, or a hundred times what a change of the
inputs in their last digits makes of them; counters not at all. What a step holds at most is
what is predicted, where that is exact, and within the budget.

With every step runs a control: the step accumulated over tiles, each with statistics and
pairs of its own. Steps at which that is not seen to differ are replaced by others before
koila sees them.

With --lazy a step goes through koila.lazy instead, three times, with a budget below what it
takes as a whole; every third has its loss read first. Without a warning it runs in tiles and
within the budget.

With --parts nothing mixes samples, and the budget is between the smallest that works and what
the smallest tile takes, so that the backward pass of a tile, of one sample in half of the
steps, runs in parts. The control loses what comes to the first half of the weights.

koila may refuse a step with a sentence, or run it whole and say why; those are counted, and
--max-refused bounds their share. --seed S --only K runs a step again. With --minutes the run
ends after so long; with --state it goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import pathlib
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import koila
import segments
from parts import find_least, lose
from random_models import Frozen, RandomStep, make_deep_step, make_step

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "test" / "oracle"), str(ROOT / "test" / "property")]
from conclude import conclude
from counter import Counter

BATCHES = (8, 13)
TILES = (1, 2, 4)
ALLOWED = segments.ALLOWED
# What tiles of their own have to differ by, relative to the gradients.
SENSITIVE = 1e-6
ATTEMPTS = 20
ASK_BUDGET = 0.5
# Source: CPUGeneratorImplState in ATen/CPUGeneratorImpl.cpp.
GENERATOR_BYTES = 5056


class Failed(Exception):
    """What is wrong with koila."""


class Verdict(NamedTuple):
    """Of a step: equal, refused or failed."""

    kind: str
    detail: str = ""


Check = Callable[[RandomStep, Counter, random.Random], list[str]]


def leave(step: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    return segments.leave(step) | {"loss": loss.detach()}


def run_plain(module: nn.Module, args: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What a step leaves in a copy of the module."""
    plain = copy.deepcopy(module)
    torch.manual_seed(5)
    loss = plain(*args)
    loss.backward()
    return leave(plain, loss)


def gap_of_control(module: nn.Module, args: tuple[Tensor, ...]) -> float:
    """By how much the gradients of tiles with statistics of their own differ."""
    module = copy.deepcopy(module)
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    plain, other = copy.deepcopy(module), module
    plain(*args).backward()
    segments.accumulate(other, args, 4)
    wanted, found = (
        {n: t for n, t in segments.leave(m).items() if n.startswith("gradient")}
        for m in (plain, other)
    )
    if not all(torch.isfinite(t).all() for t in [*wanted.values(), *found.values()]):
        return 0.0
    if sum(t.square().sum() for t in wanted.values()) < 1e-10:
        return 0.0
    return segments.distance(found, wanted)


def get_sensitive(seed: str) -> RandomStep:
    """The first step of this seed that PyTorch runs, and at which the control differs."""
    for attempt in range(ATTEMPTS):
        step = make_step(f"{seed}:{attempt}")
        torch.manual_seed(3)
        try:
            if gap_of_control(step.module, step.draw(13)) > SENSITIVE:
                return step
        except (RuntimeError, ValueError):
            continue
    raise AssertionError("no step of this seed mixes samples")


def conditioned(module: nn.Module, args: tuple[Tensor, ...], plain: dict[str, Tensor]) -> float:
    """How far what a step leaves is off where inputs differ in their last digits, or a tenth
    of how far where samples are added up in another order, as in tiles: a layer whose inputs
    hardly vary divides the rounding of their mean by that."""
    found, draws = 0.0, torch.Generator().manual_seed(0)  # run_plain() has a seed of its own
    for _ in range(8):
        moved = []
        for x in args:
            signs = torch.randint(2, x.shape, generator=draws) * 2 - 1
            moved.append(x * (1 + 2e-16 * signs) if x.is_floating_point() else x)
        found = max(found, segments.distance(run_plain(module, tuple(moved)), plain))
    for order in (
        torch.arange(len(args[0])).flip(0),
        torch.randperm(len(args[0]), generator=draws),
    ):
        off = segments.distance(run_plain(module, tuple(x[order] for x in args)), plain)
        # Of other losses the order of the samples is a part.
        found = max(found, off / 10 if off < 1e-8 else 0.0)
    return found


def is_rounding(
    off: float, module: nn.Module, args: tuple[Tensor, ...], plain: dict[str, Tensor]
) -> bool:
    """Whether what a step leaves may be so far off."""
    return off <= ALLOWED or off <= 100 * conditioned(module, args, plain)


def choose_budget(
    step: RandomStep, args: tuple[Tensor, ...], options: dict[str, Any], rng: random.Random
) -> int | None:
    """Between the smallest that works and the untiled peak; none if that is no more."""
    try:
        koila.compile(copy.deepcopy(step.module), *args, budget=1, **options)
    except koila.BudgetError as error:
        least = error.smallest_budget
    else:
        raise Failed("one byte is no budget")
    untiled = koila.analyze(copy.deepcopy(step.module), *args, mode="train", threads=1).peak
    assert least is not None and untiled is not None
    return least + int(rng.random() * (untiled - least)) if untiled > least else None


def run_twice(
    step: RandomStep,
    source: nn.Module,
    tiled: Any,
    args: tuple[Tensor, ...],
    plain: dict[str, Tensor],
    counter: Counter,
) -> int:
    """The bytes of the second of two calls, which finds gradients that are there. Raises
    Failed where one leaves in the source what is further off than rounding."""
    measured = 0
    for call in range(2):
        source.load_state_dict(step.module.state_dict())
        for weight in source.parameters():
            if weight.grad is not None:
                weight.grad.zero_()
        torch.manual_seed(5)
        measured, _, loss = counter.measure(tiled.train_step, args)
        off = segments.distance(leave(source, loss), plain)
        if not is_rounding(off, step.module, args, plain):
            raise Failed(f"batch {len(args[0])}, call {call}: {off:.1e} off")
    return measured


def check(step: RandomStep, counter: Counter, rng: random.Random) -> list[str]:
    """Raises Failed, or the KoilaError of a refusal; else notes of what was checked."""
    options: dict[str, Any] = {
        "mode": "train",
        "threads": 1,
        "guard": "raise",
        "check": False,
        "random": "full-batch-masks" if step.drops else "refuse",
    }
    first = rng.choice(BATCHES)
    args = step.draw(first)
    tile, budget = rng.choice(TILES), None
    if rng.random() < ASK_BUDGET:
        with contextlib.suppress(koila.UnpromisedError):
            budget = choose_budget(step, args, options, rng)
    size: dict[str, Any] = {"budget": budget} if budget else {"tile": tile, "budget": None}
    source = copy.deepcopy(step.module)
    tiled = koila.compile(source, *args, **size, **options)
    report = tiled.report
    notes = ["budgets" if budget else "tiles"]
    for batch in (first, *(b for b in BATCHES if b != first)):
        given = args if batch == first else step.draw(batch)
        plain = run_plain(step.module, given)
        measured = run_twice(step, source, tiled, given, plain, counter)
        # A step that draws starts with a copy of the generator's state.
        if step.drops and measured == GENERATOR_BYTES:
            continue
        if budget and batch == first and measured > budget:
            raise Failed(f"{measured} bytes, the budget is {budget}")
        if batch == first and report.exact and measured != report.peak:
            raise Failed(f"{size}: exactly {report.peak} bytes, measured {measured}")
        if batch == first:
            notes.append("exact" if report.exact else "not exact")
            if not report.exact and all(entry["bound"] for entry in report.data["inexact"]):
                notes[-1] = "bounds"
                if measured > (report.peak or 0):
                    raise Failed(f"{size}: at most {report.peak}, measured {measured}")
    return notes


def get_deep(seed: str) -> RandomStep:
    """The first step of this seed that PyTorch runs, and at which the control differs."""
    for attempt in range(ATTEMPTS):
        step = make_deep_step(f"{seed}:{attempt}")
        torch.manual_seed(3)
        try:
            plain = segments.leave(step.module) | run_plain(step.module, step.draw(3))
        except (RuntimeError, ValueError):
            continue
        size = sum(float(t.square().sum()) for n, t in plain.items() if n.startswith("gradient"))
        if 1e-10 < size < float("inf") and segments.distance(lose(plain), plain) > SENSITIVE:
            return step
    raise AssertionError("no step of this seed has gradients")


def check_parts(step: RandomStep, counter: Counter, rng: random.Random) -> list[str]:
    """As check(), with backward passes in parts."""
    options: dict[str, Any] = {"mode": "train", "threads": 1, "guard": "raise", "check": False}
    if step.drops:
        options["random"] = "full-batch-masks"
    # Of a single image PyTorch's gradients of batch normalisation may be wrong.
    norms = any(isinstance(layer, Frozen) for layer in step.module.modules())
    args = step.draw(5 if norms else rng.choice((1, 5)))
    plain = run_plain(step.module, args)
    least = find_least(step.module, args, options)
    tiled_alone = options | {"recompute": "never"}
    tiles = find_least(step.module, args, tiled_alone)
    if least > tiles:
        raise Failed(f"at least {least} bytes, in tiles alone {tiles}")
    if least == tiles:
        return ["nothing is saved by parts"]
    budget = rng.randrange(least, tiles)
    source = copy.deepcopy(step.module)
    tiled = koila.compile(source, *args, budget=budget, **options)
    report = tiled.report
    measured = run_twice(step, source, tiled, args, plain, counter)
    # A step that draws starts with a copy of the generator's state.
    if step.drops and measured == GENERATOR_BYTES:
        return ["parts", "less than the state of the generator"]
    if measured > budget:
        raise Failed(f"{measured} bytes, the budget is {budget}")
    if report.exact and measured != report.peak:
        raise Failed(f"budget {budget}: exactly {report.peak} bytes, measured {measured}")
    if report.data.get("recompute") != "auto":
        # Tiles alone may fit below what a refusal names.
        try:
            koila.compile(copy.deepcopy(step.module), *args, budget=budget, **tiled_alone)
        except koila.BudgetError:
            raise Failed(f"budget {budget}: not in parts") from None
        return ["nothing is saved by parts"]
    return ["parts", "exact" if report.exact else "not exact"]


class Whole(koila.KoilaError):
    """Why koila.lazy has run a step whole."""


def check_lazy(step: RandomStep, counter: Counter, rng: random.Random) -> list[str]:
    """As check() through koila.lazy; raises Whole for a step that is announced as one."""
    args = step.draw(13)
    plain = run_plain(step.module, args)
    reads = rng.random() < 0.3
    left: list[Tensor] = []

    def run(module: nn.Module, budget: int | str) -> None:
        loss = module(*koila.lazy(*args, batch=0, budget=budget))
        if reads:
            loss.item()
        loss.backward()
        left[:] = [torch.tensor(loss.item())]

    whole = copy.deepcopy(step.module)
    torch.manual_seed(5)
    run(whole, "1GiB")
    last = koila.last()
    if last is None or last.peak_bytes is None:
        raise Whole("it cannot be traced for another number of samples")
    budget = int(last.peak_bytes * (0.5 + 0.45 * rng.random()))
    module, said = copy.deepcopy(step.module), []
    # The second call finds gradients, and may read the loss in another way than the first:
    # that is planned once.
    calls = range(3)
    for call in calls:
        module.load_state_dict(step.module.state_dict())
        module.zero_grad(set_to_none=call == 0)
        torch.manual_seed(5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            measured = counter.measure(run, (module, budget))[0]
        said += [str(entry.message) for entry in caught if entry.category is koila.KoilaWarning]
        off = segments.distance(leave(module, left[0]), plain)
        if not is_rounding(off, step.module, args, plain):
            raise Failed(f"budget {budget}, call {call}: {off:.1e} off")
        last = koila.last()
        assert last is not None
        if last.tile is None and not said:
            raise Failed(f"budget {budget}, call {call}: whole, and nothing was said")
        # Gradients and plans that the first calls make are no part of the budget.
        if not said and call == calls[-1] and measured > budget + GENERATOR_BYTES * step.drops:
            raise Failed(f"{measured} bytes, the budget is {budget}, predicted {last}")
    if last.tile is None:
        raise Whole(said[0].split("runs whole: ")[-1])
    if said:
        return ["tiles through koila.lazy", "announced"]
    exact = measured == last.peak_bytes
    return ["tiles through koila.lazy", "within the budget", *(["as predicted"] if exact else [])]


def judge(seed: str, counter: Counter, check: Check) -> tuple[Verdict, list[str], RandomStep]:
    step = (get_deep if check is check_parts else get_sensitive)(seed)
    torch.manual_seed(4)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            notes = check(step, counter, random.Random(seed))
    except Failed as failure:
        return Verdict("failed", str(failure)), [], step
    except koila.KoilaError as error:
        return Verdict("refused", str(error).splitlines()[0]), [], step
    except Exception as error:
        return Verdict("failed", f"{type(error).__name__}: {error}"), [], step
    return Verdict("equal"), notes, step


def get_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counter", default=ROOT / "build/lib/libkoila-counter.so")
    parser.add_argument("--lazy", action="store_true", help="through koila.lazy")
    parser.add_argument("--parts", action="store_true", help="of which nothing mixes samples")
    parser.add_argument("--count", type=int, default=100, help="steps")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int, nargs="+", metavar="K", help="these steps")
    parser.add_argument("--minutes", type=float, default=60, help="no more than these")
    parser.add_argument("--state", type=pathlib.Path, help="a file with how many are done")
    parser.add_argument("--max-refused", type=float, default=0.1, metavar="SHARE")
    parser.add_argument("--print", action="store_true", help="each verdict")
    return parser.parse_args()


def main() -> None:
    options = get_options()
    start = time.monotonic()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch._C._jit_set_profiling_mode(False)
    counter = Counter(options.counter)
    done = 0
    if options.state and options.state.exists():
        done = int(options.state.read_text())
    verdicts, refusals, notes = (collections.Counter[str]() for _ in range(3))
    problems: list[str] = []
    numbers = options.only or range(done, options.count)
    for number in numbers:
        if time.monotonic() - start > options.minutes * 60:
            break
        way = check_parts if options.parts else check_lazy if options.lazy else check
        verdict, found, step = judge(f"{options.seed}:{number}", counter, way)
        verdicts[verdict.kind] += 1
        notes.update(found)
        if verdict.kind == "refused":
            refusals[verdict.detail.split(" at ")[0]] += 1
        if verdict.kind == "failed":
            problems.append(f"--seed {options.seed} --only {number}: {verdict.detail}")
        if options.print or verdict.kind == "failed":
            print(
                number, verdict.kind, verdict.detail, ", ".join([*step.parts, *found]), flush=True
            )
        if options.state and not options.only:
            options.state.write_text(str(number + 1))
        if sum(verdicts.values()) % 50 == 0:
            words = ", ".join(f"{count} {kind}" for kind, count in verdicts.items())
            print(f"{number + 1} of {options.count}: {words}", file=sys.stderr, flush=True)
    for what, count in refusals.most_common():
        print(f"{count:5}  refused: {what}")
    for what, count in notes.most_common():
        print(f"{count:5}  {what}")
    total = sum(verdicts.values())
    words = ", ".join(f"{verdicts[kind]} {kind}" for kind in ("equal", "refused", "failed"))
    print(f"{total} steps: {words}; the control differs at each")
    if not verdicts["equal"]:
        problems.append("no step was compared")
    if verdicts["refused"] > options.max_refused * total:
        problems.append(f"more than {options.max_refused:.0%} are refused")
    conclude("random_steps.py", start, problems)


if __name__ == "__main__":
    main()
