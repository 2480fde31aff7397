"""Reads values of recorded programs, without a graph where memory is short."""

from __future__ import annotations

import torch
from torch import Tensor

from koila._errors import BudgetError, CompileError
from koila._gradients import call_grads, is_loss
from koila._plan import Frames, Plan, start
from koila._program import Value
from koila._run import call_forward, check_split, compute, is_open, outside, prepare, spend

__all__ = ["read"]


@outside
def read(values: list[Value], frames: Frames) -> list[Tensor]:
    """What the values are, without a promise of a graph."""
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown:
        if not any(value.meta.requires_grad for value in unknown):
            compute(unknown, frames)
        elif len(unknown) == 1 and is_loss(unknown[0]):
            _read_loss(unknown[0], frames)
        else:
            _read_open(unknown, frames)
    return [value.seen if is_open(value) else value.tensor for value in values]  # type: ignore[misc]


def _read_open(values: list[Value], frames: Frames) -> None:
    """Reads values that would have a graph, without keeping one if memory is
    short."""
    program = prepare(values, frames)
    run = start(program, "forward-with-grad", frames)
    if run.fits():
        program.run()
        return
    run.mode = "inference"
    try:
        check_split(run)
        compiled = None if run.report()["peak_bytes"] <= run.budget else run.compile()
    except CompileError as error:
        run.mode = "forward-with-grad"
        run.run_whole(error)
        program.run()
        return
    if compiled is not None:
        results = call_forward(run, compiled)
        run.note(compiled.tile, compiled.report["peak_bytes"])
    else:
        with torch.no_grad():
            results = run.traced().script(*run.traced().take(program))
        results = list(results) if isinstance(results, tuple) else [results]
        run.note(None, run.report()["peak_bytes"])
    for value, tensor in zip(values, results, strict=True):
        value.seen = tensor.reshape(value.meta.shape)
    spend(program)


class _Kept:
    """The gradients of a loss that was read, until backward() asks for them."""

    def __init__(self, plan: Plan, gradients: dict[int, Tensor]) -> None:
        self.plan = plan
        self.gradients = gradients  # by the leaf of the program
        self.used = False

    def __del__(self) -> None:
        if not self.used:
            # Whoever only looks does not pay for a backward pass again.
            self.plan.only_read = True


def _read_loss(value: Value, frames: Frames) -> None:
    """Reads a loss. If it has to be split, its gradients come along, since
    backward() usually follows."""
    program = prepare([value], frames)
    run = start(program, "train", frames)
    if run.fits():
        program.run()
        return
    if run.plan.only_read:
        _read_open([value], frames)
        return
    try:
        check_split(run)
        loss, gradients = call_grads(run)
    except BudgetError:
        # The gradients do not fit beside their sums: backward() has its own step.
        _read_open([value], frames)
        return
    except CompileError as error:
        run.run_whole(error)
        program.run()
        return
    value.seen = loss.reshape(value.meta.shape)
    value.kept = _Kept(run.plan, gradients)
    spend(program)
