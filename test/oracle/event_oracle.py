#!/usr/bin/env python3
"""Compares what kernel models say with each call of PyTorch's allocator.

Usage: event_oracle.py --counter LIBRARY [--koila-opt PATH] [--legal N]
           [--batches B,...] [--threads T] [--only REGEX | --most-used N]
           [--seed S] [--grad] [--least SHARE] [--verbose]

The calls of memory_oracle.py, of which `format=events` gives the list of
allocations and frees. It is compared, in order, with what a counter of the allocator
saw: whether a block comes or goes, which one, and its bytes. This is a stronger test
than that of the peak, and finds what cancels out in it.

Columns: calls; equal; WRONG: all events are said to be exact, and the lists differ;
lumps: koila says that it does not know each block, or the figure. An operator is itemized
if all its calls are equal. WRONG must be 0, and of the operators that are compared
at least SHARE itemized.

--most-used takes the first N of most_used.txt, which tools/dev/count_overloads.py
writes. On several threads, blocks of one parallel region come in any order: there
the lists are compared as sets.
"""

import argparse
import collections
import gc
import pathlib
import re
import sys
import tempfile
import warnings

import torch

import memory_oracle
from koila._check.findings import show_events
from koila._check.predictions import read_events
from koila._generators.draw import ERRORS
from koila._generators.program import script_call
from koila.memory import AllocatorEvent
from memory_oracle import describe, numbers

HERE = pathlib.Path(__file__).parent
COLUMNS = ["calls", "equal", "WRONG", "lumps", "refused", "raises"]


def record(counter, case, batch, grad):
    """The events of one call, without those of what it was given."""
    call = script_call(case, batch, grad)
    events, found = counter.record(call)
    events = [AllocatorEvent(*event) for event in events]
    return events, ", ".join(map(describe, call.given.values())) + " -> " + ", ".join(
        map(describe, found)
    )


class Oracle(memory_oracle.Oracle):
    REPORT = "format=events"
    # Models may go by the types in the IR, where there are some.
    PASSES = ("--koila-infer-shapes",)

    def __init__(self, arguments, folder):
        super().__init__(arguments, folder)
        self.figures = memory_oracle.Oracle(arguments, folder)

    @staticmethod
    def read_report(report, alive, lines):
        return dict(zip(alive, read_events(report, lines), strict=True))

    def predict(self, cases, batch, threads):
        said = super().predict(cases, batch, threads)
        # A call without events may be one of which nothing is known.
        for index, figure in self.figures.predict(cases, batch, threads).items():
            if index in said and figure.reasons:
                said[index].is_exact = False
        return said

    def compare(self, case, batch, threads, said):
        counts = self.counts[case.op]
        try:
            events, text = record(self.counter, case, batch, self.arguments.grad)
        except ERRORS:
            counts["raises"] += 1
            return
        counts["calls"] += 1
        if threads > 1:
            # Which thread allocates first is chance.
            same = sorted(e[::2] for e in said.events) == sorted(e[::2] for e in events)
        else:
            same = said.events == events
        kind = "equal" if same else "WRONG" if said.is_exact else "lumps"
        counts[kind] += 1
        if kind == "equal":
            return
        line = (
            f"{kind}: {case.op}: B={batch} T={threads}: "
            f"{case.body[-1].replace('torch.ops.aten.', '')} with {text}\n"
            f"    said     {show_events(said.events)}\n    measured {show_events(events)}"
        )
        if kind == "WRONG":
            self.problems.append(line)
        elif self.arguments.verbose:
            print(line)

    def print(self, ops):
        itemized = [op for op in ops if self.counts[op]["calls"]]
        rest = [op for op in itemized if self.counts[op]["equal"] < self.counts[op]["calls"]]
        if self.arguments.verbose:
            print(f"{'operator':50}" + "".join(f"{n:>9}" for n in COLUMNS))
        for op in ops if self.arguments.verbose else ():
            print(f"{op:50}" + "".join(f"{self.counts[op][name]:9}" for name in COLUMNS))
        total = sum((self.counts[op] for op in ops), collections.Counter())
        print(f"{'total':50}" + "".join(f"{total[name]:9}" for name in COLUMNS))
        shown = collections.Counter()
        for problem in self.problems:
            op = problem.split(": ")[1]
            shown[op] += 1
            if shown[op] <= 2 or self.arguments.verbose:
                print(problem)
        share = 1 - len(rest) / max(len(itemized), 1)
        if rest:
            print("not itemized: " + " ".join(rest))
        print(
            f"{len(itemized)} operators compared, {len(itemized) - len(rest)} itemized "
            f"({100 * share:.1f} %), {total['WRONG']} calls WRONG"
        )
        return share


def read_most_used(count):
    lines = (HERE / "most_used.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")][:count]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--legal", type=int, default=8)
    parser.add_argument("--batches", type=numbers, default=[7, 1])
    parser.add_argument("--threads", type=numbers, default=[1])
    parser.add_argument("--group", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="schemas by regex")
    parser.add_argument("--most-used", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._C._jit_set_profiling_mode(False)
    # What is collected while the next call is measured would count.
    gc.disable()
    with tempfile.TemporaryDirectory() as folder, torch.set_grad_enabled(arguments.grad):
        oracle = Oracle(arguments, folder)
        ops = [op for op in oracle.generators if re.search(arguments.only, op)]
        if arguments.most_used:
            used = read_most_used(arguments.most_used)
            ops = [op for op in used if op in oracle.generators]
        if not ops:
            sys.exit("no schema matches")
        oracle.run(ops)
        share = oracle.print(ops)
    sys.exit(1 if oracle.problems or share < arguments.least else 0)


if __name__ == "__main__":
    main()
