#!/usr/bin/env python3
"""Random programs: peaks that are said to be exact are what PyTorch allocates.

Usage: peaks.py [--counter LIBRARY] [--count N] [--seed S] [--only K] [--features A,B]
                [--grad] [--least-exact SHARE] [--seconds N] [--state FILE]

Programs of generator.py, with branches, loops, lists, tuples, dicts and state, are
scripted, saved, measured at two batches and analysed. A figure that is exact and not the
measured one, to the byte, or a bound that is less, is a failure, which is made smaller and
printed. With --grad, autograd records the calls. The share of exact figures is printed,
and --least-exact bounds it from below, so that the test means something. With --seconds,
seed after seed is taken until so many have passed; with --state, from where the last run
ended.

Before that, one figure is changed by a byte and must be found wrong.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import time
import warnings

import torch

from conclude import conclude
from evaluate import computing, in_child, input_flags, make_call
from expressions import FEATURES
from generator import generate
from koila import _compiler
from program import compile_program
from reducer import reduce_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCHES = (3, 5)

sys.path.append(str(ROOT / "test" / "oracle"))


class Judge:
    def __init__(self, counter, folder, grad):
        self.counter, self.path, self.grad = counter, str(folder / "in.pt"), grad

    def measure(self, program, batch):
        """Bytes of the first call of a file that was just loaded: a call may change
        the module."""
        loaded = torch.jit.load(self.path)
        with torch.set_grad_enabled(self.grad):
            return self.counter.measure(loaded, make_call(program.arguments, batch, 10, True))[0]

    def run(self, program, change=0):
        """What is wrong or None, how many figures are exact, and reasons of others;
        None if PyTorch does not run the program, or not to its end."""
        kind, found = in_child(lambda: self.judge(program, change))
        if kind == "died":
            return f"koila or PyTorch: {found}", 0, []
        return found if kind == "value" else None

    def judge(self, program, change):
        try:
            with computing():
                compile_program(program.source()).save(self.path)
                measured = [self.measure(program, batch) for batch in BATCHES]
        except Exception:
            return None
        exact, reasons = 0, []
        for batch, peak in zip(BATCHES, measured, strict=True):
            try:
                report = _compiler.analyze_script(
                    self.path,
                    [flag.removeprefix("--input=") for flag in input_flags(program.arguments)],
                    batch={"B": batch},
                    mode="forward-with-grad" if self.grad else "inference",
                    floor=False,
                    batches=0,
                )
            except Exception as error:
                reasons.append("refused: " + str(error).splitlines()[0][-100:])
                continue
            said = report["peak_bytes"] + change
            if report["exact"]:
                exact += 1
                if said != peak:
                    return f"batch {batch}: exactly {said}, measured {peak} bytes", exact, reasons
                continue
            reasons.append(report["inexact"][0]["reason"])
            is_bound = all(reason["bound"] for reason in report["inexact"])
            if is_bound and said < peak:
                return f"batch {batch}: at most {said}, measured {peak} bytes", exact, reasons
        return None, exact, reasons


def get_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counter", default=ROOT / "build/lib/libkoila-counter.so")
    parser.add_argument("--count", type=int, default=100, help="programs of a seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the program of this number")
    parser.add_argument("--features", default=",".join(FEATURES), help="what programs may have")
    parser.add_argument("--grad", action="store_true", help="with gradients recorded")
    parser.add_argument("--least-exact", type=float, default=0, metavar="SHARE")
    parser.add_argument("--seconds", type=int, default=0, help="seed after seed, so long")
    parser.add_argument("--state", type=pathlib.Path, help="with --seconds: the next seed")
    return parser.parse_args()


def main():
    from counter import Counter

    options = get_options()
    start = time.monotonic()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._C._jit_set_profiling_mode(False)
    features = tuple(options.features.split(","))
    if options.state and options.state.exists():
        options.seed = int(options.state.read_text())
    figures, exact, reasons, problems = 0, 0, collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(Counter(options.counter), pathlib.Path(folder), options.grad)
        while True:
            for number in range(options.count) if options.only is None else [options.only]:
                program = generate(f"{options.seed}:{number}", features)
                found = judge.run(program)
                if not found:
                    continue
                problem, right, why = found
                figures += len(BATCHES)
                exact += right
                reasons.update(why)
                if not problem:
                    continue

                def fails(smaller):
                    found = judge.run(smaller)
                    return bool(found and found[0])

                problems.append(f"--seed {options.seed} --only {number}: {problem}")
                if len(problems) <= 5:
                    smaller = reduce_program(program, fails, 30)
                    print(smaller.source(), judge.run(smaller)[0], sep="\n", flush=True)
            options.seed += 1
            if options.state:
                options.state.write_text(str(options.seed))
            if time.monotonic() - start >= options.seconds:
                break
        for number in range(100) if options.only is None else []:
            found = judge.run(generate(f"control:{number}", features), change=1)
            if found and found[1]:
                if not found[0]:
                    problems.append("a figure that is off by a byte is not noticed")
                break
    for why, count in reasons.most_common(30):
        print(f"{count:6}  {why}")
    print(f"{exact} of {figures} figures are exact, {len(problems)} of them wrong")
    if options.only is None and exact < options.least_exact * figures:
        problems.append(f"fewer than {options.least_exact:.0%} are exact")
    conclude("peaks.py", start, problems)


if __name__ == "__main__":
    main()
