#!/usr/bin/env python3
"""Random programs over the operators, tiled by koila.

Usage: tiled_operators.py --counter LIBRARY [--koila-opt PATH] [--count N]
           [--seed S] [--only K...] [--jobs N] [--max-refused SHARE]
           [--keep FOLDER] [--print] [--control]

Program K has two to six calls of the operators in python/koila/_generators, in
turn, so that a run has had all before one comes again; calls that draw random
numbers are left out. koila-opt compiles it with a random tile, or for a budget
between the smallest that koila names and the untiled peak. At a few batches
from 0 to 16 PyTorch then runs both, and

* both raise, or results and arguments after the call are equal: for a third
  of the programs, which compute in float64, by torch.testing.assert_close's
  defaults, and in the given dtype by distance from the float64 result;
* the measured peak is the one that koila calls exact, tiled and untiled;
* the measured peak is within the budget, at the batch that it was given for
  and at one below;
* the file warns of nothing and runs its tiles, but for batches for which koila
  said that it would not.

koila may refuse a program with a sentence; those are counted by what they say,
and --max-refused bounds their share. A failure is made smaller and printed
with its source and the command; `--seed S --only K` runs it again.

--control shows that the check can fail. A tiler that knows nothing of batches
runs each program on slices, and joins what follows the batch: among programs
for which koila names a barrier or combines tiles, a third must be seen to
differ. With its tiles in reverse order, so must two thirds of all programs.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import re
import sys
import time
import typing
import warnings

from conclude import conclude

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Its `generator` is meant, not the one in this folder.
sys.path.insert(0, str(HERE.parent / "oracle"))

NOTICED, REVERSED = 1 / 3, 2 / 3

# What each process has.
SEED: int
KOILA: typing.Any
COUNTER: typing.Any
DEALER: typing.Any


def prepare(arguments):
    """In each process once."""
    global KOILA, COUNTER, DEALER, SEED
    import gc

    import torch

    from counter import Counter
    from koila._generators import load_generators
    from koila_opt import Koila
    from operator_programs import Dealer, usable

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # As koila-run does: memory does not depend on the number of the run.
    torch._C._jit_set_profiling_mode(False)
    torch.set_grad_enabled(False)
    # A tensor that is collected while the next call is measured would count.
    gc.disable()
    SEED = arguments.seed
    KOILA = Koila(arguments.koila_opt)
    COUNTER = Counter(arguments.counter)
    DEALER = Dealer(SEED, usable(load_generators()))


def seed_of(number):
    return f"{SEED}:{number}"


def run_one(number):
    """Number, schemas, Verdict and how many attempts were no program."""
    import tiled_check

    program, objections = DEALER.make(number)
    if program is None:
        verdict = tiled_check.Verdict("not run", objections[-1])
        return number, [], verdict, objections
    verdict = tiled_check.check(KOILA, COUNTER, program, seed_of(number))
    return number, program.ops(), verdict, objections


def control_one(number):
    import tiled_control

    program, _ = DEALER.make(number)
    return number, program and tiled_control.control(KOILA, program, seed_of(number))


def count_schemas():
    return len(DEALER.generators)


# -- Failures -----------------------------------------------------------------


def sentence(text):
    """A message without what is particular to the program."""
    lines = text.strip().splitlines() or [""]
    text = re.sub(r" at <string>:\d+", "", lines[0])
    return re.sub(r"'[^']*'|\b[a-z]+\d*_\d+\b|-?\b\d[\d.,e+-]*\b", "_", text)[:160]


def reduce_program(program, number, verdict):
    """Takes calls out while what is left fails alike."""
    import tiled_check
    from operator_programs import is_legal

    index = len(program.parts)
    while index and len(program.parts) > 1:
        index -= 1
        smaller = program.without(index)
        if is_legal(smaller) is not None:
            continue
        found = tiled_check.check(KOILA, COUNTER, smaller, seed_of(number))
        if found.kind == "failed" and (sentence(found.detail) == sentence(verdict.detail)):
            program, verdict = smaller, found
    return program, verdict


def report_failure(arguments, number, verdict):
    program, _ = DEALER.make(number)
    program, verdict = reduce_program(program, number, verdict)
    text = (
        f"\n== program {number}: tiled_operators.py --seed "
        f"{arguments.seed} --only {number}\n\n{program.source()}\n"
        f"{verdict.command}\n{verdict.detail}\n"
    )
    print(text, flush=True)
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        name = f"{arguments.seed}-{number}"
        (arguments.keep / f"{name}.txt").write_text(text)
        program.compile().save(str(arguments.keep / f"{name}.pt"))


# -- The whole ----------------------------------------------------------------


def print_counts(title, counts):
    for text, count in counts.most_common():
        print(f"{title} {count:5}  {text}")


def progress(done, total, start, words):
    print(
        f"{done} of {total} programs, {words}, {time.monotonic() - start:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def run(pool, arguments, numbers):
    """Sentences about what is wrong, and the failures."""
    start, verdicts = time.monotonic(), collections.Counter()
    refusals, notes, schemas = (collections.Counter() for _ in range(3))
    failures, replaced, silent = [], 0, collections.Counter()
    for done, (number, ops, verdict, objections) in enumerate(pool.map(run_one, numbers), 1):
        verdicts[verdict.kind] += 1
        notes.update(set(verdict.notes))
        replaced += len(objections)
        if arguments.print:
            print(
                f"{number}: {verdict.kind} {verdict.detail}\n"
                f"    {verdict.command}\n    {', '.join(verdict.notes)}"
            )
        if verdict.kind == "equal":
            schemas.update(set(ops))
        elif verdict.kind == "refused":
            refusals[sentence(verdict.detail)] += 1
        elif verdict.kind == "failed":
            failures.append((number, verdict))
            print(f"FAILED {number}: {verdict.detail}", flush=True)
        else:
            silent[sentence(verdict.detail)] += 1
        if done % 50 == 0:
            progress(done, len(numbers), start, f"{len(failures)} failed")
    print_counts("refused ", refusals)
    print_counts("not run ", silent)
    print_counts("programs", notes)
    total = pool.submit(count_schemas).result()
    print(
        f"{len(schemas)} of {total} schemas in programs that are equal; "
        f"{replaced} attempts that PyTorch does not run were replaced"
    )
    print(
        f"{len(numbers)} programs: "
        + ", ".join(
            f"{verdicts[kind]} {kind}" for kind in ("equal", "refused", "not run", "failed")
        )
    )
    problems = []
    if verdicts["refused"] > arguments.max_refused * len(numbers):
        problems.append(
            f"koila refuses {verdicts['refused']} of "
            f"{len(numbers)} programs, more than "
            f"{arguments.max_refused:.0%}"
        )
    if not verdicts["equal"]:
        problems.append("no program was compared")
    if failures:
        problems.append(
            f"{len(failures)} programs failed: " + ", ".join(str(number) for number, _ in failures)
        )
    return problems, failures


def run_control(pool, numbers):
    """Sentences about a check that does not notice."""
    marked, noticed, reverse, total = 0, 0, 0, 0
    for _, seen in pool.map(control_one, numbers):
        if seen is None:
            continue
        total += 1
        reverse += seen.reverse
        marked += seen.marked
        noticed += seen.marked and seen.naive
    print(
        f"control: {noticed} of {marked} programs with barriers or combined "
        "tiles are seen to differ\n"
        "         under a tiler that knows nothing of batches\n"
        f"control: {reverse} of {total} programs are seen to differ with "
        "the tiles in reverse order"
    )
    problems = []
    if not marked or noticed < NOTICED * marked:
        problems.append("the comparison does not notice a wrong tiler")
    if not total or reverse < REVERSED * total:
        problems.append("the comparison does not notice tiles in reverse")
    return problems


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt", type=pathlib.Path)
    parser.add_argument(
        "--counter", type=pathlib.Path, default=ROOT / "build/lib/libkoila-counter.so"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int, nargs="+", metavar="K", help="these programs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--max-refused", type=float, default=0.1, metavar="SHARE", help="fail if koila refuses more"
    )
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="for reduced failures")
    parser.add_argument(
        "--reduce", type=int, default=5, metavar="N", help="how many failures are made smaller"
    )
    parser.add_argument("--print", action="store_true", help="print each verdict")
    parser.add_argument(
        "--control", action="store_true", help="run wrong tilers: they must be noticed"
    )
    return parser.parse_args()


def main():
    arguments = parse()
    start = time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    numbers = arguments.only or range(arguments.count)
    failures = []
    with concurrent.futures.ProcessPoolExecutor(
        arguments.jobs, multiprocessing.get_context("spawn"), prepare, (arguments,)
    ) as pool:
        if arguments.control:
            problems = run_control(pool, numbers)
        else:
            problems, failures = run(pool, arguments, numbers)
    if failures:
        prepare(arguments)
        for number, verdict in failures[: arguments.reduce]:
            report_failure(arguments, number, verdict)
    conclude("tiled_operators.py", start, problems)


if __name__ == "__main__":
    main()
