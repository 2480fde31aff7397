"""Recorded programs: values, the calls that make them, and their order.

A ``Value`` is a tensor that there is, or one that a ``Node`` will make. Nodes
are kept alive by the values that they make and those by the nodes that read
them, so that what nobody can ask for any more is never run.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard, TypeVar

import torch

from koila._batch_int import BatchInt

__all__ = [
    "Call",
    "Frame",
    "Group",
    "Meta",
    "Node",
    "Origin",
    "Program",
    "Value",
    "append_weakly",
    "closure",
    "hash_of",
    "is_direct",
]


class Meta(NamedTuple):
    """What is known of a tensor before it is computed; strides in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


class Frame(NamedTuple):
    """A line of Python that recorded something."""

    file: str
    line: int


@dataclass
class Origin:
    """The batch that a ``lazy()`` call named: its dim, samples, and budget."""

    batch: int | None
    size: int | None
    budget: int | str


class Group:
    """The tensors that share one storage, and who writes to it last."""

    __slots__ = ("external", "last_write", "readers")

    def __init__(self, external: bool) -> None:
        self.external = external  # a tensor of the user, which others see
        self.last_write: Node | None = None
        self.readers: list[weakref.ref[Node]] = []  # since the last write

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


def hash_of(tensor: torch.Tensor) -> torch.Tensor:
    """A number of the bits, on the tensor's device."""
    plain = tensor.detach()
    return torch.hash_tensor(torch.view_as_real(plain) if plain.is_complex() else plain)


class Value:
    """A tensor of the program; ``tensor`` is None until it is computed.

    ``seen`` is what a read showed, without a graph to differentiate; None if
    there was none since the storage was written to last.
    """

    __slots__ = (
        "__weakref__",
        "_seen",
        "_seen_after",
        "differentiated",
        "group",
        "hash",
        "index",
        "kept",
        "meta",
        "node",
        "origin",
        "source",
        "tensor",
        "version",
        "views",
    )

    def __init__(self, meta: Meta, group: Group, node: Node | None = None, index: int = 0) -> None:
        self.meta = meta
        self.group = group
        self.node = node
        self.index = index
        self.tensor: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._seen_after: Node | None = None
        self.kept: Any = None  # gradients that a read has computed along with it
        self.differentiated = False
        self.version: int | None = None
        self.hash: torch.Tensor | None = None  # of a weight that a step in tiles has read
        self.origin: Origin | None = None  # of what was given to lazy()
        self.source: Origin | None = None  # of what it was made of
        # It and others that are views of each other to autograd.
        self.views: list[weakref.ref[Value]] | None = None

    @property
    def seen(self) -> torch.Tensor | None:
        return self._seen if self._seen_after is self.group.last_write else None

    @seen.setter
    def seen(self, tensor: torch.Tensor | None) -> None:
        self._seen, self._seen_after = tensor, self.group.last_write

    def is_as_hashed(self) -> bool:
        """Whether a weight has the bits of the last step. Writes through
        ``.data``, as of many optimizers, do not count as a version."""
        if self.hash is None or self.tensor is None:
            return True
        return bool(torch.equal(hash_of(self.tensor), self.hash))

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

    def settle(self, tensor: torch.Tensor) -> None:
        self.tensor, self.node, self.seen, self.kept = tensor, None, None, None


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

    def perform(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function in the modes that it was recorded in."""
        if torch.is_grad_enabled() == self.grad and self.autocast is None:
            return self.function(*args, **kwargs)
        with self.modes():
            return self.function(*args, **kwargs)

    @contextlib.contextmanager
    def modes(self) -> Iterator[None]:
        with torch.set_grad_enabled(self.grad):
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
        "spent",
    )

    def __init__(self, call: Call, inputs: tuple[Any, ...], frames: tuple[Frame, Frame]) -> None:
        self.call = call
        self.inputs = inputs
        self.frames = frames  # the innermost outside of PyTorch, the user's
        self.outputs: list[weakref.ref[Value]] = []
        self.deps: tuple[Node, ...] = ()
        self.seq = next(_sequence)
        self.done = False
        self.spent = False  # drew or wrote in a run that did not keep its result

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
        if function == "size":
            yield left
        else:
            yield from read_sizes(left)
            yield from read_sizes(right)


def sources(node: Node) -> Iterator[Value]:
    for entry in node.inputs:
        if isinstance(entry, Value):
            yield entry
        elif isinstance(entry, BatchInt):
            yield from read_sizes(entry)


def closure(values: Iterable[Value], nodes: Iterable[Node] = ()) -> list[Node]:
    """The nodes that have to run for ``values``, in the order of recording."""
    found: dict[Node, None] = {}
    stack: list[Node] = [node for node in nodes if not node.done]

    def push(value: Value) -> None:
        if value.node is not None and not value.node.done:
            stack.append(value.node)
        if value.group.last_write is not None and not value.group.last_write.done:
            stack.append(value.group.last_write)

    for value in values:
        push(value)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found[node] = None
        stack.extend(dep for dep in node.deps if not dep.done)
        for value in sources(node):
            if value.node is not None and not value.node.done:
                stack.append(value.node)
    return sorted(found, key=lambda node: node.seq)


@dataclass
class Program:
    """The nodes of some roots, with the values that are there at entry.

    ``steps`` are the inputs of each node as indices into the values: first the
    leaves, then the outputs of the nodes; or numbers.
    """

    nodes: list[Node]
    roots: list[Value]
    leaves: list[Value] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        made: dict[tuple[int, int], int] = {}
        count = 0
        for node in self.nodes:
            for index in range(len(node.call.metas)):
                made[id(node), index] = -1 - count
                count += 1
        places: dict[int, int] = {}

        def place(value: Value) -> int:
            if value.node is not None and not value.node.done:
                return made[id(value.node), value.index]
            if id(value) not in places:
                places[id(value)] = len(self.leaves)
                self.leaves.append(value)
            return places[id(value)]

        def convert(entry: Any) -> Any:
            if isinstance(entry, Value):
                return place(entry)
            if isinstance(entry, BatchInt):
                return _describe(entry, place)
            self.numbers.append(entry)
            return None

        for node in self.nodes:
            self.steps.append(tuple(convert(entry) for entry in node.inputs))
        self.results = [place(root) for root in self.roots]

    def key(self) -> tuple[Any, ...]:
        """Equal for programs that compute the same but for floats and values."""
        leaves = tuple(
            (
                id(leaf.tensor) if is_direct(leaf.tensor) else 0,
                leaf.meta,
                leaf.origin.batch if leaf.origin else None,
            )
            for leaf in self.leaves
        )
        calls = tuple(
            (id(node.call), step) for node, step in zip(self.nodes, self.steps, strict=True)
        )
        return calls, leaves, tuple(self.results)

    def replay(
        self, leaves: list[Any], invoke: Callable[[Node, int, tuple[Any, ...], dict[str, Any]], Any]
    ) -> list[Any]:
        """Runs the calls on other tensors; ``invoke`` makes one call."""
        made: list[Any] = []
        numbers = iter(self.numbers)

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
        """Runs the calls on the tensors themselves. Values that are asked for
        keep their tensors, the others free them where PyTorch would."""
        nodes = self.nodes[::-1]
        self.nodes, self.steps, self.leaves = [], [], []
        while nodes:
            node = nodes.pop()
            entries = [
                entry.tensor
                if isinstance(entry, Value)
                else int(entry)
                if isinstance(entry, BatchInt)
                else entry
                for entry in node.inputs
            ]
            args, kwargs = node.call.fill(entries)
            entries.clear()
            result = node.call.perform(args, kwargs)
            del args, kwargs
            tensors = node.call.flatten(result)
            del result
            for reference in node.outputs:
                value = reference()
                if value is not None:
                    value.settle(tensors[value.index])
            tensors.clear()
            node.finish()


# Functions of a module: one inside of a method that calls itself is a cycle,
# which would keep the program and its tensors until Python looks for cycles.
def _describe(number: Any, place: Callable[[Value], int]) -> Any:
    if not isinstance(number, BatchInt):
        return number
    function, left, right = number.expression
    if function == "size":
        return ("size", place(left), right)
    return (function, _describe(left, place), _describe(right, place))


def _compute(entry: Any, get: Callable[[int], Any]) -> Any:
    if not isinstance(entry, tuple):
        return entry
    if entry[0] == "size":
        return get(entry[1]).size(entry[2])
    return entry[0](_compute(entry[1], get), _compute(entry[2], get))
