"""Modules that TorchScript cannot express, traced and compared with themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from koila import _compiler, memory
from koila._capture.compare import compare, compare_gradients, put_aside
from koila._capture.cumulative import averaging_in_tensors, find_unfollowed
from koila._capture.frames import find_frames, warn_user
from koila._capture.inputs import SYMBOL, Arguments, Inputs
from koila._capture.layout import Layout
from koila._capture.module_snapshot import Changes, Snapshot
from koila._capture.owned_traces import trace
from koila._capture.reads import CodeReads, watch_calls
from koila._capture.structure import flatten
from koila._errors import CompileError, KoilaError, Location, explain_torch
from koila._interrupt import let_through
from koila._temporary import temporary_folder

__all__ = ["Captured", "NoTrace", "check_hooks", "trace_module", "warn_of_hooks"]


class NoTrace(CompileError):
    """A module that cannot be traced, or not for every batch."""


class _Raises(NoTrace):
    """The module itself raises for as few samples."""


@dataclass(frozen=True)
class Captured:
    """A ScriptModule that does what a module does and shares its tensors, with
    specs of its arguments.

    ``reads`` is what the code of the module reads beside it, None if it has none.
    Of a trace: how it is called, the attributes that only a call of the module
    assigns, and the lines where Python decided by values of tensors.
    """

    script: torch.jit.ScriptModule
    specs: tuple[str, ...]
    reads: CodeReads | None = None
    layout: Layout | None = None
    assigned: frozenset[str] = frozenset()
    decisions: tuple[Location, ...] = ()


# A batch of one would be folded into broadcasts. Of fewer samples than the first some
# modules can take no top five, say.
_FIRST_SIZES = (3, 5, 9, 17, 33, 65)


def trace_module(
    module: nn.Module,
    snapshot: Snapshot,
    inputs: Inputs,
    trains: bool,
    limit: int | None = None,
    runs: bool = False,
) -> Captured:
    """``module`` as a trace that computes the same for two batches, and where
    Python decided anything, also for what of the example is within ``limit`` bytes;
    if it ``trains``, the same gradients. Of what ``runs`` layers count their calls.
    Raises NoTrace where there is none."""
    path = find_unfollowed(module) if runs else None
    if path is not None:
        raise NoTrace(
            f"'{path}' averages its statistics over all calls (momentum=None), with a factor "
            "that a trace takes for constant; give it a momentum, or call eval() on it"
        )
    problem: _Raises | None = None
    for size in _FIRST_SIZES:
        if problem is not None and size > (inputs.size or 0):
            break
        try:
            return _trace_at((size, size - 1), module, snapshot, inputs, trains, limit, runs)
        except _Raises as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _trace_at(
    sizes: tuple[int, int],
    module: nn.Module,
    snapshot: Snapshot,
    inputs: Inputs,
    trains: bool,
    limit: int | None,
    runs: bool,
) -> Captured:
    """The trace at the first of ``sizes``, compared at both."""
    assert inputs.examples is not None
    try:
        # With grad mode on: under no_grad some modules take kernels that cannot
        # be differentiated.
        arguments = inputs.resize(sizes[0])
        with snapshot.preserved(watch=True) as changes, torch.enable_grad(), let_through():
            result, functions = watch_calls(lambda: _call(module, arguments))
            layout = Layout(arguments, result)
            del result
        _check_changes(module, changes)
        reads = CodeReads(module, functions)
        if not layout.has_results:
            raise NoTrace("forward() returns no tensor")
        arguments = inputs.resize(sizes[0])
        tensors = layout.take(arguments) or []
        recorded = warnings.catch_warnings(record=True)
        counts = averaging_in_tensors(module) if runs else contextlib.nullcontext()
        with snapshot.preserved(), torch.enable_grad(), counts, recorded as caught:
            warnings.simplefilter("always")
            traced = trace(layout.make_traceable(module), tuple(tensors))
    except NoTrace:
        raise
    except Exception as error:
        raise NoTrace(f"it cannot be traced, either: {explain_torch(error)[0]}") from None
    numbers, objects = reads.leave_out_changes()
    if numbers:
        raise NoTrace(f"forward() changes {numbers[0]}, which a trace takes for constant")
    # Hooks are warned of apart.
    if objects and _find_hook(module) is None:
        warn_user(
            f"{type(module).__name__} was traced: forward() changes {', '.join(objects[:5])}, "
            "which compiled calls do not"
        )
    specs = tuple(inputs.list_specs(layout.take(inputs.examples) or []))
    made = Captured(traced, specs, reads, layout, frozenset(changes.attributes))
    # Of the batch that was traced, gradients say little, and take the most.
    for size, compute in zip(sizes, (_results_in_training, _gradients), strict=True):
        _check_trace(made, module, snapshot, inputs, size, compute if trains else _results, limit)
    decisions = _find_decisions(caught)
    if decisions:
        most = _most_samples(made, inputs, limit)
        if most > max(sizes):
            _check_trace(made, module, snapshot, inputs, most, _results, limit)
    return dataclasses.replace(made, decisions=decisions)


def _call(module: nn.Module, arguments: Arguments) -> Any:
    try:
        return arguments.call(module)
    except Exception as error:
        raise _Raises(f"it cannot be traced, either: {explain_torch(error)[0]}") from None


def _find_decisions(caught: list[warnings.WarningMessage]) -> tuple[Location, ...]:
    """PyTorch's own look at shapes, which the comparison and the guard cover."""
    own = os.path.dirname(torch.__file__) + os.sep
    places = (
        Location(warning.filename, warning.lineno)
        for warning in caught
        if issubclass(warning.category, torch.jit._trace.TracerWarning)
        and not warning.filename.startswith(own)
    )
    return tuple(dict.fromkeys(places))


def _most_samples(trace: Captured, inputs: Inputs, limit: int | None) -> int:
    """Of the example, those whose forward pass, and they themselves, are within the
    limit, or half of what is free."""
    size = inputs.size or 0
    try:
        limit = memory.free(inputs.device) // 2 if limit is None else limit
        report = _compiler.analyze_script(
            trace.script,
            trace.specs,
            batch={SYMBOL: size},
            budget=max(limit - inputs.resized_bytes(size), 0),
            device=inputs.device,
            floor=False,
            batches=0,
        )
    except KoilaError:
        return 0
    most = report["max_batch"]
    return size if most == "unbounded" else min(most or 0, size)


def _check_trace(
    trace: Captured,
    module: nn.Module,
    snapshot: Snapshot,
    inputs: Inputs,
    size: int,
    compute: Callable[[Callable[[], Any], nn.Module, Arguments], Any],
    limit: int | None,
) -> None:
    trains = compute is not _results
    suspects = _Suspects()
    layout = trace.layout
    assert layout is not None
    with temporary_folder() as folder:
        arguments = inputs.resize(size)
        try:
            with snapshot.preserved(), suspects, let_through():
                wanted = compute(lambda: arguments.call(module), module, arguments)
        except Exception as error:
            raise _Raises(
                f"a trace of it cannot be compared: the module raises for a batch of {size}: "
                f"{explain_torch(error)[0]}"
            ) from None
        wanted = put_aside(wanted, folder, _room(inputs, limit))
        arguments = inputs.resize(size)
        only_gradients = False
        try:
            with snapshot.preserved(), let_through():
                found = compute(lambda: layout.call(trace.script, arguments), module, arguments)
        except Exception as error:
            problem: str | None = explain_torch(error)[0]
        else:
            if compute is _gradients:
                problem = compare(found[0], wanted[0])
                if problem is None:
                    results: list[torch.Tensor] = []
                    flatten(found[0], results)
                    results = [result.detach() for result in results]
                    problem = compare_gradients(found[1], wanted[1], results)
                    only_gradients = problem is not None
            else:
                problem = compare(found, wanted)
    if trains and suspects.hook:
        raise NoTrace("a trace of it lacks the hook on a tensor of forward()", suspects.hook)
    if only_gradients:
        raise NoTrace(f"a trace of it has other gradients: {problem}", suspects.no_grad)
    if problem:
        raise NoTrace(f"a trace of it is wrong for a batch of {size}: {problem}")


def _room(inputs: Inputs, limit: int | None) -> int:
    """Bytes of results that may be in memory twice: a small part of what is free,
    where nobody has set a limit."""
    if limit is not None:
        return 0
    try:
        return memory.free(inputs.device) // 8
    except KoilaError:
        return 0


class _Suspects(TorchFunctionMode):
    """Where Python does to gradients what a trace does not keep."""

    def __init__(self) -> None:
        super().__init__()
        self.hook: Location | None = None
        self.no_grad: Location | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled" and args and not args[0]:
            self.no_grad = self.no_grad or Location(*find_frames()[1])
        elif name == "register_hook":
            self.hook = self.hook or Location(*find_frames()[1])
        return func(*args, **(kwargs or {}))


def _results(call: Callable[[], Any], _: nn.Module, arguments: Arguments) -> Any:
    with torch.no_grad():
        return call()


def _results_in_training(call: Callable[[], Any], _: nn.Module, arguments: Arguments) -> Any:
    """The same where autograd records them."""
    with torch.enable_grad():
        return call()


def _gradients(call: Callable[[], Any], module: nn.Module, arguments: Arguments) -> Any:
    """Results, and the gradients that random gradients of them give."""
    with torch.enable_grad():
        results = call()
    found: list[torch.Tensor] = []
    flatten(results, found)
    leaves = [leaf for leaf in found if leaf.requires_grad]
    if not leaves:
        return results, []
    wanted: list[torch.Tensor] = [p for p in module.parameters() if p.requires_grad]
    wanted += [leaf for leaf in arguments.tensors() if leaf.requires_grad]
    # Some functions are flat: what is random tells them from zeros. (A sum, since
    # PyTorch imports 500 modules for gradients that are given.)
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(())
    with torch.enable_grad():
        for leaf in leaves:
            outer = torch.randn(leaf.shape, generator=generator).to(leaf.device, leaf.dtype)
            total = total + (leaf * outer).real.sum().to("cpu", total.dtype)
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return results, list(gradients)


def _check_changes(module: nn.Module, changes: Changes) -> None:
    """What a call does to the module beside its result must be in the trace."""
    if changes.rebound:
        raise NoTrace(
            f"forward() assigns '{min(changes.rebound)}' anew, which a trace does not; write "
            "into it instead, as by add_()"
        )
    if changes.written:
        raise NoTrace(f"forward() writes to the weight '{min(changes.written)}'")
    if plain := sorted(name for name, is_plain in changes.attributes.items() if is_plain):
        raise NoTrace(f"forward() changes '{plain[0]}', which a trace takes for constant")
    # Hooks of PyTorch's own assign weights that they compute.
    computed = {
        f"{path}.".lstrip(".")
        for path, part in module.named_modules()
        if any(map(_is_of_torch, part._forward_pre_hooks.values()))
    }
    assigned = [name for name in changes.attributes if name[: name.rfind(".") + 1] not in computed]
    if assigned:
        names = ", ".join(f"'{name}'" for name in sorted(assigned)[:5])
        warn_user(
            f"{type(module).__name__} was traced: forward() assigns {names}, which compiled calls "
            "do not"
        )


def warn_of_hooks(module: nn.Module) -> None:
    """Hooks of Python are in a trace as what they did to tensors."""
    if (found := _find_hook(module)) is not None:
        path, hook = found
        warn_user(
            f"{type(module).__name__} was traced: of the forward hook of '{path}' "
            f"({getattr(hook, '__qualname__', type(hook).__name__)}) compiled calls keep "
            "only what it does to tensors"
        )


def _find_hook(module: nn.Module) -> tuple[str, Any] | None:
    """The first hook of the user, and the part that has it."""
    for path, part in module.named_modules():
        for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values()):
            if not _is_of_torch(hook):
                return path, hook
    return None


def _is_of_torch(hook: Any) -> bool:
    """Those of PyTorch itself compute weights, as weight_norm's."""
    own = getattr(hook, "__module__", "") or ""
    return own.startswith("torch.") or type(hook).__module__.startswith("torch.")


def check_hooks(module: nn.Module) -> None:
    """Raises CompileError if a part has hooks that no TorchScript step calls."""
    for path, part in module.named_modules():
        if not isinstance(part, torch.jit.ScriptModule) and (
            part._backward_hooks or part._backward_pre_hooks
        ):
            raise CompileError(
                f"'{path}' ({type(part).__name__}) has a backward hook, which a compiled step "
                "would not call",
                None,
                ("remove it, or train with koila.lazy, which calls it",),
            )
