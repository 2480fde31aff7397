"""Parts of a batch, as the micro-batches of a program that adds up gradients, or the halves that
Mixup mixes. Where a program reads nothing else of what ``koila.lazy`` was given, each part is
a batch itself."""

from __future__ import annotations

import torch
from torch import Tensor

from koila._capture.program import Program
from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Origin, Value

__all__ = ["find_parts", "take_parts"]

_PARTS = {
    Tensor.__getitem__,
    *(torch.chunk, torch.split, torch.narrow, torch.tensor_split),
    *(Tensor.chunk, Tensor.split, Tensor.narrow, Tensor.tensor_split),
}


def find_parts(nodes: list[Node]) -> list[Node]:
    """The calls that take parts of batches; none where others read these batches."""
    parts: list[Node] = []
    for node in nodes:
        for index, entry in enumerate(node.inputs):
            if isinstance(entry, Value) and entry.origin is not None:
                if not _is_part(node, index, entry):
                    return []
                parts.append(node)
    return parts


def _is_part(node: Node, index: int, leaf: Value) -> bool:
    call, tensor = node.call, leaf.tensor
    if call.function not in _PARTS or any(shared != index for shared in call.shares):
        return False
    if tensor is None or tensor.is_inference() or leaf.meta.requires_grad:
        return False
    if leaf.group.open_write() is not None:
        return False
    assert leaf.origin is not None
    batch, shape = leaf.origin.batch or 0, leaf.meta.shape
    if call.function is Tensor.__getitem__:
        ((_, item), _) = call.fill(list(node.inputs))
        items = item if isinstance(item, tuple) else (item,)
        if len(items) <= batch or any(type(item) is not slice for item in items[: batch + 1]):
            return False
        return call.metas[0].shape[batch] != shape[batch]
    return all(
        meta.shape[batch] != shape[batch]
        and meta.shape[:batch] + meta.shape[batch + 1 :] == shape[:batch] + shape[batch + 1 :]
        for meta in call.metas
    )


def take_parts(nodes: list[Node]) -> None:
    """Makes these views, which takes no memory."""
    found: list[tuple[Value, Origin]] = []
    for node in nodes:
        (origin,) = {e.origin for e in node.inputs if isinstance(e, Value) and e.origin is not None}
        outputs = (output for reference in node.outputs if (output := reference()) is not None)
        found += [(output, origin) for output in outputs if output.node is node]
    Program(nodes, []).run()
    for value, origin in found:
        tensor = value.tensor
        assert tensor is not None
        rows = None if origin.size is None else value.meta.shape[origin.batch or 0]
        value.origin = value.source = Origin(origin.batch, rows, origin.budget, origin.call)
        value.version = tensor._version
        recording.watched.add(tensor, value)
