"""Recorded values: tensors that there are, or that a recorded call will make.

Nodes are kept alive by the values that they make and those by the nodes that read
them, so that what nobody can ask for any more is never run.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy
import torch

from koila import _compiler
from koila._capture.batch_int import BatchInt
from koila._capture.frames import Frames
from koila._capture.graphs import Graph

__all__ = [
    "Call",
    "GradientHook",
    "Group",
    "Meta",
    "Node",
    "Origin",
    "Slot",
    "Value",
    "append_weakly",
    "checksum_of",
    "checksum_of_tensor",
    "collect",
    "detaching",
    "has_gradient_hooks",
    "hash_of",
    "is_direct",
    "is_float",
    "is_open",
    "read_sizes",
    "rebuild",
    "sources",
    "unnoticed",
]

# Of what is made by it autograd notices no writes.
unnoticed: Any = torch.Tensor.data.__get__  # type: ignore[attr-defined]
# What is made of a tensor without its graph.
detaching = (torch.Tensor.detach, torch.detach, unnoticed)


class Meta(NamedTuple):
    """What is known of a tensor before it is computed; strides in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    decided: bool = False  # data have decided an extent: others make no other program

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(eq=False)
class Origin:
    """The batch of a tensor that was given to ``koila.lazy``: its dim, samples,
    and budget. Tensors of one call have the same ``call``. Of one that stays on the host
    ``device`` has the tiles."""

    batch: int | None
    size: int | None
    budget: int | str
    call: object = None
    device: torch.device | None = None


class Group:
    """The tensors that share one storage, from one write to it to the next."""

    __slots__ = ("external", "is_lent", "is_past", "is_there", "last_write", "members", "readers")

    def __init__(self, external: bool, last_write: Node | None = None) -> None:
        self.external = external  # a tensor of the user, which others see
        # Something of it has been computed for good: a write that waits would be made again
        # with each program that computes what was written.
        self.is_there = False
        self.is_past = False  # a write has made another of it
        self.is_lent = False  # the program has an array of what was seen of it
        self.last_write = last_write
        self.readers: list[weakref.ref[Node]] = []  # since the last write
        self.members: list[weakref.ref[Value]] = []

    def open_write(self) -> Node | None:
        """The write that this memory is to see and that has not run."""
        write = self.last_write
        return None if write is None or write.done else write

    def open_readers(self) -> list[Node]:
        """Nodes that must read before the next write."""
        found = [reference() for reference in self.readers]
        return [node for node in found if node is not None and not node.done]

    def has_graph(self) -> bool:
        """Whether the program holds something of it that is computed again for its
        graph, in which others see what is written to them."""
        return any(
            value.meta.requires_grad and value.tensor is None and value.is_held()
            for value in self.list_members()
        )

    def list_members(self) -> list[Value]:
        return [value for reference in self.members if (value := reference()) is not None]

    def settle_seen(self) -> None:
        """Without a graph to be computed, what was seen is what there is."""
        if self.open_write() is not None or self.has_graph():
            return
        for value in self.list_members():
            seen = value.seen
            # What nobody holds may be what was there before a write.
            if value.node is None or seen is None or not value.is_held():
                continue
            if not value.meta.requires_grad:
                value.settle(seen)


_Kept = TypeVar("_Kept")


def append_weakly(found: list[weakref.ref[_Kept]], item: _Kept) -> None:
    """Of what is used in every step, the list is as long as those that live."""
    if len(found) >= 32 and not len(found) & (len(found) - 1):
        found[:] = [reference for reference in found if reference() is not None]
    found.append(weakref.ref(item))


def checksum_of(array: Any) -> int:
    """Of all that is in a NumPy array, in its order."""
    return zlib.crc32(numpy.ascontiguousarray(array).data.cast("B")) if array.size else 0


# What is copied at a time of a tensor that is not dense.
_PIECE = 1 << 20
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as integers, in its shape; of complex ones two."""
    plain = tensor.detach()
    plain = plain.conj() if plain.is_conj() else plain
    plain = torch._neg_view(plain) if plain.is_neg() else plain
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.view(_INTEGERS[plain.itemsize])


def checksum_of_tensor(tensor: torch.Tensor) -> int:
    """The same of a tensor on the CPU, of any type, in the order of its memory."""
    bits = _bits_of(tensor)
    strides = bits.stride()
    bits = bits.permute(sorted(range(bits.dim()), key=lambda dim: -strides[dim]))
    if bits.is_contiguous():
        return checksum_of(bits.numpy())
    rows = max(_PIECE * bits.shape[0] // max(bits.nbytes, 1), 1)
    found = 0
    for part in torch.split(bits, rows):
        found = zlib.crc32(part.contiguous().view(torch.int8).numpy().data, found)
    return found


def hash_of(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers of the bits, on the tensor's device: an exclusive or and a sum of all, and the
    first. None of them is enough: two equal elements leave nothing of the first, and what is
    added to one and taken from another nothing of the second."""
    bits = _bits_of(tensor)
    if bits.numel() == 0:
        return torch.zeros(0, dtype=torch.int64, device=bits.device)
    # A sum in another type would be one of a copy.
    total, first = bits.sum(dtype=bits.dtype), bits[(0,) * bits.dim()]
    return torch.stack((torch.hash_tensor(bits).view(torch.int64), total.long(), first.long()))


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
        "copies",
        "dims",
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
        "is_renamed",
        "kept",
        "lent",
        "meta",
        "node",
        "origin",
        "replaced",
        "retained",
        "source",
        "tensor",
        "version",
        "views",
    )

    def __init__(self, meta: Meta, group: Group, node: Node | None = None, index: int = 0) -> None:
        self.meta = meta
        self.join(group)
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
        # Its dims that are made of samples, where that is known.
        self.dims: tuple[int, ...] | None = None
        self.copies: Any = None  # how it has each sample more than once (``copies.py``)
        self.version: int | None = None
        self.is_renamed = False  # a call has given this view the name of what it is one of
        self.replaced = False  # it has other memory, which it was given as ``.data``
        self.hash: torch.Tensor | None = None  # of a weight that a step in tiles has read
        self.checksum: int | None = None  # of memory whose writes have no version
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
        # (A write leads to all writes before it.)
        self._seen = tensor
        self._seen_after = None if tensor is None else self.group.last_write

    def is_leaf(self) -> bool:
        """Whether it is a tensor that was there, and not made by a call."""
        return self.node is None and self.tensor is not None

    def list_tensors(self) -> list[torch.Tensor]:
        """What has been computed of it, with its graph and without, and the gradient that
        it keeps."""
        tensors = (self.tensor, self._seen, self.retained)
        return [each for each in tensors if each is not None and each.layout is torch.strided]

    def is_replaced(self) -> bool:
        """Whether ``.data`` of the tensor was assigned since it was recorded."""
        alias, tensor = self.alias, self.tensor
        return self.replaced or (
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
        """Whether a weight has the bits of the last step, and what others may write to
        has those that were recorded. Writes through ``.data``, as of many optimizers, or
        to a NumPy array do not count as a version."""
        if self.tensor is None:
            return True
        if self.checksum is not None:
            return checksum_of_tensor(self.tensor) == self.checksum
        return self.hash is None or bool(torch.equal(hash_of(self.tensor), self.hash))

    def is_watched(self) -> bool:
        """Whether it is known when its tensor is written to: of inference tensors by their
        bits, of others by their version."""
        is_bits = self.hash is not None and self.tensor is not None and self.tensor.is_inference()
        return is_bits or self.version is not None

    def watch(self) -> None:
        """Others may write to it without a version: from now on its bits tell."""
        tensor = self.tensor
        if tensor is None or tensor.layout is not torch.strided or tensor.device.type == "meta":
            return
        if tensor.device.type == "cpu":
            if self.checksum is None:
                self.checksum = checksum_of_tensor(tensor)
        elif self.hash is None:
            self.hash = hash_of(tensor)

    def join(self, group: Group) -> None:
        """Later writes to its memory are those to this group."""
        self.group = group
        append_weakly(group.members, self)

    def part(self) -> None:
        """It is about to be settled, with the writes behind the call that has made it: that
        has nothing for it where it runs again."""
        readers = self.group.readers
        self.join(Group(False))
        self.group.readers = list(readers)
        if self.node is not None:
            self.node.outputs = [each for each in self.node.outputs if each() is not self]

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
        write = self.group.open_write()
        if write is None:
            return True
        # In a run for good others see what is written.
        return not graph and (node is None or node.seq > write.seq)

    def show(self, tensor: torch.Tensor) -> None:
        """It is known without a graph, for as long as the program holds it."""
        if not self.is_held():
            return
        self.seen = tensor
        if self.group.last_write is not None:
            self.group.last_write.forget_written()
        mine = weakref.ref(self)

        def forget(_: Any) -> None:
            value = mine()
            if value is None or value.node is None or value.is_held():
                return
            group, seen = value.group, value.seen
            written = group.open_write() is not None
            if seen is not None and not (
                value.meta.requires_grad or written or value._is_looked_at()
            ):
                # Calls that read it take the number.
                value.join(Group(False))
                value.settle(seen)
            value.seen = value.kept = None
            group.settle_seen()

        holders = [held for reference in self.holders if (held := reference()) is not None]
        self.holders = [weakref.ref(held, forget) for held in holders]

    def _is_looked_at(self) -> bool:
        """Whether calls make views of it or write to it: a number has other memory."""
        return self.group.is_past or any(
            entry is self and (index in node.call.writes or index in node.call.shares)
            for node in self.group.open_readers()
            for index, entry in enumerate(node.inputs)
        )

    def settle(self, tensor: torch.Tensor) -> None:
        """It has been computed for good."""
        if self.lent and self.seen is not None:
            tensor.data = self.seen
        self.group.external |= self.group.is_lent
        self.group.is_there = True
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
                self.group.external |= self.group.is_lent
                self.group.is_there = True
                self.leave_writes()

    def leave_writes(self) -> None:
        """A write to it that has not run is in what was seen. Once all is known that looks at
        the memory, there is nothing left to run."""
        if self.group.open_write() is None:
            return
        held = [other for other in self.group.list_members() if other is self or other.is_held()]
        if any(other.meta.requires_grad and not other.freed for other in held):
            return
        if all(other.tensor is not None or other.seen is not None for other in held):
            group = Group(self.group.external)
            group.readers = list(self.group.readers)
            for other in held:
                seen = other.seen
                other.join(group)
                if other.node is not None and seen is not None:
                    other.settle(seen)
            group.is_there = True


# What a tensor keeps when its memory is written to. Its hooks see the gradient of
# what was there before.
_LASTING = (
    "alias",
    "copies",
    "drawn",
    "freed",
    "graph_name",
    "graphs",
    "is_renamed",
    "origin",
    "retained",
    "source",
    "tensor",
    "version",
    "views",
)


def is_float(entry: Any) -> bool:
    """Whether an argument is a float to PyTorch, which takes those of NumPy, too."""
    return isinstance(entry, (float, numpy.floating))


def is_open(value: Value) -> bool:
    """Whether something has to run before the tensor is there."""
    return value.tensor is None or value.group.open_write() is not None


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
    settled: Call | None = None  # the same without the statistics that it updates
    statistics: frozenset[int] = frozenset()  # inputs that are running statistics

    def perform(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function in the modes that it was recorded in."""
        if torch.is_grad_enabled() == self.grad and self.autocast is None:
            return self.function(*args, **kwargs)
        with self.modes(casts=self.grad):
            return self.function(*args, **kwargs)

    @contextlib.contextmanager
    def modes(self, grad: bool = True, casts: bool = False) -> Iterator[None]:
        """Those that it was recorded in; with ``casts`` inside of a CastCache."""
        with torch.set_grad_enabled(self.grad and grad):
            if self.autocast is None:
                yield
                return
            device, dtype = self.autocast
            with torch.autocast(device, dtype=dtype, cache_enabled=casts):
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
        "is_stale",
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
        # Whether running statistics that it reads have been updated since.
        self.is_stale = False
        # Whether others see what it writes.
        self.writes_outside = any(inputs[index].group.external for index in call.writes)

    def forget_written(self) -> None:
        """What was seen before a write is of no use any more: reads begin with what was seen
        behind it, and steps compute all of it again."""
        for index in () if self.done else self.call.writes:
            for before in self.inputs[index].group.list_members():
                if before.node is not None and not before.is_held():
                    before.seen = None

    def finish(self) -> None:
        self.done = True
        self.inputs = self.deps = ()
        self.outputs = []


def is_direct(tensor: torch.Tensor | None) -> TypeGuard[torch.nn.Parameter]:
    """Whether it is a weight whose ``.grad`` a compiled program may add to.

    Hooks see the gradient of the whole batch, so what tiles give to a weight
    that has some is added up elsewhere and goes through autograd once.
    """
    return isinstance(tensor, torch.nn.Parameter) and not has_gradient_hooks(tensor)


def has_gradient_hooks(tensor: torch.Tensor) -> bool:
    """Whether somebody is to see the gradient of a leaf."""
    return bool(
        tensor._backward_hooks
        or tensor._post_accumulate_grad_hooks
        or _compiler.has_accumulation_hooks(tensor)
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
