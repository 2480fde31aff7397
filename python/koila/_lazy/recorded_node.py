"""``grad_fn`` of a tensor whose graph is not there yet."""

from __future__ import annotations

import sys
from typing import Any

from koila._capture.frames import find_frames
from koila._capture.values import Value
from koila._execute.executor import materialize

__all__ = ["RecordedNode", "find_node"]


class RecordedNode(str):
    """Says what has been recorded. Asked for anything else that a node of autograd has, as
    ``next_functions``, it has the graph made, and asks that."""

    value: Value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_make_node(self.value), name)


def find_node(value: Value) -> Any:
    """None where PyTorch has none."""
    node = value.node
    if not value.meta.requires_grad or node is None:
        return None
    if _is_asked_by_autograd():
        return _make_node(value)
    made = RecordedNode(f"<recorded {getattr(node.call.function, '__name__', node.call.function)}>")
    made.value = value
    return made


def _make_node(value: Value) -> Any:
    (tensor,) = materialize([value], find_frames(), "'grad_fn'")
    return tensor.grad_fn


def _is_asked_by_autograd() -> bool:
    """Whether it goes to the engine, as for a hook on several tensors, which takes none but
    its own nodes."""
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("koila."):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_globals.get("__name__") == "torch.autograd.graph"
