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

# A program that is traced may record, or compile, another.
tracing = threading.RLock()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def exclusive(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, which waits until no other thread traces."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with tracing:
            return function(*args, **kwargs)

    return call
