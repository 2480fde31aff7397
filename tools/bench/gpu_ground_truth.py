#!/usr/bin/env python3
"""Predictions against the memory of GPUs that others have measured.

Usage: gpu_ground_truth.py ROWS.csv [--device PROFILE] [--context BYTES] [--pooled]
           [--count N] [--every N] [--models N] [--exact SHARE] [-o OUT.csv] [--verbose] [--causes]

ROWS.csv is a set of measurements, which is told by its header; docs/results/GpuTruth.md
says what was run for each. No kernel runs and no GPU is read: programs are traced on
meta tensors, and the simulated caching allocator plays what koila predicts of a step.

--device    the card whose kernels run (docs/reference/DeviceProfiles.md); default: the
            one of the row
--context   what the card shows beside the allocator: its context, the libraries and an
            idle card. Without it one number for each card of the file is fitted, for each
            group of rows (a half, a family, a model) on the other groups
--pooled    one number for all cards of the file
-o          the rows with predicted_bytes, safe_bytes, seconds and reason
--count, --every  only so many rows, or each Nth
--models    only the rows of each Nth model: a program is captured once for all of its rows
--exact     fails where a smaller share of the rows is right to the MiB
--causes    what koila says is not known of the rows, and why others have no prediction

The last line is: N rows, predicted M, median error X %, p90 Y %, under Z %.
"""

import argparse
import collections
import csv
import statistics
import sys
import time
import warnings

import gpu_scores
from gpu_jobs import MIB, UNLIMITED, OutOfMemory, Rows, Unpredicted
from gpu_jobs_mlp import MLPRows
from gpu_jobs_timm import TimmRows
from gpu_jobs_xmem import XMemRows
from koila._errors import KoilaError

SETS: list[type[Rows]] = [MLPRows, TimmRows, XMemRows]


def find_set(columns):
    for each in SETS:
        if columns >= each.COLUMNS:
            return each
    sys.exit(
        "error: no set of measurements has these columns; known are those with "
        + "; ".join(", ".join(sorted(each.COLUMNS)) for each in SETS)
    )


class Times:
    """Seconds of rows, and of what only the first row of a program takes."""

    def __init__(self):
        self.rows, self.construction, self.capture = [], [], []

    def add(self, seconds, job):
        if job is not None and job.construction_seconds is not None:
            captured = sum(program.capture_seconds for program in job.programs)
            self.construction.append(job.construction_seconds)
            self.capture.append(captured)
            seconds -= captured + job.construction_seconds
        if job is not None:
            seconds -= sum(program.take_ahead() for program in job.programs)
        self.rows.append(seconds)
        return seconds

    def __str__(self):
        parts = {
            "seconds a row": self.rows,
            "construction of a model": self.construction,
            "its capture": self.capture,
        }
        return "; ".join(
            f"{name} {statistics.median(seconds):.2f} (median), {max(seconds):.2f} (most)"
            for name, seconds in parts.items()
            if seconds
        )


def run(job, capacity):
    """Bytes, and whether that is more than there is; None where there is no limit."""
    if capacity == UNLIMITED:
        return job.run(UNLIMITED), None
    try:
        return job.run(capacity), False
    except OutOfMemory:
        return job.run(UNLIMITED), True


def predict(chosen, row, index, device, times):
    """Its prediction; of the row reason and seconds are written."""
    start = time.perf_counter()
    job, own, runs_out, reason = None, None, None, ""
    try:
        job = chosen.make(row, device)
        own, runs_out = run(job, chosen.capacity(row))
        doubts = set().union(*(program.doubts for program in job.programs))
        reason = "; ".join(sorted(doubts))
        # Figures that lack whole tensors are none.
        missing = [doubt for doubt in sorted(doubts) if "counted as 0 bytes" in doubt]
        if missing:
            own, runs_out, reason = None, None, missing[0]
    except (KoilaError, RuntimeError, Unpredicted) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    row["reason"] = reason
    row["seconds"] = f"{times.add(time.perf_counter() - start, job):.3f}"
    return gpu_scores.Prediction(
        own,
        chosen.measured(row),
        chosen.usable(row),
        chosen.card(row),
        chosen.left_out(row, index),
        chosen.scores_bytes(row),
        runs_out,
        0 if own is None else job.spare_bytes,
    )


def list_causes(rows, predictions):
    """Lines with how many rows each doubt or refusal has."""
    doubts, refusals = collections.Counter(), collections.Counter()
    for row, prediction in zip(rows, predictions, strict=True):
        if prediction.own is None:
            refusals[row["reason"]] += 1
        else:
            doubts.update(filter(None, row["reason"].split("; ")))
    return [
        f"{count} rows {kind}: {cause}"
        for kind, counter in (("without a prediction", refusals), ("in doubt", doubts))
        for cause, count in counter.most_common()
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows")
    parser.add_argument("--device")
    parser.add_argument("--context", type=int)
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--exact", type=float, default=0)
    parser.add_argument("-o", "--output")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--causes", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with open(options.rows, encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or [])
            rows = list(reader)
    except OSError as error:
        sys.exit(f"error: {error}")
    chosen = find_set(set(columns))
    models = list(dict.fromkeys(map(chosen.model, rows)))
    kept = set(models[:: options.models])
    rows = [row for row in rows if chosen.model(row) in kept]
    rows = rows[:: options.every][: options.count]
    chosen.expect(rows)
    predictions, times = [], Times()
    for index, row in enumerate(rows):
        each = predict(chosen, row, index, options.device, times)
        predictions.append(each)
        if options.verbose:
            figures = [size and round(size / MIB) for size in (each.own, each.measured)]
            print(*figures, row["reason"][:150], file=sys.stderr, flush=True)
    fits = gpu_scores.add_context(predictions, options.context, options.pooled)
    for row, each in zip(rows, predictions, strict=True):
        row["predicted_bytes"] = "" if each.shown is None else round(each.shown)
        row["safe_bytes"] = "" if each.safe is None else round(each.safe)
    if options.output:
        with open(options.output, "w", encoding="utf-8", newline="") as file:
            more = ["predicted_bytes", "safe_bytes", "seconds", "reason"]
            writer = csv.DictWriter(file, [*columns, *more])
            writer.writeheader()
            writer.writerows(rows)
    if options.causes:
        print("\n".join(list_causes(rows, predictions)))
    print(times)
    print("\n".join(gpu_scores.describe(predictions, fits)))
    exact = sum(abs(each.shown - each.measured) < MIB for each in predictions if each.has_error)
    if exact < options.exact * len(rows):
        sys.exit(f"error: less than {100 * options.exact:.1f} % are exact to the MiB")


if __name__ == "__main__":
    main()
