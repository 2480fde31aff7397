"""Predicted figures of lines beside measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from koila.compat.pytorch_memlab._sources import Source
from koila.compat.pytorch_memlab.line_profiler._tracer import Record

if TYPE_CHECKING:
    from koila.compat.pytorch_memlab.line_profiler._predictions import Kind

__all__ = ["COMPARED", "Compared", "compare"]

_PARTS = ("current", "peak", "increment")

#: Of a call: bytes above what was live at its start, when the line ended and at most; and
#: what the line added.
COMPARED = tuple(f"{how}_bytes.call.{part}" for how in ("predicted", "measured") for part in _PARTS)

#: By module and reason: the first call, and details of it.
_Reasons = dict[tuple[str, str], tuple[str, str]]

#: So many reasons are told.
_MOST_REASONS = 5


class Compared:
    """Of the lines of a function."""

    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._columns: dict[int, dict[str, int]] = {}
        self.notes: list[str] = []

    def set(
        self, line: int, predicted: Sequence[int] | None, measured: Sequence[int] | None
    ) -> None:
        columns = self._columns.setdefault(line, {})
        for how, figures in (("predicted", predicted), ("measured", measured)):
            for part, figure in zip(_PARTS, figures or (), strict=False):
                columns[f"{how}_bytes.call.{part}"] = figure

    def take(self, line: int, source: Source) -> dict[str, int]:
        """The columns of a line; each once."""
        return self._columns.pop(line, {}) if source is self._source else {}

    def rest(self) -> Iterator[tuple[int, Source, dict[str, int]]]:
        """Those of lines that were not taken."""
        if self._source is not None:
            for line, columns in self._columns.items():
                yield line, self._source, columns


def compare(record: Record, told: set[tuple[str, str]]) -> Compared:
    """The calls of a function, or of modules by its lines: of each the kind that needs the
    most. ``told``: modules that are not predicted, with the reason, of which somebody has
    heard."""
    found = Compared(record.watched_source)
    if record.predictions is None:
        return found
    reasons: _Reasons = {}
    chosen = _choose(list(record.watched), reasons)
    if chosen is not None:
        predicted = chosen.get_lines(record.code)
        measured = record.watched[chosen]
        if not predicted:
            chosen.reason = "the lines of what it runs are not known"
            reasons[chosen.name, chosen.reason] = (chosen.text, "")
            chosen = None
        else:
            for line in dict.fromkeys([*predicted, *measured]):
                found.set(line, predicted.get(line), measured.get(line))
            left_out = record.predictions.count_left_out(id(record))
            found.notes += _describe(chosen, "", len(record.watched), left_out)
    # A line of a call that is predicted has its part of that.
    for line, kinds in sorted(record.called.items()) if chosen is None else ():
        kind = _choose(list(kinds), reasons)
        if kind is not None:
            found.set(line, kind.total, kinds[kind])
            left_out = record.predictions.count_left_out((id(record), line))
            found.notes += _describe(kind, f"line {line}, ", len(kinds), left_out)
    new = [
        f"not predicted: {text}: {reason}{details}"
        for (name, reason), (text, details) in reasons.items()
        if (name, reason) not in told
    ]
    told.update(reasons)
    found.notes += new[:_MOST_REASONS]
    if len(new) > _MOST_REASONS:
        found.notes.append(f"not predicted: {len(new) - _MOST_REASONS} more")
    return found


def _choose(kinds: Sequence[Kind], reasons: _Reasons) -> Kind | None:
    """The kind of which the peak is predicted to be the largest; of equal ones that which
    ended last, as a module does of the parts that it calls."""
    for kind in kinds:
        if kind.report is None:
            reasons.setdefault((kind.name, kind.reason), (kind.text, kind.details))
    known = [kind for kind in kinds if kind.report is not None]
    return max(reversed(known), key=lambda kind: kind.peak, default=None)


def _describe(kind: Kind, where: str, count: int, left_out: int) -> list[str]:
    text = f"predicted: {where}{kind.text}, above what was live at the start of the call"
    if count + left_out > 1:
        text += f"; the largest of {count + left_out} kinds of calls"
    if left_out:
        text += f", of which {left_out} with no larger arguments were not analysed"
    return [text, *(f"predicted: {where}{note}" for note in kind.notes)]
