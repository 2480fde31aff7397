"""Tensors of the user that are written to while recorded calls have still to read them,
as a buffer in which a model keeps a running mean of what it has computed.

Such calls would have to run before the write, whole and with their graphs. What is small
is copied for them instead.
"""

from __future__ import annotations

import torch

from koila import memory
from koila._capture.dispatch_cache import is_saved
from koila._capture.recorder import find_source, make_leaf
from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Value, append_weakly
from koila._execute.executor import run_nodes

__all__ = ["settle_readers", "watch_exposed"]

# At most this part of the budget for what is in a tensor before a write.
_SHARE = 16


def settle_readers(written: Value) -> None:
    """Before a write to a tensor: calls that are to read it, or another view of its
    memory, read a copy of it, or run now, which raises where plain PyTorch has written to
    it since they were recorded."""
    for leaf in _list_leaves(written):
        readers = leaf.group.open_readers()
        if readers and _may_read_copy(leaf, readers):
            _give_copy(leaf, readers)
        else:
            run_nodes(readers)


def watch_exposed(tensor: torch.Tensor) -> None:
    """Writes through it to its memory, which is that of others, have no version, as those to
    ``.data``: what calls have still to read there is known by its bits."""
    recording.exposed.add(tensor)
    for leaf in recording.watched.list_at(tensor):
        if leaf.group.open_readers():
            leaf.watch()


def _list_leaves(written: Value) -> list[Value]:
    """Values of the same memory: those that calls have read have no graph in between."""
    base = written
    while base.node is not None and not base.node.done:
        place = base.node.call.shares[base.index]
        if place is None:
            return [written]
        base = base.node.inputs[place]
    if base.tensor is None:
        return [written]
    return list(dict.fromkeys([written, base, *recording.watched.list_at(base.tensor)]))


def _may_read_copy(leaf: Value, readers: list[Node]) -> bool:
    """Whether nobody can tell: no call returns a view of it, and autograd, which would
    find out that it was written to, has not saved it."""
    tensor = leaf.tensor
    if tensor is None or tensor.layout is not torch.strided or leaf.meta.requires_grad:
        return False
    if leaf.origin is not None:
        return False  # part of a batch, whose copies add up
    if leaf.version is None or tensor._version != leaf.version:
        return False  # plain PyTorch has written to it since it was recorded
    if leaf.is_replaced() or not leaf.is_as_hashed():
        return False
    budgets = [source.budget for node in readers if (source := find_source(list(node.inputs)))]
    if not budgets or leaf.group.last_write is not None:
        return False
    budget = min(memory.recent_budget_bytes(given, leaf.meta.device) for given in budgets)
    return tensor.untyped_storage().nbytes() * _SHARE <= budget and all(
        _is_plain_read(node, index, leaf) for node in readers for index in _places_in(node, leaf)
    )


def _places_in(node: Node, leaf: Value) -> list[int]:
    """The inputs of a call that are in the memory of a leaf."""
    return [
        index
        for index, entry in enumerate(node.inputs)
        if isinstance(entry, Value) and entry.group is leaf.group
    ]


def _is_plain_read(node: Node, index: int, leaf: Value) -> bool:
    call = node.call
    return (
        node.inputs[index].tensor is leaf.tensor
        and index not in call.writes
        and index not in call.shares
        and not is_saved(call, node.inputs, index)
    )


def _give_copy(leaf: Value, readers: list[Node]) -> None:
    assert leaf.tensor is not None
    # Nobody else holds it, so that it counts in what a program begins with.
    copied = make_leaf(leaf.tensor.detach().clone())
    copied.group.external = False
    copied.source = leaf.source
    for node in readers:
        places = _places_in(node, leaf)
        node.inputs = tuple(
            copied if index in places else entry for index, entry in enumerate(node.inputs)
        )
        append_weakly(copied.group.readers, node)
    leaf.group.readers.clear()
