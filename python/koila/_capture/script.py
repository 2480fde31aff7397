"""From an ``nn.Module`` to TorchScript: scripted, else traced and checked."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import nn

from koila._capture.inputs import Inputs
from koila._capture.module_trace import NoTrace, check_hooks, trace_module, warn_of_hooks
from koila._errors import BudgetError, CompileError, KoilaWarning, Location, explain_torch

T = TypeVar("T")
# Why modules of a class cannot be scripted.
_failures: weakref.WeakKeyDictionary[type, tuple[str, Location | None]]
_failures = weakref.WeakKeyDictionary()


def with_script(
    module: nn.Module,
    inputs: Inputs,
    use: Callable[[torch.jit.ScriptModule, frozenset[str]], T],
    is_enough: Callable[[T], bool] = lambda _: True,
    *,
    trains: bool = False,
) -> T:
    """What ``use`` makes of a ScriptModule that does what ``module`` does and
    shares its tensors, and of the attributes that only a call of ``module`` assigns.

    Scripted if TorchScript can express the module. Else, or where ``use``
    refuses what was scripted, or makes of it what is not enough while a trace
    gives what is, traced: that needs example tensors, is compared with the
    module at two batch sizes, where it ``trains`` also by gradients, and the
    code that a trace cannot follow is warned of by its line. Raises
    CompileError with the line that TorchScript cannot express, or that ``use``
    refuses, or where the trace computes something else.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return use(module, frozenset())
    if trains:
        check_hooks(module)
    name = type(module).__name__
    found: T | None = None
    refusal: CompileError | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted: torch.jit.ScriptModule = torch.jit.script(module)
    except Exception as error:  # torch raises of every type here
        why, place = explain_torch(error)
        # From the second time on PyTorch says only that there was a first.
        if why.startswith("Can't redefine method"):
            why, place = _failures.get(type(module), (why, None))
        _failures[type(module)] = why, place
        refusal = CompileError(f"TorchScript cannot express {name}: {why}", place)
    else:
        try:
            found = use(scripted, frozenset())
        except BudgetError:
            raise
        except CompileError as error:
            refusal = error
        else:
            if is_enough(found) or inputs.examples is None or inputs.size is None:
                return found
    # A trace has less in it: the branches that were taken.
    if inputs.examples is None or inputs.size is None:
        note = "give example tensors in place of specs, so that it can be traced"
        raise _add_note(cast(CompileError, refusal), note)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            traced = trace_module(module, inputs, trains)
            result = use(traced.script, traced.assigned)
    except BudgetError:
        raise
    except CompileError as error:
        if refusal is None:
            return cast(T, found)
        if not isinstance(error, NoTrace):
            if error.message == refusal.message:
                raise refusal from None
            error = CompileError(f"nor can a trace of it be taken: {error.message}", error.location)
        raise _add_note(refusal, error) from None
    if refusal is None and not is_enough(result):
        return cast(T, found)
    for warning in caught:
        if issubclass(warning.category, KoilaWarning):
            warnings.warn_explicit(warning.message, KoilaWarning, warning.filename, warning.lineno)
    if traced.decisions:
        _warn_of_decisions(name, traced.decisions)
    warn_of_hooks(module)
    return result


def _warn_of_decisions(name: str, places: list[Location]) -> None:
    """One warning of all the code that a trace takes for constant."""
    place = next((p for p in places if "site-packages" not in p.file), places[0])
    listed = ", ".join(f"{other.file}:{other.line}" for other in places[:5])
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    warnings.warn_explicit(
        f"{name} was traced: what Python decides there, by values of tensors, stays as it was "
        f"for a batch of 3: {listed}{more}",
        KoilaWarning,
        place.file,
        place.line,
    )


def _add_note(error: CompileError, note: CompileError | str) -> CompileError:
    if isinstance(note, CompileError):
        place = note.location
        note = f"{place.file}:{place.line}: {note.message}" if place else note.message
    return CompileError(error.message, error.location, (*error.notes, note))
