"""Calls of autograd functions and scripted functions, which PyTorch offers to
nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction

from koila._record import LazyTensor, compute, record

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
            make = compute if cls is BackwardHookFunction else record
            return make(_applier(cls), args, kwargs)
        return _apply(cls, *args, **kwargs)

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, LazyTensor) for item in (*args, *kwargs.values())):
            return record(function, args, kwargs)
        return _call_scripted(function, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
    _Scripted.__call__ = call


_appliers: dict[Any, Callable[..., Any]] = {}


def _applier(cls: Any) -> Callable[..., Any]:
    if cls not in _appliers:

        def call(*args: Any, **kwargs: Any) -> Any:
            return _apply(cls, *args, **kwargs)

        call.__name__ = cls.__name__
        _appliers[cls] = call
    return _appliers[cls]
