"""Functions that do not run without data, though the shape of what they return is
known: what is tried in their place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn._reduction import get_enum

__all__ = ["find_stand_in", "is_selection", "make_selection"]


class _CtcLoss(torch.autograd.Function):
    """A loss for each sample. The second result of ``_ctc_loss``, which nobody
    sees, is as long as the longest target, which only data say."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor) -> Tensor:
        return log_probs.new_empty(log_probs.shape[1:-1])


_CtcLoss._backward_cls.__name__ = "CtcLossBackward0"


# Source: ctc_loss_impl in aten/src/ATen/native/LossCTC.cpp.
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    if log_probs.dim() not in (2, 3) or not log_probs.dtype.is_floating_point:
        raise RuntimeError("no losses of such logarithms")
    losses: Any = _CtcLoss.apply(log_probs)  # type: ignore[no-untyped-call]
    if zero_infinity:
        losses = torch.where(losses == torch.inf, losses.new_zeros(()), losses)
    if reduction == 1:
        return (losses / 1).mean()
    return losses.sum() if reduction == 2 else losses


def _ctc_loss_by_name(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    how = get_enum(reduction)
    return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity)


def _select(count: int, tensor: Tensor, index: Any) -> Any:
    """A read by a mask is one by as many places as it has dims."""
    places: list[Any] = []
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, Tensor):
            places += [torch.zeros(count, dtype=torch.int64)] * item.dim()
        else:
            places.append(item)
    return tensor[tuple(places)]


@functools.lru_cache(maxsize=4096)
def make_selection(count: int) -> Callable[..., Any]:
    """A read by a mask of which so many elements are true. It has no frame of
    Python: what it does is done where it was recorded."""
    read: Any = functools.partial(Tensor.__getitem__)
    read.__name__ = "__getitem__"
    read.stand_in = functools.partial(_select, count)
    return read  # type: ignore[no-any-return]


def is_selection(function: Callable[..., Any]) -> bool:
    return type(function) is functools.partial and hasattr(function, "stand_in")


_stand_ins: dict[Any, Callable[..., Any]] = {
    torch.ctc_loss: _ctc_loss,
    F.ctc_loss: _ctc_loss_by_name,
}


def find_stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """What gives, of tensors without data, what the function would: the function
    itself, unless it needs the data."""
    if is_selection(function):
        return function.stand_in  # type: ignore[attr-defined, no-any-return]
    try:
        return _stand_ins.get(function, function)
    except TypeError:  # it has no hash
        return function
