#!/usr/bin/env python3
"""What steps of ordinary scripts take through koila.lazy with memory for all of them.

Usage: lazy_steps.py [NAME...] [--rounds 5] [--threads 1] [--check] [--write FILE]

NAME is a script of test/integration/scripts without its .py; without any all run
that tiles can do (`# koila: tiles`). Each runs once with koila, which learns its
programs, and then plain, with koila and plain again in turns. A *step* is what lies
between two calls of koila.lazy: training, or a batch of an evaluation. Steps in which
something is traced or compiled are left out, as first steps are; of each other the
median of the rounds counts. *Noise* is the second plain run next to the first.

With --check the exit code is 1 where steps of 5 ms and more take more than 1.1
times as long, and the noise, or shorter ones more than 50 us longer for each recorded
call, and the noise. --write makes the page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pathlib
import statistics
import sys
import time
import types
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "test" / "integration" / "scripts"
sys.path[:0] = [str(ROOT / "test" / "integration")]

import itertools

import torch

import koila
import variants
from execute import reset
from koila._capture import recorder
from koila._plan import planner

ENOUGH = 1 << 40
LONG, MOST, MOST_PER_CALL = 5e-3, 1.1, 50e-6


class Watch:
    """How often something is traced or compiled, and how many calls are recorded."""

    def __init__(self):
        self.first = self.calls = 0
        for name in ("trace", "analyze_script", "compile_script"):
            self._count(planner, name, "first")
        self._count(recorder, "_append", "calls")

    def _count(self, owner, name, what):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            setattr(self, what, getattr(self, what) + 1)
            return function(*args, **kwargs)

        setattr(owner, name, call)


def run(script, lazy, watch):
    """Seconds of each step, whether it was a first one, and its recorded calls."""
    marks = []

    def mark():
        marks.append((time.perf_counter(), watch.first, watch.calls))

    code = compile(script.read_text(), str(script), "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    before = koila.lazy, sys.modules["__main__"], sys.argv
    koila.lazy, sys.modules["__main__"], sys.argv = variants.wrap(lazy, mark), main, [str(script)]
    reset()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
            contextlib.suppress(Exception),
        ):
            warnings.simplefilter("ignore")
            exec(code, vars(main))
        mark()
    finally:
        koila.lazy, sys.modules["__main__"], sys.argv = before
        vars(main).clear()
    return [
        (right[0] - left[0], right[1] > left[1], right[2] - left[2])
        for left, right in itertools.pairwise(marks)
    ]


def measure(script, rounds, watch):
    """A row: steps, milliseconds of one, ratio, noise, calls, microseconds a call."""
    lazy = variants.within(ENOUGH)
    run(script, lazy, watch)
    runs = {"plain": [], "koila": [], "again": []}
    for _ in range(rounds):
        for name, found in runs.items():
            found.append(run(script, lazy if name == "koila" else variants.plain, watch))
    counts = {len(found) for every in runs.values() for found in every}
    if len(counts) != 1:
        return None
    later = [
        step for step in range(counts.pop()) if not any(found[step][1] for found in runs["koila"])
    ]
    if not later:
        return None
    seconds = {
        name: sum(statistics.median(found[step][0] for found in every) for step in later)
        for name, every in runs.items()
    }
    calls = sum(runs["koila"][0][step][2] for step in later)
    more = seconds["koila"] - seconds["plain"]
    return {
        "name": script.stem,
        "steps": len(later),
        "plain": seconds["plain"] / len(later),
        "ratio": seconds["koila"] / seconds["plain"],
        "noise": seconds["again"] / seconds["plain"],
        "calls": calls / len(later),
        "per_call": more / max(calls, 1),
        "is_slow": is_slow(seconds, len(later), calls),
    }


def is_slow(seconds, steps, calls):
    noise = abs(seconds["again"] - seconds["plain"])
    if seconds["plain"] / steps >= LONG:
        return seconds["koila"] > MOST * seconds["plain"] + noise
    return seconds["koila"] - seconds["plain"] > MOST_PER_CALL * calls + noise


HEAD = """# Steps through `koila.lazy` with enough memory

<!-- Written by tools/dev/write_results.py lazy-steps; do not edit. -->

Scripts of `test/integration/scripts` with a budget in which nothing is split, threads: \
{threads}, rounds: {rounds}. *Step*: between two calls of `koila.lazy`, without those in which a \
program is seen for the first time; medians. *Noise*: plain PyTorch again. The bar is 1.1 for \
steps of 5 ms and more, and 50 µs a recorded call for others; what misses it by more than the \
noise is marked.

| script | steps | plain, ms | ratio | noise | calls a step | µs more a call | |
|---|---:|---:|---:|---:|---:|---:|---|"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    scripts = [FOLDER / f"{name}.py" for name in options.names] or [
        path for path in sorted(FOLDER.glob("*.py")) if "# koila: tiles" in path.read_text()
    ]
    watch = Watch()
    lines = [HEAD.format(threads=options.threads, rounds=options.rounds)]
    print(lines[0].splitlines()[-2], lines[0].splitlines()[-1], sep="\n")
    slow = 0
    for script in scripts:
        row = measure(script, options.rounds, watch)
        if row is None:
            print(f"{script.stem}: no step in which all programs were seen before", file=sys.stderr)
            continue
        slow += row["is_slow"]
        lines.append(
            f"| {row['name']} | {row['steps']} | {1e3 * row['plain']:.2f} | {row['ratio']:.2f} "
            f"| {row['noise']:.2f} | {row['calls']:.0f} | {1e6 * row['per_call']:.0f} "
            f"| {'above the bar' if row['is_slow'] else ''} |"
        )
        print(lines[-1], flush=True)
    print(f"{len(lines) - 1} scripts, {slow} above the bar")
    if options.write:
        lines.append(f"\n{len(lines) - 1} scripts, {slow} above the bar.\n")
        options.write.write_text("\n".join(lines))
    return bool(options.check and slow)


if __name__ == "__main__":
    sys.exit(main())
