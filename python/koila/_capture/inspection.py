"""What is known of a recorded program without running it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from koila._capture.closure import closure
from koila._capture.dispatch_cache import fakes
from koila._capture.program import Program
from koila._capture.values import Meta, Node, Value

__all__ = ["Entry", "count_buffer", "find_batch", "list_entries", "list_values"]


class Entry(NamedTuple):
    """A tensor of a recorded program, which this does not keep. ``key`` is its own
    as long as something does."""

    key: int
    meta: Meta
    batch: tuple[int, int] | None


def list_values(value: Value) -> list[Value]:
    """The leaves of the program of a value, and what its nodes make."""
    program = Program(closure([value]), [value])
    made = [
        Value(meta, value.group, node, index)
        for node in program.nodes
        for index, meta in enumerate(node.call.metas)
    ]
    return [*program.leaves, *made]


def _shapes_at(program: Program, batch: int, count: int) -> list[tuple[int, ...]] | None:
    """The shapes of leaves and of what the nodes make, with ``count`` samples."""
    found: list[tuple[int, ...]] = []
    try:
        with fakes:
            leaves = []
            for leaf in program.leaves:
                shape = list(leaf.meta.shape)
                if leaf.origin is not None and leaf.origin.size == batch:
                    assert leaf.origin.batch is not None
                    shape[leaf.origin.batch] = count
                found.append(tuple(shape))
                leaves.append(torch.empty(shape, dtype=leaf.meta.dtype, device=leaf.meta.device))

            def invoke(node: Node, position: int, args: Any, kwargs: Any) -> Any:
                with torch.no_grad():
                    result = node.call.function(*args, **kwargs)
                found.extend(tuple(tensor.shape) for tensor in node.call.flatten(result))
                return result

            program.replay(leaves, invoke)
    except Exception:
        return None  # it has no meaning for another number of samples
    return found


def _batch_of(program: Program) -> int | None:
    return next(
        (
            leaf.origin.size
            for leaf in program.leaves
            if leaf.origin is not None and leaf.origin.batch is not None
        ),
        None,
    )


def find_batch(value: Value) -> tuple[int, int] | None:
    """The dim whose extent follows the batch, and that extent."""
    if value.origin is not None:
        return None if value.origin.batch is None else (value.origin.batch, value.origin.size or 0)
    program = Program(closure([value]), [value])
    batch = _batch_of(program)
    if not program.nodes:
        # Computed already: the dim with as many rows, which is no promise.
        size = value.source.size if value.source else None
        return (value.meta.shape.index(size), size) if size in value.meta.shape else None
    if batch is None:
        return None
    other = _shapes_at(program, batch, batch + 1)
    if other is None:
        return None
    place = program.results[0]
    place = place if place >= 0 else len(program.leaves) - 1 - place
    for dim, extent in enumerate(value.meta.shape):
        if other[place][dim] != extent:
            return dim, extent
    return None


def list_entries(value: Value) -> list[Entry]:
    """The same tensors, and the batch of each."""
    program = Program(closure([value]), [value])
    batch = _batch_of(program)
    other = _shapes_at(program, batch, batch + 1) if batch else None
    entries = []
    for place, found in enumerate(list_values(value)):
        shape = found.meta.shape
        grown = other[place] if other else shape
        mark = next(((dim, size) for dim, size in enumerate(shape) if grown[dim] != size), None)
        # What nodes make is listed anew each time.
        key = id(found) if found.node is None else hash((id(found.node), found.index))
        entries.append(Entry(key, found.meta, mark))
    return entries


def count_buffer(value: Value, in_bytes: bool) -> tuple[int, int]:
    """Elements or bytes of the tensors of the program: those of one sample,
    and those that do not depend on the batch."""
    program = Program(closure([value]), [value])
    batch = _batch_of(program)
    other = _shapes_at(program, batch, batch + 1) if batch else None
    per_sample = fixed = 0
    for index, entry in enumerate(list_values(value)):
        size = entry.meta.dtype.itemsize if in_bytes else 1
        count = torch.Size(entry.meta.shape).numel()
        grown = torch.Size(other[index]).numel() if other else count
        if grown != count and batch:
            per_sample += (grown - count) * size
        else:
            fixed += count * size
    return per_sample, fixed
