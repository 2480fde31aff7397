"""Parts of a batch, as the micro-batches of a program that adds up gradients, or the halves that
Mixup mixes. Where a program reads nothing else of what ``koila.lazy`` was given, each part is
a batch itself."""

from __future__ import annotations

import dataclasses

from koila._capture.program import Program
from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Origin, Value

__all__ = ["find_parts", "take_parts"]


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
    """Whether all that a call returns are slices of the batch dim, and maybe of others: views
    with fewer samples, in which the other dims are no longer and step as before."""
    tensor, origin = leaf.tensor, leaf.origin
    if tensor is None or tensor.is_inference() or leaf.meta.requires_grad or origin is None:
        return False
    if any(shared != index for shared in node.call.shares) or leaf.group.open_write() is not None:
        return False
    batch = origin.batch or 0
    return bool(node.call.metas) and all(
        len(meta.shape) == len(leaf.meta.shape)
        and meta.shape[batch] < leaf.meta.shape[batch]
        and all(
            dim == batch or (extent <= before and (extent < 2 or stride == step))
            for dim, (extent, before, stride, step) in enumerate(
                zip(meta.shape, leaf.meta.shape, meta.stride, leaf.meta.stride, strict=True)
            )
        )
        for meta in node.call.metas
    )


def take_parts(nodes: list[Node]) -> None:
    """Makes these views, which takes no memory."""
    found: list[tuple[Value, Origin]] = []
    for node in nodes:
        (origin,) = {e.origin for e in node.inputs if isinstance(e, Value) and e.origin is not None}
        outputs = (output for reference in node.outputs if (output := reference()) is not None)
        found += [(output, origin) for output in outputs if output.node is node]
    Program(nodes, []).run(where_it_is=True)
    for value, origin in found:
        tensor = value.tensor
        assert tensor is not None
        rows = None if origin.size is None else value.meta.shape[origin.batch or 0]
        value.origin = value.source = dataclasses.replace(origin, size=rows)
        value.version = tensor._version
        recording.watched.add(tensor, value)
