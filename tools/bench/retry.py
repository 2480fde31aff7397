#!/usr/bin/env python3
"""What running in sizes that fit costs: toma's benchmark through koila.

Usage: retry.py [--rounds N] [--check]

A tensor of 128 x 256 x 256 float32 is filled in four chunks: by a plain loop, by
that loop again, by each form of koila.compat.toma, and by koila.retry. All take
turns in one process; figures are medians. The second plain loop next to the first
says how much is noise. With --check the exit code is 1 if a form takes more than
5 % above the plain loop, and the noise.
"""

import argparse
import statistics
import sys
import time

import torch

from koila import retry
from koila.compat import toma

STEP, BAR = 32, 1.05


def fill(chunk, start, end):
    chunk[:] = 1.0


def plain(func, tensor):
    start, length = 0, len(tensor)
    while start < length:
        end = min(start + STEP, length)
        func(tensor.narrow(0, start, end - start), start, end)
        start = end


cached = toma.chunked(fill, initial_step=STEP)
uncached = toma.chunked(fill, initial_step=STEP, cache_type=toma.NoBatchsizeCache)
FORMS = {
    "plain loop": lambda tensor: plain(fill, tensor),
    "plain loop again": lambda tensor: plain(fill, tensor),
    "toma.simple.chunked": lambda tensor: toma.simple.chunked(fill, tensor, STEP),
    "toma.explicit.chunked": lambda tensor: toma.explicit.chunked(fill, tensor, STEP),
    "@toma.chunked": cached,
    "@toma.chunked, no cache": uncached,
    "koila.retry.chunked": lambda tensor: retry.chunked(fill, tensor, STEP),
}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tensor = torch.zeros(128, 256, 256)
    times = {name: [] for name in FORMS}
    for turn in range(options.rounds + 5):
        for name, run in FORMS.items():
            start = time.perf_counter()
            run(tensor)
            if turn >= 5:
                times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["plain loop"]
    noise = abs(medians["plain loop again"] / base - 1)
    for name, median in medians.items():
        print(f"{name:24} {median * 1e3:8.3f} ms  {median / base:6.3f}")
    over = [name for name, median in medians.items() if median / base > BAR + noise]
    if options.check and over:
        sys.exit(f"more than 5 % above the plain loop: {', '.join(over)}")


if __name__ == "__main__":
    main()
