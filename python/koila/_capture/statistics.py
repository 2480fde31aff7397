"""Running statistics that recorded calls update, as those of batch normalisation in
training mode.

They are updated once for each call, by whatever runs it first. What the call returns does
not depend on them, so that it may run again without them. Source: batch_norm_cpu and
instance_norm in aten/src/ATen/native/Normalization.cpp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from torch import Tensor
from torch.nn.functional import batch_norm

from koila._capture.thread_recordings import recording
from koila._capture.values import Call, Node, Value, is_open

__all__ = ["is_momentum", "list_readers", "settle_updates", "show_updated"]


def settle_updates(nodes: Iterable[Node]) -> None:
    """A compiled program has updated the statistics of its calls: who runs one of them
    again makes no second update."""
    nodes = list(nodes)
    settled = [node for node in nodes if node.writes_outside and not node.done]
    for reader in list_readers(nodes):
        reader.is_stale = True
    for node in settled:
        written = node.call.writes
        for index in written:
            group = node.inputs[index].group
            if group.last_write is node:
                group.last_write = None
        node.inputs = tuple(
            [None if index in written else entry for index, entry in enumerate(node.inputs)]
        )
        node.call = _without_statistics(node.call)
        # What was to read them before has no more to do with this call.
        node.deps = tuple([dep for dep in node.deps if dep.call.writes])
        node.writes_outside = False
    recording.pending[:] = [node for node in recording.pending if node.writes_outside]
    show_updated()


def list_readers(nodes: Iterable[Node]) -> list[Node]:
    """The calls beside a program that read what its calls are to update, and were recorded
    before these."""
    inside = set(nodes)
    found = {
        reader: None
        for node in inside
        if node.writes_outside and not node.done
        for reader in node.deps
        if not (reader.done or reader.call.writes or reader in inside)
        and _reads_of(reader, {id(node.inputs[index].group) for index in node.call.writes})
    }
    return list(found)


def _reads_of(reader: Node, groups: set[int]) -> bool:
    """Whether a call reads memory of these ``groups``; one that has made its update does not
    any more."""
    return any(isinstance(entry, Value) and id(entry.group) in groups for entry in reader.inputs)


def show_updated() -> None:
    """Tensors of the user that no call is to update any more are plain ones again."""
    waiting = []
    for reference in recording.updated:
        tensor = reference()
        if tensor is None:
            continue
        value = tensor._value
        if is_open(value):
            waiting.append(reference)
            continue
        tensor.__class__ = Tensor
        del tensor._value
        value.tensor = tensor
    recording.updated[:] = waiting


def _without_statistics(call: Call) -> Call:
    """The same for all nodes of a call, since plans know calls by their identity."""
    if call.settled is None:
        call.settled = dataclasses.replace(call, writes=frozenset(), tracks=frozenset())
    return call.settled


def is_momentum(node: Node, index: int) -> bool:
    """Whether an input is the number by which batch normalisation averages its statistics,
    another in each step where it is the average over all calls."""
    if node.call.function is not batch_norm or not node.writes_outside:
        return False
    marks = [object() for _ in node.inputs]
    _, kwargs = node.call.fill(list(marks))
    return kwargs.get("momentum") is marks[index]
