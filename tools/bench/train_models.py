#!/usr/bin/env python3
"""torchvision's classification models in training mode through koila.lazy in half their memory.

Usage: train_models.py [--models NAME...] [--most-mib 2048] [--draws 5] [--budgets half floor]
                       [--kept FILE] [--write FILE] [--one NAME]

A step of each model of lazy_models.py, in training mode, runs plainly and through
`koila.lazy`: at half of what the whole batch needs, and at the least that koila can do
and a quarter more. The batch is doubled until the step takes ten times the largest weight, or
the next would take more than --most-mib; near that it grows in smaller steps.

In float64 all gradients together, and the running statistics, may be 1e-11 off plain PyTorch's,
relative to their L2 norm. In float32 gradients may be three times as far from those as plain
PyTorch's are, and statistics twice: by the median of --draws batches, since one ReLU that
turns at another sign is 1e-3 of all gradients. Each step runs in two tiles or more without a
warning, counters of batches are equal, and the measured peak is within the budget. Exits with
1 otherwise. Where weights are most of a model, each tile at the floor reads them all, and steps
take hours: --budgets half leaves these out. With --kept, models of earlier runs are taken from
that file, and new ones added.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import time
import warnings
from statistics import median

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models"), str(ROOT / "test" / "oracle")]

import torch
from torch import nn
from torch.nn import functional as F

import koila
from counter import Counter
from lazy_models import CLASSES, MODELS, make_model

# Seconds; steps of a model that is mostly weights take minutes, and there are a dozen.
TIMEOUT = 20000
MIB = 1 << 20
ALLOWED = 1e-11


class Step(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images), labels)


def make_batch(name, batch, seed=0):
    torch.manual_seed(2 + seed)
    size = MODELS[name]
    images = torch.randn(batch, 3, size, size, dtype=torch.float64)
    # Samples that differ in more than noise.
    images = images * torch.linspace(0.5, 2, batch, dtype=torch.float64).view(-1, 1, 1, 1)
    # The same in both types, so that all differences are those of the step.
    return images.float().double(), torch.randint(CLASSES, (batch,))


def prepare(name, dtype):
    """The model with normalisations that matter, and gradients that are there."""
    model = make_model(name, torch.float64)
    torch.manual_seed(4)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model = model.to(dtype).train()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return model


def leave(model):
    """Gradients in float64 as one vector, statistics as another, and counters."""
    gradients = [p.grad.double().flatten() for p in model.parameters()]
    statistics = [b.double().flatten() for b in model.buffers() if b.is_floating_point()]
    counters = [int(b) for b in model.buffers() if b.dtype == torch.int64 and b.ndim == 0]
    return torch.cat(gradients), torch.cat([*statistics, torch.ones(1).double()]), counters


def distance(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def run(model, inputs, counter):
    """The bytes and the seconds of a step."""

    def step():
        images, labels = inputs
        F.cross_entropy(model(images), labels).backward()

    torch.manual_seed(1)
    start = time.process_time()
    peak = counter.measure(step)[0]
    return peak, time.process_time() - start


def run_lazy(model, inputs, budget, counter):
    """The bytes and seconds of a second step, the seconds that the first took more, which
    are those of planning, what koila says of the second, and its warnings."""
    state = copy.deepcopy(model.state_dict())
    seconds = []

    def step():
        images, labels = koila.lazy(*inputs, batch=0, budget=budget)
        F.cross_entropy(model(images), labels).backward()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model.load_state_dict(state)
            for weight in model.parameters():
                weight.grad.zero_()
            torch.manual_seed(1)
            start = time.process_time()
            peak = counter.measure(step)[0]
            seconds.append(time.process_time() - start)
    said = [str(entry.message) for entry in caught if entry.category is koila.KoilaWarning]
    # A trace of a few samples may take more than the floor, once.
    said = [text for text in said if "to plan it the first step ran a few samples" not in text]
    return peak, seconds[1], seconds[0] - seconds[1], koila.last(), said


def find_floor(model, inputs):
    """The smallest budget in bytes, as koila names it where it is asked for less. What
    koila.compile refuses, as Swin, for which PyTorch's executor draws other numbers from its
    second run on, has what koila.lazy takes where it is given less."""
    try:
        koila.compile(
            Step(model),
            *inputs,
            mode="train",
            budget="1KiB",
            threads=1,
            random="full-batch-masks",
            check=False,
        )
    except koila.BudgetError as error:
        return error.smallest_budget
    except koila.CompileError:
        images, labels = koila.lazy(*inputs, batch=0, budget="1KiB")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            F.cross_entropy(model(images), labels).backward()
        how = koila.last()
        assert how.tile, how
        return how.peak_bytes
    raise AssertionError("a step within 1 KiB")


def choose_batch(name, most):
    """The first power of two whose step takes ten times the largest weight; where that takes
    more than half of ``most``, the first in eighths behind the one before."""
    model = prepare(name, torch.float32)
    wanted = 10 * max(p.numel() * 4 for p in model.parameters())

    def measure(batch):
        images, labels = make_batch(name, batch)
        return koila.analyze(Step(model), images.float(), labels, mode="train", threads=1).peak

    batch = 8
    while (peak := measure(batch)) < wanted and 2 * peak <= most:
        batch *= 2
    if batch < 16 or peak < wanted or 2 * peak <= most:
        return batch
    between = range(9 * batch // 16, batch, batch // 16)
    return next((fewer for fewer in between if measure(fewer) >= wanted), batch)


def run_draw(name, dtype, batch, seed, budgets, which_budgets, counter):
    """Rows of one batch: a plain step in float64, one in ``dtype``, and one for each of
    ``which_budgets``, which are found first where there are none."""
    images, labels = make_batch(name, batch, seed)
    exact = prepare(name, torch.float64)
    run(exact, (images, labels), counter)
    wanted = leave(exact)
    del exact
    inputs = images.to(dtype), labels
    start = prepare(name, dtype)
    if not budgets:
        report = koila.analyze(Step(copy.deepcopy(start)), *inputs, mode="train", threads=1)
        budgets["untiled"], budgets["half"] = report.peak, report.peak // 2
        if "floor" in which_budgets:
            floor = find_floor(copy_of(start), inputs)
            budgets["floor"] = floor + floor // 4
    plain = copy_of(start)
    untiled = run(plain, inputs, counter)[1]
    theirs = leave(plain)
    del plain
    for which in which_budgets:
        model = copy_of(start)
        peak, seconds, planning, last, said = run_lazy(model, inputs, budgets[which], counter)
        ours = leave(model)
        yield {
            "dtype": str(dtype).removeprefix("torch."),
            "which": which,
            "budget": budgets[which],
            "untiled": budgets["untiled"],
            "said": " ".join(said[0].split()) if said else "",
            "tiles": -(-batch // last.tile) if last.tile else 1,
            "predicted": last.peak_bytes,
            "peak": peak,
            "error": distance(ours[0], wanted[0]),
            "plain": distance(theirs[0], wanted[0]),
            "statistics": distance(ours[1], wanted[1]),
            "plain statistics": distance(theirs[1], wanted[1]),
            "counters": ours[2] == wanted[2] == theirs[2],
            "time": seconds / untiled,
            "planning": planning,
        }


def copy_of(model):
    """A copy with gradients of its own, which are there and zero."""
    copied = copy.deepcopy(model)
    for weight in copied.parameters():
        weight.grad = torch.zeros_like(weight)
    return copied


def run_one(name, most, count, which_budgets):
    torch.set_num_threads(1)
    counter = Counter(ROOT / "build/lib/libkoila-counter.so")
    batch = choose_batch(name, most)
    rows = []
    for dtype, draws in ((torch.float64, 1), (torch.float32, count)):
        budgets, found = {}, []
        for seed in range(draws):
            found += run_draw(name, dtype, batch, seed, budgets, which_budgets, counter)
        for which in which_budgets:
            part = [row for row in found if row["which"] == which]
            rows.append(combine(part))
    return {"batch": batch, "draws": count, "rows": rows}


def combine(draws):
    """One row of several draws: errors and times by their median, the rest by the worst."""
    row = dict(draws[0])
    for name in ("error", "plain", "statistics", "plain statistics", "time"):
        row[name] = median(draw[name] for draw in draws)
    row["planning"] = max(draw["planning"] for draw in draws)
    row["peak"] = max(draw["peak"] for draw in draws)
    row["tiles"] = min(draw["tiles"] for draw in draws)
    row["said"] = next((draw["said"] for draw in draws if draw["said"]), "")
    row["counters"] = all(draw["counters"] for draw in draws)
    return row


def judge(name, found):
    wrong = []
    for row in found["rows"]:
        where = f"{name}, {row['dtype']}, {row['which']}"
        if row["said"] or row["tiles"] < 2:
            wrong.append(f"{where}: {row['tiles']} tiles, {row['said'] or 'whole'}")
        # float64 says what is wrong, float32 whether rounding is worse than PyTorch's.
        limits = dict.fromkeys(("error", "statistics"), ALLOWED)
        if row["dtype"] == "float32":
            eps = torch.finfo(torch.float32).eps
            limits = {"error": 3 * row["plain"], "statistics": 2 * row["plain statistics"] + eps}
        for what, limit in limits.items():
            if not row[what] <= limit:
                wrong.append(f"{where}: {what} {row[what]:.1e}, at most {limit:.1e}")
        if not row["counters"]:
            wrong.append(f"{where}: counters differ")
        if row["peak"] > row["budget"]:
            wrong.append(f"{where}: {row['peak']:,} bytes, the budget is {row['budget']:,}")
    return wrong


def describe(row):
    exact = "as predicted" if row["peak"] == row["predicted"] else f"{row['predicted']:,} predicted"
    return (
        f"{row['tiles']} tiles, {row['peak'] / row['untiled']:.1%} of the untiled peak ({exact}), "
        f"{row['error']:.1e} off, plain {row['plain']:.1e}, {row['time']:.2f} of the time, planned "
        f"in {row['planning']:.0f} s"
    )


def table(rows):
    yield (
        "| model | images | type | budget | tiles | measured | of the untiled peak | error | "
        "plain | time | planning |"
    )
    yield "|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, found in rows.items():
        for row in found["rows"]:
            plain = f"{row['plain']:.1e}" if row["plain"] else "0"
            yield (
                f"| {name} | {found['batch']} | {row['dtype']} | {row['which']} | {row['tiles']} | "
                f"{row['peak'] / MIB:.1f} MiB | {row['peak'] / row['untiled']:.1%} | "
                f"{row['error']:.1e} | {plain} | {row['time']:.2f} | {row['planning']:.0f} s |"
            )


def page(rows):
    parts = [(row["peak"], row["predicted"]) for part in rows.values() for row in part["rows"]]
    exact = sum(measured == predicted for measured, predicted in parts)
    counts = [found["draws"] for found in rows.values()]
    draws = " to ".join(map(str, sorted({min(counts), max(counts)})))
    lines = [
        "# torchvision's classification models in training mode through `koila.lazy`",
        "",
        "<!-- Written by tools/dev/write_results.py train-models; do not edit. -->",
        "",
        "A step of images of 64 × 64 (inception_v3: 96 × 96; vit_b_16 built for 64 × 64; "
        f"{CLASSES} classes), one thread, the default heap. *half*: the budget is half of what "
        "the step of the whole batch takes; *floor*: it is the smallest that koila can do, "
        "and a quarter more. *Error* is the distance of all "
        "gradients together from those of plain PyTorch in float64, relative to their L2 norm, and "
        f"*plain* that of plain PyTorch; in float32 the medians of {draws} batches, since one ReLU "
        "that turns at another sign is 1e-3 of all gradients. *Time* is that of the second step "
        "to that of plain PyTorch, and *planning* what the first takes more. Nothing was "
        "announced, statistics are within their bars and counters of batches equal. The measured "
        f"peak is the predicted one in {exact} of {len(parts)} rows.",
        "",
        *table(rows),
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--most-mib", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=5, help="batches of float32")
    parser.add_argument(
        "--budgets", nargs="+", choices=("half", "floor"), default=["half", "floor"]
    )
    parser.add_argument("--kept", type=pathlib.Path, help="results of earlier runs, as JSON")
    parser.add_argument("--write", type=pathlib.Path, help="a page of results")
    parser.add_argument("--one", help="this model alone, as JSON")
    options = parser.parse_args()
    if options.one:
        most = options.most_mib * MIB
        print(json.dumps(run_one(options.one, most, options.draws, options.budgets)))
        return 0
    models, wrong = {}, []
    kept = options.kept
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for name in options.models:
        if name not in known:
            limits = ["--most-mib", str(options.most_mib), "--draws", str(options.draws)]
            limits += ["--budgets", *options.budgets]
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, *limits],
                stdout=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT,
            )
            if done.returncode:
                wrong.append(f"{name}: failed, exit status {done.returncode}")
                print("wrong:", wrong[-1], flush=True)
                continue
            known[name] = json.loads(done.stdout.splitlines()[-1])
            if kept is not None:
                kept.write_text(json.dumps(known))
        found = models[name] = known[name]
        problems = judge(name, found)
        wrong += problems
        for row in found["rows"]:
            where = f"{name} {row['dtype']} {row['which']} batch {found['batch']}"
            print(f"{where}: {describe(row)}", flush=True)
        for line in problems:
            print("wrong:", line, flush=True)
    print(f"{len(models)} models, {len(wrong)} problems")
    if options.write:
        options.write.write_text(page(models))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
