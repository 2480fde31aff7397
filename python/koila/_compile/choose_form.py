"""Which of a module's forms as TorchScript is compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TypeVar, cast

from koila._capture.module_trace import NoTrace
from koila._capture.script import Captured, ModuleCapture
from koila._errors import BudgetError, CompileError, KoilaWarning, warn_at

__all__ = ["choose"]

T = TypeVar("T")


def choose(
    capture: ModuleCapture,
    use: Callable[[Captured], T],
    is_enough: Callable[[T], bool] = lambda _: True,
    *,
    may_script: bool = True,
) -> T:
    """What ``use`` makes of the module as it was scripted; or where TorchScript
    cannot express it, ``use`` refuses it (its budget may be too small for the form
    alone), or makes of it what is not enough
    while a trace gives what is, as it was traced. The code that a trace cannot
    follow is warned of by its line. Without ``may_script`` it is not scripted.

    Raises CompileError with the line that TorchScript cannot express, or that
    ``use`` refuses, or where the trace computes something else.
    """
    if capture.is_script:
        return use(capture.script())
    scripted: T | None = None
    refusal: CompileError | None = None
    try:
        if not may_script:
            raise CompileError("it is not scripted again")
        scripted = use(capture.script())
        if not capture.can_trace or is_enough(scripted):
            return scripted
    except CompileError as error:
        # A trace may be followed further: checks that it is without are barriers
        # to tiles.
        if isinstance(error, BudgetError) and not capture.can_trace:
            raise
        # Its traceback would keep all that was tried until a garbage collection.
        refusal = error.with_traceback(None)
        if not capture.can_trace:
            note = "give example tensors in place of specs, so that it can be traced"
            raise _add_note(error, note) from None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace = capture.trace()
            traced = use(trace)
    except BudgetError:
        raise
    except CompileError as error:
        if refusal is None:
            return cast(T, scripted)
        if isinstance(refusal, BudgetError):
            raise refusal from None
        raise _join(refusal, error) from None
    if refusal is None and not is_enough(traced):
        return cast(T, scripted)
    for warning in caught:
        if issubclass(warning.category, KoilaWarning):
            warn_at(str(warning.message), warning.filename, warning.lineno)
    capture.warn_of(trace)
    return traced


def _join(refusal: CompileError, error: CompileError) -> CompileError:
    """Why neither what was scripted nor a trace will do."""
    if isinstance(error, NoTrace):
        return _add_note(refusal, error)
    if error.message == refusal.message:
        return refusal
    text = f"nor can a trace of it be taken: {error.message}"
    return _add_note(refusal, CompileError(text, error.location))


def _add_note(error: CompileError, note: CompileError | str) -> CompileError:
    if isinstance(note, CompileError):
        place = note.location
        note = f"{place.file}:{place.line}: {note.message}" if place else note.message
    made = copy.copy(error)
    made.notes = (*error.notes, note)
    return made
