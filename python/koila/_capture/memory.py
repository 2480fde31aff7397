"""Values that lie in the same memory, and writes to it.

A write makes new values of all that lie there. What was seen of one of before is a
number: others do not see what is written to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koila._capture.values import Group, Node, Value

__all__ = [
    "find_given",
    "find_seen",
    "find_written",
    "group_before",
    "is_whole",
    "memory_of",
    "written_by",
]


def written_by(node: Node) -> list[Value]:
    return [node.inputs[index] for index in node.call.writes] if node.call.writes else []


def memory_of(value: Value) -> Any:
    """What two values have in common that lie in the same memory."""
    while (node := value.node) is not None and not node.done:
        place = node.call.shares[value.index]
        if place is None:
            return node, value.index
        value = node.inputs[place]
    return id(value if value.tensor is None else value.tensor)


def find_written(nodes: Iterable[Node]) -> set[Any]:
    """The memory that these write to: what was seen of it are numbers, which
    a write does not change."""
    return {memory_of(value) for node in nodes for value in written_by(node)}


def is_whole(value: Value, memory: Any) -> bool:
    """Whether it is the tensor that was made with this memory, and no view of it."""
    while (node := value.node) is not None and (node, value.index) != memory:
        place = node.call.same[value.index]
        if place is None:
            return False
        value = node.inputs[place]
    return value.node is not None


def group_before(write: Node, memory: Any) -> Group | None:
    """The memory as it was before a write."""
    for value in written_by(write):
        if memory_of(value) == memory:
            return value.group
    return None


def find_seen(group: Group | None, memory: Any) -> Value | None:
    """What was seen of memory between two writes."""
    for reference in [] if group is None else group.members:
        value = reference()
        if value is not None and value.seen is not None and is_whole(value, memory):
            return value
    return None


def find_given(memory: Any, nodes: Iterable[Node]) -> Value | None:
    """What was seen last of memory that is written to: later writes may begin with a
    copy of it, where no graph is asked for."""
    if not isinstance(memory, tuple):
        return None
    writes = [node for node in nodes if memory in find_written([node])]
    write: Node | None = max(writes, key=lambda node: node.seq, default=None)
    while write is not None and not write.done:
        group = group_before(write, memory)
        if (value := find_seen(group, memory)) is not None:
            return value
        write = None if group is None else group.last_write
    return None
