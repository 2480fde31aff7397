"""Names of koila 0.1.1: shapes and types before a program runs.

Each function tells what a call of PyTorch gives, by PyTorch's own shape rules:
``matmul(x, y)`` what ``torch.matmul(x, y)`` would. ``prepass`` makes one of any
function. Tensors may be lazy or plain, and nothing is computed.

What 0.1.1 (https://github.com/rentruewang/koila) told otherwise: of negative
dims, permutations, grouped convolutions, padding by name, views by ``-1``, pools
without a stride, and the types of embeddings; ``docs/user/Migration.md`` has the
list.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol, overload, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from koila import interfaces
from koila._capture.tell import tell
from koila._lazy.lazy_tensor import BatchInfo
from koila.interfaces import TensorLike

__all__ = [
    "CallBack",
    "MetaData",
    "PrePass",
    "PrePassFunc",
    "Reducer",
    "avgpool",
    "cat",
    "conv",
    "conv_transpose",
    "embedding",
    "flatten",
    "identity",
    "linear",
    "loss",
    "matmul",
    "maxpool",
    "mean",
    "pad",
    "permute",
    "pool",
    "prepass",
    "reduce_dims",
    "reshape",
    "same",
    "scalars",
    "select",
    "symmetric",
    "tranpose",
    "trivial",
    "view",
]

_Dims = int | tuple[int, ...]


class Reducer(Protocol):
    """Makes of what a call gives for a part of the batch a piece of the whole: the
    pieces are put together along the batch, or added up where it is gone."""

    def __call__(self, result: Tensor, /) -> Tensor: ...


class CallBack(Protocol):
    """A ``Reducer`` of a call that had these arguments, for its part of the batch."""

    def __call__(self, *args: Any, **kwargs: Any) -> Reducer: ...


@dataclass(frozen=True)
class MetaData:
    """What is known of a tensor before it is computed.

    ``batch``: the dim with the samples, None if there is none. ``reducer``: how
    parts of the batch become the whole; None where that is not known.
    """

    dtype: torch.dtype
    device: torch.device
    batch: BatchInfo | None
    reducer: CallBack | None = None


@dataclass(eq=False)
class PrePass:
    """The shape of a tensor, and what else is known of it. It iterates over its
    shape, and equals a tuple of the same extents."""

    shape: tuple[int, ...]
    metadata: MetaData

    def __post_init__(self) -> None:
        self.shape = tuple(self.shape)

    def __iter__(self) -> Iterator[int]:
        return iter(self.shape)

    def __len__(self) -> int:
        return len(self.shape)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.shape[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PrePass):
            return self.shape == other.shape and self.metadata == other.metadata
        return isinstance(other, tuple) and self.shape == other

    __hash__ = None  # type: ignore[assignment]  # as of any that equals a tuple and may change

    def dtype(self) -> torch.dtype:
        return self.metadata.dtype

    def device(self) -> torch.device:
        return self.metadata.device

    def batch(self) -> BatchInfo | None:
        return self.metadata.batch

    def reducer(self) -> CallBack | None:
        return self.metadata.reducer


@runtime_checkable
class PrePassFunc(Protocol):
    """Tells the result of a call without making it."""

    def __call__(self, *args: Any, **kwargs: Any) -> PrePass: ...


def trivial(input: TensorLike, *args: Any, **kwargs: Any) -> Reducer:
    """The result for a part is its piece of the whole."""
    return lambda result: result


def same(
    tensors: Sequence[TensorLike], batch: BatchInfo | None, reducer: CallBack | None
) -> MetaData:
    """What is known of a tensor that is made of these. Raises ValueError if they
    are on several devices."""
    if not tensors:
        raise ValueError("nothing is known of what is made of no tensors")
    devices = sorted({str(interfaces.dev(tensor)) for tensor in tensors})
    if len(devices) > 1:
        raise ValueError(f"tensors on several devices: {', '.join(devices)}")
    dtype = functools.reduce(torch.promote_types, map(interfaces.dtyp, tensors))
    return MetaData(dtype, torch.device(devices[0]), batch, reducer)


def _tell(
    function: Callable[..., Tensor], *args: Any, reducer: CallBack | None = None, **kwargs: Any
) -> PrePass:
    """Of a result with samples, or of arguments that have none, parts are pieces."""
    told = tell(function, args, kwargs)
    if told.batch is not None or all(interfaces.bat(item) is None for item in _flat(args)):
        reducer = trivial
    batch = None if told.batch is None else BatchInfo(*told.batch)
    return PrePass(told.shape, MetaData(told.dtype, told.device, batch, reducer))


def _flat(items: Any) -> list[Any]:
    if isinstance(items, (list, tuple)):
        return [part for item in items for part in _flat(item)]
    return [items]


def _weighted(input: TensorLike) -> CallBack | None:
    """Of means over the batch: each part counts as much as it has samples."""
    found = interfaces.bat(input)
    if found is None:
        return None
    index, count = found

    def reducer(part: TensorLike, *args: Any, **kwargs: Any) -> Reducer:
        return lambda result: result * (part.size(index) / count)

    return reducer


def prepass(function: Callable[..., Tensor]) -> PrePassFunc:
    """A function's own: it tells what a call with lazy or plain tensors gives.
    Raises KoilaError where the values of tensors decide the shape."""

    @functools.wraps(function)
    def tell_result(*args: Any, **kwargs: Any) -> PrePass:
        return _tell(function, *args, **kwargs)

    return tell_result


def identity(input: TensorLike, /, *args: Any, **kwargs: Any) -> PrePass:
    """Of functions by element."""
    return _tell(torch.clone, input)


def symmetric(input: TensorLike, other: TensorLike, /, *args: Any, **kwargs: Any) -> PrePass:
    """Of functions by element of two tensors that are broadcast. Numbers do, too."""
    return _tell(torch.add, input, other)


def reduce_dims(
    input: TensorLike,
    /,
    dim: _Dims | None = None,
    keepdim: bool = False,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    """Of reductions over ``dim``, or over all dims."""

    def reduce(tensor: Tensor) -> Tensor:
        return torch.sum(tensor, dim, keepdim, dtype=tensor.dtype)

    return _tell(reduce, input)


def scalars(input: TensorLike, /, *args: Any, **kwargs: Any) -> PrePass:
    """Of reductions over all dims."""
    return reduce_dims(input)


def mean(
    input: TensorLike,
    /,
    dim: _Dims | None = None,
    keepdim: bool = False,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    """Of means over ``dim``, or over all dims."""
    return _tell(lambda x: torch.mean(x, dim, keepdim), input, reducer=_weighted(input))


def permute(input: TensorLike, /, *dims: int, **kwargs: Any) -> PrePass:
    return _tell(torch.permute, input, dims)


def reshape(input: TensorLike, /, *shape: int, **kwargs: Any) -> PrePass:
    return _tell(torch.reshape, input, shape)


def view(input: TensorLike, /, *shape: int, **kwargs: Any) -> PrePass:
    return _tell(torch.reshape, input, shape)


def flatten(
    input: TensorLike, /, start_dim: int = 0, end_dim: int = -1, *args: Any, **kwargs: Any
) -> PrePass:
    return _tell(torch.flatten, input, start_dim, end_dim)


def tranpose(input: TensorLike, dim0: int, dim1: int, /, *args: Any, **kwargs: Any) -> PrePass:
    """Of ``transpose``; the name is that of 0.1.1."""
    return _tell(torch.transpose, input, dim0, dim1)


def select(
    input: TensorLike,
    dim: int | EllipsisType | None,
    index: int | Tensor,
    /,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    """Of one row of ``dim``, or of those that a tensor names. ``...`` is the last
    dim; None a new one in front."""

    def pick(tensor: Tensor, index: Any) -> Tensor:
        if dim is None:
            tensor = tensor.unsqueeze(0)
        place = 0 if dim is None else -1 if isinstance(dim, EllipsisType) else dim
        take = torch.index_select if isinstance(index, Tensor) else torch.select
        return take(tensor, place, index)

    return _tell(pick, input, index)


def embedding(input: TensorLike, weight: TensorLike, /, *args: Any, **kwargs: Any) -> PrePass:
    return _tell(F.embedding, input, weight)


def matmul(input: TensorLike, other: TensorLike, /, *args: Any, **kwargs: Any) -> PrePass:
    return _tell(torch.matmul, input, other)


def loss(
    input: TensorLike,
    target: TensorLike,
    /,
    reduction: str = "mean",
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    """Of losses by element, and by sample where ``target`` is of classes."""
    classes = not (
        interfaces.dtyp(target).is_floating_point or tuple(target.shape) == tuple(input.shape)
    )

    def compare(x: Tensor, t: Tensor) -> Tensor:
        if classes:
            return F.cross_entropy(x, t, reduction=reduction)
        return F.l1_loss(x, t, reduction=reduction)

    # Classes may have weights, or be ignored: parts then count by their sum.
    by_count = _weighted(input) if reduction == "mean" and not classes else None
    return _tell(compare, input, target, reducer=trivial if reduction == "sum" else by_count)


def linear(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    return _tell(F.linear, input, weight, bias)


def cat(tensors: Sequence[TensorLike], dim: int = 0, *args: Any, **kwargs: Any) -> PrePass:
    return _tell(torch.cat, list(tensors), dim)


def pad(input: TensorLike, pad: Sequence[int], *args: Any, **kwargs: Any) -> PrePass:
    """Of paddings by any mode."""
    return _tell(F.pad, input, list(pad))


def _of_rank(name: str, rank: int) -> Callable[..., Tensor]:
    if not 1 <= rank <= 3:
        raise ValueError(f"{name} takes a tensor of samples, channels and 1 to 3 dims more")
    found: Callable[..., Tensor] = getattr(F, f"{name}{rank}d")
    return found


def conv(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: _Dims = 1,
    padding: _Dims | str = "valid",
    dilation: _Dims = 1,
    groups: int = 1,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    function = _of_rank("conv", weight.dim() - 2)
    return _tell(function, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: _Dims = 1,
    padding: _Dims = 0,
    output_padding: _Dims = 0,
    groups: int = 1,
    dilation: _Dims = 1,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    function = _of_rank("conv_transpose", weight.dim() - 2)
    return _tell(function, input, weight, bias, stride, padding, output_padding, groups, dilation)


def pool(
    input: TensorLike,
    *,
    kernel_size: _Dims,
    stride: _Dims | None = None,
    padding: _Dims = 0,
    dilation: _Dims = 1,
    ceil_mode: bool = False,
) -> PrePass:
    """Of pools; without ``stride`` it is the kernel's size."""
    function = _of_rank("max_pool", input.dim() - 2)
    options = {"padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    return _tell(lambda x: function(x, kernel_size, stride or None, **options), input)


def maxpool(
    input: TensorLike,
    kernel_size: _Dims,
    stride: _Dims | None = None,
    padding: _Dims = 0,
    dilation: _Dims = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    """Of the values, and of their indices."""
    return pool(
        input,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
    )


def avgpool(
    input: TensorLike,
    kernel_size: _Dims,
    stride: _Dims | None = None,
    padding: _Dims = 0,
    ceil_mode: bool = False,
    *args: Any,
    **kwargs: Any,
) -> PrePass:
    return pool(input, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode)
