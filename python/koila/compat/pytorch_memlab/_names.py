"""Names of tensors: of parameters, gradients, optimizer state, and of variables.

Nothing here keeps a tensor alive: names hang on weak references, so that a name never
goes to another tensor that came to lie where the first was.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from koila.compat.pytorch_memlab._tensors import get_gradient, is_lazy

_OPTIMIZED = 1  # CO_OPTIMIZED: variables are not in a dictionary.
_DEEP = 3


class Names:
    def __init__(self) -> None:
        #: Of parameters, buffers and optimizer state.
        self.known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []

    def add_model(self, model: torch.nn.Module) -> None:
        self._models.append(weakref.ref(model))
        self.refresh()

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))
        self.refresh()

    def refresh(self) -> None:
        """Models and optimizers may have got others."""
        names: dict[int, list[str]] = {}
        tensors: dict[int, torch.Tensor] = {}
        for name, tensor in self._get_named():
            tensors[id(tensor)] = tensor
            own = names.setdefault(id(tensor), [])
            if name not in own:
                own.append(name)
        for key, tensor in tensors.items():
            self.known[tensor] = " = ".join(names[key])

    def _get_named(self) -> Iterator[tuple[str, torch.Tensor]]:
        parameters: dict[int, str] = {}
        for model in filter(None, [reference() for reference in self._models]):
            for name, tensor in model.named_parameters(remove_duplicate=False):
                parameters.setdefault(id(tensor), name)
                yield name, tensor
            yield from model.named_buffers(remove_duplicate=False)
        for optimizer in filter(None, [reference() for reference in self._optimizers]):
            kind, number = type(optimizer).__name__, 0
            for group in optimizer.param_groups:
                own_names = group.get("param_names")
                for index, tensor in enumerate(group["params"]):
                    own = own_names[index] if own_names else f"param{number}"
                    name = parameters.get(id(tensor), own)
                    if id(tensor) not in parameters:
                        yield name, tensor
                    number += 1
                    for path, state in _find(optimizer.state.get(tensor), 0):
                        yield f"{kind}.{name}{_as_attribute(path)}", state

    def get_all(self, frame: FrameType | None) -> dict[int, str]:
        """Names of what is alive, by id: valid as long as the caller holds the tensors.
        Variables of ``frame`` and of what called it, the innermost first."""
        self.refresh()
        names: dict[int, str] = {}
        known = list(self.known.items())  # type: ignore[no-untyped-call]
        for tensor, name in known:
            _add(names, tensor, str(name))
        for name, tensor in _find_in_frames(frame):
            _add(names, tensor, name)
        return names


def _add(names: dict[int, str], tensor: torch.Tensor, name: str) -> None:
    """With its gradient, and what it is a view of."""
    names.setdefault(id(tensor), name)
    gradient = get_gradient(tensor)
    if gradient is not None:
        names.setdefault(id(gradient), " = ".join(f"{one}.grad" for one in name.split(" = ")))
    base = tensor._base
    if base is not None and not is_lazy(type(base)):
        names.setdefault(id(base), f"{name}._base")


def _as_attribute(path: str) -> str:
    """['exp_avg'] as .exp_avg."""
    key = path[2:-2]
    return f".{key}" if path.startswith("['") and key.isidentifier() else path


def _find(value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in a value, in containers and attributes, with how to get there."""
    if depth > _DEEP:
        return
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        if not is_lazy(kind):
            yield "", value
    elif kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        for index, item in enumerate(value[:1000]):
            for path, tensor in _find(item, depth + 1):
                yield f"[{index}]{path}", tensor
    elif kind is dict:
        for key, item in list(value.items())[:1000]:
            if isinstance(key, str | int):
                for path, tensor in _find(item, depth + 1):
                    yield f"[{key!r}]{path}", tensor
    elif issubclass(kind, torch.nn.Module) and not issubclass(kind, torch.jit.ScriptModule):
        for name, module in value.named_modules():
            stem = f".{name}" if name else ""
            for own, tensor in [*module._parameters.items(), *module._buffers.items()]:
                if tensor is not None:
                    for path, found in _find(tensor, depth + 1):
                        yield f"{stem}.{own}{path}", found
            for own, item in list(vars(module).items()):
                if not own.startswith("_"):
                    for path, found in _find(item, depth + 1):
                        yield f"{stem}.{own}{path}", found
    elif depth == 0 and kind.__module__ not in ("builtins", "types"):
        for own, item in list(_get_attributes(value).items()):
            for path, tensor in _find(item, depth + 2):
                yield f".{own}{path}", tensor


def _get_attributes(value: Any) -> dict[str, Any]:
    """Without code of the value's own: a proxy may do what it likes when it is asked."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _find_in_frames(frame: FrameType | None) -> Iterator[tuple[str, torch.Tensor]]:
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        # Not PyTorch's own, nor those that a test or a notebook runs in.
        if not module.startswith(("torch.", "_pytest.", "pluggy.", "IPython.", "asyncio.")):
            yield from _find_in_frame(frame)
        frame = frame.f_back


def _find_in_frame(frame: FrameType) -> Iterator[tuple[str, torch.Tensor]]:
    variables = frame.f_locals
    found = [
        (f"{name}{path}", tensor)
        for name, value in list(variables.items())
        if not name.startswith("__") and not issubclass(type(value), type)
        for path, tensor in _find(value, 0)
    ]
    _let_go(frame, variables)
    del variables
    yield from found


def _let_go(frame: FrameType, variables: Any) -> None:
    """Before Python 3.13, a frame that was asked for its variables keeps a copy of them
    that outlives them. It goes, unless it is somebody's already."""
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & _OPTIMIZED:
        return
    # The frame's, the caller's, this one's, and getrefcount's.
    if isinstance(variables, dict) and sys.getrefcount(variables) <= 4:
        variables.clear()
