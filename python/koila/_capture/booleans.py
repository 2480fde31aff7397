"""Python's ``True`` and ``False`` where operators take numbers, for which TorchScript has no
implicit conversion: ``mask & True`` and ``use_auxiliary * loss`` cannot be traced as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["without_booleans"]


def without_booleans(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with tensors of bool in the place of booleans where an operator
    takes a tensor or a number, which have the types of results as they were; and integers where
    it takes a number alone, and casts it to the type of a tensor."""
    if not any(type(entry) is bool for entry in (*args, *kwargs.values())):
        return args, kwargs
    if not args or not isinstance(args[0], Tensor):
        return args, kwargs
    kinds = _list_kinds(getattr(function, "__name__", ""))
    return (
        tuple(_convert(entry, kinds.get(place, "")) for place, entry in enumerate(args)),
        {name: _convert(entry, kinds.get(name, "")) for name, entry in kwargs.items()},
    )


def _convert(entry: Any, kind: str) -> Any:
    if type(entry) is not bool:
        return entry
    if kind == "Tensor":
        return torch.full((), int(entry), dtype=torch.bool)
    return int(entry) if kind == "number" else entry


@functools.cache
def _list_kinds(name: str) -> Mapping[int | str, str]:
    """By the place and the name of an argument of what takes a tensor first: ``Tensor`` where
    it may be a number, too, ``number`` where it may be that alone."""
    found: dict[int | str, set[str]] = {}
    for own in {name, name.strip("_")}:
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{own}"):
            if not schema.arguments or str(schema.arguments[0].type) != "Tensor":
                continue
            for place, argument in enumerate(schema.arguments):
                kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
                found.setdefault(argument.name, set()).add(kind)
                if not argument.kwarg_only:
                    found.setdefault(place, set()).add(kind)
    return {
        key: "Tensor" if "Tensor" in kinds else "number"
        for key, kinds in found.items()
        if "number" in kinds and "bool" not in kinds
    }
