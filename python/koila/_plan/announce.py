"""What koila says of a program: how it ran, and what it does not protect."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace

from koila._errors import BudgetError, KoilaError, Location, warn_at

__all__ = ["Announced", "Last", "announce", "is_strict", "last", "note", "restart", "strict"]


@dataclass(frozen=True)
class Last:
    """How the last recorded program ran.

    ``tile`` is the samples per tile, None if it ran whole; ``peak_bytes`` what
    koila predicted for it, None if it cannot; ``budget_bytes`` what there was;
    ``announced`` what was warned of; ``reads`` the forward passes that values
    read before it took beside its own.
    """

    tile: int | None
    peak_bytes: int | None
    budget_bytes: int | None
    announced: str | None
    reads: int = 0


class _State(threading.local):
    last: Last | None = None
    announced: str | None = None
    reads: int = 0


_state = _State()


def last() -> Last | None:
    """How the last recorded program of this thread ran; None before there was one."""
    return _state.last


def restart() -> None:
    """Another program is about to run."""
    _state.announced = None


def note(tile: int | None, peak: int | None, budget: int | None, *, is_read: bool = False) -> None:
    """How a program runs."""
    _state.last = Last(tile, peak, budget, _state.announced, _state.reads)
    _state.reads = _state.reads + 1 if is_read else 0


_strict = False


class strict:
    """From now on what would be a warning is a KoilaError: a program that does
    not fit and cannot be split, or whose memory koila cannot bound. In a
    ``with`` statement, until its end. ``strict(False)`` warns again."""

    def __init__(self, on: bool = True) -> None:
        global _strict
        self._before = _strict
        _strict = on

    def __enter__(self) -> strict:
        return self

    def __exit__(self, *exception: object) -> None:
        global _strict
        _strict = self._before


def is_strict() -> bool:
    return _strict


# What was warned of: file, line, and the text without its numbers and their units.
Announced = set[tuple[str, int, str]]


def announce(
    text: str, place: Location, known: Announced, error: BudgetError | None = None
) -> None:
    """Warns at a line of the user, once for each line and text among ``known``, of which
    there is one for each budget; if strict, raises ``error``, or else a KoilaError."""
    _state.announced = text
    _state.last = replace(_state.last or Last(None, None, None, None), announced=text)
    if _strict:
        if error is not None:
            raise BudgetError(text, place, (), error.smallest_budget)
        raise KoilaError(text, place)
    # The bytes differ from step to step, what is wrong does not.
    key = place.file, place.line, re.sub(r"[\d.,]+( (bytes|[KMG]iB))?", "", text)
    if key not in known:
        known.add(key)
        warn_at(text, place.file, place.line)
