"""Writes through ``.data``, which autograd does not notice: of what it has kept before it takes
what is written. In a trace, where ``.data`` is a detached tensor, it would notice."""

from __future__ import annotations

from typing import Any

from koila._capture.dispatch_cache import find_saved
from koila._capture.memory import Aliases, written_by
from koila._capture.program import Program
from koila._capture.values import Node, Value, unnoticed

__all__ = ["find_unseen_write"]


def find_unseen_write(program: Program) -> int | None:
    """The place of the first call that writes so to what autograd has kept by then."""
    aliases = Aliases()
    for place, node in enumerate(program.nodes):
        written = {aliases.of(value) for value in written_by(node) if _is_unnoticed(value)}
        if written and any(_keeps(other, written, aliases) for other in program.nodes[:place]):
            return place
    return None


def _is_unnoticed(value: Value) -> bool:
    """Whether it is a ``.data``, or a view of one."""
    while (node := value.node) is not None and not node.done:
        if node.call.function == unnoticed:
            return True
        if (place := node.call.shares[value.index]) is None:
            return False
        value = node.inputs[place]
    return False


def _keeps(node: Node, memories: set[Any], aliases: Aliases) -> bool:
    """Whether autograd keeps something of this memory for the gradient of a call."""
    read = {
        index
        for index, entry in enumerate(node.inputs)
        if isinstance(entry, Value) and aliases.of(entry) in memories
    }
    made = {
        index
        for index, shared in enumerate(node.call.shares)
        if (node, index) in memories or shared in read
    }
    if not read and not made:
        return False
    saved_inputs, saved_results = find_saved(node.call, node.inputs)
    return not (read.isdisjoint(saved_inputs) and made.isdisjoint(saved_results))
