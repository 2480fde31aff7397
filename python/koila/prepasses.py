"""Names of koila 0.1.1: shapes and types before a program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

from koila._lazy.api import lazy
from koila._lazy.lazy_tensor import BatchInfo, LazyTensor

__all__ = ["CallBack", "MetaData", "PrePass", "PrePassFunc", "prepass"]

CallBack = Callable[[torch.Tensor], torch.Tensor]


class MetaData(NamedTuple):
    """What is known of a tensor before it is computed."""

    dtype: torch.dtype
    device: torch.device
    batch: BatchInfo | None


class PrePass(NamedTuple):
    """The shape of a tensor, and what else is known of it."""

    shape: tuple[int, ...]
    metadata: MetaData


class PrePassFunc(Protocol):
    """Tells the result of a call without making it."""

    def __call__(self, *args: Any, **kwargs: Any) -> PrePass: ...


def prepass(function: Callable[..., torch.Tensor]) -> PrePassFunc:
    """The function's own: calls with lazy or plain tensors are recorded, and
    nothing is computed."""

    def tell(*args: Any, **kwargs: Any) -> PrePass:
        result = function(*map(lazy, args), **kwargs)
        batch = result.batch() if isinstance(result, LazyTensor) else None
        return PrePass(tuple(result.shape), MetaData(result.dtype, result.device, batch))

    return tell
