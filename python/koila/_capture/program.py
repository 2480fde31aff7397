"""Recorded programs: the calls that make some values, in their order, as they are
run, replayed on other tensors, and told apart."""

from __future__ import annotations

import contextlib
import functools
import heapq
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from koila._capture.batch_int import BatchInt
from koila._capture.casts import CastCache
from koila._capture.frames import raise_at
from koila._capture.graphs import Graph
from koila._capture.host import find_tile_device, is_on_host, lift, take_down
from koila._capture.made_of_sizes import Diagonal, Positions, find_made
from koila._capture.memory import Aliases, written_by
from koila._capture.rewind import Rewind
from koila._capture.statistics import show_updated
from koila._capture.values import GradientHook, Node, Value, append_weakly

__all__ = ["Program", "places_of"]


@dataclass
class Program:
    """The nodes of some roots, with the values that are there at entry.

    ``steps`` are the inputs of each node as indices into the values: first the
    leaves, then the outputs of the nodes; or numbers. With ``graph`` False what
    was seen before is a leaf.
    """

    nodes: list[Node]
    roots: list[Value]
    graph: bool = True
    leaves: list[Value] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)  # of the numbers
    results: list[int] = field(default_factory=list)
    copied: set[int] = field(default_factory=set)  # leaves of which it writes to copies

    def __post_init__(self) -> None:
        made: dict[tuple[int, int], int] = {}
        count = 0
        for node in self.nodes:
            for index in range(len(node.call.metas)):
                made[id(node), index] = -1 - count
                count += 1
        places: dict[int, int] = {}
        reader: Node | None = None
        aliases = Aliases()
        writes = aliases.find_writes(self.nodes)
        inside = set(self.nodes) if writes else set()
        # Memory whose maker need not run: the first write begins with what was seen.
        given: dict[Any, Value] = {}
        for memory, (first, *_) in () if self.graph else writes.items():
            if isinstance(memory, tuple) and memory[0] not in inside:
                seen = aliases.find_seen(first, memory)
                assert seen is not None  # or the maker would run
                given[memory] = seen

        def is_known(value: Value) -> bool:
            if not value.is_known_to(reader, self.graph):
                return False
            return not (writes and aliases.of(value) in writes)

        def place(value: Value) -> int:
            node = value.node
            if given and aliases.is_whole(value) and aliases.of(value) in given:
                before = given[aliases.of(value)]
                if id(before) not in places:
                    places[id(before)] = len(self.leaves)
                    self.copied.add(len(self.leaves))
                    self.leaves.append(before)
                if node not in inside:
                    return places[id(before)]
            if node is not None and not node.done:
                known = made.get((id(node), value.index))
                if known is not None and not is_known(value):
                    return known
            # A tensor before and after a write to it is one.
            key = id(value if value.tensor is None or value.freed else value.tensor)
            if key not in places:
                places[key] = len(self.leaves)
                self.leaves.append(value)
            return places[key]

        def convert(entry: Any) -> Any:
            if isinstance(entry, Value):
                return place(entry)
            if isinstance(entry, BatchInt):
                return _describe(entry, place)
            self.numbers.append(entry)
            return None

        for node in self.nodes:
            reader = node
            self.steps.append(tuple([convert(entry) for entry in node.inputs]))
            self.readers += [node] * (len(self.numbers) - len(self.readers))
        reader = None
        self.results = [place(root) for root in self.roots]

    def tensor_of(self, leaf: Value) -> torch.Tensor:
        """What a leaf is in this program."""
        tensor = leaf.tensor
        if leaf.is_known_to(None, self.graph) or tensor is None:
            tensor = leaf.seen
        assert tensor is not None
        return tensor

    def is_on_host(self, place: int) -> bool:
        """Whether a leaf waits on the host for a program on another device."""
        return is_on_host(self.leaves[place], self.tensor_of(self.leaves[place]))

    def list_leaves_of(self, position: int) -> list[int]:
        """The leaves that the call at ``position`` reads, and then those of the calls it
        depends on, the last of them first."""
        makers = [index for index, node in enumerate(self.nodes) for _ in node.call.metas]
        leaves: dict[int, None] = {}
        waiting, known = [-position], {position}
        while waiting:
            for entry in self.steps[-heapq.heappop(waiting)]:
                for place in places_of(entry):
                    if place >= 0:
                        leaves[place] = None
                    elif (maker := makers[-1 - place]) not in known:
                        known.add(maker)
                        heapq.heappush(waiting, -maker)
        return list(leaves)

    @functools.cached_property
    def made(self) -> dict[int, Diagonal | Positions]:
        """The leaves that are made of the number of samples alone."""
        origins = [leaf.source for leaf in self.leaves if leaf.source is not None]
        batch = next((origin.size for origin in origins if origin.batch is not None), None)
        found = {}
        for index, leaf in enumerate(self.leaves):
            if not batch or leaf.origin or leaf.drawn or leaf.tensor is None:
                continue
            if isinstance(leaf.tensor, torch.nn.Parameter) or leaf.freed or index in self.copied:
                continue
            if self.is_on_host(index):
                continue
            if (what := find_made(leaf.tensor, batch)) is not None:
                found[index] = what
        return found

    def key(self) -> tuple[Any, ...]:
        """Equal for programs that compute the same but for floats and values."""
        leaves = tuple(
            (
                isinstance(leaf.tensor, torch.nn.Parameter),
                leaf.meta,
                leaf.origin.batch if leaf.origin else None,
                leaf.freed,
                self.is_on_host(place),
            )
            for place, leaf in enumerate(self.leaves)
        )
        calls = tuple(
            (id(node.call) if node.call.kind is None else node.call.kind, step)
            for node, step in zip(self.nodes, self.steps, strict=True)
        )
        return calls, leaves, tuple(self.results), self.graph, tuple(self.made.items())

    def writes(self, *, statistics: bool = True) -> bool:
        """Whether it writes to a tensor that is there at entry, so that it must
        run once; without ``statistics``, to another than the running statistics of a layer."""
        made, aliases = set(self.nodes), Aliases()
        copied = {aliases.of(self.leaves[place]) for place in self.copied}

        def is_made(value: Value) -> bool:
            """Whether its memory is the program's own."""
            memory = aliases.of(value)
            return memory in copied or (isinstance(memory, tuple) and memory[0] in made)

        return any(
            statistics if node.writes_outside else not all(map(is_made, written_by(node)))
            for node in self.nodes
        )

    def replay(
        self,
        leaves: list[Any],
        invoke: Callable[[Node, int, tuple[Any, ...], dict[str, Any]], Any],
        numbers: Iterable[Any] | None = None,
    ) -> list[Any]:
        """Runs the calls on other tensors, and with other ``numbers``; ``invoke``
        makes one call. What no later call reads is freed, as PyTorch frees it."""
        made: list[Any] = []
        kept = {*self.results}
        last = {
            place: position
            for position, step in enumerate(self.steps)
            for entry in step
            for place in places_of(entry)
        }
        dying: dict[int, list[int]] = {}
        for place, position in last.items():
            if place < 0 and place not in kept:
                dying.setdefault(position, []).append(-1 - place)
        numbers = iter(self.numbers if numbers is None else numbers)

        def get(place: int) -> Any:
            return leaves[place] if place >= 0 else made[-1 - place]

        def convert(entry: Any) -> Any:
            if entry is None:
                return next(numbers)
            if isinstance(entry, int):
                return get(entry)
            return _compute(entry, get)

        for position, (node, step) in enumerate(zip(self.nodes, self.steps, strict=True)):
            args, kwargs = node.call.fill([convert(entry) for entry in step])
            known = len(made)
            result = invoke(node, position, args, kwargs)
            del args, kwargs
            made.extend(node.call.flatten(result))
            del result
            for place in range(-1 - known, -1 - len(made), -1):
                if place not in last and place not in kept:
                    made[-1 - place] = None
            for index in dying.get(position, ()):
                made[index] = None
        return [get(place) for place in self.results]

    def run(self, rewind: Rewind | None = None, *, where_it_is: bool = False) -> None:
        """Runs the calls on the tensors themselves, for good. Values that are
        asked for keep their tensors, the others free them where PyTorch would. What waits on
        the host goes to the device as a whole, unless all is done ``where_it_is``."""
        try:
            with CastCache() as casts:
                self._run(casts, rewind, where_it_is)
        finally:
            show_updated()

    def _run(self, casts: CastCache, rewind: Rewind | None, where_it_is: bool) -> None:
        lifted = _Lifted() if where_it_is else _Lifted(self.nodes)
        nodes = self.nodes[::-1]
        graph = Graph()
        graphs = frozenset([graph])
        for leaf in self.leaves:
            graphs |= leaf.graphs
        self.nodes, self.steps, self.leaves = [], [], []
        late: dict[Node, list[tuple[GradientHook, torch.Tensor]]] = {}
        made: list[weakref.ref[Value]] = []  # of batches that stay on the host
        while nodes:
            node = nodes.pop()
            entries = [
                lifted.take(entry, node)
                if isinstance(entry, Value)
                else int(entry)
                if isinstance(entry, BatchInt)
                else entry
                for entry in node.inputs
            ]
            for index in node.call.writes:
                # PyTorch takes a view of what was written to with a graph for a leaf until
                # somebody asks, and may refuse to be asked.
                with contextlib.suppress(RuntimeError):
                    _ = getattr(entries[index], "grad_fn", None)
            args, kwargs = node.call.fill(entries)
            entries.clear()
            casts.before(node.call)
            try:
                result = node.call.perform(args, kwargs)
            except Exception as error:
                raise_at(error, node.frames)
            del args, kwargs
            tensors = node.call.flatten(result)
            del result
            for reference in node.outputs:
                value = reference()
                # Of what is there others may have the memory: such a call runs again where
                # it reads before a write.
                if value is not None and (value.node is not None or value.tensor is None):
                    value.settle(tensors[value.index])
                    if not where_it_is and find_tile_device(value) is not None:
                        append_weakly(made, value)
                    if value.meta.requires_grad:
                        value.graphs = graphs
                        graph.end_in(tensors[value.index])
                        # A hook that was registered after a write is one of what
                        # is there then.
                        write = value.group.open_write()
                        waits = write is not None and write is not node
                        for hook in value.hooks:
                            if waits and write is not None:
                                late.setdefault(write, []).append((hook, tensors[value.index]))
                            else:
                                hook.attach(tensors[value.index])
            tensors.clear()
            value = None
            node.finish()
            if rewind is not None:
                rewind.drop(node)
            for hook, tensor in late.pop(node, ()):
                hook.attach(tensor)
        del value
        for reference in made:
            value = reference()
            # Views would go on to look at the memory on the device.
            if value is not None and value.tensor is not None and len(value.group.members) == 1:
                value.tensor = take_down(value, value.tensor)

    def evaluate(self) -> list[torch.Tensor]:
        """What the roots are, without a graph unless a call differentiates; the
        program stays as it is, so it must not write to what is there."""
        last: dict[int, int] = {}
        for position, step in enumerate(self.steps):
            for entry in step:
                for place in places_of(entry):
                    last[place] = position
        for place in self.results:
            last[place] = len(self.steps)
        made: dict[int, torch.Tensor] = {}
        numbers = iter(self.numbers)
        count = 0

        copies = {
            place: self.tensor_of(leaf).to(leaf.meta.device, copy=True)
            for place, leaf in enumerate(self.leaves)
            if place in self.copied
        }

        def get(place: int) -> torch.Tensor:
            if place in copies:
                return copies[place]
            if place < 0 or place in made:
                return made[place]
            leaf = self.leaves[place]
            tensor = self.tensor_of(leaf)
            if is_on_host(leaf, tensor) and place in last:
                tensor = made[place] = lift(leaf, tensor)
            return tensor

        grad = any(node.call.differentiates for node in self.nodes)
        with torch.no_grad():
            for position, (node, step) in enumerate(zip(self.nodes, self.steps, strict=True)):
                entries = [
                    next(numbers)
                    if entry is None
                    else get(entry)
                    if isinstance(entry, int)
                    else _compute(entry, get)
                    for entry in step
                ]
                args, kwargs = node.call.fill(entries)
                entries.clear()
                try:
                    with node.call.modes(grad):
                        result = node.call.function(*args, **kwargs)
                except Exception as error:
                    raise_at(error, node.frames)
                del args, kwargs
                for tensor in node.call.flatten(result):
                    count += 1
                    if last.get(-count, -1) > position:
                        made[-count] = tensor
                del result
                for entry in step:
                    for place in places_of(entry):
                        if last[place] == position:
                            made.pop(place, None)
            return [get(place).detach() for place in self.results]


class _Lifted:
    """What calls read of values; what waits on the host goes to the device for the first that
    reads it, and is freed behind the last."""

    def __init__(self, nodes: list[Node] | None = None) -> None:
        self._there: dict[Value, torch.Tensor] = {}
        # (Of all others nothing is held: they go where PyTorch would free them.)
        self._last: dict[Value, Node] | None = None
        if nodes is not None:
            self._last = {
                entry: node
                for node in nodes
                for entry in node.inputs
                if isinstance(entry, Value)
                and is_on_host(entry, entry.seen if entry.tensor is None else entry.tensor)
            }

    def take(self, value: Value, node: Node) -> torch.Tensor | None:
        tensor = value.seen if value.tensor is None else value.tensor
        if self._last is None or tensor is None or not is_on_host(value, tensor):
            return tensor
        there = self._there.pop(value, None)
        there = lift(value, tensor) if there is None else there
        if self._last.get(value) is not node:
            self._there[value] = there
        return there


# Functions of a module: one inside of a method that calls itself is a cycle,
# which would keep the program and its tensors until Python looks for cycles.
def _describe(number: Any, place: Callable[[Value], int]) -> Any:
    if not isinstance(number, BatchInt):
        return ("number", int(number), None)
    function, left, right = number.expression
    if function == "size":
        value = left()
        if value is None:
            return ("number", int(number), None)
        return ("size", place(value), right)
    return (function, _describe(left, place), _describe(right, place))


def _compute(entry: Any, get: Callable[[int], Any]) -> Any:
    function, left, right = entry
    if function == "number":
        return left
    if function == "size":
        return get(left).size(right)
    return function(_compute(left, get), _compute(right, get))


def places_of(entry: Any) -> Iterator[int]:
    """The values that an input of a step is made of."""
    if isinstance(entry, int):
        yield entry
    elif isinstance(entry, tuple):
        function, left, right = entry
        if function == "size":
            yield left
        elif function != "number":
            yield from places_of(left)
            yield from places_of(right)
