"""Calls that give a tensor another shape, or take it out of its graph, in place. They write
no element: of what is recorded the name has another view from then on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila._capture.recorder import RecordedTensor, assign, current, record
from koila._capture.values import Value
from koila._lazy.dispatch import call, compute, handle

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
    # It keeps its graph, which has the shape of before.
    keeps_graph = value.meta.requires_grad and not torch.is_grad_enabled()
    plain = _VIEWS[func]
    if plain and _is_of_program(value) and not keeps_graph and value.retained is None:
        made = record(plain, args, kwargs)
        if isinstance(made, RecordedTensor):
            return _rename(value, made, target)
    call(func, args, kwargs)
    current(target)
    return target


@handle(Tensor.detach_)
def _detach(func: Any, args: Any, kwargs: Any) -> Any:
    target = args[0]
    value = current(target)
    if not _is_of_program(value):
        compute(func, args, kwargs)
        current(target)
        return target
    if value.node is not None and value.node.call.shares[value.index] is not None:
        return call(func, args, kwargs)  # PyTorch raises of views
    made = record(Tensor.detach, args, kwargs)
    assert isinstance(made, RecordedTensor)
    return _rename(value, made, target)


def _is_of_program(value: Value) -> bool:
    """Whether a recorded call has made it. What is the memory of others keeps its tensor."""
    return value.node is not None or not value.group.external


def _rename(old: Value, made: RecordedTensor, target: RecordedTensor) -> RecordedTensor:
    """Whoever holds the one holds the other from now on."""
    for reference in list(old.holders):
        holder = reference()
        if holder is not None and holder._value is old:
            assign(holder, made._value)
    return target
