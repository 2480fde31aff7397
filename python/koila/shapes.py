"""Names of koila 0.1.1: shapes of results, by PyTorch's own rules.

What does not fit raises an error that is a ``ValueError``, as it was, and a
``koila.KoilaError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from koila._capture.tell import tell_shape
from koila._errors import KoilaError

__all__ = [
    "ShapeError",
    "coerce",
    "compatible_dim",
    "matmul",
    "permute",
    "prepends",
    "reduce_dims",
    "reshape",
    "tranpose",
    "view",
]

_Shape = tuple[int, ...]


class ShapeError(KoilaError, ValueError):
    """Tensors of such shapes have no such result."""


def _tell(function: Callable[..., Tensor], *shapes: Sequence[int]) -> _Shape:
    try:
        return tell_shape(function, *map(tuple, shapes))
    except (RuntimeError, IndexError, TypeError) as error:
        raise ShapeError(str(error)) from None


def compatible_dim(input: int, other: int, broadcast: bool = True) -> bool:
    """Whether extents of one dim fit."""
    return input == other or (broadcast and 1 in (input, other))


def prepends(input: _Shape, other: _Shape, value: int) -> tuple[_Shape, _Shape]:
    """Both, the shorter one with ``value`` in front until it is as long."""
    rank = max(len(input), len(other))
    longer = ((value,) * (rank - len(shape)) + tuple(shape) for shape in (input, other))
    return next(longer), next(longer)


def coerce(
    input: _Shape, other: _Shape, broadcast: bool = True, scalars: bool = True
) -> _Shape | None:
    """The shape of both together, None if they do not fit. Without ``broadcast``
    they are the same, or with ``scalars`` one is of a single number."""
    input, other = tuple(input), tuple(other)
    if scalars and not (input and other):
        return input or other
    if not broadcast:
        return input if input == other else None
    try:
        return tuple(torch.broadcast_shapes(input, other))  # type: ignore[no-untyped-call]
    except RuntimeError:
        if min((*input, *other)) < 0:
            raise ShapeError(f"{input} or {other} is no shape") from None
        return None


def permute(input: _Shape, *dims: int) -> _Shape:
    return _tell(lambda x: x.permute(dims), input)


def reshape(input: _Shape, *shape: int) -> _Shape:
    return _tell(lambda x: x.reshape(shape), input)


def view(input: _Shape, *shape: int) -> _Shape:
    return _tell(lambda x: x.view(shape), input)


def tranpose(input: _Shape, dim0: int, dim1: int) -> _Shape:
    """Of ``transpose``; the name is that of 0.1.1."""
    return _tell(lambda x: x.transpose(dim0, dim1), input)


def matmul(input: _Shape, other: _Shape) -> _Shape:
    return _tell(torch.matmul, input, other)


def reduce_dims(
    input: _Shape, dim: int | tuple[int, ...] | None = None, keepdim: bool = False
) -> tuple[_Shape, set[int]]:
    """The shape without ``dim``, by default without any, and the dims that went."""
    shape = _tell(lambda x: torch.sum(x, dim, keepdim), input)
    given = range(len(input)) if dim is None else (dim,) if isinstance(dim, int) else dim
    return shape, {index % max(len(input), 1) for index in given}
