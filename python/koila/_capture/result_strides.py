"""How results lie in memory where tensors without data say otherwise than the kernels of the
CPU: random numbers are drawn in that order, and views need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import (
    make_channels_last_strides_for,
    make_contiguous_strides_for,
    suggest_memory_format,
)
from torch.nn import functional as F

from koila._capture.values import Meta

__all__ = ["correct_strides"]


def _suggested(given: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    if suggest_memory_format(given) is torch.contiguous_format:
        return _contiguous(given, shape)
    return tuple(make_channels_last_strides_for(shape))


def _contiguous(given: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(make_contiguous_strides_for(shape))


def _without_indices(given: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if given.requires_grad and torch.is_grad_enabled() else _contiguous(given, shape)


_Rule = Callable[[torch.Tensor, tuple[int, ...]], "tuple[int, ...] | None"]
# Sources: batch_norm_cpu (Normalization.cpp), one_hot (Onehot.cpp), channel_shuffle
# (ChanelShuffle.cpp), roll (TensorTransformations.cpp, by cat), max_pool1d (MaxPooling.cpp)
# in aten/src/ATen/native.
_RULES: dict[Any, _Rule] = {
    torch.batch_norm: _suggested,
    F.batch_norm: _suggested,
    F.one_hot: _contiguous,
    torch.channel_shuffle: _suggested,
    F.channel_shuffle: _suggested,
    torch.roll: _suggested,
    torch.Tensor.roll: _suggested,
    torch.max_pool1d: _without_indices,
    F.max_pool1d: _without_indices,
}


def correct_strides(function: Any, entries: list[Any], metas: list[Meta]) -> list[Meta]:
    """What is known of the results of a call with these tensors without data."""
    try:
        rule = _RULES.get(function)
    except TypeError:  # it has no hash
        return metas
    given = next((entry for entry in entries if isinstance(entry, torch.Tensor)), None)
    if rule is None or given is None or any(meta.device.type != "cpu" for meta in metas):
        return metas
    found = []
    for meta in metas:
        strides = rule(given, meta.shape)
        found.append(meta if strides is None else meta._replace(stride=strides))
    return found
