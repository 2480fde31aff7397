"""Traces of modules that are freed when nobody has them any more.

PyTorch puts the types and functions of every trace where they stay as long as
the process.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import nn

from koila import _compiler
from koila._capture.frames import find_frames
from koila._operators.functions import recording

__all__ = ["trace"]


def trace(
    module: nn.Module, arguments: tuple[Any, ...], *, keeps_shapes: bool = True
) -> torch.jit.ScriptModule:
    """``torch.jit.trace``, unchecked; with the shapes of ``arguments`` for files."""
    options = {"check_trace": False, "_module_class": _Traced, "_store_inputs": keeps_shapes}
    # PyTorch notes who called it, for the operations of modules of its own.
    place = find_frames()[1]
    code = _call.__code__.replace(co_filename=place.file, co_firstlineno=max(place.line, 1))
    with recording():
        return FunctionType(code, {})(torch.jit.trace, module, arguments, options)  # type: ignore[no-any-return]


_call = lambda function, module, arguments, options: function(module, arguments, **options)  # noqa: E731


class _Traced(torch.jit._trace.TopLevelTracedModule):
    """The module that a trace of ``original`` becomes the forward() of."""

    def __init__(self, original: nn.Module, **_: Any) -> None:
        # Past the classes that make it in the unit of the process.
        super(torch.jit._trace.TracedModule, self).__init__()
        unit = torch._C.CompilationUnit()
        script = torch.jit._recursive.wrap_cpp_module(_copy(original, unit))  # type: ignore[no-untyped-call]
        self.__dict__.update(_name=type(original).__name__, _actual_script_module=script)
        for name in ("_parameters", "_buffers", "_modules", "training"):
            self.__dict__.pop(name, None)


def _copy(module: nn.Module, unit: torch._C.CompilationUnit) -> Any:
    """The tensors and parts of a module as a torch._C.ScriptModule without
    methods."""
    if isinstance(module, torch.jit.ScriptModule):
        return module._c
    if torch._jit_internal.module_has_exports(module):  # type: ignore[no-untyped-call]
        # Its methods are scripted, which knows no other unit.
        return torch.jit._trace.make_module(module, None, None)._c  # type: ignore[no-untyped-call]
    copied = _compiler.make_module(
        torch._jit_internal._qualified_name(type(module)),
        unit,
        {name: tensor for name, tensor in module._parameters.items() if tensor is not None},
        {name: tensor for name, tensor in module._buffers.items() if tensor is not None},
        {name: _copy(part, unit) for name, part in module._modules.items() if part is not None},
    )
    for name, value in vars(module).items():
        if name == "training" or torch._C._jit_is_script_object(value):
            copied._register_attribute(name, torch._C._jit_try_infer_type(value).type(), value)
    return copied
