"""Calls that give a tensor another shape, or take it out of its graph, in place. They write
no element: of what is recorded the name has another view from then on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila._capture.frames import find_frames, location_of
from koila._capture.memory import is_view
from koila._capture.recorder import RecordedTensor, assign, current, holders_of, record
from koila._capture.thread_recordings import recording
from koila._capture.values import Value, detaching
from koila._errors import KoilaError
from koila._execute import executor
from koila._execute.overwritten import settle_readers
from koila._lazy.dispatch import call, compute, handle, handlers

__all__: list[str] = []

_VIEWS: dict[Any, Any] = {
    Tensor.squeeze_: Tensor.squeeze,
    Tensor.unsqueeze_: Tensor.unsqueeze,
    Tensor.t_: Tensor.t,
    Tensor.transpose_: Tensor.transpose,
    Tensor.swapaxes_: Tensor.swapaxes,
    Tensor.swapdims_: Tensor.swapdims,
    # Nothing is known of their memory that a view could have.
    Tensor.as_strided_: None,
    Tensor.resize_: None,
    Tensor.resize_as_: None,
}


@handle(*_VIEWS)
def _reshape(func: Any, args: Any, kwargs: Any) -> Any:
    target = args[0]
    if not isinstance(target, RecordedTensor):
        return call(func, args, kwargs)
    value = current(target)
    # (A view of no_grad() could not be written to with a graph.)
    is_view = torch.is_grad_enabled() and _is_of_program(value) and not _has_hooks(value)
    plain = _VIEWS[func]
    if plain and is_view:
        made = record(plain, args, kwargs)
        if isinstance(made, RecordedTensor):
            return _rename(value, made, target)
    _prepare(value)
    call(func, args, kwargs)
    current(target)
    return target


def _prepare(value: Value) -> None:
    """It is about to become another tensor, as a write makes it one: what is to read it does
    so now, and what looks at its memory is looked at again."""
    settle_readers(value)
    executor.expose_memory(value)


@handle(Tensor.detach_, torch.detach_)
def _detach(func: Any, args: Any, kwargs: Any) -> Any:
    target = args[0]
    value = current(target)
    if _is_of_program(value) and not (value.meta.requires_grad or is_view(value)):
        return target
    members = value.group.list_members()
    if value.tensor is not None:
        members += recording.watched.list_at(value.tensor)
    held = [other for other in dict.fromkeys(members) if other is not value and other.is_held()]
    # A write to a view of it takes what is left of its graph from the view.
    others = [other for other in held if other.meta.requires_grad]
    is_changed = value.is_renamed or _was_written(value)
    if (is_changed and others) or (value.is_renamed and any(map(_is_without_graph, held))):
        raise KoilaError(
            "a tensor that has been written to, or has another shape since a call in place, and of "
            "which the program holds a view with a graph or of no_grad(), cannot be detached in "
            "place",
            location_of(find_frames()),
            ("use detach() in the place of detach_()",),
        )
    if not value.is_renamed and (others or not _is_of_program(value)):
        executor.materialize([value, *others], find_frames(), "detach_()")
        _prepare(value)
        compute(func, args, kwargs)
        current(target)
        return target
    if is_view(value) or _has_hooks(value):
        return call(func, args, kwargs)  # PyTorch raises of views
    return _rename(value, handlers[Tensor.detach](Tensor.detach, (target,), {}), target)


def _is_of_program(value: Value) -> bool:
    """Whether a recorded call has made it. What is the memory of others keeps its tensor."""
    return value.node is not None or not value.group.external


def _was_written(value: Value) -> bool:
    """Whether PyTorch asks for the graph of a view anew, which may be after detach_()."""
    tensor = value.tensor
    has_version = tensor is not None and not tensor.is_inference() and tensor._version > 0
    return has_version or value.group.last_write is not None


def _is_without_graph(value: Value) -> bool:
    """Whether it is a view that no_grad() has made, to which PyTorch lets nobody write with
    a graph while its base has one."""
    node = value.node
    return node is not None and not node.call.grad and node.call.function not in detaching


def _has_hooks(value: Value) -> bool:
    """Whether somebody asks for its gradient."""
    return bool(value.hooks) or value.retained is not None


def _rename(old: Value, made: RecordedTensor, target: RecordedTensor) -> RecordedTensor:
    """Whoever holds the one holds the other from now on."""
    made._value.is_renamed = True
    for holder in holders_of(old):
        assign(holder, made._value)
    return target
