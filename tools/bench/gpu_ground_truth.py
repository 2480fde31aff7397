#!/usr/bin/env python3
"""Predictions against the memory of GPUs that others have measured.

Usage: gpu_ground_truth.py ROWS.csv [--device PROFILE] [--context BYTES] [--count N]
           [--every N] [--exact SHARE] [-o OUT.csv] [--verbose]

ROWS.csv is a set of measurements, which is told by its header; docs/results/GpuTruth.md
says what was run for each. No kernel runs and no GPU is read: programs are traced on
meta tensors, and the simulated caching allocator plays what koila predicts of a step.

--device    the card whose kernels run (docs/reference/DeviceProfiles.md); default: the
            one of the set
--context   what the card shows beside the allocator: its context, the libraries and an
            idle card. Without it one number for the file is fitted, for each half of
            the rows on the other half
-o          the rows with predicted_bytes, seconds and reason
--count, --every  only so many rows, or each Nth
--exact    fails where a smaller share of the rows is right to the MiB

The last line is: N rows, predicted M, median error X %, p90 Y %, under Z %.
"""

import argparse
import collections
import csv
import statistics
import sys
import time
import warnings
from typing import Any

import gpu_jobs
from koila._errors import KoilaError

MIB = gpu_jobs.MIB


class MLPRows:
    """mlp-gpu-dev.csv."""

    COLUMNS = frozenset({"linear_widths", "measured_mib"})
    DEVICE = "a100-sxm4-40gb@torch-2.6"

    @staticmethod
    def make(row, device):
        return gpu_jobs.MLPJob(row, device)

    @staticmethod
    def measured(row):
        return int(row["measured_mib"]) * MIB


class XMemRows:
    """xmem-dev.csv: CNNs by bytes."""

    COLUMNS = frozenset({"zero_grad_mode", "ground_bytes"})
    DEVICE = None

    @staticmethod
    def make(row, device):
        # Rows that do not say are of the oldest loop, which cleared gradients just
        # before the backward pass.
        mode = int(row["zero_grad_mode"] or 1)
        if row["family"] != "cnn":
            raise KoilaError("only CNNs are predicted yet")
        if row["real_oom"] == "1":
            raise KoilaError("the job ran out of memory: there is no figure to compare")
        cards = {"RTX 3060": "rtx-3060", "RTX 4060": "rtx-4060"}
        card = device or cards.get(row["gpu"], "a100-sxm4-40gb") + "@torch-2.6"
        return gpu_jobs.XMemCNNJob(row, card, mode)

    @staticmethod
    def measured(row):
        return int(row["ground_bytes"])


SETS: list[Any] = [MLPRows, XMemRows]


def find_set(columns):
    for each in SETS:
        if columns >= each.COLUMNS:
            return each
    sys.exit(
        "error: no set of measurements has these columns; known are those with "
        + "; ".join(", ".join(sorted(each.COLUMNS)) for each in SETS)
    )


def fit_context(pairs):
    """The constant that is right most often, in whole MiB, else in the middle."""
    counts = collections.Counter((measured - own) // MIB for own, measured in pairs)
    best, times = counts.most_common(1)[0]
    if times * 4 >= len(pairs):
        return best * MIB
    return int(statistics.median(measured - own for own, measured in pairs))


def add_context(predictions, given):
    """Of each row with a prediction what the card shows."""
    known = [(index, own, measured) for index, (own, measured) in enumerate(predictions) if own]
    if not known:
        return {}, []
    if given is not None:
        return {index: own + given for index, own, _ in known}, [given]
    halves = [known[0::2], known[1::2]]
    fitted, shown = [], {}
    for half, other in (halves, halves[::-1]):
        if not other:
            other = half
        fitted.append(fit_context([(own, measured) for _, own, measured in other]))
        shown |= {index: own + fitted[-1] for index, own, _ in half}
    return shown, fitted


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows")
    parser.add_argument("--device")
    parser.add_argument("--context", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--exact", type=float, default=0)
    parser.add_argument("-o", "--output")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with open(options.rows, encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or [])
            rows = list(reader)[:: options.every][: options.count]
    except OSError as error:
        sys.exit(f"error: {error}")
    chosen = find_set(set(columns))
    predictions, times = [], []
    for row in rows:
        start = time.perf_counter()
        own, reason = None, ""
        try:
            job = chosen.make(row, options.device or chosen.DEVICE)
            own = job.run()
            reason = "; ".join(sorted(job.doubts))
        except (KoilaError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
        times.append(time.perf_counter() - start)
        row["reason"], row["seconds"] = reason, f"{times[-1]:.3f}"
        predictions.append((own, chosen.measured(row)))
        if options.verbose:
            print(own and own / MIB, chosen.measured(row) / MIB, reason[:150], file=sys.stderr)
    shown, fitted = add_context(predictions, options.context)
    errors = []
    for index, row in enumerate(rows):
        row["predicted_bytes"] = shown.get(index, "")
        if index in shown:
            errors.append((shown[index] - predictions[index][1]) / predictions[index][1])
    if options.output:
        with open(options.output, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*columns, "predicted_bytes", "seconds", "reason"])
            writer.writeheader()
            writer.writerows(rows)
    print("context, MiB: " + ", ".join(f"{each / MIB:.0f}" for each in fitted))
    print(f"seconds a row, median: {statistics.median(times):.2f}")
    off = [abs(shown[index] - predictions[index][1]) / MIB for index in shown]
    if errors:
        print(
            f"exact to the MiB {100 * sum(each < 1 for each in off) / len(off):.1f} %, "
            f"within 2 MiB {100 * sum(each <= 2 for each in off) / len(off):.1f} %, "
            f"worst {100 * max(map(abs, errors)):.2f} %"
        )
    sizes = sorted(map(abs, errors)) or [float("nan")]
    under = sum(error < 0 for error in errors)
    print(
        f"{len(rows)} rows, predicted {len(errors)}, "
        f"median error {100 * statistics.median(sizes):.2f} %, "
        f"p90 {100 * sizes[min(len(sizes) * 9 // 10, len(sizes) - 1)]:.2f} %, "
        f"under {100 * under / max(len(errors), 1):.1f} %"
    )
    if sum(each < 1 for each in off) < options.exact * len(rows):
        sys.exit(f"error: less than {100 * options.exact:.1f} % are exact to the MiB")


if __name__ == "__main__":
    main()
