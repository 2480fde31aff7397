"""Indices that are out of range raise where they are used, as in PyTorch, and not
when the call runs: labels and tokens are there when a call is recorded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from koila._capture.recorder import RecordedTensor, current, known
from koila._lazy.dispatch import call, handle

__all__: list[str] = []


def _values_of(item: Any) -> Tensor | None:
    """Integers that are known."""
    if isinstance(item, RecordedTensor):
        item = known(current(item))
    if not isinstance(item, Tensor) or item.dtype not in (torch.int64, torch.int32):
        return None
    return item if item.device.type == "cpu" and item.numel() else None


def _find_outlier(values: Tensor, count: int, ignored: int | None) -> Tensor | None:
    """The first that is none of ``count`` classes, as a tensor of one."""
    low, high = values.aminmax()
    if int(low) >= 0 and int(high) < count:
        return None
    wrong = (values < 0) | (values >= count)
    if ignored is not None:
        wrong &= values != ignored
    return values[wrong][:1] if bool(wrong.any()) else None


@handle(F.cross_entropy, F.nll_loss)
def _loss(func: Any, args: Any, kwargs: Any) -> Any:
    given = dict(zip(("input", "target"), args, strict=False), **kwargs)
    scores, target = given.get("input"), _values_of(given.get("target"))
    if target is not None and isinstance(scores, Tensor) and scores.dim() > 0:
        count = int(scores.shape[1 if scores.dim() > 1 else 0])
        ignored = given.get("ignore_index", -100)
        with torch.no_grad():
            outlier = _find_outlier(target, count, ignored if type(ignored) is int else None)
            if outlier is not None:
                func(torch.zeros(1, count), outlier)
    return call(func, args, kwargs)


@handle(F.embedding)
def _embedding(func: Any, args: Any, kwargs: Any) -> Any:
    given = dict(zip(("input", "weight"), args, strict=False), **kwargs)
    indices, weight = _values_of(given.get("input")), given.get("weight")
    if indices is not None and isinstance(weight, Tensor) and weight.dim() == 2:
        with torch.no_grad():
            outlier = _find_outlier(indices, int(weight.shape[0]), None)
            if outlier is not None:
                F.embedding(outlier, torch.zeros(int(weight.shape[0]), 1))
    return call(func, args, kwargs)
