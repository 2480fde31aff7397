"""Where a program runs, and what of it is there before it does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from koila._capture.graphs import measure_graphs
from koila._capture.memory import written_by
from koila._capture.program import Program
from koila._capture.thread_recordings import recording
from koila._capture.values import Value
from koila._device import describe_mix, find_device_of

__all__ = ["find_device", "find_resident"]


def find_device(program: Program) -> tuple[torch.device, str | None]:
    """Where a program runs, and what is where if that is more than one device: then it is
    the first that is no CPU, whose memory is less."""
    devices = {leaf.meta.device for leaf in program.leaves}
    for node in program.nodes:
        devices.update(meta.device for meta in node.call.metas)
    found = find_device_of(sorted(devices, key=str))
    if len(devices) < 2:
        return found, None
    kinds = {True: "a weight", False: "a tensor"}
    tensors = [
        (kinds[isinstance(leaf.tensor, nn.Parameter)], leaf.meta.shape, leaf.meta.device)
        for leaf in program.leaves
    ]
    for node in program.nodes:
        name = getattr(node.call.function, "__name__", node.call.function)
        tensors += [(f"a result of '{name}'", x.shape, x.device) for x in node.call.metas]
    return found, describe_mix(tensors)


# Of a tensor that the leaf of a program alone holds, with those of the question.
_OWN_REFERENCES = 3
# Of a base that its view alone holds, with those of the question; and of their memory,
# with that by which the recording knows the view.
_BASE_REFERENCES = 3
_STORAGE_REFERENCES = 4
# Of their memory, by each further view.
_VIEW_REFERENCES = 2
_use_count: Any = torch._C._storage_Use_Count


def find_resident(program: Program, device: torch.device) -> int:
    """Bytes on the device of masks that were drawn, of what has been computed of the batch
    and is held, as what a read has found that a step computes again, of what nobody else
    holds any more, as the first state of a recurrent layer, and of graphs: those that programs have
    left, and those of the user's that end here."""
    values = [*program.leaves, *recording.list_all()]
    given = {
        tensor.untyped_storage().data_ptr()
        for value in values
        if value.origin
        for tensor in value.list_tensors()
    }
    found: dict[int, int] = {}  # bytes by storage
    for value in _list_computed(program):
        for computed in value.list_tensors():
            if computed.device != device:
                continue
            storage = computed.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if value.group.external:
                # It may be a view of memory of the user's.
                size = min(size, computed.nbytes)
            found[place] = max(size, found.get(place, 0))
    # Gradients of inputs are results of the steps before; those of weights are beside.
    gradients = [_gradient_of(value.tensor) for value in values]
    for gradient in (*gradients, *(reference() for reference in recording.gradients)):
        if gradient is not None and gradient.device == device:
            found.setdefault(gradient.untyped_storage().data_ptr(), gradient.nbytes)
    own: dict[int, list[torch.Tensor]] = {}
    for leaf in program.leaves:
        tensor = leaf.tensor
        if tensor is None or tensor.layout is not torch.strided or leaf.origin:
            continue
        if tensor.device != device:
            continue
        # Views of what was given have no bytes of their own.
        if leaf.source is not None or sys.getrefcount(tensor) <= _OWN_REFERENCES:
            own.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for place, tensors in own.items():
        found.setdefault(place, _own_bytes(tensors))
    resident = sum(size for place, size in found.items() if place not in given)
    ends = (leaf.tensor for leaf in program.leaves if leaf.tensor is not None)
    return resident + measure_graphs(ends, given | found.keys())


def _gradient_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """That of a tensor which is no weight."""
    if tensor is None or isinstance(tensor, nn.Parameter) or not tensor.is_leaf:
        return None
    gradient = tensor.grad
    return gradient if gradient is not None and gradient.layout is torch.strided else None


def _own_bytes(tensors: list[torch.Tensor]) -> int:
    """Of what nobody else holds, in one memory: parts of it keep all, as ``x.clone()[:n]``,
    or ``noise[t]`` of each step, where what they are parts of is gone."""
    base: Any = tensors[0]._base
    storage = tensors[0].untyped_storage()
    is_gone = base is not None and sys.getrefcount(base) <= _BASE_REFERENCES
    others = _VIEW_REFERENCES * (len(tensors) - 1)
    if is_gone and _use_count(storage._cdata) <= _STORAGE_REFERENCES + others:
        return storage.nbytes()
    return min(sum(tensor.nbytes for tensor in tensors), storage.nbytes())


def _list_computed(program: Program) -> Iterator[Value]:
    """What the user's program holds that was computed of the batches that this one is made
    of, or that this one computes again or reads."""
    calls = {leaf.source.call for leaf in program.leaves if leaf.source is not None}
    nodes, leaves = set(program.nodes), set(program.leaves)
    values = recording.list_all()
    for value in (*values, *_list_before_writes(values)):
        is_of_batch = value.source is not None and value.source.call in calls
        is_seen = value.tensor is None and (value.node in nodes or value in leaves)
        if is_of_batch or is_seen:
            yield value


def _list_before_writes(values: list[Value]) -> Iterator[Value]:
    """What there is of their memory from before writes that have still to run: nobody holds
    it, and reads begin with a copy of what was seen of it."""
    groups = {value.group for value in values}
    waiting = list(groups)
    while waiting:
        write = waiting.pop().open_write()
        for written in () if write is None else written_by(write):
            if written.group not in groups:
                groups.add(written.group)
                waiting.append(written.group)
                yield from written.group.list_members()
