"""The rules that are registered for operators, and what they are asked with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from koila._errors import KoilaError

__all__ = [
    "OperatorRules",
    "find_named",
    "find_operator",
    "get_name",
    "list_overloads",
    "refuse_overloads",
]

Rule = Callable[..., Any]


@dataclass(frozen=True)
class OperatorRules:
    """What ``koila.register`` was given for one operator."""

    operator: torch._ops.OpOverload
    shape: Rule | None
    batch: Rule | int | None
    #: Per result the position of the argument that it is a view of; None: a new tensor.
    storage: tuple[int | None, ...]
    forward: Rule | None
    saved: Rule | None
    backward: Rule | None

    @property
    def name(self) -> str:
        """As ``mylib::scaled_gelu`` or ``aten::add.Tensor``."""
        return get_name(self.operator)

    @property
    def parameters(self) -> Sequence[torch.Argument]:
        """The arguments of its schema."""
        return self.operator._schema.arguments

    def get_kinds(self) -> list[str]:
        """Which rules there are."""
        kinds = ("shape", "batch", "forward", "saved", "backward")
        return [kind for kind in kinds if getattr(self, kind) is not None]

    def bind(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Values in the order of the schema, as the operator is called with them."""
        pairs = list(zip(self.parameters, values, strict=True))
        positional = [value for parameter, value in pairs if not parameter.kwarg_only]
        named = {p.name: value for p, value in pairs if p.kwarg_only}
        return positional, named


def get_name(operator: torch._ops.OpOverload) -> str:
    schema = operator._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def find_operator(given: Any) -> torch._ops.OpOverload:
    """The operator behind an overload, ``torch.ops.mylib.op``, what
    ``torch.library.custom_op`` makes, or a name. KoilaError if there is none, or several."""
    if isinstance(given, torch._ops.OpOverload):
        return given
    if isinstance(given, CustomOpDef):
        return given._opoverload
    if isinstance(given, str):
        given = find_named(given)
        if isinstance(given, torch._ops.OpOverload):
            return given
    if isinstance(given, torch._ops.OpOverloadPacket):
        overloads = list_overloads(given)
        if len(overloads) != 1:
            raise refuse_overloads(given, overloads)
        return overloads[0]
    raise KoilaError(
        f"{given!r} is no operator: give torch.ops.mylib.op, its name 'mylib::op', what "
        "torch.library.custom_op made, or a subclass of torch.autograd.Function"
    )


def list_overloads(packet: torch._ops.OpOverloadPacket) -> list[torch._ops.OpOverload]:
    """Those that do not write into a tensor of the caller, which are no operators of
    their own."""
    names = packet.overloads()  # type: ignore[no-untyped-call]
    found = [getattr(packet, name) for name in names]
    return [each for each in found if not any(a.is_out for a in each._schema.arguments)]


def refuse_overloads(
    packet: torch._ops.OpOverloadPacket, overloads: Sequence[torch._ops.OpOverload]
) -> KoilaError:
    """The error that names them."""
    name = packet._qualified_op_name
    names = ", ".join(f"'{name}.{each._overloadname}'" for each in overloads)
    return KoilaError(f"'{name}' has several overloads: give one of {names}")


def find_named(name: str) -> Any:
    """An overload, or all of one name. KoilaError if there is no operator of that name."""
    namespace, colons, rest = name.partition("::")
    base, dot, overload = rest.partition(".")
    if not colons or not namespace.isidentifier() or not base.isidentifier():
        raise KoilaError(
            f"'{name}' is no name of an operator, as 'mylib::op' or 'aten::add.Tensor'"
        )
    try:
        packet = getattr(getattr(torch.ops, namespace), base)
        if not dot:
            return packet
        return getattr(packet, "default" if overload == "default" else overload)
    except (AttributeError, RuntimeError):
        raise KoilaError(
            f"PyTorch knows no operator '{name}': import or load what defines it first"
        ) from None


def check_callable(kind: str, rule: Any, positional: Sequence[str], named: Sequence[str]) -> None:
    """KoilaError unless ``rule`` can be called with such values, by position and by name."""
    takes = ", ".join([*positional, *(["*", *named] if named else [])])
    if not callable(rule):
        raise KoilaError(f"{kind}={rule!r}: a rule is a function, {kind}({takes})")
    try:
        signature = inspect.signature(rule)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError:
        raise KoilaError(
            f"{kind}={rule!r} takes {signature}: it is called as {kind}({takes})"
        ) from None
