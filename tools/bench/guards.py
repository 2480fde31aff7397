#!/usr/bin/env python3
"""What a compiled module costs beside its program: the look at what it has read.

Usage: guards.py [--models resnet50 ...] [--calls N] [--threads N] [--write FILE]

A model is compiled for two samples of 64 x 64 pixels. *Guards* is all that a call
does before the program runs: the arguments are taken apart and compared with the
example's, and every attribute of every part, and what its code reads beside them,
with what was there when it was compiled. Rounds of calls, and of the program
itself, take turns; figures are medians of rounds, in microseconds a call. The
second row of guards, next to the first, says how much is noise. The bar is 20.
"""

import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models")]

import torch

import koila
from make_models import torchvision_model

ROUNDS = 15


def measure(name, calls):
    torch.manual_seed(0)
    model = torchvision_model(name).eval()
    x = torch.randn(2, 3, 64, 64)
    compiled = koila.compile(model, x, budget="4GiB")
    selection = compiled._selection
    attributes = sum(len(vars(part)) for part in model.modules())

    def guards():
        selection.find("forward", compiled._bind((x,), {}))

    def run(function, count):
        start = time.perf_counter()
        for _ in range(count):
            function()
        return (time.perf_counter() - start) / count * 1e6

    found = {"guards": [], "again": [], "program": []}
    with torch.no_grad():
        program = selection.main.script
        for _ in range(3):
            guards()
            program(x)
        for _ in range(ROUNDS):
            found["guards"].append(run(guards, calls))
            found["program"].append(run(lambda: program(x), 3))
            found["again"].append(run(guards, calls))
    medians = {key: statistics.median(values) for key, values in found.items()}
    return sum(1 for _ in model.modules()), attributes, medians


def make_page(rows, threads):
    lines = [
        "# What guards cost",
        "",
        "Written by `tools/dev/write_results.py guard-cost`; `tools/bench/guards.py` says "
        "what is measured. "
        f"torch {torch.__version__}, {threads} threads. Microseconds a call; the bar is 20.",
        "",
        "| model | parts | attributes | guards | again | program (2 samples, 64 x 64) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, parts, attributes, found in rows:
        lines.append(
            f"| {name} | {parts} | {attributes:,} | {found['guards']:.1f} | {found['again']:.1f} "
            f"| {found['program']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50", "mobilenet_v2"])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [(name, *measure(name, options.calls)) for name in options.models]
    page = make_page(rows, options.threads)
    print(page)
    if options.write:
        pathlib.Path(options.write).write_text(page)


if __name__ == "__main__":
    main()
