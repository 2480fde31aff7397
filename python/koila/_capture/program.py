"""Recorded programs: values, the calls that make them, and their order.

A ``Value`` is a tensor that there is, or one that a ``Node`` will make. Nodes
are kept alive by the values that they make and those by the nodes that read
them, so that what nobody can ask for any more is never run.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy
import torch

from koila._capture.batch_int import BatchInt
from koila._capture.frames import Frames, raise_at
from koila._capture.graphs import Graph

__all__ = [
    "Call",
    "GradientHook",
    "Group",
    "Meta",
    "Node",
    "Origin",
    "Program",
    "Slot",
    "Value",
    "append_weakly",
    "checksum_of",
    "closure",
    "collect",
    "detaching",
    "find_written",
    "gradient_closure",
    "hash_of",
    "is_direct",
    "is_open",
    "memory_of",
    "places_of",
    "rebuild",
]

# What is made of a tensor without its graph.
detaching = (
    torch.Tensor.detach,
    torch.detach,
    torch.Tensor.data.__get__,  # type: ignore[attr-defined]
)


class Meta(NamedTuple):
    """What is known of a tensor before it is computed; strides in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    decided: bool = False  # data have decided an extent: others make no other program


@dataclass(eq=False)
class Origin:
    """The batch of a tensor that was given to ``koila.lazy``: its dim, samples,
    and budget. Tensors of one call have the same ``call``."""

    batch: int | None
    size: int | None
    budget: int | str
    call: object = None


class Group:
    """The tensors that share one storage, from one write to it to the next."""

    __slots__ = ("external", "last_write", "members", "readers")

    def __init__(self, external: bool, last_write: Node | None = None) -> None:
        self.external = external  # a tensor of the user, which others see
        self.last_write = last_write
        self.readers: list[weakref.ref[Node]] = []  # since the last write
        self.members: list[weakref.ref[Value]] = []

    def open_readers(self) -> list[Node]:
        """Nodes that must read before the next write."""
        found = [reference() for reference in self.readers]
        return [node for node in found if node is not None and not node.done]


_Kept = TypeVar("_Kept")


def append_weakly(found: list[weakref.ref[_Kept]], item: _Kept) -> None:
    """Of what is used in every step, the list is as long as those that live."""
    if len(found) >= 32 and not len(found) & (len(found) - 1):
        found[:] = [reference for reference in found if reference() is not None]
    found.append(weakref.ref(item))


def checksum_of(array: Any) -> int:
    """Of all that is in a NumPy array, in its order."""
    return zlib.crc32(numpy.ascontiguousarray(array).data.cast("B")) if array.size else 0


def hash_of(tensor: torch.Tensor) -> torch.Tensor:
    """A number of the bits, on the tensor's device."""
    plain = tensor.detach()
    return torch.hash_tensor(torch.view_as_real(plain) if plain.is_complex() else plain)


@dataclass(eq=False)
class GradientHook:
    """A hook on a recorded tensor; without a ``function`` the tensor is to keep
    its gradient. ``handle`` is PyTorch's, once the tensor is there."""

    function: Callable[[torch.Tensor], torch.Tensor | None] | None
    handle: Any = None

    def attach(self, tensor: torch.Tensor) -> None:
        if self.function is None:
            tensor.retain_grad()
        else:
            self.handle = tensor.register_hook(self.function)  # type: ignore[no-untyped-call]


class Value:
    """A tensor of the program; ``tensor`` is None until it is computed.

    ``seen`` is its value without a graph, where that was computed before; None
    if it was not since the storage was written to last. ``freed``: a backward
    pass went through its graph, which is gone; ``tensor`` then has none.
    """

    __slots__ = (
        "__weakref__",
        "_seen",
        "_seen_after",
        "alias",
        "checksum",
        "drawn",
        "failed",
        "freed",
        "graph_name",
        "graphs",
        "group",
        "hash",
        "holders",
        "hooks",
        "index",
        "kept",
        "lent",
        "meta",
        "node",
        "origin",
        "retained",
        "source",
        "tensor",
        "version",
        "views",
    )

    def __init__(self, meta: Meta, group: Group, node: Node | None = None, index: int = 0) -> None:
        self.meta = meta
        self.group = group
        append_weakly(group.members, self)
        self.node = node
        self.index = index
        self.tensor: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._seen_after: Node | None = None
        self.kept: Any = None  # gradients that a read has computed along with it
        self.freed = False
        self.lent = False  # the program has an array of what was seen
        self.failed = False  # computing it raised, for nobody to see
        # A weight by the storage that it had when it was recorded.
        self.alias: torch.Tensor | None = None
        self.graph_name: str | None = None  # of the grad_fn that PyTorch would give it
        # Those that end in the tensor, where it was computed with one.
        self.graphs: frozenset[Graph] = frozenset()
        self.drawn = False  # made by koila, as the mask of a dropout, and counted
        self.version: int | None = None
        self.hash: torch.Tensor | None = None  # of a weight that a step in tiles has read
        self.checksum: int | None = None  # of memory that is not PyTorch's
        self.origin: Origin | None = None  # of what was given to lazy()
        self.source: Origin | None = None  # of what it was made of
        # It and others that are views of each other to autograd.
        self.views: list[weakref.ref[Value]] | None = None
        # What is to see its gradient, and the gradient that it is to keep.
        self.hooks: list[GradientHook] = []
        self.retained: torch.Tensor | None = None
        # The tensors by which the program holds it.
        self.holders: list[weakref.ref[Any]] = []

    @property
    def seen(self) -> torch.Tensor | None:
        return self._seen if self._seen_after is self.group.last_write else None

    @seen.setter
    def seen(self, tensor: torch.Tensor | None) -> None:
        self._seen, self._seen_after = tensor, self.group.last_write

    def is_replaced(self) -> bool:
        """Whether ``.data`` of the tensor was assigned since it was recorded."""
        alias, tensor = self.alias, self.tensor
        return (
            alias is not None
            and tensor is not None
            and tensor.layout is torch.strided
            and alias.data_ptr() != tensor.data_ptr()
        )

    def is_held(self) -> bool:
        """Whether the program can still ask for it."""
        for reference in self.holders:
            tensor = reference()
            if tensor is not None and tensor._value is self:
                return True
        return False

    def is_as_hashed(self) -> bool:
        """Whether a weight has the bits of the last step, and memory of others what
        was recorded. Writes through ``.data``, as of many optimizers, or to a NumPy
        array do not count as a version."""
        if self.tensor is None:
            return True
        if self.checksum is not None:
            return checksum_of(self.tensor.detach().numpy()) == self.checksum
        return self.hash is None or bool(torch.equal(hash_of(self.tensor), self.hash))

    def renew(self, group: Group) -> Value:
        """The same tensor after a write to its memory."""
        new = Value(self.meta, group, self.node, self.index)
        for name in _LASTING:
            setattr(new, name, getattr(self, name))
        if self.views is not None:
            append_weakly(self.views, new)
        if self.node is not None:
            self.node.outputs.append(weakref.ref(new))
        return new

    def become_view(self, other: Value) -> None:
        if other.views is None:
            other.views = [weakref.ref(other)]
        append_weakly(other.views, self)
        self.views = other.views

    def track(self) -> None:
        """Something that requires a gradient is written to it."""
        for reference in self.views or [weakref.ref(self)]:
            value = reference()
            if value is not None and (
                value.meta.dtype.is_floating_point or value.meta.dtype.is_complex
            ):
                value.meta = value.meta._replace(requires_grad=True)

    def is_known_to(self, node: Node | None, graph: bool) -> bool:
        """Whether what was seen is what a node reads (None: what is asked for
        now). A node of before the last write reads something else; one that is
        to be differentiated needs the graph."""
        if self.seen is None or (graph and self.meta.requires_grad):
            return False
        write = self.group.last_write
        if write is None or write.done:
            return True
        # In a run for good others see what is written.
        return not graph and (node is None or node.seq > write.seq)

    def show(self, tensor: torch.Tensor) -> None:
        """It is known without a graph, for as long as the program holds it."""
        if not self.is_held():
            return
        self.seen = tensor
        mine = weakref.ref(self)

        def forget(_: Any) -> None:
            value = mine()
            if value is not None and value.node is not None and not value.is_held():
                value.seen = value.kept = None

        holders = [held for reference in self.holders if (held := reference()) is not None]
        self.holders = [weakref.ref(held, forget) for held in holders]

    def settle(self, tensor: torch.Tensor) -> None:
        """It has been computed for good."""
        if self.lent and self.seen is not None:
            tensor.data = self.seen
            self.group.external = True
        self.tensor, self.node, self.seen, self.kept = tensor, None, None, None

    def free_graph(self) -> None:
        """A backward pass has gone through its graph: of what was computed the
        value is left."""
        self.freed, self.kept = True, None
        if self.node is not None:
            seen = self.seen
            self.node = None
            if seen is not None:
                self.tensor, self.seen = seen, None
                self.group.external |= self.lent


# What a tensor keeps when its memory is written to. Its hooks see the gradient of
# what was there before.
_LASTING = (
    "alias",
    "drawn",
    "freed",
    "graph_name",
    "graphs",
    "origin",
    "source",
    "tensor",
    "version",
    "views",
)


def is_open(value: Value) -> bool:
    """Whether something has to run before the tensor is there."""
    write = value.group.last_write
    return value.tensor is None or (write is not None and not write.done)


@dataclass(eq=False)
class Call:
    """A function with its constant arguments, and what is known of its results.

    ``fill`` puts tensors and numbers in the place of the inputs. ``result`` is
    the structure of what it returns, with a ``Slot`` for each tensor.
    """

    function: Callable[..., Any]
    fill: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    result: Any
    metas: tuple[Meta, ...]
    same: tuple[int | None, ...]  # the input that an output is
    shares: tuple[int | None, ...]  # the input whose storage an output has
    writes: frozenset[int]
    tracks: frozenset[int]  # of these, what requires a gradient from then on
    random: bool
    made: int  # bytes of all results inside of it, views too
    grad: bool
    autocast: tuple[Any, ...] | None
    graph_names: tuple[str | None, ...] = ()  # of the outputs' grad_fn
    differentiates: bool = False  # it runs autograd inside of it
    kind: Any = None  # what calls have in common that differ in what data have decided

    def perform(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function in the modes that it was recorded in."""
        if torch.is_grad_enabled() == self.grad and self.autocast is None:
            return self.function(*args, **kwargs)
        with self.modes():
            return self.function(*args, **kwargs)

    @contextlib.contextmanager
    def modes(self, grad: bool = True) -> Iterator[None]:
        with torch.set_grad_enabled(self.grad and grad):
            if self.autocast is None:
                yield
                return
            device, dtype = self.autocast
            with torch.autocast(device, dtype=dtype, cache_enabled=False):
                yield

    def flatten(self, result: Any) -> list[torch.Tensor]:
        """The tensors of a result, in the order of ``metas``."""
        found: list[torch.Tensor] = []
        collect(result, found)
        return found


def collect(result: Any, found: list[torch.Tensor]) -> Any:
    """Appends the tensors of nested lists, tuples and dicts to ``found``, and
    returns the structure with a ``Slot`` in the place of each."""
    if isinstance(result, torch.Tensor):
        found.append(result)
        return Slot(len(found) - 1)
    if isinstance(result, (list, tuple)):
        return rebuild(result, [collect(item, found) for item in result])
    if isinstance(result, dict):
        return {key: collect(item, found) for key, item in result.items()}
    return result


def rebuild(like: Any, items: list[Any]) -> Any:
    """A list, tuple or named tuple of the type of ``like``."""
    kind = type(like)
    if hasattr(kind, "_fields"):
        return kind(*items)
    if kind is torch.Size:
        return tuple(items)
    return kind(items)


class Slot(int):
    """The place of a tensor in a result, or of an input in arguments."""


_sequence = itertools.count()


class Node:
    """A call that was recorded. ``deps`` are writes that come before it."""

    __slots__ = (
        "__weakref__",
        "call",
        "deps",
        "done",
        "frames",
        "inputs",
        "outputs",
        "seq",
        "writes_outside",
    )

    def __init__(self, call: Call, inputs: tuple[Any, ...], frames: Frames) -> None:
        self.call = call
        self.inputs = inputs
        self.frames = frames  # the innermost outside of PyTorch, the user's
        self.outputs: list[weakref.ref[Value]] = []
        self.deps: tuple[Node, ...] = ()
        self.seq = next(_sequence)
        self.done = False
        # Whether others see what it writes.
        self.writes_outside = any(inputs[index].group.external for index in call.writes)

    def finish(self) -> None:
        self.done = True
        self.inputs = self.deps = ()
        self.outputs = []


def is_direct(tensor: torch.Tensor | None) -> TypeGuard[torch.nn.Parameter]:
    """Whether it is a weight whose ``.grad`` a compiled program may add to.

    Hooks see the gradient of the whole batch, so what tiles give to a weight
    that has some is added up elsewhere and goes through autograd once.
    """
    return (
        isinstance(tensor, torch.nn.Parameter)
        and not tensor._backward_hooks
        and not tensor._post_accumulate_grad_hooks
    )


def read_sizes(number: Any) -> Iterator[Value]:
    """The values whose extents a number is made of."""
    if isinstance(number, BatchInt):
        function, left, right = number.expression
        if function != "size":
            yield from read_sizes(left)
            yield from read_sizes(right)
        elif (value := left()) is not None:
            yield value


def sources(node: Node) -> Iterator[Value]:
    for entry in node.inputs:
        if isinstance(entry, Value):
            yield entry
        elif isinstance(entry, BatchInt):
            yield from read_sizes(entry)


def _written_by(node: Node) -> list[Value]:
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
    return {memory_of(value) for node in nodes for value in _written_by(node)}


def _is_whole(value: Value, memory: Any) -> bool:
    """Whether it is the tensor that was made with this memory, and no view of it."""
    while (node := value.node) is not None and (node, value.index) != memory:
        place = node.call.same[value.index]
        if place is None:
            return False
        value = node.inputs[place]
    return value.node is not None


def _group_before(write: Node, memory: Any) -> Group | None:
    """The memory as it was before a write."""
    for value in _written_by(write):
        if memory_of(value) == memory:
            return value.group
    return None


def _find_seen(group: Group | None, memory: Any) -> Value | None:
    """What was seen of memory between two writes."""
    for reference in [] if group is None else group.members:
        value = reference()
        if value is not None and value.seen is not None and _is_whole(value, memory):
            return value
    return None


def _find_given(memory: Any, nodes: Iterable[Node]) -> Value | None:
    """What was seen last of memory that is written to: later writes may begin with a
    copy of it, where no graph is asked for."""
    if not isinstance(memory, tuple):
        return None
    writes = [node for node in nodes if memory in find_written([node])]
    write: Node | None = max(writes, key=lambda node: node.seq, default=None)
    while write is not None and not write.done:
        group = _group_before(write, memory)
        if (value := _find_seen(group, memory)) is not None:
            return value
        write = None if group is None else group.last_write
    return None


def _last_open_write(value: Value) -> int:
    write = value.group.last_write
    return -1 if write is None or write.done else write.seq


def closure(
    values: Iterable[Value], nodes: Iterable[Node] = (), *, graph: bool = True
) -> list[Node]:
    """The nodes that have to run for ``values``, in the order of recording;
    without their ``graph`` what was seen before need not run again."""
    values, nodes = list(values), [node for node in nodes if not node.done]
    written: set[Any] = set()
    refused: set[Any] = set()
    found: dict[Node, None] = {}
    while True:
        given: dict[Any, Value] = {}
        for memory in written - refused:
            if not graph and (value := _find_given(memory, found)) is not None:
                given[memory] = value
        close = _Closure(graph, written, given)
        found = close.run(values, nodes)
        more = find_written(found) - written
        if not more and not close.refused:
            return sorted(found, key=lambda node: node.seq)
        written |= more
        refused |= close.refused


class _Closure:
    """One search for the nodes of a program that writes to ``written`` and is
    ``given`` what was seen of some of this memory; ``refused`` is what it cannot
    begin with, since something reads what was there before."""

    def __init__(self, graph: bool, written: set[Any], given: dict[Any, Value]) -> None:
        self.graph, self.written, self.given = graph, written, given
        self.refused: set[Any] = set()
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
            for dep in _deps_of(node, self.graph):
                self._push_write(dep)
            for value in sources(node):
                self._push(value, node)
        return found

    def _push(self, value: Value, reader: Node | None) -> None:
        memory = memory_of(value) if self.written else None
        if value.is_known_to(reader, self.graph) and memory not in self.written:
            return
        given = self.given.get(memory) if memory is not None else None
        if (
            given is not None
            and reader is not None
            and reader.seq < _last_open_write(given)
            and not any(shared is not None for shared in reader.call.shares)
        ):
            self.refused.add(memory)
        is_given = given is not None and _is_whole(value, memory)
        if value.node is not None and not value.node.done and not is_given:
            self._stack.append(value.node)
        if reader is None and value.group.last_write is not None:
            self._push_write(value.group.last_write)

    def _push_write(self, write: Node) -> None:
        if write.done:
            return
        if self.given and write.call.writes:
            given = [self.given.get(memory_of(value)) for value in _written_by(write)]
            if all(value is not None and write.seq <= _last_open_write(value) for value in given):
                return  # it is in what was seen
        self._stack.append(write)


def _deps_of(node: Node, graph: bool) -> Iterable[Node]:
    """The writes that have to run before a node: not those to what was seen since.
    Where a write is to happen for good, what reads before it does, too."""
    if graph or not node.deps:
        return node.deps
    if node.call.writes:
        return [dep for dep in node.deps if dep.call.writes]
    seen = set()
    for value in sources(node):
        if value.is_known_to(node, graph):
            seen.add(value.group.last_write)
    for value in sources(node):
        if not value.is_known_to(node, graph):
            seen.discard(value.group.last_write)
    return [dep for dep in node.deps if dep not in seen]


def gradient_closure(value: Value) -> tuple[list[Node], list[Value]]:
    """The nodes through which a gradient of ``value`` flows, and the values
    that they read with a gradient."""
    found: dict[Node, None] = {}
    leaves: dict[Value, None] = {}
    stack = [value]
    while stack:
        node = stack.pop().node
        if node is None or node.done or node in found:
            continue
        if not node.call.grad or node.call.function in detaching:
            continue
        found[node] = None
        for entry in node.inputs:
            if type(entry) is Value and entry.meta.requires_grad:
                stack.append(entry)
                leaves[entry] = None
        for dep in node.deps:
            # What was written in place before it was read.
            stack.extend(out for ref in dep.outputs if (out := ref()) is not None)
    return list(found), list(leaves)


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
        written = find_written(self.nodes)
        inside = set(self.nodes) if written else set()
        # Memory whose maker need not run: the first write begins with what was seen.
        given: dict[Any, Value] = {}
        for memory in [] if self.graph else written:
            if isinstance(memory, tuple) and memory[0] not in inside:
                first = next(node for node in self.nodes if memory in find_written([node]))
                seen = _find_seen(_group_before(first, memory), memory)
                assert seen is not None  # or the maker would run
                given[memory] = seen

        def is_known(value: Value) -> bool:
            if not value.is_known_to(reader, self.graph):
                return False
            return not (written and memory_of(value) in written)

        def place(value: Value) -> int:
            node = value.node
            memory = memory_of(value) if written and not self.graph else None
            if memory in given and _is_whole(value, memory):
                before = given[memory]
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

    def key(self) -> tuple[Any, ...]:
        """Equal for programs that compute the same but for floats and values."""
        leaves = tuple(
            (
                isinstance(leaf.tensor, torch.nn.Parameter),
                leaf.meta,
                leaf.origin.batch if leaf.origin else None,
                leaf.freed,
            )
            for leaf in self.leaves
        )
        calls = tuple(
            (id(node.call) if node.call.kind is None else node.call.kind, step)
            for node, step in zip(self.nodes, self.steps, strict=True)
        )
        return calls, leaves, tuple(self.results), self.graph

    def writes(self) -> bool:
        """Whether it writes to a tensor that is there at entry, so that it must
        run once."""
        made = {node for node in self.nodes}

        def is_made(value: Value) -> bool:
            """Whether its memory is the program's own."""
            while (node := value.node) is not None and node in made:
                place = node.call.shares[value.index]
                if place is None:
                    return True
                value = node.inputs[place]
            memory = memory_of(value)
            return any(memory_of(self.leaves[copied]) == memory for copied in self.copied)

        return any(
            node.writes_outside or not all(map(is_made, _written_by(node))) for node in self.nodes
        )

    def replay(
        self,
        leaves: list[Any],
        invoke: Callable[[Node, int, tuple[Any, ...], dict[str, Any]], Any],
        numbers: Iterable[Any] | None = None,
    ) -> list[Any]:
        """Runs the calls on other tensors, and with other ``numbers``; ``invoke``
        makes one call."""
        made: list[Any] = []
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
            result = invoke(node, position, args, kwargs)
            made.extend(node.call.flatten(result))
        return [get(place) for place in self.results]

    def run(self) -> None:
        """Runs the calls on the tensors themselves, for good. Values that are
        asked for keep their tensors, the others free them where PyTorch would."""
        nodes = self.nodes[::-1]
        graph = Graph()
        graphs = frozenset([graph])
        for leaf in self.leaves:
            graphs |= leaf.graphs
        self.nodes, self.steps, self.leaves = [], [], []
        late: dict[Node, list[tuple[GradientHook, torch.Tensor]]] = {}
        while nodes:
            node = nodes.pop()
            entries = [
                (entry.seen if entry.tensor is None else entry.tensor)
                if isinstance(entry, Value)
                else int(entry)
                if isinstance(entry, BatchInt)
                else entry
                for entry in node.inputs
            ]
            args, kwargs = node.call.fill(entries)
            entries.clear()
            try:
                result = node.call.perform(args, kwargs)
            except Exception as error:
                raise_at(error, node.frames)
            del args, kwargs
            tensors = node.call.flatten(result)
            del result
            for reference in node.outputs:
                value = reference()
                if value is not None:
                    value.settle(tensors[value.index])
                    if value.meta.requires_grad:
                        value.graphs = graphs
                        graph.end_in(tensors[value.index])
                        # A hook that was registered after a write is one of what
                        # is there then.
                        write = value.group.last_write
                        waits = write is not None and not write.done and write is not node
                        for hook in value.hooks:
                            if waits and write is not None:
                                late.setdefault(write, []).append((hook, tensors[value.index]))
                            else:
                                hook.attach(tensors[value.index])
            tensors.clear()
            node.finish()
            for hook, tensor in late.pop(node, ()):
                hook.attach(tensor)

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

        copies = {place: self.tensor_of(self.leaves[place]).clone() for place in self.copied}

        def get(place: int) -> torch.Tensor:
            if place in copies:
                return copies[place]
            return self.tensor_of(self.leaves[place]) if place >= 0 else made[place]

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
                        if place < 0 and last[place] == position:
                            made.pop(place, None)
            return [get(place).detach() for place in self.results]


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
