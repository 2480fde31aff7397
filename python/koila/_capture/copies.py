"""Tensors of a program that have each sample more than once in one dim: the mask of a
dropout over ``x.view(B * T, C)`` or over ``torch.cat([x, x])``, labels of two domains.

They are handed on with that dim in two, of which one is the batch. Which of both comes
first is seen from what they meet in the program. No answer makes a wrong program: it is the
one that was recorded whatever is called the batch, and tiles of it are proven like others.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from koila._capture.leaves import is_expanded
from koila._capture.program import Program
from koila._capture.values import Meta, Value

__all__ = ["Copies", "Readers", "copies_of", "find_copies"]


@dataclass(frozen=True)
class Copies:
    """``dim`` has each of the samples ``times`` times: one sample after the other, or all
    of them again and again (``is_outer``)."""

    dim: int
    times: int
    is_outer: bool

    @property
    def batch_dim(self) -> int:
        """That of the samples in a tensor of which the dim is in two."""
        return self.dim + self.is_outer

    def split(self, tensor: Tensor) -> Tensor:
        pair = (self.times, -1) if self.is_outer else (-1, self.times)
        return tensor.view(*tensor.shape[: self.dim], *pair, *tensor.shape[self.dim + 1 :])

    def join(self, tensor: Tensor) -> Tensor:
        return tensor.flatten(self.dim, self.dim + 1)

    def split_meta(self, meta: Meta) -> Meta:
        """What is known of the tensor in two."""
        extent = meta.shape[self.dim] // self.times
        pair = (self.times, extent) if self.is_outer else (extent, self.times)
        shape = (*meta.shape[: self.dim], *pair, *meta.shape[self.dim + 1 :])
        inner = meta.stride[self.dim]
        stride = (*meta.stride[: self.dim], inner * pair[1], *meta.stride[self.dim :])
        return meta._replace(shape=shape, stride=stride)


class Readers:
    """Of a program the calls that read each of its values, in order, and the place of what
    each call makes first."""

    def __init__(self, program: Program) -> None:
        self.by_place: defaultdict[int, list[int]] = defaultdict(list)
        self.made: list[int] = []
        count = 0
        for position, (node, step) in enumerate(zip(program.nodes, program.steps, strict=True)):
            for entry, value in zip(step, node.inputs, strict=True):
                if isinstance(entry, int) and isinstance(value, Value):
                    self.by_place[entry].append(position)
            self.made.append(-1 - count)
            count += len(node.call.metas)


def find_copies(program: Program, place: int, batch: int, readers: Readers) -> Copies | None:
    """How a leaf has each sample of the ``batch`` more than once, if it does."""
    leaf = program.leaves[place]
    if leaf.copies is not None:
        return leaf.copies if _is_dense(leaf.meta) else None
    if is_expanded(leaf):
        rows = leaf.meta.shape[0]  # which are all the same
        if batch > 1 and _is_more_than_once(rows, batch):
            return Copies(0, rows // batch, True)
    found = _find(leaf.meta, batch, lambda dim: _meets_outer(program, readers, place, dim, batch))
    if found is None and leaf.source is not None and leaf.node is None and not leaf.drawn:
        # What was computed of the batch, as rows of it that were shuffled: any order will do.
        found = _find(leaf.meta, batch, lambda dim: False if dim == 0 else None)
    return found


def copies_of(value: Value) -> Copies | None:
    """The same of what a recorded call makes, before it is settled."""
    batch = value.source.size if value.source is not None else None
    if not batch or value.node is None:
        return None
    return _find(value.meta, batch, lambda dim: _is_made_outer(value, dim, batch))


def _find(meta: Meta, batch: int, is_outer: Callable[[int], bool | None]) -> Copies | None:
    if batch < 2 or not _is_dense(meta):
        return None
    for dim, extent in enumerate(meta.shape):
        if extent == batch:
            return None
        if _is_more_than_once(extent, batch):
            found = is_outer(dim)
            if found is not None:
                return Copies(dim, extent // batch, found)
    return None


def _is_more_than_once(extent: int, batch: int) -> bool:
    return extent > batch and extent % batch == 0


def _is_dense(meta: Meta) -> bool:
    """Whether it has no gaps, whatever the order of its dims."""
    extent = 1
    for stride, size in sorted(zip(meta.stride, meta.shape, strict=True)):
        if size > 1 and stride != extent:
            return False
        extent *= size
    return True


def _dim_of(meta: Meta, extent: int, dim: int) -> int | None:
    """The dim of that extent; the same one, if it has it."""
    shape = meta.shape
    if dim < len(shape) and shape[dim] == extent:
        return dim
    return shape.index(extent) if extent in shape else None


def _meets_outer(
    program: Program, readers: Readers, place: int, dim: int, batch: int
) -> bool | None:
    """Of what a leaf, and what is made of it alone, meets in a program; None if that has no
    samples in this dim."""
    extent = program.leaves[place].meta.shape[dim]
    known = {place: dim}
    waiting = list(readers.by_place.get(place, ()))
    last = -1
    while waiting:
        position = heapq.heappop(waiting)
        if position == last:
            continue  # it reads several of them
        last = position
        node = program.nodes[position]
        inputs = [
            (entry, value)
            for entry, value in zip(program.steps[position], node.inputs, strict=True)
            if isinstance(entry, int) and isinstance(value, Value)
        ]
        mine = next(known[entry] for entry, _ in inputs if entry in known)
        for index, meta in enumerate(node.call.metas):
            found = _dim_of(meta, extent, mine)
            if found is not None:
                made = readers.made[position] - index
                known[made] = found
                for reader in readers.by_place.get(made, ()):
                    heapq.heappush(waiting, reader)
        if getattr(node.call.function, "__name__", "") in _SPLITTING:
            return _is_split_outer(node.call.metas[0].shape, extent, mine, batch)
        for entry, value in inputs:
            found = _dim_of(value.meta, extent, mine)
            if entry not in known and entry < 0 and found is not None:
                return _is_made_outer(value, found, batch)
    return None


def _is_split_outer(shape: tuple[int, ...], extent: int, dim: int, batch: int) -> bool | None:
    """Of a dim that a view makes several of."""
    product = 1
    for place in range(dim, len(shape)):
        if shape[place] == batch:
            return product > 1
        product *= shape[place]
        if product >= extent:
            return None
    return None


_SPLITTING = ("view", "reshape", "unflatten")
_VIEWS = (*_SPLITTING, "flatten")
# What puts tensors, or copies of one, one behind the other; and what makes one dim of two.
_OUTER = ("cat", "concat", "concatenate", "vstack", "stack", "repeat", "tile")
_JOINING = ("view", "reshape", "flatten", "repeat_interleave")


def _find_in_viewed(
    viewed: Meta, meta: Meta, extent: int, dim: int, inner: int
) -> tuple[int, int] | None:
    """The dim of ``viewed`` that has all of the ``extent`` rows which a view of it has in
    ``dim``, each of ``inner`` there; and of how many each is in that one."""
    if 0 in viewed.shape:
        return None
    rows = inner * math.prod(meta.shape[dim + 1 :])
    after = 1
    for place in reversed(range(len(viewed.shape))):
        whole = after * viewed.shape[place]
        if rows % after == 0 and whole % (extent * rows) == 0:
            return place, rows // after
        after = whole
    return None


def _is_made_outer(value: Value, dim: int, batch: int) -> bool | None:
    """Goes back to the call whose operands have no dim of that extent, nor one of which it
    is a part, as the samples of attention beside heads."""
    extent, inner = value.meta.shape[dim], 1
    while value.node is not None and not value.node.done:
        node = value.node
        operands = [entry for entry in node.inputs if isinstance(entry, Value)]
        # What no call has made, as rows of a weight beside those of samples, tells nothing.
        operands.sort(key=lambda operand: operand.node is None)
        name = getattr(node.call.function, "__name__", "")
        before = next(
            (
                (operand, found, inner)
                for operand in operands
                if (found := _dim_of(operand.meta, value.meta.shape[dim], dim)) is not None
            ),
            None,
        )
        if before is None and name in _VIEWS and len(operands) == 1 and operands[0].meta.shape:
            part = _find_in_viewed(operands[0].meta, value.meta, extent, dim, inner)
            before = None if part is None else (operands[0], *part)
        if before is None:
            shapes = [operand.meta.shape for operand in operands]
            places = [shape.index(batch) for shape in shapes if batch in shape]
            if not places or name not in (*_OUTER, *_JOINING):
                return None
            return name in _OUTER or (name != "repeat_interleave" and places[0] > dim)
        value, dim, inner = before
    known: Copies | None = value.copies
    return known.is_outer if known is not None and known.dim == dim else None
