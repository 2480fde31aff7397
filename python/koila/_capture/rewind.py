"""What a program is that is about to run for good: where memory runs out on the way, it is
recorded again as it was."""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple

from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Value

__all__ = ["Rewind"]


class _Place(NamedTuple):
    """The place of a value that the program makes, in the inputs of a call."""

    number: int


# What running a program changes of values.
_CHANGED = (
    "tensor",
    "node",
    "group",
    "_seen",
    "_seen_after",
    "kept",
    "graphs",
    "retained",
    "version",
)


# What is told of a value when it is recorded.
_TOLD = ("meta", "origin", "source", "dims", "drawn", "copies", "graph_name", "is_renamed")


def _count_references(items: list[Any], index: int) -> int:
    return sys.getrefcount(items[index])


# Of what a list alone holds.
_ALONE = _count_references([object()], 0)


class _Held:
    """A value that the user's program has, and may let go of: then its tensor goes as well."""

    def __init__(self, value: Value, before: tuple[Any, ...]) -> None:
        self._reference = weakref.ref(value)
        assert value.tensor is not None
        self._tensor = weakref.ref(value.tensor)
        self._version = value.tensor._version
        self._group, self._node, self._index = value.group, before[1], value.index
        self._state = {name: getattr(value, name) for name in _TOLD}

    def is_as_left(self) -> bool:
        """Whether nobody has written to it, or has a hook on it."""
        value = self._reference()
        if value is None:
            return True
        tensor = self._tensor()
        return (
            tensor is not None
            and value.tensor is tensor
            and tensor._version == self._version
            and not (value.hooks or value.lent or value.freed)
        )

    def find(self) -> Value:
        """The value, or another one in its place."""
        value = self._reference()
        if value is None:
            value = Value(self._state["meta"], self._group, self._node, self._index)
            for name, item in self._state.items():
                setattr(value, name, item)
            if self._node is not None:
                self._node.outputs.append(weakref.ref(value))
        return value


class Rewind:
    """The calls and values of a program before it runs.

    It holds values that nobody else does, for which the program lets go of their tensors as
    if they were gone (``drop``). What it keeps for longer are the tensors that the program
    begins with, as masks that were drawn.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self._values: list[Any] = []  # values, and once it waits those that are held
        self._made: dict[Node, list[int]] = {}
        places: dict[Value, int] = {}
        for node in nodes:
            self._made[node] = []
            for reference in node.outputs:
                if (value := reference()) is not None and value not in places:
                    places[value] = len(self._values)
                    self._made[node].append(len(self._values))
                    self._values.append(value)
        self._nodes = [(node, node.deps, node.outputs) for node in nodes]
        # Without the values that the program makes: they are held once.
        self._inputs = [
            tuple(
                _Place(places[entry]) if type(entry) is Value and entry in places else entry
                for entry in node.inputs
            )
            for node in nodes
        ]
        self._read = {
            node: [entry.number for entry in inputs if type(entry) is _Place]
            for node, inputs in zip(nodes, self._inputs, strict=True)
        }
        self._count = len(self._values)
        # Views of what is made, which are settled with it.
        held = [value for value in recording.list_held() if value not in places]
        views = [view.value() for view in recording.views]
        self._values += dict.fromkeys([*held, *(each for each in views if each is not None)])
        places.clear()
        self._before = [
            tuple([getattr(value, name) for name in _CHANGED]) for value in self._values
        ]
        groups = {value.group: None for value in self._values}
        self._groups = [(group, group.external, group.is_there) for group in groups]
        self._views = list(recording.views)

    def may_rewind(self) -> bool:
        """Whether running it does nothing else to what the program has."""
        return not any(value.hooks or value.lent for value in self._values)

    def drop(self, node: Node) -> None:
        """A call has run: what it has made or read and nobody asks for is free."""
        for index in (*self._made.get(node, ()), *self._read.get(node, ())):
            if _count_references(self._values, index) <= _ALONE:
                self._values[index].tensor = None
                self._values[index].graphs = frozenset()  # which may lead here

    def wait(self) -> None:
        """It has run, and the user's program goes on with what it has made."""
        # What runs later is as it was.
        kept = [
            (value if value.tensor is None else _Held(value, before), before)
            for index, (value, before) in enumerate(zip(self._values, self._before, strict=True))
            if index < self._count or value.tensor is not None
        ]
        self._values = [item for item, _ in kept]
        self._before = [before for _, before in kept]

    def is_as_left(self) -> bool:
        """Whether the user's program has only looked at values since."""
        return all(
            not group.is_lent and group.external == external for group, external, _ in self._groups
        ) and all(value.is_as_left() for value in self._values if type(value) is _Held)

    def restore(self) -> None:
        """The program is recorded as it was, and nothing of it has run."""
        for node, deps, outputs in self._nodes:
            node.done, node.deps, node.outputs = False, deps, outputs
        self._values = [item.find() if type(item) is _Held else item for item in self._values]
        for value, before in zip(self._values, self._before, strict=True):
            for name, item in zip(_CHANGED, before, strict=True):
                setattr(value, name, item)
        for group, external, is_there in self._groups:
            group.external, group.is_there = external, is_there
        for (node, *_), inputs in zip(self._nodes, self._inputs, strict=True):
            node.inputs = tuple(
                self._values[entry.number] if type(entry) is _Place else entry for entry in inputs
            )
        recording.hold_again(self._values, [node for node, *_ in self._nodes], self._views)
