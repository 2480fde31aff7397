"""What boolean masks select. How much that is only data say: the mask is looked at
when the call is recorded, and what is done with the rows is recorded like anything
else. Where it ends in a sum or a mean, each tile selects of its own samples."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from koila._capture.frames import find_frames
from koila._capture.recorder import RecordedTensor, Unrecorded, current, known, record, wrap
from koila._capture.stand_ins import make_selection
from koila._capture.values import Value, append_weakly, is_open
from koila._execute import executor
from koila._lazy.dispatch import call, handle

__all__ = ["select"]


def _is_mask(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype == torch.bool and item.dim() > 0


def _find_mask(index: Any) -> Tensor | None:
    """The mask of a read by one mask, beside which there may be parts of other
    dims."""
    if not isinstance(index, tuple):
        return index if _is_mask(index) else None
    masks = [item for item in index if isinstance(item, (Tensor, list))]
    if len(masks) != 1 or not _is_mask(masks[0]):
        return None
    return masks[0]  # type: ignore[return-value]


def _look(mask: Tensor) -> tuple[Tensor, int]:
    """The mask, and how many of its elements are true."""
    if not isinstance(mask, RecordedTensor):
        return mask, int(torch.count_nonzero(mask))
    value = current(mask)
    plain = known(value)
    if plain is None:
        plain = executor.read_alone(value, find_frames())
        same = _find_equal(value, plain)
        mask = mask if same is None else same
    return mask, int(torch.count_nonzero(plain))


# Masks that were computed of the batch.
_computed: list[weakref.ref[Value]] = []
_MOST_COMPUTED = 8


def _find_equal(value: Value, plain: Tensor) -> Any:
    """A mask that is the same though it was computed anew, as in
    ``scores[labels > 0], labels[labels > 0]``: only of one mask it is known that
    the rows belong together."""
    for reference in _computed:
        other = reference()
        tensor = None if other is None or other is value or is_open(other) else other.tensor
        if (
            other is not None
            and tensor is not None
            and other.source is value.source
            and other.version in (None, tensor._version)
            and torch.equal(tensor, plain)
        ):
            return wrap(other)
    append_weakly(_computed, value)
    del _computed[:-_MOST_COMPUTED]
    return None


def select(args: Any, kwargs: Any) -> Any:
    """A read by a mask, recorded; None if it is another read."""
    if len(args) != 2 or kwargs or not isinstance(args[0], Tensor):
        return None
    mask = _find_mask(args[1])
    if mask is None:
        return None
    tensor, index = args
    found, count = _look(mask)
    if isinstance(index, tuple):
        index = tuple([found if item is mask else item for item in index])
    else:
        index = found
    made = record(make_selection(count), (tensor, index), {})
    return None if type(made) is Unrecorded else made


@handle(torch.masked_select, Tensor.masked_select)
def _masked_select(func: Any, args: Any, kwargs: Any) -> Any:
    """Of a tensor of the mask's own shape it is a read by the mask."""
    given = dict(zip(("input", "mask"), args, strict=False), **kwargs)
    if len(given) == 2 and "input" in given and _is_mask(given.get("mask")):
        tensor, mask = given["input"], given["mask"]
        if isinstance(tensor, Tensor) and tensor.shape == mask.shape:
            made = select((tensor, mask), {})
            if made is not None:
                return made
    return call(func, args, kwargs)
