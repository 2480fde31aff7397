"""Functions that do not run without data, though the shape of what they return is
known: what is tried in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn._reduction import get_enum

__all__ = ["find_stand_in"]


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


_stand_ins: dict[Any, Callable[..., Any]] = {
    torch.ctc_loss: _ctc_loss,
    F.ctc_loss: _ctc_loss_by_name,
}


def find_stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """What gives, of tensors without data, what the function would: the function
    itself, unless it needs the data."""
    try:
        return _stand_ins.get(function, function)
    except TypeError:  # it has no hash
        return function
