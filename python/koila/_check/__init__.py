"""``koila check-op``: the models of an operator against runs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from koila._check.findings import OperatorCheck

__all__ = ["check_op"]


def check_op(
    op: Any, *inputs: str, calls: int = 20, threads: int | None = None, device: str = "cpu"
) -> OperatorCheck:
    """Runs an operator and compares what koila says of it: types, extents and strides of
    the results, their storage, whether samples give apart what they give together, the
    blocks that the call allocates and frees, those that autograd keeps, and the bytes at the
    worst moment of a backward pass.

    ``op`` is an operator of PyTorch (``torch.ops.aten.topk``, ``"aten::add.Tensor"``), whose
    models are koila's, or one with rules of ``koila.register``, in any form that it takes.
    Of PyTorch's operators ``calls`` random calls are drawn, always the same ones, and run
    with 7 samples and with fewer. ``inputs`` are specs of the arguments in the order of
    the schema, as ``"float32[B,64]"``, ``"int64[B]{0:10}"`` or ``"2.5"``, for calls of these,
    as they are and with a tensor that lies otherwise in memory.

    Runs have ``threads`` threads (None: as many as PyTorch has now) on ``device``, which is
    one of which there are kernel models, and the CPU. Figures are bytes that PyTorch's CPU
    allocator hands out. The result has ``agrees``, ``findings`` (of each model the runs that
    agree, and the first call that does not), ``to_dict()`` and a text.

    KoilaError for what is no operator, or has several overloads; where nobody knows what
    it is called with, and for inputs that it does not take.
    """
    # Not before somebody asks: there are a thousand functions that make calls.
    from koila._check.conditions import check_conditions
    from koila._check.known import check_known, find_overload
    from koila._check.registered import check_registered
    from koila._operators.registry import find_rules, get_rules
    from koila._report.measurement import use_threads

    check_conditions(calls, threads, device)
    with use_threads(torch.get_num_threads() if threads is None else threads):
        if isinstance(op, type) and issubclass(op, torch.autograd.Function):
            return check_registered(find_rules(op), inputs)
        operator = find_overload(op)
        rules = get_rules(operator)
        if rules is not None:
            return check_registered(rules, inputs)
        return check_known(operator, inputs, calls, device)
