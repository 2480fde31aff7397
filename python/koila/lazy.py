"""Tensors that record what is done to them: ``koila.lazy(...)``, and the names that
koila 0.1.1 had in this module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from koila import _lazy
from koila._lazy import *  # noqa: F403
from koila._lazy import LazyFunction, lazy

__all__ = [*_lazy.__all__, "lazy_forward"]


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
