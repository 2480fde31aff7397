"""Views of what is computed are made of it, as in plain PyTorch: computed apart
they would take memory of their own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from koila._capture.batch_int import BatchInt
from koila._capture.memory import find_maker
from koila._capture.recorder import known
from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Value, is_open

__all__ = ["find_held_base", "find_shared", "has_base_in", "settle_views"]


def find_shared(value: Value) -> Value:
    """What has to be computed for a view, so that others which the program has of its memory
    are views of the same."""
    group = value.group
    others = (other for other in group.list_members() if other is not value)
    if value.meta.requires_grad or not value.is_held():
        return value
    if group.open_write() is not None or group.has_graph():
        return value
    if not any(other.node is not None and other.is_held() for other in others):
        return value
    *_, base = [value, *_bases_of(value)]
    return value if _tensor_of(base) is not None or base.meta.requires_grad else base


def has_base_in(value: Value, computed: set[Value]) -> bool:
    """Whether it is a view of one of these, or of what is there."""
    return any(base in computed or not is_open(base) for base in _bases_of(value))


def find_held_base(value: Value) -> Value:
    """What the program has of the memory that a view is one of, as much as it has of it."""
    return [value, *(base for base in _bases_of(value) if base.is_held())][-1]


def settle_views(settle: Callable[[Value, Tensor], None], anew: bool = False) -> None:
    """What the program holds of views of what is known now; if tensors were computed
    ``anew``, with their graphs, also of those that were seen. What was made of a
    tensor that has been computed anew since, with its graph, is made again: it
    would keep the memory of before."""
    for view in list(recording.views):
        _renew(view)
    made: dict[Node, list[Tensor]] = {}  # all rows by one call
    for value in recording.list_held():
        if value.failed or (value.seen is not None and not (anew and _is_there(value))):
            continue
        tensor = _make_view(value, made)
        if tensor is not None:
            _remember(value, tensor)
            settle(value, tensor)


def _is_there(value: Value) -> bool:
    """Whether what it is a view of has been computed with its graph since it was
    seen, and has other memory."""
    *_, base = [value, *_bases_of(value)]
    return base is not value and not is_open(base)


def _bases_of(value: Value) -> Iterator[Value]:
    """The tensor that it was made of, and so on to one that was computed."""
    base = _base_of(value)
    while base is not None:
        yield base
        base = None if _tensor_of(base) is not None else _base_of(base)


def _tensor_of(base: Value) -> Tensor | None:
    """What was seen of what nobody holds any more may be the memory of before."""
    return known(base) if base.is_held() or not is_open(base) else None


def _base_of(value: Value) -> Value | None:
    """What a call has made a view of, with nothing else that is to be computed."""
    node = value.node
    if node is None or node.done or node.call.writes:
        return None
    place = node.call.shares[value.index]
    others = [entry for i, entry in enumerate(node.inputs) if i != place]
    if place is None or any(isinstance(entry, Value) for entry in others):
        return None
    base: Value = node.inputs[place]
    if base.group is value.group:
        return base
    # What it was made of is another value since a write to both.
    made = find_maker(base)
    if made is None:
        return None
    layout = base.meta.shape, base.meta.stride
    for each in value.group.list_members():
        is_alike = (each.meta.shape, each.meta.stride) == layout  # no call has changed it
        if is_alike and each.is_held() and find_maker(each) == made:
            return each
    return None


def _call_of(node: Node, index: int) -> Callable[[Tensor], list[Tensor]]:
    """What has made a view and others with it. It does not keep what these were made
    of."""
    call = node.call
    place = call.shares[index]
    entries = [
        None if i == place else int(entry) if isinstance(entry, BatchInt) else entry
        for i, entry in enumerate(node.inputs)
    ]

    def make(base: Tensor) -> list[Tensor]:
        args, kwargs = call.fill([base if i == place else e for i, e in enumerate(entries)])
        with call.modes():
            return call.flatten(call.function(*args, **kwargs))

    return make


def _make_view(value: Value, made: dict[Node, list[Tensor]]) -> Tensor | None:
    """A view of what is known now; None of what is no such view."""
    base, node = _base_of(value), value.node
    if base is None or node is None:
        return None
    if node not in made:
        tensor = _tensor_of(base)
        if tensor is None:
            tensor = _make_view(base, made)
        elif is_open(base) or value.meta.requires_grad:
            tensor = tensor.detach()  # what is made is a number
        if tensor is None:
            return None
        made[node] = _call_of(node, value.index)(tensor)
    return made[node][value.index]


@dataclass(frozen=True)
class _Made:
    """A view of a tensor of which only the value is known so far."""

    value: weakref.ref[Value]
    tensor: weakref.ref[Tensor]
    base: weakref.ref[Value]
    calls: tuple[tuple[Callable[[Tensor], list[Tensor]], int], ...]


def _remember(value: Value, tensor: Tensor) -> None:
    *between, base = [value, *_bases_of(value)]
    if value.meta.requires_grad or base.node is None:
        return
    calls = tuple(
        (_call_of(item.node, item.index), item.index)
        for item in reversed(between)
        if item.node is not None
    )
    recording.views.append(_Made(weakref.ref(value), weakref.ref(tensor), weakref.ref(base), calls))


def _renew(view: _Made) -> None:
    value, tensor, base = view.value(), view.tensor(), view.base()
    if value is None or tensor is None or base is None or value.tensor is not tensor:
        recording.views.remove(view)
        return
    if base.tensor is None:
        return
    recording.views.remove(view)
    made = base.tensor
    for call, index in view.calls:
        made = call(made)[index]
    value.tensor = made
