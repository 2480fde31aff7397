"""What koila says of the results of a call, next to those of PyTorch.

A fact is what ``--koila-print-facts`` prints of one operation. Where the batch has a
symbol, extents and strides are expressions over it. ``notes`` counts what is no
disagreement and no proof either:

* ``data``: extents that data decide; ``strides``, ``views``: results whose strides or
  storage koila does not vouch for
* ``at``, ``free``, ``mixed``: what is said of the batch; ``careful``: said to be mixed
  although the pieces agree, and with the reason behind a colon
* ``edge``: a view at an extent of one or none where koila expects a copy, or the reverse
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from koila._generators.draw import get_results, make_inputs, run
from koila._generators.generator import Batch, Case, MakeCase

__all__ = [
    "FUNCTIONS",
    "MLIR_TYPES",
    "Fact",
    "find_batch_problem",
    "find_shape_problem",
    "find_storage_problem",
    "have_strides",
]

Fact = dict[str, Any]
Scope = dict[str, Any]

# Samples in a piece.
_TILE = 2
MLIR_TYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "ui8",
    torch.bool: "i1",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
}
#: What extents are made of beside symbols.
FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "broadcast": lambda a, b: b if a == 1 else a,
}


def _evaluate(expr: str, batch: int) -> int | None:
    """The number, or None where data decide."""
    try:
        return int(eval(expr, {**FUNCTIONS, "__builtins__": {}}, {"B": batch}))
    except (NameError, ZeroDivisionError):
        return None


def _read_facts(case: Case, fact: Fact) -> list[Fact]:
    """What is said of those results that the case reads."""
    return [fact["results"][place] for place in case.places]


def find_shape_problem(
    case: Case, fact: Fact, make: MakeCase | None, batch: int, scope: Scope, notes: Counter[str]
) -> str | None:
    """What is wrong of number, element types, extents and strides of the results.
    ``make`` is what made the case, with its marks."""
    if len(fact["results"]) != len(case.made()):
        return f"has {len(fact['results'])} results, PyTorch {len(case.made())}"
    for place, said in enumerate(fact["results"]):
        if place not in case.places and (said.get("dims") or said.get("storage") == "new"):
            return f"result {place} is {said}, though the mask leaves it out"
    whole = get_results(case, scope)
    assert whole is not None
    for name, said, tensor in zip(case.results, _read_facts(case, fact), whole, strict=True):
        at = f"{name} at batch {batch}"
        if said.get("element") != MLIR_TYPES[tensor.dtype]:
            return f"{at} is {said.get('element')}, PyTorch has {tensor.dtype}"
        if said["dims"] is None:
            return f"{at} has unknown rank"
        dims = [_evaluate(dim, batch) for dim in said["dims"]]
        if len(dims) != tensor.dim() or any(
            d is not None and d != e for d, e in zip(dims, tensor.shape, strict=True)
        ):
            return f"{at} is {said['dims']} = {dims}, PyTorch has {list(tensor.shape)}"
        if None in dims:
            notes["data"] += 1
            if not getattr(make, "data", False):
                return f"{at} has an unknown extent: {said['dims']}"
        elif said["strides"] is None:
            notes["strides"] += 1
        elif batch == 0 and tensor.numel() and getattr(make, "other_if_empty", False):
            notes["edge"] += 1
        else:
            strides = [_evaluate(stride, batch) for stride in said["strides"]]
            if not have_strides(tensor, strides):
                return (
                    f"{at} has strides {said['strides']} = {strides}, PyTorch "
                    f"{list(tensor.stride())}, dims {list(tensor.shape)}"
                )
    return None


def have_strides(tensor: torch.Tensor, strides: Sequence[int | None]) -> bool:
    """But for dims of one element, in which nobody takes a step."""
    return tensor.numel() == 0 or all(
        size <= 1 or said == stride
        for size, said, stride in zip(tensor.shape, strides, tensor.stride(), strict=True)
    )


def find_storage_problem(
    case: Case, fact: Fact, batch: int, scope: Scope, notes: Counter[str]
) -> str | None:
    """Which result is said to be new and is a view, or the reverse."""
    if case.body[-1].split("(")[0].endswith("_"):
        return None  # A tie: the storage analysis decides.
    whole = get_results(case, scope)
    assert whole is not None
    for name, said, tensor in zip(case.results, _read_facts(case, fact), whole, strict=True):
        if said["dims"] is None or None in [_evaluate(dim, batch) for dim in said["dims"]]:
            continue
        if fact.get("guesses"):
            notes["views"] += 1
            continue
        storage = tensor.untyped_storage()._cdata
        shared = any(
            isinstance(other, torch.Tensor)
            and key != name
            and key not in case.results
            and other.untyped_storage()._cdata == storage
            for key, other in scope.items()
        )
        if shared == (said.get("storage") != "new"):
            continue
        if batch < 2 or tensor.numel() == 0:
            notes["edge"] += 1
            continue
        return (
            f"{name} at batch {batch} has {said.get('storage')} storage, "
            f"PyTorch {'shares' if shared else 'allocates'} it"
        )
    return None


def find_batch_problem(case: Case, fact: Fact, batch: int, notes: Counter[str]) -> str | None:
    """Whether two samples at a time give what all give together, as is said."""
    inputs = make_inputs(case, batch)
    scope = run(case, inputs)
    assert isinstance(scope, dict)
    whole = get_results(case, scope)
    assert whole is not None
    parts = _run_pieces(case, inputs, batch)
    said_of = _read_facts(case, fact)
    for position, (said, tensor) in enumerate(zip(said_of, whole, strict=True)):
        mine = None if parts is None else [part[position] for part in parts]
        kind = said["batch"]
        name = case.results[position]
        if match := re.match(r"at\((-?\d+), (\d+)\)", kind):
            notes["at"] += 1
            if mine is None or not _joins_along(mine, tensor, int(match[1])):
                return (
                    f"the batch of {name} is said to be {kind}, but the pieces do not give "
                    "the whole"
                )
        elif kind == "free":
            notes["free"] += 1
            if mine is None or not all(_is_close(piece, tensor) for piece in mine):
                return f"{name} is said to be free of the batch, but the pieces differ"
        else:
            notes["mixed"] += 1
            dims = [dim for dim in range(tensor.dim()) if tensor.shape[dim] > 1]
            if mine and tensor.numel() and any(_joins_along(mine, tensor, dim) for dim in dims):
                notes["careful"] += 1
                notes[f"careful: {kind[7:]}"] += 1
    return None


def _run_pieces(
    case: Case, inputs: Sequence[torch.Tensor], batch: int
) -> list[list[torch.Tensor]] | None:
    """The results of every two samples; None if a piece is illegal."""
    found = []
    for start in range(0, batch, _TILE):
        count, part = min(_TILE, batch - start), []
        for tensor, data in zip(case.inputs, inputs, strict=True):
            for dim, size in enumerate(tensor.dims):
                if isinstance(size, Batch):
                    data = data.narrow(dim, start * size.factor, count * size.factor)
            layout = torch.channels_last if tensor.channels_last else torch.contiguous_format
            part.append(torch.empty(data.shape, dtype=data.dtype, memory_format=layout).copy_(data))
        scope = run(case, part)
        if isinstance(scope, Exception):
            return None
        results = get_results(case, scope)
        assert results is not None
        found.append(results)
    return found


def _joins_along(parts: Sequence[torch.Tensor], whole: torch.Tensor, dim: int) -> bool:
    """Whether the parts, one after the other along `dim`, are the whole."""
    rest = whole.shape[:dim] + whole.shape[dim + 1 :]
    if any(p.dim() != whole.dim() or p.shape[:dim] + p.shape[dim + 1 :] != rest for p in parts):
        return False
    return _is_close(torch.cat([p.contiguous() for p in parts], dim), whole)


def _is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    loose = {
        torch.float32: (1e-3, 1e-4),
        torch.complex64: (1e-3, 1e-4),
        torch.float16: (3e-2, 3e-2),
        torch.bfloat16: (6e-2, 6e-2),
    }
    rtol, atol = loose.get(a.dtype, (None, None))
    try:
        torch.testing.assert_close(a, b, equal_nan=True, rtol=rtol, atol=atol)
    except AssertionError:
        return False
    return True
