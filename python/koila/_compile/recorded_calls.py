"""Calls that no compiled program stands for: recorded, and run within the budget."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from koila._capture.inputs import Arguments
from koila._capture.structure import flatten, map_tensors, rebuild
from koila._compile.call_kind import Call
from koila._lazy import LazyTensor, lazy, run

__all__ = ["can_record", "is_lazy", "make_lazy", "run_all", "step_loss"]


def can_record(module: nn.Module, call: Call) -> bool:
    """Whether koila.lazy sees what the module does, and there is a batch."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False  # torch.func has tensors of its own
    return call.size is not None and all(
        type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided
        for tensor in call.tensors
    )


def is_lazy(call: Call) -> bool:
    """Whether it is recorded already."""
    return any(isinstance(tensor, LazyTensor) for tensor in call.tensors)


def make_lazy(call: Call, budget: int | str, device: torch.device | None) -> Arguments:
    """The arguments with all tensors that have the batch lazy; where these wait on the host
    for a ``device``, the others are moved there."""
    batched = [tensor for tensor in call.tensors if call.is_batched(tensor)]
    made = lazy(*batched, batch=call.batch_dim, budget=budget, device=device)
    found = iter(made if len(batched) > 1 else (made,))
    leaves = [
        next(found) if call.is_batched(tensor) else tensor if device is None else tensor.to(device)
        for tensor in call.tensors
    ]
    return Arguments(*rebuild(call.node, leaves))


def run_all(result: Any) -> Any:
    """A result with the values of its lazy tensors, computed in one pass."""
    leaves: list[torch.Tensor] = []
    flatten(result, leaves)
    if not any(isinstance(leaf, LazyTensor) for leaf in leaves):
        return result
    return map_tensors(lambda tensor: run(tensor), result)


def step_loss(module: nn.Module, loss: str | None, arguments: Arguments) -> torch.Tensor:
    """What a step differentiates: ``loss`` is one of ``torch.nn.functional``
    with arguments, of the target; None: the module's own."""
    result: torch.Tensor = arguments.call(module)
    if not loss:
        return result
    call = ast.parse(loss, mode="eval").body
    options = {}
    if isinstance(call, ast.Call):
        options = {str(keyword.arg): _read_literal(keyword.value) for keyword in call.keywords}
        call = call.func
    function = getattr(functional, ast.unparse(call))
    return function(result, *arguments.target, **options)  # type: ignore[no-any-return]


def _read_literal(node: ast.expr) -> Any:
    # Texts have no quotes there: reduction=sum.
    if isinstance(node, ast.Name):
        return {"true": True, "false": False, "none": None}.get(node.id.lower(), node.id)
    return ast.literal_eval(node)
