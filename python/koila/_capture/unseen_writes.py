"""Writes through ``.data``, which autograd does not notice: of what it has kept before it takes
what is written. In a trace, where ``.data`` is a detached tensor, it would notice."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from koila._capture.dispatch_cache import find_saved
from koila._capture.memory import Aliases, written_by
from koila._capture.program import Program
from koila._capture.values import Node, Value, unnoticed

__all__ = ["find_unseen_write"]


def find_unseen_write(program: Program) -> int | None:
    """The place of the first call that writes so to what autograd has kept by then."""
    if all(node.call.function != unnoticed for node in program.nodes):
        return None
    aliases = Aliases()
    # By memory: the calls that read or made it since the last such write.
    touching: defaultdict[Any, list[Node]] = defaultdict(list)
    for place, node in enumerate(program.nodes):
        for memory in {aliases.of(value) for value in written_by(node) if _is_unnoticed(value)}:
            if any(_keeps(other, memory, aliases) for other in touching.pop(memory, ())):
                return place
        for memory in _list_memories(node, aliases):
            touching[memory].append(node)
    return None


def _list_memories(node: Node, aliases: Aliases) -> set[Any]:
    read = {aliases.of(entry) for entry in node.inputs if isinstance(entry, Value)}
    return read | {(node, index) for index, shared in enumerate(node.call.shares) if shared is None}


def _is_unnoticed(value: Value) -> bool:
    """Whether it is a ``.data``, or a view of one."""
    while (node := value.node) is not None and not node.done:
        if node.call.function == unnoticed:
            return True
        if (place := node.call.shares[value.index]) is None:
            return False
        value = node.inputs[place]
    return False


def _keeps(node: Node, memory: Any, aliases: Aliases) -> bool:
    """Whether autograd keeps something of this memory for the gradient of a call."""
    read = {
        index
        for index, entry in enumerate(node.inputs)
        if isinstance(entry, Value) and aliases.of(entry) == memory
    }
    made = {
        index
        for index, shared in enumerate(node.call.shares)
        if (node, index) == memory or shared in read
    }
    saved_inputs, saved_results = find_saved(node.call, node.inputs)
    return not (read.isdisjoint(saved_inputs) and made.isdisjoint(saved_results))
