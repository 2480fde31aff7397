"""Which random calls of an operator are legal: PyTorch runs them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from koila._generators.generator import Case, Generator, Input, MakeCase

__all__ = [
    "ERRORS",
    "PROBES",
    "compile_case",
    "draw",
    "get_results",
    "make_input",
    "make_inputs",
    "make_scope",
    "run",
]

#: What PyTorch raises for a call that is illegal.
ERRORS = (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError, NotImplementedError)
#: The batches at which a call is tried.
PROBES = (7, 2)


def make_input(tensor: Input, batch: int, generator: torch.Generator) -> torch.Tensor:
    """Random values; integers within the bounds that the input has."""
    shape, dtype = tensor.shape(batch), getattr(torch, tensor.dtype)
    if dtype.is_floating_point or dtype.is_complex:
        data = torch.randn(shape, generator=generator, dtype=torch.float64)
        if dtype.is_complex:
            data = torch.complex(data, data.flip(0) if shape else data)
    else:
        low = 0 if dtype == torch.bool else 1
        high = 2 if dtype == torch.bool else 6
        if tensor.low is not None and tensor.high is not None:
            low, high = tensor.low, max(tensor.high, tensor.low + 1)
        data = torch.randint(low, high, shape, generator=generator)
    layout = torch.channels_last if tensor.channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, memory_format=layout).copy_(data.to(dtype))


def make_inputs(case: Case, batch: int, seed: int = 1) -> list[torch.Tensor]:
    """The tensors that a case reads, at a size of the batch."""
    generator = torch.Generator().manual_seed(seed)
    return [make_input(tensor, batch, generator) for tensor in case.inputs]


def make_scope(inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The names that the statements of a case read."""
    scope: dict[str, Any] = {f"x{i}": tensor for i, tensor in enumerate(inputs)}
    scope.update(torch=torch, annotate=lambda kind, value: value, List=list)
    return scope


def compile_case(case: Case) -> Case:
    """The case, ready to run. SyntaxError, with the case, for what is no Python."""
    try:
        case.code = compile("\n".join(case.body), str(case), "exec")
    except SyntaxError as error:
        raise SyntaxError(f"{case.op}: {error}: {case}") from None
    return case


def run(case: Case, inputs: Sequence[torch.Tensor]) -> dict[str, Any] | Exception:
    """The names of a compiled case after it ran, or the error."""
    assert case.code is not None
    scope = make_scope(inputs)
    try:
        exec(case.code, scope)
    except ERRORS as error:
        return error
    return scope


def get_results(case: Case, scope: dict[str, Any]) -> list[torch.Tensor] | None:
    """The results that the case reads; None if one is no tensor."""
    found = [scope[name] for name in case.results]
    return found if all(isinstance(r, torch.Tensor) for r in found) else None


def draw(
    op: str, make: MakeCase, seed: int, legal: int, illegal: int = 0, **drawing: Any
) -> tuple[list[Case], list[Case]]:
    """At most so many legal and illegal cases of one operator, different ones. The same
    ``seed`` gives the same; ``drawing`` is passed on to Generator."""
    rng = random.Random(zlib.crc32(f"{seed} {op}".encode()))
    goals = {True: legal, False: illegal}
    found: dict[bool, list[Case]] = {True: [], False: []}
    seen = set()
    for _ in range(30 * sum(goals.values())):
        missing = [kind for kind in goals if len(found[kind]) < goals[kind]]
        if not missing:
            break
        wrong = {1: 0.03, 0: 0.95}[missing == [True]] if len(missing) == 1 else 0.3
        case = make(Generator(op, rng, wrong, **drawing))
        if case is None or str(case) in seen:
            continue
        seen.add(str(case))
        compile_case(case)
        answers = [run(case, make_inputs(case, batch)) for batch in PROBES]
        refused = [isinstance(answer, Exception) for answer in answers]
        if any(refused) and not all(refused):
            continue
        first = answers[0]
        if not isinstance(first, Exception) and get_results(case, first) is None:
            continue
        kind = not refused[0]
        if len(found[kind]) < goals[kind]:
            case.error = str(first) if isinstance(first, Exception) else None
            found[kind].append(case)
    return found[True], found[False]
