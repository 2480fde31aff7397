"""How far predictions of what a card shows are from what was measured."""

import collections
import dataclasses
import statistics
from typing import Any

MIB = 1 << 20
#: A fitting job that is predicted below this part of the measured counts as a failure.
LOWEST = 0.95
#: The part of the rows it is fitted on for which a safe figure may be too low; 5 % are
#: allowed, and the rows that it is for are of other groups.
TOO_LOW = 0.04


@dataclasses.dataclass
class Prediction:
    """Of one row."""

    #: What the allocator reserves; None without a prediction.
    own: int | None
    #: What the card showed; None where the job ran out of memory.
    measured: int | None
    usable: int
    card: Any
    left_out: Any
    scores_bytes: bool
    #: Whether the simulated job ran out of memory; None where it had no limit.
    runs_out: bool | None = None
    #: What a safe figure has beside what is expected.
    spare: int = 0
    #: What the card shows beside the allocator is added, and a factor makes it safe.
    shown: float | None = None
    safe: float | None = None

    @property
    def has_error(self):
        return self.shown is not None and self.measured is not None and self.scores_bytes

    @property
    def error(self):
        return (self.shown - self.measured) / self.measured

    @property
    def is_right_verdict(self):
        above = self.shown > self.usable if self.runs_out is None else self.runs_out
        return above == (self.measured is None)

    @property
    def is_failure(self):
        return not self.is_right_verdict or (self.has_error and 1 + self.error < LOWEST)


def fit_context(predictions):
    """The constant that is right most often, in whole MiB; else that of the least sum of
    relative errors, the median in which large jobs count less. Nothing takes less than
    no bytes."""
    pairs = [(each.measured - each.own, each.measured) for each in predictions]
    counts = collections.Counter(rest // MIB for rest, _ in pairs)
    best, times = counts.most_common(1)[0]
    if times * 4 >= len(pairs):
        return best * MIB
    half, seen = sum(1 / measured for _, measured in pairs) / 2, 0.0
    for rest, measured in sorted(pairs):
        seen += 1 / measured
        if seen >= half:
            return max(rest, 0)
    raise AssertionError("no row is in the middle")


def fit_factor(predictions):
    """The least factor with which no more rows than allowed are predicted too low."""
    ratios = sorted(each.measured / (each.shown + each.spare) for each in predictions)
    return max(1.0, ratios[len(ratios) - 1 - int(len(ratios) * TOO_LOW)])


def add_context(predictions, given, is_pooled):
    """What the cards show: each fit is from rows of the same card, or of all cards, that
    are of another group than the row it is used for. Returns the constants and factors."""
    fits: dict = {}
    known = [each for each in predictions if each.own is not None]
    scored = [each for each in known if each.measured is not None and each.scores_bytes]
    keys = [(None if is_pooled else each.card, each.left_out) for each in known]
    others = {
        key: [
            each
            for each in scored
            if (key[0] is None or each.card == key[0]) and each.left_out != key[1]
        ]
        or scored
        for key in set(keys)
    }
    for key in others if scored or given is not None else ():
        fits[key] = [given if given is not None else fit_context(others[key])]
    for each, key in zip(known, keys, strict=True):
        if key in fits:
            each.shown = each.own + fits[key][0]
    for key, fit in fits.items():
        fit.append(fit_factor(others[key]) if others[key] else 1.0)
    for each, key in zip(known, keys, strict=True):
        if key in fits:
            each.safe = (each.shown + each.spare) * fits[key][1]
    return fits


def describe(predictions, fits):
    """Lines for a person; the last one is for tests too."""
    lines = []
    for card in sorted({str(key[0] or "all cards") for key in fits}):
        own = [fit for key, fit in fits.items() if str(key[0] or "all cards") == card]
        contexts, factors = zip(*own, strict=True)
        lines.append(
            f"{card}: context {_spread([each / MIB for each in contexts], '.0f')} MiB, "
            f"safe factor {_spread(factors, '.3f')}"
        )
    known = [each for each in predictions if each.shown is not None]
    scored = [each for each in known if each.has_error]
    off = [abs(each.shown - each.measured) / MIB for each in scored]
    errors = [each.error for each in scored]
    if scored:
        surplus = [each.safe / each.measured - 1 for each in scored]
        lines += [
            f"exact to the MiB {_share(each < 1 for each in off)}, "
            f"within 2 MiB {_share(each <= 2 for each in off)}, "
            f"worst {100 * max(map(abs, errors)):.2f} %",
            f"safe figure: too low {_share(each < 0 for each in surplus)}, "
            f"median surplus {100 * statistics.median(surplus):.2f} %",
        ]
    if known:
        lines.append(
            f"verdicts right {_share(each.is_right_verdict for each in known)} of {len(known)}; "
            f"wrong, or below {LOWEST} of the measured: "
            f"{_share(each.is_failure for each in known)}"
        )
    sizes = sorted(map(abs, errors)) or [float("nan")]
    lines.append(
        f"{len(predictions)} rows, predicted {len(known)}, "
        f"median error {100 * statistics.median(sizes):.2f} %, "
        f"p90 {100 * sizes[min(len(sizes) * 9 // 10, len(sizes) - 1)]:.2f} %, "
        f"under {_share(error < 0 for error in errors)}"
    )
    return lines


def _share(flags):
    flags = list(flags)
    return f"{100 * sum(flags) / max(len(flags), 1):.1f} %"


def _spread(values, form):
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
