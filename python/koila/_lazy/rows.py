"""Single samples, as a loop over the batch takes them. They are rows of no tile: of
what has no graph they are views of what is computed then."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from koila._capture.frames import find_frames
from koila._capture.host import find_tile_device, keep
from koila._capture.recorder import RecordedTensor, current, known, make_leaf, wrap
from koila._capture.values import Value, append_weakly, is_open
from koila._execute import executor
from koila._lazy.dispatch import call, handle

__all__ = ["become_batch", "is_over_samples", "take_rows"]


def is_over_samples(value: Value, dim: Any) -> bool:
    """Whether a dim has as many rows as the batch has samples."""
    shape, source = value.meta.shape, value.source
    if source is None or source.size is None or source.size < 2:
        return False
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        return False
    return bool(shape[dim] == source.size)


def become_batch(value: Value, made: Any, dim: int) -> Any:
    """Some samples of a batch, which were picked, are one themselves, as those of a part of an
    epoch in reinforcement learning."""
    source = value.source
    is_batch = source is not None and dim == source.batch and is_over_samples(value, dim)
    if is_batch and source is not None and isinstance(made, RecordedTensor):
        rows = made._value.meta.shape[dim]
        if rows != source.size:
            made._value.source = dataclasses.replace(source, size=rows)
    return made


def take_rows(func: Any, args: Any, kwargs: Any) -> Any:
    """Makes a call that gives views of its first argument, which is computed."""
    # A loop over samples does not read all of them for each.
    value = current(args[0], by_bits=False)
    if is_open(value):
        executor.materialize([value], find_frames(), f"'{func.__name__}'")
    tensor = known(value)
    with torch.no_grad():
        made = func(tensor, *args[1:], **kwargs)

    def show(row: Tensor) -> Any:
        leaf = make_leaf(row)
        keep(leaf, find_tile_device(value))
        leaf.source, leaf.group = value.source, value.group  # writes to one are seen by all
        append_weakly(value.group.members, leaf)
        return wrap(leaf)

    return tuple(map(show, made)) if isinstance(made, (tuple, list)) else show(made)


@handle(torch.unbind, Tensor.unbind)
def _unbind(func: Any, args: Any, kwargs: Any) -> Any:
    given = dict(zip(("input", "dim"), args, strict=False), **kwargs)
    tensor = given.get("input")
    if (
        args
        and isinstance(tensor, RecordedTensor)
        and not tensor.requires_grad
        and is_over_samples(current(tensor), given.get("dim", 0))
        and not current(tensor).group.has_graph()
    ):
        return take_rows(func, args, kwargs)
    return call(func, args, kwargs)


@handle(torch.split, Tensor.split)
def _split(func: Any, args: Any, kwargs: Any) -> Any:
    """Parts of as many batches each are named one by one: PyTorch makes an ordinary number of
    one size for all, also where it traces."""
    sizes = ("tensor", "split_size_or_sections" if func is torch.split else "split_size", "dim")
    given = dict(zip(sizes, args, strict=False), **kwargs)
    tensor, size = given.get("tensor"), given.get(sizes[1])
    dim = given.get("dim", 0)
    if isinstance(tensor, RecordedTensor) and isinstance(size, int) and isinstance(dim, int):
        value = current(tensor)
        shape, source = value.meta.shape, value.source
        batch = (source.size or 0) if source is not None else 0
        is_of_batches = batch > 1 and size > 0 and int(size) % batch == 0
        if is_of_batches and -len(shape) <= dim < len(shape) and shape[dim] % int(size) == 0:
            return call(func, (tensor, [size] * (shape[dim] // int(size))), {"dim": dim})
    return call(func, args, kwargs)
