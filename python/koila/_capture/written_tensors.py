"""Plain tensors that lazy ones are written into, as ``outputs[t] = out`` into a
tensor of zeros, or a total that begins as one.

Such a write would have to happen at once, with all that it needs. Where nobody
else sees the memory, the tensor becomes a lazy one itself: the object stays the
same, and what is in it is what the recorded program begins with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila._capture.recorder import (
    assign,
    become_lazy,
    find_source,
    find_values,
    leaf_of,
    record,
)
from koila._capture.thread_recordings import recording
from koila._capture.values import Origin, Value, is_open

__all__ = ["adopt"]

# The storage is referred to by the tensor, by what its leaf has of it, and by the object that
# is asked; the tensor by its name alone, and not by a graph.
_ALONE = 3
_use_count: Any = torch._C._storage_Use_Count
_data: Any = torch._C.TensorBase.data


def adopt(func: Any, args: Any, kwargs: Any) -> None:
    """Makes a plain tensor lazy that ``func`` writes a lazy one to, if it may be."""
    target: Any = args[0] if args else None
    if type(target) is not Tensor or not _writes(func) or not _may_be_lazy(target):
        return
    found: list[Value] = []
    find_values((args, kwargs), found)
    source = find_source(found)
    if not any(is_open(value) or value.meta.requires_grad for value in found):
        return  # what is there is written at once, as observations into those of a rollout
    # Into a store of many batches, a batch is written as it is computed.
    if func is Tensor.__setitem__ and not _is_over_samples(target, source):
        return
    leaf = leaf_of(target)
    if not _is_alone(target, leaf) or (_is_read(leaf) and not _is_over_samples(target, source)):
        return
    # What was recorded to read it reads what is in it now.
    assert leaf.alias is not None
    leaf.tensor, leaf.source = leaf.alias, source
    leaf.group.external = False
    # Whoever would reach past koila finds nothing, and not old values.
    _data.__set__(target, target.new_empty(0))
    lazy: Any = become_lazy(target)
    assign(lazy, leaf)
    # What the program itself makes can be written to in tiles.
    copied = record(Tensor.clone, (lazy,), {})._value
    copied.group.external = False
    assign(lazy, copied)


def _writes(func: Any) -> bool:
    name = str(getattr(func, "__name__", ""))
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _may_be_lazy(tensor: Tensor) -> bool:
    """Whether it is a tensor like those that are recorded, without a graph."""
    return (
        tensor.layout == torch.strided
        and not tensor.requires_grad
        and not tensor._is_view()
        and not tensor.is_inference()
        and not vars(tensor)
        and not torch.is_inference_mode_enabled()
    )


def _is_over_samples(tensor: Tensor, source: Origin | None) -> bool:
    return source is not None and source.size in tensor.shape


def _is_alone(tensor: Tensor, leaf: Value) -> bool:
    """Whether nobody else sees its memory or has kept it; ``leaf`` is what is recorded of
    it."""
    others = (other for other in recording.watched.list_at(tensor) if other is not leaf)
    return (
        leaf.origin is leaf.source is None
        # One that was given to koila.lazy is what others read.
        and not any(other.tensor is tensor for other in others)
        and tensor._use_count() == 1  # type: ignore[attr-defined]
        and _use_count(tensor.untyped_storage()._cdata) == _ALONE
    )


def _is_read(leaf: Value) -> bool:
    """Whether calls have still to read it: a buffer that a model keeps stays one."""
    return bool(leaf.group.open_readers())
