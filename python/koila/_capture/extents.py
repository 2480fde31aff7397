"""Numbers in shapes that were written as numbers, and are the number of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from koila._capture.batch_int import BatchInt
from koila._capture.leaves import is_expanded
from koila._capture.program import Program
from koila._capture.values import Node, Value, read_sizes

__all__ = ["Extents", "find_extents", "is_multiple"]

# Functions whose arguments behind the first are a shape; the elements of views are those of
# the first argument, in their order.
_VIEWS = frozenset((Tensor.view, Tensor.reshape, torch.reshape))
_SHAPED = _VIEWS | frozenset(
    getattr(owner, name)
    for owner in (torch, Tensor)
    for name in (
        *("expand", "new_empty", "new_zeros", "new_ones", "broadcast_to"),
        *("split", "split_with_sizes"),
    )
    if hasattr(owner, name)
)


@dataclass(frozen=True)
class Extents:
    """Numbers in shapes that are taken for the number of samples, or for a multiple of it. Of
    a batch of one only the first extent can be told from others of 1. Whatever is taken so,
    for this batch it is the program that was recorded."""

    size: int
    multiples: bool = False

    def are_in(self, node: Node) -> bool:
        if node.call.function not in _SHAPED:
            return False
        args, _ = node.call.fill([_find_number(entry) for entry in node.inputs])
        numbers = _flat(args[1:])
        return any(self._matches(item) for item in (numbers[:1] if self.size == 1 else numbers))

    def resize(self, node: Node, args: tuple[Any, ...], samples: Any) -> tuple[Any, ...]:
        """The arguments of the call for as many samples."""
        is_view = self.size > 1 and node.call.function in _VIEWS
        place = _find_in_view(node, args) if is_view else None
        if place is None:
            return (args[0], *self._resize(args[1:], samples))
        numbers = _flat(args[1:])
        extent = numbers[place]
        if is_multiple(extent, self.size):
            numbers[place] = samples * (extent // self.size)
        return (args[0], numbers)

    def _matches(self, item: Any) -> bool:
        if self.multiples:
            return is_multiple(item, self.size)
        return type(item) is int and item == self.size

    def _resize(self, items: Any, samples: Any) -> list[Any]:
        resized = list(items)
        for index, item in enumerate(resized[:1] if self.size == 1 else resized):
            if isinstance(item, (list, tuple)):
                resized[index] = self._resize(item, samples)
            elif self._matches(item):
                resized[index] = samples * (item // self.size)
        return resized


def find_extents(program: Program, batch: int | None) -> list[Extents]:
    """What the batch may be in shapes; nothing where no number there can be one."""
    if not batch:
        return []
    # As tokens of weights for the rows of several views of the batch.
    rows = [leaf.meta.shape[0] for leaf in program.leaves if is_expanded(leaf)]
    found = []
    for way in (Extents(batch), Extents(batch, multiples=True)):
        has_rows = way.multiples and any(is_multiple(n, batch) and n > batch for n in rows)
        if has_rows or any(map(way.are_in, program.nodes)):
            found.append(way)
    return found


def _find_number(entry: Any) -> int | None:
    """The number that an input of a call is: a size of what is gone by now."""
    is_gone = isinstance(entry, BatchInt) and next(read_sizes(entry), None) is None
    return int(entry) if is_gone else None


def _find_in_view(node: Node, args: tuple[Any, ...]) -> int | None:
    """The dim of a view into which the samples of its first argument go: the one that begins
    no later in the elements than they do, and ends behind. None where not one dim has them."""
    recorded, given = node.inputs[0], args[0]
    if not isinstance(recorded, Value) or not isinstance(given, Tensor):
        return None
    before, made = recorded.meta.shape, node.call.metas[0].shape
    if len(before) != given.dim() or len(_flat(args[1:])) != len(made):
        return None
    dims = [dim for dim, extent in enumerate(before) if int(given.shape[dim]) != extent]
    if len(dims) != 1:
        return None
    outside = math.prod(before[: dims[0]])
    for place in range(len(made)):
        if math.prod(made[: place + 1]) > outside:
            # A dim that takes a part of the samples has others beside them.
            return place if outside % math.prod(made[:place]) == 0 else None
    return None


def _flat(items: Any) -> list[Any]:
    found = []
    for item in items:
        found += _flat(item) if isinstance(item, (list, tuple)) else [item]
    return found


def is_multiple(item: Any, size: int) -> bool:
    return type(item) is int and size > 1 and item >= size and item % size == 0
