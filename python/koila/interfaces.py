"""Names of koila 0.1.1: what tensors are asked for, plain or lazy."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, TypeVar, Union, runtime_checkable

import torch
from torch import Tensor

from koila._lazy.api import run
from koila._lazy.lazy_tensor import BatchedPair, BatchInfo, bytes_of_sample

__all__ = [
    "BatchInfo",
    "BatchedPair",
    "Runnable",
    "RunnableTensor",
    "TensorLike",
    "TensorMixin",
    "bat",
    "dev",
    "dtyp",
    "mem",
    "run",
]

_Value_co = TypeVar("_Value_co", covariant=True)


@runtime_checkable
class Runnable(Protocol[_Value_co]):
    """What is computed when it is run."""

    @abstractmethod
    def run(self) -> _Value_co: ...


@runtime_checkable
class TensorMixin(Protocol):
    """What has a size, a type and a device. These two are attributes of tensors,
    lazy ones too, and methods of other classes: ``dtyp`` and ``dev`` ask either."""

    @abstractmethod
    def size(self, dim: int | None = None) -> Any: ...

    @abstractmethod
    def numel(self) -> int: ...

    @abstractmethod
    def dim(self) -> int: ...

    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @abstractmethod
    def device(self) -> torch.device | str: ...


@runtime_checkable
class RunnableTensor(Runnable[Tensor], TensorMixin, Protocol):
    """A tensor that is computed when it is run, and what leads to it."""

    @abstractmethod
    def run(self, partial: tuple[int, int] | None = None) -> Tensor: ...

    @abstractmethod
    def batch(self) -> BatchInfo | None: ...

    @abstractmethod
    def visit(self, nodes: dict[int, Any]) -> None: ...

    @abstractmethod
    def buffer(self) -> dict[int, Any]: ...

    @abstractmethod
    def buffer_numel(self) -> BatchedPair: ...

    @abstractmethod
    def buffer_memory(self) -> BatchedPair: ...

    @abstractmethod
    def memory(self) -> int: ...


# A subclass of Tensor is not, to type checkers, what has methods of these names.
TensorLike = Union[Tensor, Any]  # noqa: UP007  as users wrote it


def _ask(tensor: TensorLike, name: str) -> Any:
    found = getattr(tensor, name)
    return found() if callable(found) else found


def dtyp(tensor: TensorLike) -> torch.dtype:
    """The type of the elements."""
    found: torch.dtype = _ask(tensor, "dtype")
    return found


def dev(tensor: TensorLike) -> torch.device | str:
    found: torch.device | str = _ask(tensor, "device")
    return found


def bat(tensor: TensorLike) -> BatchInfo | None:
    """The dim with the samples; None if there is none, as of plain tensors."""
    batch = getattr(tensor, "batch", None)
    return batch() if callable(batch) else None


def mem(tensor: TensorLike) -> int:
    """Bytes: of one sample where there is a batch, else of all elements."""
    return bytes_of_sample(int(tensor.numel()), dtyp(tensor), bat(tensor))
