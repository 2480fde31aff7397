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

from koila._capture.recorder import assign, become_lazy, find_source, find_values, make_leaf, record
from koila._capture.thread_recordings import recording
from koila._capture.values import Value

__all__ = ["adopt"]

# The storage is referred to by the tensor, and by the object that is asked.
_ALONE = 2
_use_count: Any = torch._C._storage_Use_Count
_data: Any = torch._C.TensorBase.data


def adopt(func: Any, args: Any, kwargs: Any) -> None:
    """Makes a plain tensor lazy that ``func`` writes a lazy one to, if it may be."""
    target = args[0] if args else None
    if type(target) is not Tensor or not _writes(func) or not _is_alone(target):
        return
    found: list[Value] = []
    find_values((args, kwargs), found)
    source = find_source(found)
    # Into a store of many batches, a batch is written as it is computed.
    if func is Tensor.__setitem__ and (source is None or source.size not in target.shape):
        return
    leaf = make_leaf(target.detach())
    leaf.source = source
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


def _is_alone(tensor: Tensor) -> bool:
    """Whether nobody else sees its memory or its graph."""
    return (
        tensor.layout == torch.strided
        and not tensor.requires_grad
        and not tensor._is_view()
        and not tensor.is_inference()
        and not vars(tensor)
        and not torch.is_inference_mode_enabled()
        # One that was given to koila.lazy is what others read.
        and not any(leaf.tensor is tensor for leaf in recording.watched.list_at(tensor))
        and _use_count(tensor.untyped_storage()._cdata) == _ALONE
    )
