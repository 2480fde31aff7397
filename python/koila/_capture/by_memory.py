"""What is known of the memory of tensors."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Generic, TypeVar

import torch

__all__ = ["ByMemory", "Exposed", "place_of"]

_Kept = TypeVar("_Kept")
_WeakTensor: Any = torch._C._WeakTensorRef  # type: ignore[attr-defined]


def place_of(tensor: torch.Tensor) -> int | None:
    """A number of its memory; None where it has none, as inside of ``torch.func`` or before
    the first call of a module that finds its shapes then."""
    if tensor.layout is not torch.strided:
        return None
    try:
        place: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return place


class ByMemory(Generic[_Kept]):
    """Objects, as long as they live, by the memory that they are of."""

    def __init__(self) -> None:
        # References to tensors are not to be compared, which compares elements: by number.
        self._found: dict[int, dict[int, weakref.ref[_Kept]]] = {}

    def add(self, tensor: torch.Tensor, item: _Kept) -> None:
        place = place_of(tensor)
        if place is None:
            return
        reference = weakref.ref(item, functools.partial(self._forget, place))
        self._found.setdefault(place, {})[id(reference)] = reference

    def list_at(self, tensor: torch.Tensor) -> list[_Kept]:
        place = place_of(tensor)
        items = self._found.get(place) if place is not None else None
        if items is None:
            return []
        return [item for reference in list(items.values()) if (item := reference()) is not None]

    def _forget(self, place: int, reference: weakref.ref[_Kept]) -> None:
        items = self._found.get(place, {})
        items.pop(id(reference), None)
        if not items:
            self._found.pop(place, None)


class Exposed:
    """Memory to which tensors write without a version, as long as one of them, or a view
    of it, is there. (A Python object may be gone, and the tensor below is not.)"""

    # After so many there is a look at which have gone.
    _MOST = 16

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}
        self._added = 0

    def add(self, tensor: torch.Tensor) -> None:
        place = place_of(tensor)
        if place is None:
            return
        self._added += 1
        if self._added >= max(len(self._found), self._MOST):
            self._found = {
                known: alive
                for known, others in self._found.items()
                if (alive := [other for other in others if not other.expired()])
            }
            self._added = 0
        self._found.setdefault(place, []).append(_WeakTensor(tensor))

    def has(self, tensor: torch.Tensor) -> bool:
        place = place_of(tensor) if self._found else None
        others = self._found.get(place, ()) if place is not None else ()
        return any(not other.expired() for other in others)
