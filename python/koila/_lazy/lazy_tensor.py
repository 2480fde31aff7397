"""Tensors that record what is done to them and compute it when asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from koila._capture import inspection
from koila._capture.frames import find_frames, location_of
from koila._capture.host import find_tile_device, is_on_host, keep
from koila._capture.recorder import (
    RecordedTensor,
    current,
    make_watched_leaf,
    set_face,
    wrap,
)
from koila._capture.values import Origin
from koila._errors import KoilaError
from koila._execute import executor
from koila._lazy.dispatch import dispatch, handlers

__all__ = ["BatchInfo", "BatchedPair", "BufferEntry", "Evaluation", "LazyTensor"]


class BatchInfo(NamedTuple):
    """Which dim of a tensor is the batch, and its number of samples."""

    index: int  # type: ignore[assignment]
    value: int

    def map(self, func: Callable[[int], int]) -> BatchInfo:
        """The same samples in another dim."""
        return BatchInfo(func(self.index), self.value)


def bytes_of_sample(count: int, dtype: torch.dtype, batch: BatchInfo | None) -> int:
    """Of ``count`` elements: those of one sample, or all where there is no batch."""
    samples = 1 if batch is None else max(batch.value, 1)
    return count // samples * dtype.itemsize


class BatchedPair(NamedTuple):
    """Amounts per sample, and those that do not depend on the batch."""

    batch: int
    no_batch: int


class LazyTensor(RecordedTensor):
    """A tensor that is computed when its value is needed.

    What PyTorch does to it is recorded; ``shape``, ``dtype``, ``device`` and
    ``requires_grad`` answer at once. ``backward()``, ``item()``, ``numpy()``,
    printing, ``bool()``, ``float()`` and ``run()`` compute. ``batch`` is the
    dim with the samples; None: none is named, and the first one is tried.
    """

    @staticmethod
    def __new__(
        cls,
        data: Any,
        batch: int | None = None,
        budget: int | str = "auto",
        _call: object = None,
        _device: torch.device | None = None,
    ) -> LazyTensor:
        if isinstance(data, LazyTensor):
            return data
        if isinstance(data, Evaluation):
            return data.tensor
        if not isinstance(data, Tensor):
            raise TypeError(f"a LazyTensor is made of a tensor, not of {type(data).__name__}")
        if data.layout != torch.strided:
            raise KoilaError(f"koila.lazy takes dense tensors, not {data.layout}")
        size = None
        if batch is not None:
            if not -data.dim() <= batch < data.dim():
                raise KoilaError(
                    f"batch={batch} is no dim of a tensor of shape {tuple(data.shape)}"
                )
            batch %= data.dim()
            size = data.shape[batch]
        leaf = make_watched_leaf(data)
        device = _device if _device != data.device else None
        leaf.origin = leaf.source = Origin(batch, size, budget, _call or object(), device)
        keep(leaf, device)
        made: LazyTensor = wrap(leaf)
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in handlers:  # constructors come past __torch_function__
            return dispatch(func, args, kwargs or {})
        raise KoilaError(
            f"{func} was reached past what koila records",
            location_of(find_frames()),
            ("give it the tensor that run() returns",),
        )

    def run(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The computed tensor, with its graph if it requires a gradient; of a
        batch the samples from ``partial[0]`` to before ``partial[1]``. Of a batch that stays
        on the host (``koila.lazy(..., device=)``) it is on the host, too."""
        info = None if partial is None else self.batch()
        value = current(self)
        tensor = executor.materialize([value], find_frames(), "run()")[0]
        if find_tile_device(value) == tensor.device:
            tensor = tensor.cpu()
        elif value.origin is not None and is_on_host(value, tensor):
            tensor = tensor.clone()  # the batch itself is the caller's
        if partial is None or info is None:
            return tensor
        low, high, _ = slice(*partial).indices(info.value)
        return tensor.narrow(info.index, low, max(high - low, 0))

    def torch(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The same as ``run``."""
        return self.run(partial)

    def batch(self) -> BatchInfo | None:
        """The dim with the samples, None if there is none."""
        found = inspection.find_batch(self._value)
        return BatchInfo(*found) if found else None

    def visit(self, nodes: dict[int, Any]) -> None:
        """Adds every tensor of the recorded program that leads here to ``nodes``,
        once: what is known of it, a ``BufferEntry``, by a number of its own."""
        for entry in inspection.list_entries(self._value):
            nodes[entry.key] = BufferEntry(entry)

    def buffer(self) -> dict[int, BufferEntry]:
        """Every tensor of the recorded program that leads here, by a number of its
        own: what is known of it. That keeps none of them alive."""
        nodes: dict[int, BufferEntry] = {}
        self.visit(nodes)
        return nodes

    def buffer_numel(self) -> BatchedPair:
        """Elements of all these tensors."""
        return BatchedPair(*inspection.count_buffer(self._value, False))

    def buffer_memory(self) -> BatchedPair:
        """Bytes of all these tensors."""
        return BatchedPair(*inspection.count_buffer(self._value, True))

    def memory(self) -> int:
        """Bytes of this tensor alone: of one sample where it has a batch."""
        return bytes_of_sample(int(self.numel()), self.dtype, self.batch())


set_face(LazyTensor)


class BufferEntry:
    """What is known of one tensor of a recorded program."""

    def __init__(self, entry: inspection.Entry) -> None:
        self._entry = entry

    def size(self, dim: int | None = None) -> Any:
        shape = torch.Size(self._entry.meta.shape)
        return shape if dim is None else shape[dim]

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._entry.meta.shape)

    def dim(self) -> int:
        return len(self._entry.meta.shape)

    def numel(self) -> int:
        return self.shape.numel()

    def dtype(self) -> torch.dtype:
        return self._entry.meta.dtype

    def device(self) -> torch.device:
        return self._entry.meta.device

    def batch(self) -> BatchInfo | None:
        return None if self._entry.batch is None else BatchInfo(*self._entry.batch)

    def memory(self) -> int:
        """Bytes, of one sample where it has a batch."""
        return bytes_of_sample(self.numel(), self.dtype(), self.batch())

    def __repr__(self) -> str:
        return f"<{self.dtype()} {tuple(self.shape)}>"


class Evaluation:
    """A call to record: ``func(*args, **kwargs)``. ``prepass``, which told
    koila 0.1.1 the shape of the result, is not needed and not read."""

    def __init__(self, func: Callable[..., Any], prepass: Any, *args: Any, **kwargs: Any) -> None:
        self.func, self.prepass, self.args, self.kwargs = func, prepass, args, kwargs
        self.tensor: LazyTensor = dispatch(func, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "tensor":  # not there yet, as in copies
            raise AttributeError(name)
        return getattr(self.tensor, name)


def _delegate(name: str) -> property:
    return property(lambda self: getattr(self.tensor, name), doc=f"``{name}`` of the tensor.")


# In the class, where `issubclass(Evaluation, koila.RunnableTensor)` looks.
for _name in (
    "batch",
    "buffer",
    "buffer_memory",
    "buffer_numel",
    "device",
    "dim",
    "dtype",
    "memory",
    "numel",
    "run",
    "size",
    "visit",
):
    setattr(Evaluation, _name, _delegate(_name))
