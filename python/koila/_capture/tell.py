"""What a call would give, by PyTorch's shape rules: nothing is computed, recorded
or drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from koila._capture.batch_int import BatchInt
from koila._capture.dispatch_cache import fakes
from koila._capture.inspection import find_batch
from koila._capture.module_snapshot import tensors_of
from koila._capture.recorder import RecordedTensor, current
from koila._capture.values import rebuild
from koila._errors import KoilaError
from koila._interrupt import import_whole

__all__ = ["Told", "tell", "tell_shape"]


class Told(NamedTuple):
    """A tensor that a call would give. ``batch``: the dim with the samples, and
    how many there are."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    batch: tuple[int, int] | None


def _batch_of(item: Any) -> tuple[int, int] | None:
    return find_batch(current(item)) if isinstance(item, RecordedTensor) else None


def _stand_in(item: Any, batch: int | None, more: int) -> Any:
    """The arguments without their data, with so many samples more."""
    if isinstance(item, Tensor):
        shape = [int(extent) for extent in item.shape]
        found = _batch_of(item)
        if found is not None and found[1] == batch:
            shape[found[0]] += more
        return torch.empty(shape, dtype=item.dtype, device=item.device)
    if isinstance(item, BatchInt):
        # x.view(x.shape[0], -1) has a meaning for any number of samples.
        return int(item) + more if int(item) == batch else int(item)
    if isinstance(item, (list, tuple)):
        return rebuild(item, [_stand_in(part, batch, more) for part in item])
    if isinstance(item, dict):
        return {name: _stand_in(part, batch, more) for name, part in item.items()}
    return item


def _call(
    function: Callable[..., Any], args: Any, kwargs: Any, batch: int | None, more: int
) -> Tensor:
    import_whole("torch._dynamo")  # for the fakes
    with fakes, torch.no_grad():
        args = _stand_in(args, batch, more)
        kwargs = _stand_in(kwargs, batch, more)
        result = function(*args, **kwargs)
    if isinstance(result, (tuple, list)) and result and isinstance(result[0], Tensor):
        result = result[0]  # the values; their places are like them
    if not isinstance(result, Tensor):
        raise KoilaError(
            f"{_name(function)} gives no tensor, but an object of type {type(result).__name__}"
        )
    return result


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


def tell(function: Callable[..., Any], args: Any, kwargs: Any) -> Told:
    """What ``function(*args, **kwargs)`` would give; of several tensors the first.
    Raises what PyTorch raises for such shapes, and KoilaError where the values of
    tensors decide the shape."""
    batch = next(
        (
            found[1]
            for tensor in tensors_of([args, kwargs])
            if (found := _batch_of(tensor)) is not None
        ),
        None,
    )
    try:
        result = _call(function, args, kwargs, batch, 0)
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise KoilaError(
            f"what {_name(function)} gives depends on the values of its arguments"
        ) from None
    shape = tuple(result.shape)
    mark = None
    if batch is not None:
        try:
            grown = _call(function, args, kwargs, batch, 1).shape
        except Exception:
            grown = result.shape  # it has no meaning for another number of samples
        if len(grown) == len(shape):
            mark = next(((dim, size) for dim, size in enumerate(shape) if grown[dim] != size), None)
    return Told(shape, result.dtype, result.device, mark)


def tell_shape(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a function of tensors gives for tensors of these shapes."""
    import_whole("torch._dynamo")
    with fakes, torch.no_grad():
        return tuple(function(*(torch.empty(shape) for shape in shapes)).shape)
