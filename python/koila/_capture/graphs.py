"""The graphs that programs leave for autograd, and how much memory they keep."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["FreedGraphs", "Graph", "measure_graphs", "walk"]


class Graph:
    """What a run has left for autograd, by the tensors in which it ends. ``step`` are
    the bytes that the run needs with a backward pass that frees it, where they are
    known, its budget, and what was announced of it. ``trial`` takes the run back, as
    long as nothing else has become of it. ``room`` is what there is for a pass
    that goes on through graphs of the user's."""

    def __init__(self) -> None:
        self.ends: list[weakref.ref[Tensor]] = []
        self.step: tuple[int, int, set[tuple[str, int, str]]] | None = None
        self.room: Any = None
        self.trial: Any = None
        _graphs.add(self)

    def end_in(self, tensor: Tensor) -> None:
        self.ends.append(weakref.ref(tensor))

    def free(self) -> None:
        """A backward pass has gone through it."""
        self.ends.clear()
        self.trial = None


_graphs: weakref.WeakSet[Graph] = weakref.WeakSet()


def measure_graphs(others: Iterable[Tensor], apart: Iterable[int]) -> int:
    """Bytes that autograd keeps for all graphs that programs still have, and for
    those of other tensors; without weights, and storages that count ``apart``."""
    kept: dict[int, int] = {}
    counted = {*apart}
    ends = [tensor for graph in _graphs for end in graph.ends if (tensor := end()) is not None]
    for node in walk((*ends, *others), set()):
        if (leaf := getattr(node, "variable", None)) is not None:
            counted.add(leaf.untyped_storage().data_ptr())
            continue
        kind: Any = type(node)
        for name in _list_saved(kind):
            for storage in _storages_of(node, name):
                kept[storage.data_ptr()] = storage.nbytes()
    return sum(size for place, size in kept.items() if place not in counted)


class FreedGraphs:
    """Whether a backward pass has freed what the graph of a tensor saved, or a part of
    it: autograd would raise. Nodes from which nothing freed is reached are visited
    once."""

    def __init__(self) -> None:
        self._visited: set[Any] = set()

    def has(self, tensor: Tensor) -> bool:
        visited = []
        for node in walk([tensor], self._visited):
            visited.append(node)
            if _is_freed(node):
                self._visited.difference_update(visited)
                return True
        return False


def _is_freed(node: Any) -> bool:
    kind: Any = type(node)
    for name in _list_saved(kind):
        try:
            getattr(node, name)
        except RuntimeError as error:
            # A tensor that was written to since raises, too.
            if "already been freed" in str(error):
                return True
    return False


def walk(tensors: Iterable[Tensor], visited: set[Any]) -> Iterator[Any]:
    """The nodes of the graphs of tensors but those that were visited, each once."""
    stack: list[Any] = [tensor.grad_fn for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is not None and node not in visited:
            visited.add(node)
            stack.extend(edge for edge, _ in node.next_functions)
            yield node


@functools.cache
def _list_saved(kind: Any) -> list[str]:
    """What nodes of one type save for their backward pass."""
    return [name for name in dir(kind) if name.startswith("_saved_")]


def _storages_of(node: Any, name: str) -> list[torch.UntypedStorage]:
    # What a backward pass has freed raises. A buffer that a graph has saved may be lazy by now,
    # and its bytes are asked of nobody but itself.
    with contextlib.suppress(RuntimeError), torch._C.DisableTorchFunctionSubclass():
        saved = getattr(node, name)
        return [
            item.untyped_storage()
            for item in (saved if isinstance(saved, (list, tuple)) else (saved,))
            if isinstance(item, Tensor) and item.layout is torch.strided
        ]
    return []
