#!/usr/bin/env python3
"""What the first step through koila.lazy takes, with torchvision's models.

Usage: lazy_first_step.py [--models NAME...] [--batch 8] [--threads 2]
                          [--cpu] [--limit 1.5] [--check] [--write FILE] [--profile]

Each model trains in float32, with batch normalisation, dropout and stochastic
depth in eval mode as in lazy_models.py, in processes of its own: one with memory
for the whole batch, and one with a byte less than the whole needs. After a plain
step, which PyTorch needs to warm up, comes the first step through koila.lazy and
four more; the least of these is what a step takes. What the first takes more is
split into

    record   what each call returns, found without data
    trace    as TorchScript, compared on another number of samples
    import   TorchScript read by the compiler, once for each time it is asked
    analyse  what the whole batch needs
    rewrite  into tiles
    load     the tiled program written as TorchScript and loaded
    first    what is left: the first run of the new program

The compiler is asked again afterwards to tell import and load from the rest.
--cpu counts seconds of the CPU, which other work on the machine does not add to,
and needs --threads 1. With --check the exit code is 1 if a first step takes more than the limit, in
seconds. --profile shows the Python functions that the first step spends most in.
"""

import argparse
import contextlib
import cProfile
import json
import pathlib
import pstats
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "bench"), str(ROOT / "test" / "models")]

import torch
from torch.nn import functional as F

import koila
from koila import _compiler
from koila._plan import planner
from lazy_models import CLASSES, MODELS, WHOLE, freeze, make_model, set_statistics

PARTS = ("record", "trace", "import", "analyse", "rewrite", "load", "first")
KINDS = ("fits", "tiles")
TIMEOUT = 600
LATER = 4
clock = time.perf_counter


class Watch:
    """Seconds in functions of koila, and with what the compiler was asked."""

    def __init__(self):
        self.seconds = dict.fromkeys(("trace", "analyse", "rewrite"), 0.0)
        self.asked = []

    def wrap(self, owner, name, part):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += clock() - start

        setattr(owner, name, call)

    def install(self):
        self.wrap(planner, "trace", "trace")
        self.wrap(planner, "analyze_script", "analyse")
        self.wrap(planner, "compile_script", "rewrite")
        run = _compiler._run

        def ask(script, pipeline, **options):
            start = clock()
            try:
                return run(script, pipeline, **options)
            finally:
                taken = clock() - start
                # They are there while a program runs.
                weights = [(weight, weight.data) for weight in script.parameters()]
                self.asked.append((taken, script, pipeline, options, weights))

        _compiler._run = ask

    def split(self):
        """The parts in the compiler: what it is asked again without one of them
        takes less."""
        found = {"import": 0.0, "load": 0.0}
        for taken, script, pipeline, options, weights in self.asked:
            for weight, data in weights:
                weight.data = data
            imported = min(time_of(script, "", {**options, "emit": False}) for _ in range(2))
            found["import"] += imported
            part = "rewrite" if options["emit"] else "analyse"
            self.seconds[part] -= imported
            if options["emit"]:
                emitted = max(taken - time_of(script, pipeline, {**options, "emit": False}), 0.0)
                # What is loaded is also wrapped for Python.
                found["load"] += emitted
                self.seconds["rewrite"] -= emitted
        return {**self.seconds, **found}


def time_of(script, pipeline, options):
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _run(script, pipeline, **options)
    return clock() - start


_run = _compiler._run


def step(model, images, labels):
    """Seconds until backward() is called, and of the whole step."""
    start = clock()
    loss = F.cross_entropy(model(images), labels)
    recorded = clock()
    loss.backward()
    return recorded - start, clock() - start


def run_one(name, kind, batch, budget, threads, profile):
    torch.set_num_threads(threads)
    torch.manual_seed(2)
    size = MODELS[name]
    images = torch.randn(batch, 3, size, size)
    labels = torch.randint(CLASSES, (batch,))
    model = make_model(name, torch.float32)
    set_statistics(model, images)
    model.train()
    freeze(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    step(model, images, labels)
    plain = min(step(model, images, labels)[1] for _ in range(3))

    def lazily():
        return step(model, *koila.lazy(images, labels, batch=0, budget=budget))

    watch = Watch()
    watch.install()
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore", UserWarning)
        profiler = stack.enter_context(cProfile.Profile()) if profile else None
        recorded, first = lazily()
    if profiler is not None:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumtime").print_stats(60)
    how = koila.last()
    assert how.peak_bytes is not None and (how.tile is None) == (kind == "fits"), how
    later = [lazily() for _ in range(LATER)]
    second = min(whole for _, whole in later)
    parts = watch.split()
    parts["record"] = recorded - min(recording for recording, _ in later)
    parts["first"] = first - second - sum(parts.values())
    return {
        "peak": how.peak_bytes,
        "tile": how.tile,
        "plain": plain,
        "first": first,
        "second": second,
        "parts": parts,
    }


def start(name, kind, options, budget):
    command = [sys.executable, __file__, "--one", name, kind, str(budget)]
    command += ["--batch", str(options.batch), "--threads", str(options.threads)]
    command += ["--profile"] * options.profile + ["--cpu"] * options.cpu
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def beside(row):
    return row["first"] - row["second"]


def line(name, kind, row):
    parts = " | ".join(f"{row['parts'][part]:.2f}" for part in PARTS)
    return (
        f"| {name} | {kind} | {row['plain']:.2f} | {row['second']:.2f} | {row['first']:.2f} | "
        f"**{beside(row):.2f}** | {parts} |"
    )


def page(lines, options):
    text = __doc__.split("\n\n")
    kinds = "\n".join(
        f"* *{part.split()[0]}*: {' '.join(part.split()[1:])}" for part in text[3].splitlines()
    )
    return (
        "\n".join(
            [
                "# The first step through `koila.lazy`",
                "",
                "<!-- Written by tools/dev/write_results.py lazy-first-step; do not edit. -->",
                "",
                f"Seconds{' of the CPU' * options.cpu} of training steps of {options.batch} "
                "images of 64 × 64 (inception_v3: 96 × 96) in float32 with torchvision's "
                f"classification models, threads: {options.threads}, in processes of their own. "
                "*Fits*: with memory for the whole batch; *tiles*: with one byte less than the "
                "whole needs. *Step* is the least of four later steps. *Beside* is what the "
                "first step takes more, and then split:",
                "",
                kinds,
                "",
                *lines,
            ]
        )
        + "\n"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1.5)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("NAME", "KIND", "BUDGET"))
    options = parser.parse_args()
    if options.cpu:
        if options.threads != 1:
            parser.error("--cpu adds up threads: give --threads 1")
        global clock
        clock = time.process_time
    if options.one:
        name, kind, budget = options.one
        budget = int(budget) if budget.isdigit() else budget
        print(
            json.dumps(run_one(name, kind, options.batch, budget, options.threads, options.profile))
        )
        return 0
    lines = [
        f"| model | memory | plain | step | first step | beside | {' | '.join(PARTS)} |",
        "|---|---|" + "---:|" * (4 + len(PARTS)),
    ]
    print(*lines, sep="\n", flush=True)
    above = []
    for name in options.models:
        budget = WHOLE
        for kind in KINDS:
            row = start(name, kind, options, budget)
            budget = row["peak"] - 1
            lines.append(line(name, kind, row))
            print(lines[-1], flush=True)
            if beside(row) > options.limit:
                above.append(f"{name} ({kind}): {beside(row):.2f} s")
    for text in above:
        print(f"more than {options.limit} s beside the step:", text, file=sys.stderr)
    if options.write:
        options.write.write_text(page(lines, options))
    return int(options.check and bool(above))


if __name__ == "__main__":
    sys.exit(main())
