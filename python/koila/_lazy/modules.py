"""Samples that a program makes beside its batch, as the noise of a generator.

``x = koila.lazy(x, batch=0)`` says which tensors are batches, and a network that
is trained with noise beside them needs as much memory for that. So what a module
is given while gradients are recorded, with as many samples as the batch, is
recorded as well, for as long as the program has something of that batch. Without
gradients it may be another batch, which the program has not named: it is not
recorded, and it is said if it takes more than there is.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from koila import memory
from koila._capture.by_memory import place_of
from koila._capture.frames import find_frames
from koila._capture.recorder import make_leaf, wrap
from koila._capture.thread_recordings import recording
from koila._capture.values import Origin
from koila._execute.flush import watch_input
from koila._lazy.limits import limit_of

__all__ = ["remember_batch", "watch_modules"]

_CALL: CodeType = nn.Module._call_impl.__code__


class _Latest(threading.local):
    """The batch of the last ``koila.lazy``, and the tensors that were given to it:
    where the program uses these by their plain names, that is its choice."""

    origin: weakref.ref[Origin] | None = None
    given: tuple[weakref.ref[Tensor], ...] = ()
    # The module that runs on samples which nobody has named, and what it takes.
    running: tuple[nn.Module, memory.Counter, Origin] | None = None


_latest = _Latest()


def remember_batch(origin: Origin, given: list[Tensor]) -> None:
    """From now on samples are as many as in this batch."""
    _latest.origin = weakref.ref(origin)
    _latest.given = tuple(map(weakref.ref, given))


def watch_modules() -> None:
    # PyTorch's annotation does not know of hooks that replace what is given.
    register_module_forward_pre_hook(_take_samples)  # type: ignore[arg-type]
    register_module_forward_hook(_say_what_it_took, always_call=True)


def _take_samples(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    origin = None if _latest.origin is None else _latest.origin()
    if origin is None or recording.busy:
        return None
    if _latest.running is not None:
        if _is_nested():
            return None
        # An interrupt, of which no hook is told, has ended it.
        _stop_counting()
    if torch._C._get_tracing_state() or torch.compiler.is_compiling():
        return None
    if any(type(item) is not Tensor for item in inputs) or not _has_samples(inputs, origin):
        return None
    if _is_nested():
        return None
    if isinstance(module, torch.jit.ScriptModule) or type(module).__module__.startswith("koila."):
        return None
    if next(module.parameters(), None) is None:
        return None
    if not torch.is_grad_enabled():
        counted = memory.count_memory(inputs[0].device)
        _latest.running = module, counted.__enter__(), origin
        return None
    return tuple(_record(item, origin) if _is_samples(item, origin) else item for item in inputs)


def _stop_counting() -> tuple[memory.Counter, Origin]:
    assert _latest.running is not None
    _, counted, origin = _latest.running
    _latest.running = None
    counted.__exit__()
    return counted, origin


def _say_what_it_took(module: nn.Module, inputs: tuple[Any, ...], _: Any) -> None:
    if _latest.running is None or _latest.running[0] is not module:
        return
    counted, origin = _stop_counting()
    limit = limit_of(frozenset({origin.budget}), inputs[0].device)
    if counted.get_peak() > limit.budget:
        limit.announce(
            f"'{type(module).__name__}' ran whole on samples that koila.lazy was not given, and "
            f"took {memory.format_bytes(counted.get_peak())} of "
            f"{memory.format_bytes(limit.budget)}; give them to koila.lazy with the batch",
            find_frames(),
        )


def _has_samples(inputs: tuple[Any, ...], origin: Origin) -> bool:
    return any(_is_samples(item, origin) for item in inputs)


def _is_samples(tensor: Tensor, origin: Origin) -> bool:
    dim = origin.batch or 0
    if dim >= tensor.dim() or tensor.shape[dim] != origin.size:
        return False
    if tensor.layout != torch.strided or tensor.is_inference():
        return False
    alive = [given for reference in _latest.given if (given := reference()) is not None]
    place = place_of(tensor)
    return place is not None and all(place_of(given) != place for given in alive)


def _is_nested() -> bool:
    """Whether a module calls this one: what it gives has a meaning of its own, as
    positions, of which there may be as many by chance."""
    frame: FrameType | None = sys._getframe(1)
    calls = 0
    while frame is not None and calls < 2:
        calls += frame.f_code is _CALL
        frame = frame.f_back
    return calls > 1


def _record(tensor: Tensor, origin: Origin) -> Any:
    """A lazy tensor with these samples. It does not keep the tensor, so that
    koila notices when the program lets it go."""
    plain = tensor
    if not tensor.requires_grad:
        plain = tensor.detach()
        watch_input(tensor)
    leaf = make_leaf(plain)
    leaf.source = origin
    return wrap(leaf)
