#!/usr/bin/env python3
"""Steps in segments keep their budget, and leave what plain PyTorch leaves.

Usage: segment_budgets.py KOILA_RUN SCRATCH [NAME...]

Each case of segments.py is compiled for the smallest budget that works, and for
some above it: the less there is, the more of the forward pass is made again. At
each, what a step leaves may be 1e-11 off in float64, and the file that is saved
holds at its peak what is predicted, to the byte, and no more than the budget. The
control is a step that keeps all that crosses, which exceeds the smallest budget
where keeping less saves anything.
"""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor

import koila
import segments

NAMES = (
    "residual_network",
    "wide_stem",
    "deep_supervision",
    "pooled_and_added",
    "pooled_and_joined",
    "pooled_and_normalised",
    "pooled_and_averaged",
    "inverted_residuals",
    "shuffled_channels",
    "split_scales",
    "frozen_stem",
    "frozen_layers_with_statistics",
    "frozen_extractor",
    "norms_of_vectors_and_volumes",
    "norms_of_words",
    "one_norm_called_twice",
    "frozen_and_trained_norms",
    "dice_over_the_batch",
)
# Of vectors of a few numbers, statistics and tiles take more than what is kept.
SAVES_NOTHING = {"frozen_and_trained_norms"}
BATCH = 16
# Bytes of the first layer of a batch: neither it nor its gradient need be there as a whole.
LAYER = {
    "wide_stem": BATCH * 16 * 24 * 24 * 8,
    "frozen_stem": BATCH * 32 * 9 * 9 * 8,
    "frozen_extractor": BATCH * 24 * 9 * 9 * 8,
}
SHARES = (1.0, 1.1, 1.4)


def measure(run: str, path: Path, args: tuple[Tensor, ...]) -> tuple[int, int]:
    """The bytes that a step of the file at ``path`` takes, and those predicted."""
    specs = []
    for x in args:
        extents = ",".join(["B", *map(str, x.shape[1:])])
        name = str(x.dtype).removeprefix("torch.")
        # Labels, of which each case has three or five.
        values = "{0:3}" if not x.is_floating_point() else ""
        specs.append(f"--input={name}[{extents}]{values}")
    how = [f"--batch=B={BATCH}", "--mode=train", "--threads=1", "--repeat=1", "--json"]
    found = subprocess.run(
        [run, str(path), *specs, *how],
        check=True,
        capture_output=True,
        text=True,
    )
    (figures,) = json.loads(found.stdout)["programs"]
    assert figures["predicted_exact"], figures
    return figures["measured_peak_bytes"], figures["predicted_peak_bytes"]


def check(name: str, run: str, scratch: Path) -> bool:
    step, draw = segments.prepare(name)
    args = draw(BATCH)
    build = functools.partial(
        koila.compile,
        mode="train",
        guard="raise",
        threads=1,
        recompute="auto",
        # Two samples of the original, with which it would be compared, may take more.
        check=False,
    )
    try:
        build(copy.deepcopy(step), *args, budget=1)
        raise AssertionError("one byte is no budget")
    except koila.BudgetError as error:
        least = error.smallest_budget
    assert least is not None
    keeps = build(copy.deepcopy(step), *args, tile=2, budget=None)
    keeps.save(scratch / "keeps.pt")
    control = measure(run, scratch / "keeps.pt", args)[0]
    right, worst, peaks = control > least or name in SAVES_NOTHING, 0.0, []
    right &= least < LAYER.get(name, least + 1)
    for share in SHARES:
        budget = int(least * share)
        source = copy.deepcopy(step)
        tiled = build(source, *args, budget=budget)
        tiled.save(scratch / "tiled.pt")
        measured, predicted = measure(run, scratch / "tiled.pt", args)
        right &= measured == predicted <= budget
        peaks.append(measured)
        for batch in (BATCH, BATCH - 3):
            given = draw(batch)
            plain = copy.deepcopy(step)
            plain(*given).backward()
            source.load_state_dict(step.state_dict())
            source.zero_grad()
            tiled.train_step(*given)
            worst = max(worst, segments.distance(segments.leave(source), segments.leave(plain)))
    right &= worst <= segments.ALLOWED
    verdict = "right" if right else "WRONG"
    print(f"{name:30} {worst:.1e} off, {peaks} of {least} and more, {control} kept: {verdict}")
    return right


def main() -> int:
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error")
    run, scratch, *names = sys.argv[1:]
    Path(scratch).mkdir(exist_ok=True)
    names = names or list(NAMES)
    wrong = sum(not check(name, run, Path(scratch)) for name in names)
    print(f"{len(names)} steps, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
