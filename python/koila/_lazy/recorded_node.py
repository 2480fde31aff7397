"""``grad_fn`` of a tensor whose graph is not there yet."""

from __future__ import annotations

import sys
from typing import Any

from torch.autograd.graph import Node

from koila._capture.frames import find_frames, location_of
from koila._capture.values import Value
from koila._errors import KoilaError
from koila._execute.executor import materialize

__all__ = ["find_node"]


class RecordedNode(Node):
    """Says what has been recorded. Asked for what a node of autograd has, as
    ``next_functions``, it has the graph made, and asks that."""

    def __init__(self, value: Value, call: str) -> None:
        self.value, self.call = value, call

    def __repr__(self) -> str:
        return f"<recorded {self.call}>"

    def __eq__(self, other: object) -> bool:
        """Each access makes one."""
        return isinstance(other, RecordedNode) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_make_node(self.value), name)

    def name(self) -> str:
        return str(_make_node(self.value).name())

    @property
    def next_functions(self) -> Any:
        return _make_node(self.value).next_functions

    @property
    def metadata(self) -> Any:
        return _make_node(self.value).metadata

    @property
    def _input_metadata(self) -> Any:
        return _make_node(self.value)._input_metadata

    def _sequence_nr(self) -> int:
        return int(_make_node(self.value)._sequence_nr())

    def _register_hook_dict(self, tensor: Any) -> None:
        _make_node(self.value)._register_hook_dict(tensor)

    def register_hook(self, fn: Any) -> Any:
        return _make_node(self.value).register_hook(fn)

    def register_prehook(self, fn: Any) -> Any:
        return _make_node(self.value).register_prehook(fn)


def find_node(value: Value) -> Any:
    """None where PyTorch has none."""
    node = value.node
    if not value.meta.requires_grad or node is None:
        return None
    if _is_asked_by_autograd():
        return _make_node(value)
    return RecordedNode(value, str(getattr(node.call.function, "__name__", node.call.function)))


def _make_node(value: Value) -> Any:
    (tensor,) = materialize([value], find_frames(), "'grad_fn'")
    if tensor.grad_fn is None:
        raise KoilaError(
            "the graph of a recorded tensor is gone, since a backward pass went through it",
            location_of(find_frames()),
            ("ask 'grad_fn' before the backward pass",),
        )
    return tensor.grad_fn


def _is_asked_by_autograd() -> bool:
    """Whether it goes to the engine, as for a hook on several tensors, which takes none but
    its own nodes."""
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("koila."):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_globals.get("__name__") == "torch.autograd.graph"
