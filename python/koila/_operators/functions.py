"""Autograd functions as operators.

TorchScript has no node for a subclass of ``torch.autograd.Function``. So it gets an
operator of its own, which calls the function, gradient and all; where koila traces, a
call of the function becomes a call of the operator.
"""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

import torch

from koila._errors import KoilaError

__all__ = ["find_function", "make_operator"]

_NAMESPACE = "koila_functions"
_library: torch.library.Library | None = None
_operators: dict[type, torch._ops.OpOverload] = {}
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
    while f"{_NAMESPACE}::{name}" in names:
        # A cell of a notebook that ran again.
        name = f"{base}_{len(names)}"
    schema = f"{name}({_describe(function)}) -> {_describe_results(function)}"
    if _library is None:
        _library = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    _library.define(schema)  # type: ignore[no-untyped-call]

    def call(*arguments: Any) -> Any:
        return torch.autograd.Function.apply.__func__(function, *arguments)  # type: ignore[attr-defined]

    # Composite: what the function records, autograd sees.
    _library.impl(name, call, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    _operators[function] = operator
    _watch(function, operator)
    return operator


def find_function(function: Any) -> torch._ops.OpOverload | None:
    """The operator of a registered function."""
    return _operators.get(function)


def _watch(function: type[torch.autograd.Function], operator: torch._ops.OpOverload) -> None:
    def apply(cls: Any, *arguments: Any) -> Any:
        if cls is function and torch._C._get_tracing_state() is not None:
            return operator(*arguments)
        return torch.autograd.Function.apply.__func__(cls, *arguments)  # type: ignore[attr-defined]

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
        spelled = _spell(function, parameter.name, hints.get(parameter.name, torch.Tensor))
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
