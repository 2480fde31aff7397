"""Writes through a temporary, as the statement ``buffer.data.mul_(0.9).add_(x)``. Of an ``x``
with a graph PyTorch gives that graph to the temporary, which nobody has: the numbers are
enough."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
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
    """Whether a call may write to a plain tensor that has no name, as what ``.data`` gives of
    one that has, and nobody takes what it returns. (Of a view the base has the graph, too.)"""
    return (
        bool(args)
        and type(args[0]) is Tensor
        and getattr(func, "__name__", "").endswith("_")
        and torch.is_grad_enabled()
        and not args[0].requires_grad
        and args[0]._base is None
        and recording.exposed.has(args[0])
        and sys.getrefcount(args[0]) <= _TEMPORARY
        and _is_dropped()
    )


def _is_dropped() -> bool:
    """Whether the program's call is a statement of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("koila."):
        frame = frame.f_back
    return frame is not None and frame.f_lasti in _list_statements(frame.f_code)


@functools.lru_cache(maxsize=256)
def _list_statements(code: CodeType) -> frozenset[int]:
    """The places of calls of which the next instruction drops the result."""
    return frozenset(
        call.offset
        for call, after in itertools.pairwise(dis.get_instructions(code))
        if call.opname.startswith("CALL") and after.opname == "POP_TOP"
    )
