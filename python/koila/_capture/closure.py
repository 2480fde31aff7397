"""Which calls have to run for a value, and through which its gradient flows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koila._capture.memory import Aliases, written_by
from koila._capture.values import Node, Value, detaching, sources

__all__ = ["closure", "gradient_closure"]


def closure(
    values: Iterable[Value], nodes: Iterable[Node] = (), *, graph: bool = True
) -> list[Node]:
    """The nodes that have to run for ``values``, in the order of recording;
    without their ``graph`` what was seen before need not run again."""
    values, nodes = list(values), [node for node in nodes if not node.done]
    aliases = Aliases()
    written: dict[Any, Node] = {}  # the last write to memory
    refused: set[Any] = set()
    while True:
        given: dict[Any, Value] = {}
        for memory in [] if graph else written.keys() - refused:
            # Of tensors that are there nothing is given: they are written to.
            seen = aliases.find_last_seen(written[memory], memory)
            if seen is not None:
                given[memory] = seen
        close = _Closure(graph, aliases, set(written), given)
        found = close.run(values, nodes)
        writes = aliases.find_writes(found) if close.knows else {}
        more = writes.keys() - written.keys()
        if not more and not close.refused:
            return sorted(found, key=lambda node: node.seq)
        for memory in more:
            written[memory] = max(writes[memory], key=lambda node: node.seq)
        refused |= close.refused


def _is_written_before(value: Value, given: Value) -> bool:
    node = value.node
    return node is not None and bool(node.call.writes) and node.seq <= _last_open_write(given)


def _last_open_write(value: Value) -> int:
    write = value.group.open_write()
    return -1 if write is None else write.seq


class _Closure:
    """One search for the nodes of a program that writes to ``written`` and is
    ``given`` what was seen of some of this memory; ``refused`` is what it cannot
    begin with, since something reads what was there before. It ``knows`` something
    if it has left out calls whose results were seen."""

    def __init__(
        self, graph: bool, aliases: Aliases, written: set[Any], given: dict[Any, Value]
    ) -> None:
        self.graph, self.aliases, self.written, self.given = graph, aliases, written, given
        self.refused: set[Any] = set()
        self.knows = False
        self._stack: list[Node] = []

    def run(self, values: list[Value], nodes: list[Node]) -> dict[Node, None]:
        found: dict[Node, None] = {}
        self._stack = list(nodes)
        for value in values:
            self._push(value, None)
        while self._stack:
            node = self._stack.pop()
            if node in found:
                continue
            found[node] = None
            for dep in self._list_deps(node):
                self._push_write(dep)
            for value in sources(node):
                self._push(value, node)
        return found

    def _push(self, value: Value, reader: Node | None) -> None:
        memory = self.aliases.of(value) if self.written else None
        if value.is_known_to(reader, self.graph):
            self.knows = True
            if memory not in self.written:
                return
        given = self.given.get(memory)
        if (
            given is not None
            and reader is not None
            and reader.seq < _last_open_write(given)
            and all(shared is None for shared in reader.call.shares)
        ):
            self.refused.add(memory)
        is_given = given is not None and self.aliases.is_whole(value)
        if given is not None and not is_given and _is_written_before(value, given):
            # It is what a write to a view returns, and that is in what was seen.
            self.refused.add(memory)
        if value.node is not None and not value.node.done and not is_given:
            self._stack.append(value.node)
        if reader is None and value.group.last_write is not None:
            self._push_write(value.group.last_write)

    def _list_deps(self, node: Node) -> Iterable[Node]:
        """The writes that have to run before a node: not those to what was seen since, unless
        it is made again. Where a write is to happen for good, what reads before it does, too."""
        if self.graph or not node.deps:
            return node.deps
        if node.call.writes:
            return [dep for dep in node.deps if dep.call.writes]
        taken: set[Node | None] = set()
        made: set[Node | None] = set()
        for value in sources(node):
            (taken if self._is_taken(value, node) else made).add(value.group.last_write)
        return [dep for dep in node.deps if dep not in taken - made]

    def _is_taken(self, value: Value, reader: Node) -> bool:
        """Whether a node reads what was seen of a value."""
        return value.is_known_to(reader, self.graph) and not (
            self.written and self.aliases.of(value) in self.written
        )

    def _push_write(self, write: Node) -> None:
        if write.done:
            return
        if self.given and write.call.writes:
            given = [self.given.get(self.aliases.of(value)) for value in written_by(write)]
            if all(value is not None and write.seq <= _last_open_write(value) for value in given):
                return  # it is in what was seen
        self._stack.append(write)


def gradient_closure(value: Value) -> tuple[list[Node], list[Value]]:
    """The nodes through which a gradient of ``value`` flows, and the values
    that they read with a gradient."""
    found: dict[Node, None] = {}
    leaves: dict[Value, None] = {}
    # Also of what was detached, and written to since.
    stack = [value.node, *_list_writes([value.group.open_write()])]
    while stack:
        node = stack.pop()
        if node is None or node.done or node in found:
            continue
        if not node.call.grad or node.call.function in detaching:
            continue
        found[node] = None
        for entry in node.inputs:
            if type(entry) is Value and entry.meta.requires_grad:
                stack += [entry.node, *_list_writes([entry.group.open_write()])]
                leaves[entry] = None
        # What was written in place before it was read.
        stack += _list_writes(node.deps)
    return list(found), list(leaves)


def _list_writes(nodes: Iterable[Node | None]) -> list[Node]:
    """Those that write; no gradient flows through running statistics."""
    return [node for node in nodes if node and node.call.writes and not node.writes_outside]
