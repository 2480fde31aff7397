"""Autograd functions as operators.

TorchScript has no node for a subclass of ``torch.autograd.Function``. So it gets an
operator of its own, which calls the function, gradient and all; where koila traces, a
call of the function becomes a call of the operator.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import threading
import typing
from collections.abc import Iterator
from typing import Any

import torch

from koila._errors import KoilaError

__all__ = ["call_checked", "find_function", "is_recording", "make_operator", "recording"]

_NAMESPACE = "koila_functions"
_library: torch.library.Library | None = None
_operators: dict[type, torch._ops.OpOverload] = {}
_local = threading.local()
# What schemas write for a type of Python.
_SPELLINGS = {torch.Tensor: "Tensor", int: "int", float: "float", bool: "bool", str: "str"}


def make_operator(function: type[torch.autograd.Function]) -> torch._ops.OpOverload:
    """The operator that calls ``function``, made once. Arguments of ``forward`` without
    an annotation are tensors. KoilaError for what no schema can say."""
    global _library
    if function in _operators:
        return _operators[function]
    base = re.sub(r"\W+", "_", f"{function.__module__}_{function.__qualname__}").strip("_")
    names = {operator._schema.name for operator in _operators.values()}
    name = base
    for number in itertools.count(1):
        if f"{_NAMESPACE}::{name}" not in names:
            break
        # A cell of a notebook that ran again.
        name = f"{base}_{number}"
    own: Any = function.apply.__func__  # type: ignore[attr-defined]
    if own is not _get_apply() and not getattr(own, "is_watched", False):
        raise KoilaError(f"{function.__qualname__} has an apply() of its own; register one without")
    schema = f"{name}({_describe(function)}) -> {_describe_results(function)}"
    if _library is None:
        _library = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    try:
        _library.define(schema)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise KoilaError(f"{function.__qualname__}: '{schema}' is no schema: {error}") from None
    is_single = "(" not in schema.partition("->")[2]

    def call(*arguments: Any) -> Any:
        made = _get_apply()(function, *arguments)
        if is_single and isinstance(made, tuple):
            raise KoilaError(
                f"forward() of {function.__qualname__} returns several results; annotate it, "
                f"-> tuple[{', '.join(['torch.Tensor'] * len(made))}]"
            )
        return made

    # Composite: what the function records, autograd sees.
    _library.impl(name, call, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    _operators[function] = operator
    _watch(function, operator)
    return operator


def find_function(function: Any) -> torch._ops.OpOverload | None:
    """The operator of a registered function."""
    return _operators.get(function)


def _get_apply() -> Any:
    """As it is now: koila.lazy watches it."""
    return torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """While koila traces; a trace of the user's own stays what it was."""
    before = getattr(_local, "records", False)
    _local.records = True
    try:
        yield
    finally:
        _local.records = before


def is_recording() -> bool:
    return getattr(_local, "records", False) and torch._C._get_tracing_state() is not None


def call_checked(operator: torch._ops.OpOverload, arguments: Any, named: Any) -> Any:
    """As ``apply`` is called. KoilaError for a number that was not said to be one."""
    for value, parameter in zip(arguments, operator._schema.arguments, strict=False):
        if "Tensor" in str(parameter.type) and not isinstance(value, torch.Tensor | None):
            raise KoilaError(
                f"the argument '{parameter.name}' of '{operator._schema.name}' is {value!r}: "
                f"annotate it in forward(), {parameter.name}: {type(value).__name__}"
            )
    return operator(*arguments, **named)


def _watch(function: type[torch.autograd.Function], operator: torch._ops.OpOverload) -> None:
    def apply(cls: Any, *arguments: Any, **named: Any) -> Any:
        if cls is function and is_recording():
            return call_checked(operator, arguments, named)
        return _get_apply()(cls, *arguments, **named)

    apply.is_watched = True  # type: ignore[attr-defined]
    function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]


def _describe(function: type[torch.autograd.Function]) -> str:
    parameters = list(inspect.signature(function.forward).parameters.values())
    if function.setup_context is torch.autograd.Function.setup_context:
        # The first is ctx.
        parameters = parameters[1:]
    hints = _get_hints(function)
    described = []
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise KoilaError(
                f"forward() of {function.__qualname__} takes *args or keywords: an operator has "
                "arguments one by one"
            )
        absent = torch.Tensor | None if parameter.default is None else torch.Tensor
        spelled = _spell(function, parameter.name, hints.get(parameter.name, absent))
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        described.append(f"{spelled} {parameter.name}{default}")
    return ", ".join(described)


def _get_hints(function: type[torch.autograd.Function]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function.forward)
    except (NameError, TypeError) as error:
        raise KoilaError(
            f"the annotations of forward() of {function.__qualname__} cannot be read: {error}"
        ) from None


def _spell(function: type, name: str, hint: Any) -> str:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    is_optional = type(None) in typing.get_args(hint) and len(options) == 1
    inner = options[0] if is_optional else hint
    spelled = _SPELLINGS.get(inner)
    if spelled is None and typing.get_origin(inner) in (list, tuple):
        elements = set(typing.get_args(inner)) - {Ellipsis}
        if len(elements) == 1:
            element = _SPELLINGS.get(elements.pop())
            spelled = f"{element}[]" if element else None
    if spelled is None:
        raise KoilaError(
            f"forward() of {function.__qualname__}: '{name}' is a {hint}; annotate it as "
            "torch.Tensor, int, float, bool, str, a list of these, or | None"
        )
    return f"{spelled}?" if is_optional else spelled


def _describe_results(function: type[torch.autograd.Function]) -> str:
    hint = _get_hints(function).get("return", torch.Tensor)
    if typing.get_origin(hint) is tuple and (parts := typing.get_args(hint)):
        if all(part is torch.Tensor for part in parts):
            return f"({', '.join(['Tensor'] * len(parts))})"
    elif hint in (torch.Tensor, Any):
        return "Tensor"
    raise KoilaError(
        f"forward() of {function.__qualname__} returns a {hint}; annotate it as torch.Tensor, "
        "or tuple[torch.Tensor, torch.Tensor] for two"
    )
