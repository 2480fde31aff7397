"""What a thread has recorded and not run yet."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from koila._capture.by_memory import ByMemory, Exposed
from koila._capture.values import Node, Value, append_weakly

__all__ = ["recording"]


class Recording(threading.local):
    """``pending`` are calls that write to tensors of the user, in the order of
    recording. While it is ``busy`` something of it runs; while it ``writes_copies`` a
    function of PyTorch, which writes to copies of its own."""

    def __init__(self) -> None:
        self.busy = False
        self.writes_copies = False
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
        # Gradients of inputs that the program has been given, as of torch.autograd.grad.
        self.gradients: list[weakref.ref[torch.Tensor]] = []
        # What is to be taken back where memory runs out.
        self.trial: Any = None
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

    def hold_again(self, values: list[Value], nodes: list[Node], views: list[Any]) -> None:
        """These are recorded as they were: the lists have what running them has taken off."""
        held = {id(tensor) for reference in self._held if (tensor := reference()) is not None}
        for value in values:
            for holder in value.holders:
                tensor = holder()
                if tensor is not None and tensor._value is value and id(tensor) not in held:
                    self._held.append(weakref.ref(tensor))
        waiting = {*self.pending, *(node for node in nodes if node.writes_outside)}
        self.pending[:] = sorted(waiting, key=lambda node: node.seq)
        there = set(map(id, self.views))
        self.views += [view for view in views if id(view) not in there]

    def list_pending(self) -> list[Node]:
        self.pending[:] = [node for node in self.pending if not node.done]
        return list(self.pending)


recording = Recording()
