"""Values that lie in the same memory, and writes to it.

A write makes new values of all that lie there. What was seen of one of before is a
number: others do not see what is written to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from koila._capture.values import Group, Node, Value, detaching

__all__ = ["Aliases", "find_maker", "is_view", "written_by"]


def written_by(node: Node) -> list[Value]:
    return [node.inputs[index] for index in node.call.writes] if node.call.writes else []


def _names_of(value: Value) -> Iterator[Value]:
    """A tensor, and what it was before each write to it."""
    yield value
    while value.node is not None and not value.node.done:
        same = value.node.call.same[value.index]
        if same is None:
            return
        value = value.node.inputs[same]
        yield value


def find_maker(value: Value) -> tuple[Node, int] | None:
    """The call that has made a tensor, and its place among the results, however often it was
    written to since; None of what is there."""
    *_, first = _names_of(value)
    if first.node is None or first.node.done:
        return None
    return first.node, first.index


def is_view(value: Value) -> bool:
    """Whether it is a view to PyTorch, which cannot be detached in place."""
    for each in _names_of(value):
        if each.is_renamed:
            return False
        if each.node is not None and not each.node.done and each.node.call.function in detaching:
            return False
    maker = find_maker(value)
    if maker is not None:
        return maker[0].call.shares[maker[1]] is not None
    *_, first = _names_of(value)
    return first.tensor is not None and first.tensor._is_view()


class Aliases:
    """Which values lie in the same memory, as long as nothing is recorded or run:
    what was found is remembered, since each of many writes to one tensor leads to the
    write before it.

    Memory is known by the call that makes it and the place among its results, or by
    the tensor that is there.
    """

    def __init__(self) -> None:
        # Also whether it is the tensor that was made with the memory, and no view.
        self._found: dict[Value, tuple[Any, bool]] = {}

    def of(self, value: Value) -> Any:
        return self._find(value)[0]

    def is_whole(self, value: Value) -> bool:
        return self._find(value)[1]

    def _find(self, value: Value) -> tuple[Any, bool]:
        path: list[Value] = []
        while value not in self._found:
            node = value.node
            if node is None or node.done:
                self._found[value] = id(value if value.tensor is None else value.tensor), False
            elif (place := node.call.shares[value.index]) is None:
                self._found[value] = (node, value.index), True
            else:
                path.append(value)
                value = node.inputs[place]
        memory, whole = self._found[value]
        for view in reversed(path):
            whole = whole and view.node is not None and view.node.call.same[view.index] is not None
            self._found[view] = memory, whole
        return memory, whole

    def find_writes(self, nodes: Iterable[Node]) -> dict[Any, list[Node]]:
        """The calls that write, by the memory that they write to."""
        found: dict[Any, list[Node]] = {}
        for node in nodes:
            for value in written_by(node):
                found.setdefault(self.of(value), []).append(node)
        return found

    def group_before(self, write: Node, memory: Any) -> Group | None:
        """The memory as it was before a write."""
        groups = (value.group for value in written_by(write) if self.of(value) == memory)
        return next(groups, None)

    def find_seen(self, write: Node, memory: Any) -> Value | None:
        """What was seen of memory between a write and the one before it."""
        group = self.group_before(write, memory)
        for value in [] if group is None else group.list_members():
            if value.seen is not None and self.is_whole(value) and self.of(value) == memory:
                return value
        return None

    def find_last_seen(self, write: Node, memory: Any) -> Value | None:
        """What was seen last of memory before a write: later writes may begin with a
        copy of it, where no graph is asked for."""
        before: Node | None = write
        while before is not None and not before.done:
            if (value := self.find_seen(before, memory)) is not None:
                return value
            group = self.group_before(before, memory)
            earlier = None if group is None else group.last_write
            # Of a tensor of the user's, what was there before has no group of its own.
            before = None if earlier is before else earlier
        return None
