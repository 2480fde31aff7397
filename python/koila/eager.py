"""Names of koila 0.1.1: a plain tensor that is asked like a lazy one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila._lazy.lazy_tensor import BatchedPair, BatchInfo

__all__ = ["EagerTensor"]


class EagerTensor:
    """A tensor that is there already: ``run()`` gives it, and it has no batch.

    It takes part in PyTorch's functions, which give plain tensors. koila 0.1.1 left
    most of its methods open.
    """

    def __init__(self, data: Tensor) -> None:
        self.data = data

    def run(self, partial: tuple[int, int] | None = None) -> Tensor:
        return self.data

    def batch(self) -> BatchInfo | None:
        return None

    def size(self, dim: int | None = None) -> Any:
        return self.data.size() if dim is None else self.data.size(dim)

    def numel(self) -> int:
        return self.data.numel()

    def dim(self) -> int:
        return self.data.dim()

    def dtype(self) -> torch.dtype:
        return self.data.dtype

    def device(self) -> torch.device:
        return self.data.device

    def visit(self, nodes: dict[int, Any]) -> None:
        nodes[id(self.data)] = self

    def buffer(self) -> dict[int, Any]:
        return {id(self.data): self}

    def buffer_numel(self) -> BatchedPair:
        return BatchedPair(0, self.numel())

    def buffer_memory(self) -> BatchedPair:
        return BatchedPair(0, self.memory())

    def memory(self) -> int:
        return self.numel() * self.data.itemsize

    def __getattr__(self, name: str) -> Any:
        if name == "data":  # not there yet, as in copies
            raise AttributeError(name)
        return getattr(self.data, name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*_plain(args), **_plain(kwargs or {}))


def _plain(item: Any) -> Any:
    if isinstance(item, EagerTensor):
        return item.data
    if isinstance(item, (list, tuple)):
        return type(item)(_plain(part) for part in item)
    if isinstance(item, dict):
        return {name: _plain(part) for name, part in item.items()}
    return item
