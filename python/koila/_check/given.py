"""Calls of given inputs as cases, as those that generators make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from koila._errors import KoilaError
from koila._generators.draw import compile_case, get_results, make_inputs, run
from koila._generators.generator import Batch, Case, Dim, Input
from koila._operators.calls import EXPANDED, TRANSPOSED, Call, TensorSpec
from koila._operators.rules import get_name

__all__ = ["make_case"]

# To see what a call gives, and whether it is legal.
_SAMPLES = 7


class _Statements:
    """Names of the tensors of a call, and what makes those that lie otherwise."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.prepared: list[str] = []

    def spell(self, value: Any) -> str:
        if isinstance(value, TensorSpec):
            return self._spell_tensor(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.spell, value))}]"
        return repr(value)

    def _spell_tensor(self, spec: TensorSpec) -> str:
        dims: list[Dim] = [Batch() if extent is None else extent for extent in spec.dims]
        made = f"p{len(self.prepared)}"
        x = f"x{len(self.inputs)}"
        if spec.layout == TRANSPOSED:
            self.prepared.append(f"{made} = torch.ops.aten.transpose({x}, -1, -2)")
            dims[-1], dims[-2] = dims[-2], dims[-1]
        elif spec.layout == EXPANDED:
            if spec.dims[-1] is None:
                raise KoilaError("the batch has as many samples in memory")
            sizes = [-1] * (len(dims) - 1) + [spec.dims[-1]]
            self.prepared.append(f"{made} = torch.ops.aten.expand({x}, {sizes})")
            dims[-1] = 1
        bounds = (0, spec.limit) if spec.has_limit else (None, None)
        self.inputs.append(Input(dims, str(spec.dtype).removeprefix("torch."), False, *bounds))
        return made if spec.layout else x


def make_case(operator: torch._ops.OpOverload, call: Call) -> Case:
    """The call as statements of TorchScript. KoilaError, with what PyTorch says, for a
    call that is illegal."""
    statements = _Statements()
    positional: list[str] = []
    named: list[str] = []
    pairs = list(zip(operator._schema.arguments, call.arguments, strict=True))
    while pairs and _is_left_out(*pairs[-1]):
        pairs.pop()
    for argument, value in pairs:
        if not argument.kwarg_only:
            positional.append(statements.spell(value))
        elif not _is_left_out(argument, value):
            named.append(f"{argument.name}={statements.spell(value)}")
    callee = operator._schema.name.replace("::", ".")
    text = f"torch.ops.{callee}({', '.join([*positional, *named])})"
    case = Case(get_name(operator), [*statements.prepared, f"r = {text}"], statements.inputs, ["r"])
    count = _count_results(case)
    if count is not None:
        case.results = [f"r{at}" for at in range(count)]
        comma = "," * (count == 1)
        case.body[-1] = f"{', '.join(case.results)}{comma} = {text}"
    return compile_case(case)


def _is_left_out(argument: torch.Argument, value: Any) -> bool:
    return argument.has_default_value() and argument.default_value == value


def _count_results(case: Case) -> int | None:
    """None for one tensor, else how many tensors are in what the call gives."""
    compile_case(case)
    scope = run(case, make_inputs(case, _SAMPLES))
    if isinstance(scope, Exception):
        first = next(iter(str(scope).splitlines()), "")
        raise KoilaError(f"PyTorch does not take {case}: {type(scope).__name__}: {first}")
    if get_results(case, scope) is not None:
        return None
    made: Sequence[Any] = scope["r"] if isinstance(scope["r"], list | tuple) else ()
    if not made or not all(isinstance(each, torch.Tensor) for each in made):
        raise KoilaError(f"'{case.op}' gives no tensors: {case}")
    return len(made)
