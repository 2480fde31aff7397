"""Named tuples of the user, which TorchScript returns as others."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any

from torch import nn

__all__ = ["NamedTuples"]


class NamedTuples:
    """The classes of named tuples that the code of a module knows."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    @functools.cached_property
    def _classes(self) -> dict[tuple[str, tuple[str, ...]], type]:
        found: dict[tuple[str, tuple[str, ...]], type] = {}
        for part in self._module.modules():
            function = inspect.unwrap(getattr(type(part), "forward", None))  # type: ignore[arg-type]
            scopes = [
                getattr(function, "__globals__", {}),
                getattr(function, "__annotations__", {}),
            ]
            with contextlib.suppress(TypeError, ValueError):
                scopes.append(dict(inspect.getclosurevars(function).nonlocals))
            for scope in scopes:
                for value in list(scope.values()):
                    if isinstance(value, type) and issubclass(value, tuple):
                        fields = getattr(value, "_fields", None)
                        if fields is not None:
                            found.setdefault((value.__name__, tuple(fields)), value)
        return found

    def restore(self, result: Any) -> Any:
        """The result with tuples of the user's classes."""
        if isinstance(result, tuple):
            parts = [self.restore(item) for item in result]
            fields = getattr(result, "_fields", None)
            if fields is None:
                return tuple(parts) if type(result) is tuple else result
            kind = self._classes.get((type(result).__name__, tuple(fields)), type(result))
            return kind._make(parts)  # type: ignore[attr-defined]
        if isinstance(result, list):
            result[:] = [self.restore(item) for item in result]
        elif isinstance(result, dict):
            for key, item in result.items():
                result[key] = self.restore(item)
        return result
