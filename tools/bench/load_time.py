"""How long LibTorch takes to load what koila wrote, against the original.

Usage: load_time.py ORIGINAL.pt WRITTEN.pt [--repeat N]

Each round loads original, written, original, in one process; the ratio is of
medians, and the second original against the first says how much is noise.
"""

import argparse
import statistics
import time

import torch


def seconds_to_load(file):
    start = time.perf_counter()
    module = torch.jit.load(file)
    elapsed = time.perf_counter() - start
    del module
    return elapsed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("original")
    parser.add_argument("written")
    parser.add_argument("--repeat", type=int, default=9, metavar="N")
    options = parser.parse_args()

    order = [options.original, options.written, options.original]
    for file in order:
        seconds_to_load(file)
    rounds = [[seconds_to_load(file) for file in order] for _ in range(options.repeat)]
    first, written, again = (statistics.median(column) for column in zip(*rounds, strict=False))
    print(
        f"original {first * 1e3:.1f} ms, written {written * 1e3:.1f} ms: "
        f"ratio {written / first:.3f} "
        f"(original again {again / first:.3f}, {options.repeat} rounds)"
    )


if __name__ == "__main__":
    main()
