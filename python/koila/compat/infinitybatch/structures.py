"""Batches of any structure: tensors in tuples, lists, mappings and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from koila._capture.structure import flatten
from koila.compat.infinitybatch.errors import InfinityBatchError

__all__ = ["call_model", "count_samples", "list_tensors", "separate"]

_TARGETS = ("targets", "target", "labels", "label")


def list_tensors(item: Any) -> list[Tensor]:
    found: list[Tensor] = []
    flatten(item, found)
    return found


def count_samples(item: Any) -> int:
    """The rows of the first tensor."""
    first = next((tensor for tensor in list_tensors(item) if tensor.dim()), None)
    if first is None:
        raise InfinityBatchError("the inputs of the batch have no tensor with samples")
    return int(first.shape[0])


def separate(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of what a dataloader gives: of a sequence the last item is
    the targets, of a mapping what is called so."""
    if isinstance(batch, Mapping):
        name = next((name for name in _TARGETS if name in batch), None)
        if name is None:
            raise InfinityBatchError(
                f"which of {', '.join(map(str, batch))} are the targets? Set `separate` to a "
                "function that gives inputs and targets of a batch"
            )
        return {key: item for key, item in batch.items() if key != name}, batch[name]
    if isinstance(batch, (list, tuple)) and len(batch) > 1:
        *inputs, targets = batch
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    raise InfinityBatchError(
        "a batch is a pair of inputs and targets, or a mapping with `targets`; for others set "
        "`separate` to a function that gives both"
    )


def call_model(model: Any, inputs: Any) -> Any:
    """A tuple is the model's arguments, a mapping those by name."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)) and not isinstance(inputs, torch.Size):
        return model(*inputs)
    return model(inputs)
