"""Calls of autograd functions and scripted functions, which PyTorch offers to
nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction
from torch.optim.optimizer import register_optimizer_step_pre_hook

from koila._capture.frames import find_frames
from koila._capture.thread_recordings import recording
from koila._execute.executor import read
from koila._execute.flush import flush
from koila._execute.overwritten import watch_exposed
from koila._lazy.dispatch import aliases, call, compute
from koila._lazy.lazy_tensor import LazyTensor
from koila._lazy.modules import watch_modules
from koila._operators.functions import call_operator, find_function, is_recording

__all__ = ["watch_functions"]

_apply = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
_Scripted: Any = torch.jit.ScriptFunction
_call_scripted = _Scripted.__call__


def watch_functions() -> None:
    """Calls of the user's own autograd functions are recorded whole, since
    inside of them gradients are off, and so are those of scripted functions."""
    if torch.autograd.Function.apply.__func__ is not _apply:  # type: ignore[attr-defined]
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, LazyTensor) for item in (*args, *kwargs.values())):
            # Modules with backward hooks look for its node in the graph.
            make = compute if cls is BackwardHookFunction else call
            return make(_applier(cls), args, kwargs)
        return _apply(cls, *args, **kwargs)

    def call_scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, LazyTensor) for item in (*args, *kwargs.values())):
            return call(function, args, kwargs)
        return _call_scripted(function, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
    _Scripted.__call__ = call_scripted
    watch_modules()
    # What changes the weights that recorded calls read.
    register_optimizer_step_pre_hook(lambda *_: flush())
    own = torch.Tensor.data
    watched = property(_get_data, _set_data)
    torch.Tensor.data = watched  # type: ignore[assignment]
    for name in ("__get__", "__set__"):
        aliases[getattr(watched, name)] = getattr(own, name)


_data: Any = torch._C.TensorBase.data


def _get_data(tensor: torch.Tensor) -> Any:
    """Writes through ``.data`` have no version by which they would be noticed."""
    if type(tensor) is not LazyTensor or recording.updated:
        flush()
    found = _data.__get__(tensor)
    if type(tensor) is not LazyTensor and not recording.busy:
        watch_exposed(tensor, found)
    return found


def _set_data(tensor: torch.Tensor, value: Any) -> None:
    if type(tensor) is not LazyTensor or recording.updated:
        flush()
    if isinstance(value, LazyTensor) and type(tensor) is not LazyTensor:
        # PyTorch would take the memory of a tensor that has none.
        (value,) = read([value._value], find_frames())
    _data.__set__(tensor, value)


_appliers: dict[Any, Callable[..., Any]] = {}


def _applier(cls: Any) -> Callable[..., Any]:
    if cls not in _appliers:

        def call(*args: Any, **kwargs: Any) -> Any:
            operator = find_function(cls)
            if operator is not None and is_recording():
                return call_operator(operator, args, kwargs)
            return _apply(cls, *args, **kwargs)

        call.__name__ = cls.__name__
        _appliers[cls] = call
    return _appliers[cls]
