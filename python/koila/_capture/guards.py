"""What a program has read, and whether it still is what it was.

Guards compare objects by identity, all at once and in C++; where they do not hold,
values are compared, so that an equal number in another object changes nothing.
"""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn

from koila._capture.structure import attributes_of
from koila._capture.values import checksum_of
from koila._compiler import make_guards

__all__ = ["PLAIN", "Guarded", "Reading", "are_all_unchanged", "is_plain", "say_change"]

PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)
# Longer lists, as vocabularies, are told apart by their length alone.
_LONGEST = 1 << 20
_DEEPEST = 6


class Reading:
    """Values in a form that is equal while they are, and guards of them.

    What cannot be compared is told apart by its identity, and kept, so that no
    other object gets it.
    """

    def __init__(self) -> None:
        self.guards: list[tuple[object, object]] = []
        self.arrays: list[tuple[Any, int]] = []
        self._kept: list[Any] = []
        self._frozen: dict[tuple[int, int], Any] = {}

    def freeze(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return kind, repr(value) if kind in (float, complex) else value
        # Objects that refer to each other are read once.
        place = id(value), depth
        if place not in self._frozen:
            self._frozen[place] = place
            self._frozen[place] = self._freeze_object(value, depth)
        return self._frozen[place]

    def _freeze_object(self, value: Any, depth: int) -> Any:
        if depth < _DEEPEST:
            if isinstance(value, dict):
                return self._freeze_dict(value, depth)
            if isinstance(value, (list, tuple, set, frozenset)):
                return self._freeze_items(value, depth)
        self._kept.append(value)
        if isinstance(value, torch.Tensor):
            if value.is_inference():
                return (id(value),)
            self.guards.append((value, value._version))
            return id(value), value._version
        if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            checksum = checksum_of(value)
            self.arrays.append((value, checksum))
            return id(value), value.shape, value.dtype.str, checksum
        if depth < _DEEPEST and _has_settings(value):
            return id(value), self._freeze_dict(attributes_of(value) or {}, depth)
        return (id(value),)

    def watch(self, container: Any) -> None:
        """Guards what is in a container, not what is in that."""
        if isinstance(container, dict):
            items = tuple(part for item in container.items() for part in item)
            self.guards.append((container, items))
        elif isinstance(container, list):
            self.guards.append((container, tuple(container)))
        elif isinstance(container, set):
            self.guards.append((container, frozenset(container)))

    def _freeze_dict(self, value: dict[Any, Any], depth: int) -> Any:
        if len(value) > _LONGEST:
            self._kept.append(value)
            return id(value), len(value)
        self.watch(value)
        return tuple([(key, self.freeze(item, depth + 1)) for key, item in value.items()])

    def _freeze_items(self, value: Any, depth: int) -> Any:
        if len(value) > _LONGEST:
            self._kept.append(value)
            return id(value), len(value)
        self.watch(value)
        if isinstance(value, (set, frozenset)):
            return type(value), frozenset(value)
        return type(value), tuple([self.freeze(item, depth + 1) for item in value])


# Objects of Python's own that hold what people set; loggers and the like change
# by themselves.
_SETTINGS = {"argparse", "os", "types"}


def _has_settings(value: Any) -> bool:
    """Whether it is an object like a config."""
    if callable(value) or isinstance(value, (nn.Module, types.ModuleType)):
        return False
    origin = type(value).__module__.partition(".")[0]
    if origin in sys.stdlib_module_names and origin not in _SETTINGS and origin != "__main__":
        return False
    return attributes_of(value) is not None


class Guarded(ABC):
    """Values that were read, by names."""

    def __init__(self) -> None:
        self._values, self._reading = self._read_all()
        self._are_unchanged: Callable[[], bool] | None = None

    @abstractmethod
    def _read(self, reading: Reading) -> dict[Any, Any]:
        """The values as they are now, by name or number."""

    @abstractmethod
    def _describe(self, key: Any, was: dict[Any, Any], now: dict[Any, Any]) -> str:
        """What has changed, in words."""

    def _read_all(self) -> tuple[dict[Any, Any], Reading]:
        reading = Reading()
        return self._read(reading), reading

    @property
    def guards(self) -> list[tuple[object, object]]:
        return self._reading.guards

    @property
    def arrays(self) -> list[tuple[Any, int]]:
        return self._reading.arrays

    def find_change(self) -> str | None:
        """What is not as it was, in words."""
        if self._are_unchanged is None:
            self._are_unchanged = make_guards(self.guards)
        if self._are_unchanged() and _are_arrays_unchanged(self.arrays):
            return None
        now, reading = self._read_all()
        was = self._values
        if now == was:
            self._reading, self._are_unchanged = reading, None
            return None
        for name in dict.fromkeys([*was, *now]):
            if (name in was) != (name in now) or was[name] != now[name]:
                return self._describe(name, was, now)
        return None


def are_all_unchanged(parts: list[Guarded]) -> Callable[[], bool]:
    """A quick question whether nothing of all this is another object; False says
    nothing."""
    guards = [guard for part in parts for guard in part.guards]
    arrays = [array for part in parts for array in part.arrays]
    are_unchanged = make_guards(guards)
    if not arrays:
        return are_unchanged
    return lambda: are_unchanged() and _are_arrays_unchanged(arrays)


def _are_arrays_unchanged(arrays: list[tuple[Any, int]]) -> bool:
    """Writes to the memory of an array leave no other trace."""
    return all(checksum_of(array) == checksum for array, checksum in arrays)


def say_change(name: str, was: Any, now: Any) -> str:
    """Of what was frozen: numbers and texts are named."""
    if is_plain(was) and is_plain(now):
        return f"{name} was {_say(was)} when the module was compiled, and is {_say(now)}"
    return f"{name} is not what it was when the module was compiled"


def is_plain(frozen: Any) -> bool:
    """Whether what was frozen is a number or a text."""
    return type(frozen) is tuple and len(frozen) == 2 and frozen[0] in PLAIN


def _say(frozen: tuple[Any, Any]) -> str:
    return str(frozen[1]) if frozen[0] in (float, complex) else repr(frozen[1])
