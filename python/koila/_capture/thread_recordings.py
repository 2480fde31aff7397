"""What a thread has recorded and not run yet."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Generic, TypeVar

import torch

from koila._capture.values import Node, Value, append_weakly

__all__ = ["place_of", "recording"]


_Kept = TypeVar("_Kept")


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
        self._found: list[tuple[int, Any]] = []
        self._added = 0

    def add(self, tensor: torch.Tensor) -> None:
        place = place_of(tensor)
        if place is None:
            return
        self._added += 1
        if self._added >= max(len(self._found), self._MOST):
            self._found = [entry for entry in self._found if not entry[1].expired()]
            self._added = 0
        self._found.append((place, _WeakTensor(tensor)))

    def has(self, tensor: torch.Tensor) -> bool:
        if not self._found:
            return False
        place = place_of(tensor)
        return any(known == place and not other.expired() for known, other in self._found)


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


class Recording(threading.local):
    """``pending`` are calls that write to tensors of the user, in the order of
    recording. While it is ``busy`` something of it runs."""

    def __init__(self) -> None:
        self.busy = False
        # The values of plain tensors: what a thread records of one orders its
        # own reads and writes.
        self.leaves: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()
        # By memory: what is known of it, and tensors that write to it without a version.
        self.watched = ByMemory[Value]()
        self.exposed = Exposed()
        self.pending: list[Node] = []
        # Tensors of the user that these write to, which are lazy until then.
        self.updated: list[weakref.ref[Any]] = []
        # Plans of what was read and may be differentiated, with what made it.
        self.reads: list[tuple[Any, list[weakref.ref[Node]]]] = []
        # Views that were made of values whose graph may still be computed.
        self.views: list[Any] = []
        # Arrays that the program has of what may be computed again.
        self.lent: list[Any] = []
        self._held: list[weakref.ref[Any]] = []
        self._all: list[weakref.ref[Any]] = []

    def hold(self, tensor: Any) -> None:
        """The program has a lazy tensor."""
        append_weakly(self._all, tensor)
        if tensor._value.node is not None:
            append_weakly(self._held, tensor)

    def list_held(self) -> list[Value]:
        """The recorded values that the program can still ask for, in the order
        in which it got them."""
        found: dict[Value, None] = {}
        alive = []
        for reference in self._held:
            tensor = reference()
            if tensor is None or (node := tensor._value.node) is None or node.done:
                continue
            alive.append(reference)
            found[tensor._value] = None
        self._held = alive
        return list(found)

    def list_all(self) -> list[Value]:
        """The values of all lazy tensors that the program has, computed or not."""
        found: dict[Value, None] = {}
        alive = []
        for reference in self._all:
            # One of the user's, which calls have updated, is a plain one again.
            value = getattr(reference(), "_value", None)
            if value is not None:
                alive.append(reference)
                found[value] = None
        self._all = alive
        return list(found)

    def list_pending(self) -> list[Node]:
        self.pending[:] = [node for node in self.pending if not node.done]
        return list(self.pending)


recording = Recording()
