"""Tensors of a program that have each sample more than once in one dim: the mask of a
dropout over ``x.view(B * T, C)`` or over ``torch.cat([x, x])``, labels of two domains.

They are handed on with that dim in two, of which one is the batch. Which of both comes
first is seen from what they meet in the program. No answer makes a wrong program: it is the
one that was recorded whatever is called the batch, and tiles of it are proven like others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from koila._capture.program import Program, places_of
from koila._capture.values import Meta, Node

__all__ = ["Copies", "find_copies"]


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
        return tensor.unflatten(self.dim, (self.times, -1) if self.is_outer else (-1, self.times))

    def join(self, tensor: Tensor) -> Tensor:
        return tensor.flatten(self.dim, self.dim + 1)

    def split_meta(self, meta: Meta) -> Meta:
        """What is known of the tensor in two; it is dense, row by row."""
        extent = meta.shape[self.dim] // self.times
        pair = (self.times, extent) if self.is_outer else (extent, self.times)
        shape = (*meta.shape[: self.dim], *pair, *meta.shape[self.dim + 1 :])
        inner = meta.stride[self.dim]
        stride = (*meta.stride[: self.dim], inner * pair[1], *meta.stride[self.dim :])
        return meta._replace(shape=shape, stride=stride)


def find_copies(program: Program, place: int, batch: int) -> Copies | None:
    """How a leaf has each sample of the ``batch`` more than once, if it does."""
    meta = program.leaves[place].meta
    if batch < 2 or batch in meta.shape or not _is_dense(meta):
        return None
    dim = next(
        (dim for dim, extent in enumerate(meta.shape) if extent > batch and extent % batch == 0),
        None,
    )
    if dim is None:
        return None
    is_outer = _Search(program, batch).is_outer(place, dim)
    return None if is_outer is None else Copies(dim, meta.shape[dim] // batch, is_outer)


def _is_dense(meta: Meta) -> bool:
    extent = 1
    for size, stride in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
        if size > 1 and stride != extent:
            return False
        extent *= size
    return True


# What puts tensors, or copies of one, one behind the other; and what makes one dim of two.
_OUTER = ("cat", "concat", "concatenate", "vstack", "stack", "repeat", "tile")
_JOINING = ("view", "reshape", "flatten", "repeat_interleave")


class _Search:
    """Goes from a leaf to what it meets, and from there back to what made the dim."""

    def __init__(self, program: Program, batch: int) -> None:
        self.program, self.batch = program, batch
        self.made: list[tuple[Node, int, int]] = [
            (node, position, index)
            for position, node in enumerate(program.nodes)
            for index in range(len(node.call.metas))
        ]
        self.first = [0]
        for node in program.nodes:
            self.first.append(self.first[-1] + len(node.call.metas))

    def meta(self, place: int) -> Meta:
        if place >= 0:
            return self.program.leaves[place].meta
        node, _, index = self.made[-1 - place]
        return node.call.metas[index]

    def inputs(self, position: int) -> Iterator[int]:
        for entry in self.program.steps[position]:
            if isinstance(entry, int):
                yield from places_of(entry)

    def is_outer(self, place: int, dim: int) -> bool | None:
        """Of what the leaf, and what is made of it alone, meets; None if that has no
        samples in this dim."""
        known = {place: dim}
        for position in range(len(self.program.nodes)):
            met = [other for other in self.inputs(position) if other in known]
            if not met:
                continue
            mine = met[0]
            extent = self.meta(mine).shape[known[mine]]
            for other in self.inputs(position):
                found = self._dim_of(other, extent, known[mine])
                if other not in known and other < 0 and found is not None:
                    return self._is_made_outer(other, found)
            for index in range(self.first[position], self.first[position + 1]):
                found = self._dim_of(-1 - index, extent, known[mine])
                if found is not None:
                    known[-1 - index] = found
        return None

    def _dim_of(self, place: int, extent: int, dim: int) -> int | None:
        shape = self.meta(place).shape
        if dim < len(shape) and shape[dim] == extent:
            return dim
        return shape.index(extent) if extent in shape else None

    def _is_made_outer(self, place: int, dim: int) -> bool | None:
        """Goes back to the call whose operands have no dim of that extent."""
        extent = self.meta(place).shape[dim]
        while place < 0:
            node, position, _ = self.made[-1 - place]
            operands = list(self.inputs(position))
            before = next(
                (
                    (operand, found)
                    for operand in operands
                    if (found := self._dim_of(operand, extent, dim)) is not None
                ),
                None,
            )
            if before is None:
                name = getattr(node.call.function, "__name__", "")
                shapes = [self.meta(operand).shape for operand in operands]
                places = [shape.index(self.batch) for shape in shapes if self.batch in shape]
                if not places or name not in (*_OUTER, *_JOINING):
                    return None
                return name in _OUTER or (name != "repeat_interleave" and places[0] > dim)
            place, dim = before
        return None
