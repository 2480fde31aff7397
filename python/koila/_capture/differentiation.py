"""``torch.autograd.grad`` as a recorded call, so that what it returns can be
differentiated again: a gradient penalty."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila._capture.dispatch_cache import meta_of
from koila._capture.recorder import RecordedTensor, append_made, current, leaf_of
from koila._capture.values import Call, Meta, Slot, Value, is_open
from koila._errors import KoilaError

__all__ = ["record_gradient"]

_calls: dict[Any, Call] = {}


def record_gradient(
    outputs: list[Any], inputs: list[Any], grad_outputs: list[Any]
) -> tuple[Any, ...] | None:
    """Gradients of the outputs, with a graph; None where an input is no recorded
    tensor or weight that the outputs are made of."""
    entries: list[Value] = []
    for item in (*outputs, *inputs, *grad_outputs):
        if isinstance(item, RecordedTensor):
            entries.append(current(item))
        elif isinstance(item, Tensor):
            entries.append(leaf_of(item))
        else:
            return None
    ends, starts = entries[: len(outputs)], entries[len(outputs) :][: len(inputs)]
    if not all(map(is_open, ends)) or not all(value.meta.requires_grad for value in starts):
        return None
    metas = tuple(
        Meta(
            value.meta.shape,
            _contiguous(value.meta.shape),
            value.meta.dtype,
            value.meta.device,
            True,
        )
        for value in starts
    )
    key = tuple(value.meta for value in entries), len(outputs), len(inputs)
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _make_call(len(outputs), len(inputs), metas)
    made = append_made(call, list(entries))
    return tuple(made)


def _make_call(outputs: int, inputs: int, metas: tuple[Meta, ...]) -> Call:
    def differentiate(*tensors: Tensor) -> tuple[Tensor, ...]:
        if torch._C._get_tracing_state() is not None:
            # What autograd has saved would be constants of the trace.
            raise KoilaError("gradients that are differentiated again (create_graph=True)")
        ends, starts = tensors[:outputs], tensors[outputs : outputs + inputs]
        weights = tensors[outputs + inputs :] or None
        return torch.autograd.grad(ends, starts, weights, create_graph=True)

    return Call(
        function=differentiate,
        fill=lambda entries: (tuple(entries), {}),
        result=tuple(Slot(index) for index in range(inputs)),
        metas=metas,
        same=(None,) * inputs,
        shares=(None,) * inputs,
        writes=frozenset(),
        tracks=frozenset(),
        random=False,
        made=sum(m.nbytes for m in metas),
        grad=True,
        autocast=None,
        graph_names=("GradBackward",) * inputs,
        differentiates=True,
    )


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return meta_of(torch.empty(shape, device="meta")).stride
