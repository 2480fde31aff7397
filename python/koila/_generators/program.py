"""Cases as TorchScript: several in one program, and the call of one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from koila._generators.draw import make_inputs, make_scope
from koila._generators.generator import Case, read_names

__all__ = [
    "ScriptedCall",
    "ScriptedCases",
    "can_want",
    "define_module",
    "script_call",
    "script_cases",
]

_COUNTER = itertools.count()


@dataclass(frozen=True)
class ScriptedCases:
    """A module whose forward runs cases. Lines count from its first one, as 1."""

    module: torch.jit.ScriptModule
    #: The case, by its place among all, of each line.
    cases: Mapping[int, int]
    #: The line of the call of each case.
    calls: Sequence[int]
    #: Specs of the arguments.
    inputs: Sequence[str]


def can_want(dtype: torch.dtype) -> bool:
    """Whether a tensor of that type can require a gradient."""
    return dtype.is_floating_point or dtype.is_complex


def script_cases(
    cases: Sequence[Case], *, hidden: bool = False, grad: bool = False
) -> ScriptedCases:
    """One program of all cases.

    ``hidden``: the calls do not see the types of the arguments before inference, so that
    verification, which stops at the first error, finds none. ``grad``: in the specs
    arguments of real and complex numbers want a gradient.
    """
    text: list[str] = []
    arguments: list[str] = []
    returned: list[str] = []
    where: dict[int, int] = {}
    calls: list[int] = []
    for index, case in enumerate(cases):
        names = {f"x{i}" for i in range(len(case.inputs))}
        for line in case.body:
            names.update(read_names(line))
        pattern = re.compile(rf"\b({'|'.join(sorted(names))})\b")
        suffix = "_given" * hidden
        arguments += [f"x{i}_{index}{suffix}: Tensor" for i in range(len(case.inputs))]
        for i in range(len(case.inputs)) if hidden else ():
            text.append(f"    x{i}_{index} = torch.ops.aten.alias(x{i}_{index}{suffix})")
            where[len(text) + 1] = index
        for line in case.body:
            text.append("    " + pattern.sub(rf"\1_{index}", line))
            where[len(text) + 1] = index
        calls.append(len(text) + 1)
        returned += [f"{name}_{index}, " for name in case.results]
    source = (
        f"def forward(self, {', '.join(arguments)}):\n"
        + "\n".join(text)
        + f"\n    return ({''.join(returned)})\n"
    )
    specs = [
        tensor.spec() + "@grad" * (grad and can_want(getattr(torch, tensor.dtype)))
        for case in cases
        for tensor in case.inputs
    ]
    return ScriptedCases(define_module(source), where, calls, specs)


def define_module(
    source: str, parameters: Mapping[str, torch.nn.Parameter] | None = None
) -> torch.jit.ScriptModule:
    """A module with the method that ``source`` defines."""

    def make(self: torch.jit.ScriptModule) -> None:
        torch.jit.ScriptModule.__init__(self)
        for name, parameter in (parameters or {}).items():
            self.register_parameter(name, parameter)

    # A class of its own: methods of a class cannot be defined again.
    kind = type(f"Program{next(_COUNTER)}", (torch.jit.ScriptModule,), {"__init__": make})
    module = kind()
    module.define(source)
    made: torch.jit.ScriptModule = module.eval()
    return made


def _spell_type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "Tensor"
    if isinstance(value, list | tuple) and value:
        return f"List[{_spell_type(value[0])}]"
    return type(value).__name__


@dataclass(frozen=True)
class ScriptedCall:
    """The last statement of a case as a function, and what it is called with."""

    function: Any
    given: Mapping[str, Any]

    def __call__(self) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = self.function(*self.given.values())
        return found


def script_call(case: Case, batch: int, grad: bool) -> ScriptedCall:
    """The call under test, which has run once, with what the statements before it have
    prepared; with ``grad`` of tensors that require one where they can."""
    scope = make_scope(make_inputs(case, batch))
    if grad:
        for value in scope.values():
            if isinstance(value, torch.Tensor):
                value.requires_grad_(can_want(value.dtype))
    exec("\n".join(case.body[:-1]), scope)
    text = case.body[-1]
    names = [
        name
        for name in dict.fromkeys(re.findall(r"\b[a-z]\w*", text))
        if name in scope and name not in case.results and name not in ("torch", "annotate")
    ]
    arguments = ", ".join(f"{name}: {_spell_type(scope[name])}" for name in names)
    returned = "".join(f"{name}, " for name in case.results)
    source = f"def call({arguments}):\n    {text}\n    return ({returned})\n"
    call = ScriptedCall(
        torch.jit.CompilationUnit(source).call, {name: scope[name] for name in names}
    )
    call()
    return call
