"""What one thread does at a time.

Tracing and scripting use tables of the process: PyTorch's of the modules that are
traced, of what was scripted, the filters of warnings, and the generators.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["exclusive", "tracing"]


class _Tracing:
    """A lock that its thread may take again: a program that is traced may record,
    or compile, another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    def is_mine(self) -> bool:
        """Whether koila traces in this thread now."""
        return self._owner == threading.get_ident()


tracing = _Tracing()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def exclusive(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, which waits until no other thread traces."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with tracing:
            return function(*args, **kwargs)

    return call
