"""From an ``nn.Module`` to TorchScript: scripted, else traced and checked."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import torch
from torch import nn

from koila._errors import BudgetError, CompileError, KoilaWarning, Location
from koila._inputs import Inputs

T = TypeVar("T")
# Elements that are compared at once.
_PART = 1 << 13

# Why modules of a class cannot be scripted.
_failures: weakref.WeakKeyDictionary[type, tuple[str, Location | None]]
_failures = weakref.WeakKeyDictionary()


def with_script(
    module: nn.Module,
    inputs: Inputs,
    use: Callable[[torch.jit.ScriptModule], T],
    is_enough: Callable[[T], bool] = lambda _: True,
) -> T:
    """What ``use`` makes of a ScriptModule that does what ``module`` does and
    shares its tensors.

    Scripted if TorchScript can express the module. Else, or where ``use``
    refuses what was scripted, or makes of it what is not enough while a trace
    gives what is, traced: that needs example tensors, is compared
    with the module at two batch sizes, and the code that a trace cannot follow
    is warned of by its line. Raises CompileError with the line that TorchScript
    cannot express, or that ``use`` refuses, or where the trace computes
    something else.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return use(module)
    name = type(module).__name__
    found: T | None = None
    refusal: CompileError | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted: torch.jit.ScriptModule = torch.jit.script(module)
    except Exception as error:  # torch raises of every type here
        why, place = _explain(error)
        # From the second time on PyTorch says only that there was a first.
        if why.startswith("Can't redefine method"):
            why, place = _failures.get(type(module), (why, None))
        _failures[type(module)] = why, place
        refusal = CompileError(f"TorchScript cannot express {name}: {why}", place)
    else:
        try:
            found = use(scripted)
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
            traced = _trace(module, inputs)
        result = use(traced)
    except BudgetError:
        raise
    except CompileError as error:
        if refusal is None:
            return cast(T, found)
        raise (
            _add_note(refusal, error.message) if isinstance(error, _NoTrace) else refusal
        ) from None
    if refusal is None and not is_enough(result):
        return cast(T, found)
    _warn_of(name, caught)
    return result


def _warn_of(name: str, caught: list[warnings.WarningMessage]) -> None:
    """One warning of all the code that a trace takes for constant. PyTorch's own
    looks at shapes, which the comparison and the guard cover."""
    own = os.path.dirname(torch.__file__) + os.sep
    places = dict.fromkeys(
        (warning.filename, warning.lineno)
        for warning in caught
        if issubclass(warning.category, torch.jit._trace.TracerWarning)
        and not warning.filename.startswith(own)
    )
    if not places:
        return
    file, line = next((p for p in places if "site-packages" not in p[0]), next(iter(places)))
    listed = ", ".join(f"{other}:{number}" for other, number in list(places)[:5])
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    warnings.warn_explicit(
        f"{name} was traced: what Python decides there, by values of tensors, stays as it was "
        f"for the example: {listed}{more}",
        KoilaWarning,
        file,
        line,
    )


def _add_note(error: CompileError, note: str) -> CompileError:
    return CompileError(error.message, error.location, (*error.notes, note))


class _NoTrace(CompileError):
    """A module that cannot be traced, or not for every batch."""


def _trace(module: nn.Module, inputs: Inputs) -> torch.jit.ScriptModule:
    # A batch of one would be folded into broadcasts.
    sizes = (3, 2)
    try:
        # With grad mode on: under no_grad some modules take kernels that cannot
        # be differentiated.
        with preserved(module), torch.enable_grad():
            traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]
                module, inputs.resize(sizes[0]), check_trace=False
            )
    except Exception as error:
        raise _NoTrace(f"it cannot be traced, either: {_explain(error)[0]}") from None
    for size in sizes:
        arguments = inputs.resize(size)
        with preserved(module), torch.no_grad():
            wanted = module(*arguments)
        try:
            with preserved(module), torch.no_grad():
                found = traced(*arguments)
        except Exception as error:
            problem: str | None = _explain(error)[0]
        else:
            problem = compare(found, wanted)
        if problem:
            raise _NoTrace(f"a trace of it is wrong for a batch of {size}: {problem}")
    return traced


def seed(devices: Iterable[torch.device]) -> None:
    """Draws on the host and on these GPUs are the same from here on. Unlike with
    ``torch.manual_seed``, those of other GPUs go on."""
    torch.default_generator.manual_seed(0)
    for device in devices:
        torch.cuda.default_generators[device.index or 0].manual_seed(0)


@contextlib.contextmanager
def preserved(module: nn.Module) -> Iterator[None]:
    """Buffers of ``module`` are afterwards what they were, and random numbers
    are drawn from a fixed seed, without a trace in the generators."""
    saved = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        seed(devices)
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in saved:
                    buffer.copy_(value)


def compare(found: Any, wanted: Any) -> str | None:
    """How two results differ by more than rounding; None if they do not."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            return f"{type(found).__name__} in place of a tensor"
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            shapes = tuple(found.shape), tuple(wanted.shape)
            return f"{found.dtype} {shapes[0]} in place of {wanted.dtype} {shapes[1]}"
        if not wanted.dtype.is_floating_point and not wanted.dtype.is_complex:
            return None if torch.equal(found, wanted) else "other integers"
        return _compare_numbers(found.detach(), wanted.detach())
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            return "other keys"
        pairs = [(found[key], wanted[key]) for key in wanted]
    elif isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return "another number of results"
        pairs = list(zip(found, wanted, strict=True))
    else:
        return None if found == wanted else f"{found!r} in place of {wanted!r}"
    for left, right in pairs:
        if problem := compare(left, right):
            return problem
    return None


def _compare_numbers(found: torch.Tensor, wanted: torch.Tensor) -> str | None:
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    error = size = 0.0
    lefts, rights = found.reshape(-1), wanted.reshape(-1)
    # A part at a time: where this runs there may be little memory.
    for start in range(0, rights.numel(), _PART):
        left, right = (part[start : start + _PART].to("cpu", wide) for part in (lefts, rights))
        finite = torch.isfinite(right)
        if not torch.equal(finite, torch.isfinite(left)):
            return "not finite at other places"
        error += float((left - right)[finite].norm()) ** 2
        size += float(right[finite].norm()) ** 2
    # Other kernels round otherwise, and rounding adds up in depth.
    if error > torch.finfo(wanted.dtype).eps * size:
        return f"off by {error**0.5:.3g} in norm, of {size**0.5:.3g}"
    return None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(":") if lines else "no reason given"


def _explain(error: Exception) -> tuple[str, Location | None]:
    """What torch said in one line, and the line of Python that it is about."""
    text = str(error)
    place = None
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        # The innermost outside of PyTorch, else the outermost.
        if place is None or "site-packages" not in file:
            place = Location(file, int(line))
    if place is None:
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if "site-packages" not in file and not file.endswith("koila/_script.py"):
                place = Location(file, trace.tb_lineno)
            trace = trace.tb_next
    if "Traceback of TorchScript" in text:
        # Errors of a run end with what happened.
        last = text.strip().splitlines()[-1]
        return last.removeprefix("RuntimeError: "), place
    return _first_line(text), place
