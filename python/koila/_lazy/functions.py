"""Calls of autograd functions, scripted functions and ``torch.autograd.Variable``, which
PyTorch offers to nobody."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction
from torch.optim.optimizer import register_optimizer_step_pre_hook

from koila._capture.frames import find_frames, location_of
from koila._capture.thread_recordings import recording
from koila._capture.values import Value
from koila._errors import KoilaError
from koila._execute.executor import read
from koila._execute.flush import flush
from koila._execute.overwritten import watch_exposed
from koila._lazy.dispatch import aliases, call, compute
from koila._lazy.lazy_tensor import LazyTensor
from koila._lazy.modules import watch_modules
from koila._lazy.saving import watch_saving
from koila._operators.functions import call_checked, find_function, is_recording

__all__ = ["watch_functions"]

_apply = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
_Scripted: Any = torch.jit.ScriptFunction
_call_scripted = _Scripted.__call__
_VariableMeta: Any = type(torch.autograd.Variable)


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
    _VariableMeta.__call__ = _make_variable
    watch_modules()
    watch_saving()
    # What changes the weights that recorded calls read.
    register_optimizer_step_pre_hook(lambda *_: flush())
    own = torch.Tensor.data
    watched = property(_get_data, _set_data)
    torch.Tensor.data = watched  # type: ignore[assignment]
    for name in ("__get__", "__set__"):
        aliases[getattr(watched, name)] = getattr(own, name)


def _make_variable(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """As programs have it from before PyTorch 0.4: the tensor without its history. Source:
    THPVariable_pynew in torch/csrc/autograd/python_legacy_variable.cpp."""
    names = ("data", "requires_grad", "volatile")
    given = dict(zip(names, args, strict=False), **kwargs)
    data = given.get("data")
    if not isinstance(data, LazyTensor):
        return type.__call__(cls, *args, **kwargs)
    made = data.detach()
    return made.requires_grad_() if given.get("requires_grad") else made


_data: Any = torch._C.TensorBase.data


def _get_data(tensor: torch.Tensor) -> Any:
    """Writes through ``.data`` have no version by which they would be noticed."""
    if type(tensor) is not LazyTensor or recording.updated:
        flush()
    found = _data.__get__(tensor)
    if type(tensor) is not LazyTensor and not recording.busy:
        watch_exposed(found)
    return found


def _set_data(tensor: torch.Tensor, value: Any) -> None:
    if type(tensor) is not LazyTensor or recording.updated:
        flush()
    if type(tensor) is LazyTensor or recording.busy:
        _data.__set__(tensor, value)
        return
    if isinstance(value, LazyTensor):
        references = sys.getrefcount(value)
        value = _take(value, references)
    leaves = [leaf for leaf in recording.watched.list_at(tensor) if leaf.tensor is tensor]
    before = tensor.data_ptr() if leaves else 0
    _data.__set__(tensor, value)
    for leaf in leaves:
        leaf.replaced |= tensor.data_ptr() != before
    if isinstance(value, torch.Tensor):
        # Who has that, too, writes to what is the tensor's from now on.
        watch_exposed(value)


def _take(value: LazyTensor, references: int) -> torch.Tensor:
    """The memory of a recorded tensor that nobody else has: it is computed now. What others
    have would have to be seen by them when it is written to."""
    recorded = value._value
    group = recorded.group
    others = [other for other in group.list_members() if other is not recorded]
    is_seen = group.external or any(map(Value.is_held, others)) or group.open_readers()
    if references > _TEMPORARY or is_seen:
        raise KoilaError(
            f"the memory of a recorded tensor of shape {recorded.meta.shape}, which the program "
            "still has, cannot become '.data' of another one",
            location_of(find_frames()),
            ("assign a copy, as of .clone(), or set the elements by .data.copy_()",),
        )
    return read([recorded], find_frames())[0]


class _Probe:
    """How many references there are to what is assigned, and has no other name."""

    count = 0

    def _set(self, value: Any) -> None:
        self.count = sys.getrefcount(value)

    data = property(None, _set)


def _count_of_temporary() -> int:
    probe = _Probe()
    probe.data = object()
    return probe.count


_TEMPORARY = _count_of_temporary()


_appliers: dict[Any, Callable[..., Any]] = {}


def _applier(cls: Any) -> Callable[..., Any]:
    if cls not in _appliers:

        def call(*args: Any, **kwargs: Any) -> Any:
            operator = find_function(cls)
            if operator is not None and is_recording():
                return call_checked(operator, args, kwargs)
            return _apply(cls, *args, **kwargs)

        call.__name__ = cls.__name__
        call.runs_python = True  # type: ignore[attr-defined]
        _appliers[cls] = call
    return _appliers[cls]
