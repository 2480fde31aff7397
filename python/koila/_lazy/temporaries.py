"""Writes through a temporary, as ``buffer.data.mul_(0.9).add_(x)``. Of an ``x`` with a graph
PyTorch gives that graph to the temporary, which nobody has: the numbers are enough."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from koila._capture.thread_recordings import recording

__all__ = ["writes_temporary"]


class _Probe(Tensor):
    """Counts the references to a first argument that has no name."""

    count = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        cls.count = sys.getrefcount(args[0])


def _count_of_temporary() -> int:
    probe = torch.zeros(1).as_subclass(_Probe)
    torch.zeros(1).add_(probe)
    return _Probe.count


_TEMPORARY = _count_of_temporary()


def writes_temporary(func: Callable[..., Any], args: Any) -> bool:
    """Whether a call may write to a plain tensor that has no name, and whose memory is that of
    another one, as what ``.data`` gives."""
    return (
        bool(args)
        and type(args[0]) is Tensor
        and getattr(func, "__name__", "").endswith("_")
        and torch.is_grad_enabled()
        and not args[0].requires_grad
        and recording.exposed.has(args[0])
        and sys.getrefcount(args[0]) <= _TEMPORARY
    )
