"""The tensors of a process, and the storages that hold them.

Those that Python knows, their gradients, and what autograd graphs saved for the backward
pass. A graph is found by the tensors that it made; what it saved is read as it is: no
hook that unpacks it is called.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

#: Nodes that save tensors where Python cannot look.
_CLOSED = ("CppFunction", "CopySlices")
_RAW = "_raw_saved_"


class Saved(NamedTuple):
    """What a node of a graph keeps."""

    node: str
    name: str
    tensor: torch.Tensor


class Graphs(NamedTuple):
    saved: list[Saved]
    #: How many nodes of each name may keep what cannot be seen.
    closed: Counter[str]


def is_lazy(kind: type) -> bool:
    """Types whose values are not there before they are asked for."""
    return any(base.__name__ in ("LazyTensor", "FakeTensor") for base in kind.__mro__)


def get_live_tensors() -> list[torch.Tensor]:
    """The tensors that Python's garbage collector knows, and their gradients."""
    found: dict[int, torch.Tensor] = {}
    # Not isinstance: some objects answer it with code of their own.
    for tensor in [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]:
        if not is_lazy(type(tensor)):
            found[id(tensor)] = tensor
            gradient = get_gradient(tensor)
            if gradient is not None:
                found[id(gradient)] = gradient
    return list(found.values())


def get_gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """``tensor.grad``, without the warning where there can be none."""
    try:
        return tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    except RuntimeError:
        return None


def walk_graphs(tensors: Iterable[torch.Tensor]) -> Graphs:
    """What the graphs behind some tensors saved."""
    saved: list[Saved] = []
    closed: Counter[str] = Counter()
    raw_names: dict[type, list[str]] = {}
    seen: set[Any] = set()
    waiting: list[Any] = []
    for tensor in tensors:
        with contextlib.suppress(RuntimeError):
            waiting.append(tensor.grad_fn)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(next_node for next_node, _ in node.next_functions)
        kind = type(node)
        if kind.__name__ in _CLOSED:
            closed[node.name().rpartition("::")[2]] += 1
            continue
        if kind not in raw_names:
            raw_names[kind] = [name for name in dir(kind) if name.startswith(_RAW)]
        for name in raw_names[kind]:
            try:
                raw = getattr(node, name)
            except RuntimeError:
                continue  # a list that a backward pass has freed
            for suffix, tensor in _unpack(raw):
                saved.append(Saved(node.name(), name[len(_RAW) :] + suffix, tensor))
    return Graphs(saved, closed)


def _unpack(raw: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(raw, tuple | list):
        for index, one in enumerate(raw):
            for suffix, tensor in _unpack(one):
                yield f"[{index}]{suffix}", tensor
        return
    # What a hook packed may be anything; tensors in it are Python's, and found there.
    data: Any = raw.data if hasattr(raw, "data") else None
    if issubclass(type(data), torch.Tensor) and not is_lazy(type(data)):
        yield "", data


class Part(NamedTuple):
    """Where in a storage a tensor lies, in bytes."""

    storage: torch.UntypedStorage
    begin: int
    end: int


def get_parts(tensor: torch.Tensor) -> list[Part]:
    """The storages of a tensor; of a sparse one those of indices and values. None for
    tensors without storage of their own (opaque layouts, those on "meta")."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        return [part for one in get_dense(tensor) for part in _get_dense_parts(one)]


def get_dense(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Strided tensors that a tensor consists of."""
    layout = tensor.layout
    if layout == torch.strided:
        return [tensor]
    if layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def _get_dense_parts(tensor: torch.Tensor) -> list[Part]:
    try:
        storage = tensor.untyped_storage()
        total = storage.nbytes()
    except (NotImplementedError, RuntimeError):
        return []
    if storage.device.type == "meta" or not isinstance(total, int):
        return []
    if not tensor.numel():
        return [Part(storage, 0, 0)]
    size = tensor.element_size()
    span = 1 + sum(
        (int(n) - 1) * int(s) for n, s in zip(tensor.size(), tensor.stride(), strict=True)
    )
    # Types of less than a byte claim one.
    if tensor.is_quantized and span * size > total:
        return [Part(storage, 0, total)]
    begin = int(tensor.storage_offset()) * size
    return [Part(storage, min(begin, total), min(begin + span * size, total))]
