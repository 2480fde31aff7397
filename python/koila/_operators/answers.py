"""Answers to what the compiler asks of registered rules.

The compiler asks in JSON (include/koila/Interfaces/CustomOperators.h). Rules see
tensors of the meta device, which have sizes, strides and a type, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from koila._operators.batch import BatchArgument
from koila._operators.kernel_trace import Block, KernelTrace
from koila._operators.rules import OperatorRules

__all__ = ["answer", "as_results"]

# c10/core/ScalarType.h
_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
}
_TYPES = {code: dtype for dtype, code in _CODES.items()}


def answer(rules: OperatorRules, request: dict[str, Any]) -> dict[str, Any]:
    """What the rule that ``request`` names says; raises what the rule raises, and
    TypeError or ValueError for an answer that is none."""
    kind = request["rule"]
    if kind == "shape":
        return _answer_shape(rules, request)
    if kind == "batch":
        return {"results": answer_batch(rules, request["arguments"])}
    arguments = _decode_arguments(rules, request["arguments"])
    results = [_decode(result) for result in request["results"]]
    threads = int(request["threads"])
    if kind == "forward":
        return {"transient": ask_forward(rules, threads, arguments, results).get_transient()}
    if kind == "saved":
        return ask_saved(rules, arguments, results)
    gradients = [None if g is None else _decode(g) for g in request["gradients"]]
    return ask_backward(rules, threads, gradients, arguments, results, request["wants"])


def _decode_arguments(rules: OperatorRules, encoded: Sequence[Any]) -> list[Any]:
    return [_decode_as(p, value) for p, value in zip(rules.parameters, encoded, strict=True)]


def _decode_as(parameter: torch.Argument, encoded: Any) -> Any:
    value = _decode(encoded)
    # A type of elements is a number to TorchScript.
    is_type = "ScalarType" in str(parameter.real_type)
    return _TYPES.get(value, value) if is_type else value


def _decode(encoded: Any) -> Any:
    if tensor := encoded.get("tensor"):
        dtype = _TYPES[tensor["dtype"]]
        if strides := tensor.get("strides"):
            return torch.empty_strided(tensor["dims"], strides, dtype=dtype, device="meta")
        return torch.empty(tensor["dims"], dtype=dtype, device="meta")
    if "float" in encoded:
        return float(encoded["float"])
    if "list" in encoded:
        return [_decode(element) for element in encoded["list"]]
    if "device" in encoded:
        return torch.device("meta")
    return encoded["value"]


def _encode(tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.dtype not in _CODES:
        raise TypeError(f"a tensor of {tensor.dtype}, of which koila knows nothing")
    return {
        "dims": list(tensor.shape),
        "dtype": _CODES[tensor.dtype],
        "strides": list(tensor.stride()),
        "contiguous": tensor.is_contiguous(),
    }


def as_results(made: Any) -> list[Any]:
    """What an operator returns, one by one."""
    return list(made) if isinstance(made, tuple | list) else [made]


def _answer_shape(rules: OperatorRules, request: dict[str, Any]) -> dict[str, Any]:
    assert rules.shape is not None
    values = _decode_arguments(rules, request["arguments"])
    positional, named = rules.bind(values)
    with torch.no_grad():
        made = as_results(rules.shape(*positional, **named))
    _check_count("shape", made, rules)
    for tensor in made:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_meta:
            raise TypeError(
                f"it gives {tensor!r} in place of a tensor of the meta device, as "
                "torch.empty_like(x) makes of its arguments"
            )
    return {"results": [_encode(tensor) for tensor in made]}


def _check_count(kind: str, made: Sequence[Any], rules: OperatorRules) -> None:
    wanted = len(rules.operator._schema.returns)
    if len(made) != wanted:
        raise ValueError(f"it names {len(made)} results, and the operator has {wanted}")


def answer_batch(rules: OperatorRules, arguments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per result ``{"dim"}``, ``{"free"}`` or ``{"mixed"}``."""
    values = [
        BatchArgument(argument["batch"], argument["rank"])
        if "rank" in argument
        else _decode_as(parameter, argument)
        for parameter, argument in zip(rules.parameters, arguments, strict=True)
    ]
    dims = ask_batch(rules, values)
    return [
        {"free": True} if dim is None else {"mixed": dim} if isinstance(dim, str) else {"dim": dim}
        for dim in dims
    ]


def ask_batch(rules: OperatorRules, values: Sequence[Any]) -> list[int | str | None]:
    """Per result the dim of the batch, None, or why it mixes samples."""
    rule = rules.batch
    if isinstance(rule, int):
        for value in values:
            if isinstance(value, BatchArgument) and value.batch not in (None, rule):
                reason = (
                    f"the batch is in dim {value.batch}, and '{rules.name}' takes it in dim {rule}"
                )
                return [reason] * len(rules.operator._schema.returns)
        return [rule] * len(rules.operator._schema.returns)
    assert rule is not None
    positional, named = rules.bind(values)
    dims = as_results(rule(*positional, **named))
    _check_count("batch", dims, rules)
    for dim in dims:
        is_dim = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0
        if dim is not None and not is_dim and not isinstance(dim, str):
            raise TypeError(
                f"it gives {dim!r}: a dim from 0 on, None for a result without the batch, or "
                "a text that says why it mixes samples"
            )
    return dims


def ask_forward(
    rules: OperatorRules, threads: int, arguments: Sequence[Any], results: Sequence[Any]
) -> KernelTrace:
    """What the rule tells of a call."""
    assert rules.forward is not None
    own = [
        result if view is None else None
        for result, view in zip(results, rules.storage, strict=True)
    ]
    trace = KernelTrace(threads, own)
    positional, named = rules.bind(arguments)
    rules.forward(trace, *positional, **named)
    return trace


def _find(wanted: Any, among: Sequence[Any]) -> int | None:
    return next((at for at, value in enumerate(among) if value is wanted), None)


def _find_storage(wanted: torch.Tensor, among: Sequence[Any]) -> int | None:
    storage = wanted.untyped_storage()._cdata
    for at, value in enumerate(among):
        if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == storage:
            return at
    return None


def ask_saved(
    rules: OperatorRules, arguments: Sequence[Any], results: Sequence[Any]
) -> dict[str, Any]:
    """Positions of arguments and results that autograd keeps, and bytes beside them."""
    assert rules.saved is not None
    output = results[0] if len(results) == 1 else tuple(results)
    kept = rules.saved(tuple(arguments), output)
    found: dict[str, Any] = {"arguments": [], "results": [], "bytes": 0}
    for item in as_results(kept if kept is not None else ()):
        if isinstance(item, torch.Tensor):
            # A view keeps what it is a view of.
            if (at := _find_storage(item, arguments)) is not None:
                found["arguments"].append(at)
            elif (at := _find_storage(item, results)) is not None:
                found["results"].append(at)
            else:
                found["bytes"] += torch.empty_like(item).untyped_storage().nbytes()
        elif isinstance(item, int) and not isinstance(item, bool) and item >= 0:
            found["bytes"] += item
        elif item is not None:
            raise TypeError(
                f"it gives {item!r}: what autograd keeps are arguments, results, new tensors "
                "or numbers of bytes"
            )
    return found


def ask_backward(
    rules: OperatorRules,
    threads: int,
    gradients: Sequence[Any],
    arguments: Sequence[Any],
    results: Sequence[Any],
    wants: Sequence[bool],
) -> dict[str, Any]:
    """The bytes at the worst moment, and per argument which tensor its gradient is."""
    assert rules.backward is not None
    trace = KernelTrace(threads, ())
    output = results[0] if len(results) == 1 else tuple(results)
    # Autograd makes zeros where no gradient arrives. Source: PyNode::apply in
    # torch/csrc/autograd/python_function.cpp, CppNode in custom_function.h.
    given = [
        trace.allocate(torch.empty(result.shape, dtype=result.dtype, device="meta")).tensor
        if gradient is None
        else gradient
        for gradient, result in zip(gradients, results, strict=True)
    ]
    grads = given[0] if len(given) == 1 else tuple(given)
    made = as_results(rules.backward(trace, grads, tuple(arguments), output))
    if len(made) != len(arguments):
        raise ValueError(
            f"it gives {len(made)} gradients, and the operator has {len(arguments)} arguments"
        )
    return {
        "peak": trace.get_peak(),
        "gradients": [
            _encode_gradient(item, gradients, given) if wanted else None
            for item, wanted in zip(made, wants, strict=True)
        ],
    }


def _encode_gradient(
    item: Any, arrived: Sequence[Any], given: Sequence[Any]
) -> dict[str, Any] | None:
    if item is None:
        return None
    if (at := _find(item, arrived)) is not None:
        return {"same": at}
    if _find(item, given) is not None:
        return {"tensor": _encode(item)}
    if isinstance(item, Block):
        if not item.is_live:
            raise ValueError("a gradient is a block that was freed")
        if item.tensor is None:
            raise TypeError("a gradient is a block that was allocated for a tensor, not for bytes")
        return {"tensor": _encode(item.tensor)}
    if isinstance(item, torch.Tensor) and (at := _find_storage(item, arrived)) is not None:
        return {"view": at, "tensor": _encode(item)}
    raise TypeError(
        f"it gives {item!r}: a gradient is None, a gradient that arrived, a view of one, or "
        "what trace.allocate(tensor) returned"
    )
