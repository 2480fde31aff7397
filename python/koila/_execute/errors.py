"""What PyTorch raises in a tile arrives as it would have come without tiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from koila._capture.frames import raise_at
from koila._capture.statistics import settle_updates
from koila._capture.values import Node
from koila._out_of_memory import ran_out
from koila._plan.planner import Run

__all__ = ["as_eager"]

_T = TypeVar("_T")


def as_eager(run: Run, call: Callable[[], _T]) -> _T:
    """What the call of a compiled program returns; its statistics are to be settled by
    whoever calls. TorchScript raises errors of its own: then the recorded calls run again, a
    few samples at a time and without a graph, until one of them raises PyTorch's. What they
    raise beside that, as where few samples are too few, is not what has happened. Where
    memory ran out nothing runs again here."""
    try:
        return call()
    except BaseException as error:
        if ran_out(error):
            raise  # and is taken back
        # What comes before an error has updated its statistics, and what comes
        # behind it never will.
        settle_updates(run.program.nodes)
        if not isinstance(error, RuntimeError):
            raise
        caught = error.with_traceback(None)
    try:
        try:
            _run_eagerly(run)
        except Exception as error:
            if _says_the_same(error, caught):
                raise
        raise caught
    finally:
        del caught


def _says_the_same(error: Exception, caught: RuntimeError) -> bool:
    """Whether TorchScript's error is about this one: rows are counted from another one
    on in a tile."""
    words, told = (re.sub(r"\d+", "", str(each)).strip() for each in (error, caught))
    return bool(words) and words in told


# Samples that are tried at once.
_ROWS = 8


def _run_eagerly(run: Run) -> None:
    program, traced = run.program, run.traced()
    dims = {}
    for index, spec in zip(traced.arguments, traced.specs, strict=False):
        extents = spec.partition("[")[2].partition("]")[0].split(",")
        if "B" in extents:
            place = extents.index("B")
            dims[index] = traced.orders[index][place] if index in traced.orders else place
    batch = run.batch or 0
    given = {*traced.arguments, *traced.weights}

    def invoke(node: Node, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with node.call.modes(grad=node.call.differentiates):
                return node.call.function(*args, **kwargs)
        except Exception as error:
            raise_at(error, node.frames)

    for start in range(0, batch, _ROWS):
        leaves = []
        for index, leaf in enumerate(program.leaves):
            tensor = program.tensor_of(leaf).detach()
            if index in dims:
                rows = min(_ROWS, batch - start)
                tensor = tensor.narrow(dims[index], start, rows)
            elif index in traced.statistics:
                tensor = tensor.clone()  # they are updated already
            elif index in program.made and index not in given:
                tensor = program.made[index].make(min(_ROWS, batch - start), tensor)
            leaves.append(tensor)
        with torch.no_grad():
            program.replay(leaves, invoke)
