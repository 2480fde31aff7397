"""Tensors that record what is done to them: ``koila.lazy(...)``, and the names that
koila 0.1.1 had in this module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from koila._lazy.api import LazyFunction, lazy, run
from koila._lazy.lazy_tensor import BatchedPair, BatchInfo, Evaluation, LazyTensor

__all__ = [
    "BatchInfo",
    "BatchedPair",
    "Evaluation",
    "LazyFunction",
    "LazyTensor",
    "lazy",
    "lazy_forward",
    "run",
]


def lazy_forward(func: Callable[..., Any], shape_func: Any, *args: Any, **kwargs: Any) -> Any:
    """A recorded call; ``shape_func`` is not needed and not called."""
    return LazyFunction(func, shape_func)(*args, **kwargs)


class _Lazy(ModuleType):
    """The module and the function are one object, since both are ``koila.lazy``."""

    def __call__(self, *values: Any, **options: Any) -> Any:
        return lazy(*values, **options)


if not TYPE_CHECKING:
    _module = sys.modules[__name__]
    _module.__class__ = _Lazy
    # What inspect.signature and help say of it.
    _module.__signature__ = inspect.signature(lazy)
    _module.__doc__ = lazy.__doc__
