"""Runs recorded programs: whole where memory is enough, else in tiles."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from koila._compiler import Compiled
from koila._errors import CompileError, KoilaError
from koila._plan import Frames, Run, pending, start
from koila._program import Call, Node, Program, Value, closure
from koila._trace import is_weight, location_of

__all__ = [
    "call_forward",
    "check_split",
    "compute",
    "detaching",
    "flush",
    "is_open",
    "materialize",
    "may_defer",
    "outside",
    "prepare",
    "run_nodes",
    "spend",
    "verify",
]

# What is made of a tensor without its graph.
detaching = (Tensor.detach, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def outside(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Runs without the autocast and inference mode of whoever asks for a value:
    each call has the modes that it was recorded in."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        if not devices and not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with contextlib.ExitStack() as stack:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            for device in devices:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return call


def prepare(values: list[Value], frames: Frames) -> Program:
    """The program of the values, after what was recorded before it and writes
    to tensors that others see."""
    last_seq = max((value.node.seq for value in values if value.node is not None), default=-1)
    pending[:] = [node for node in pending if not node.done]
    earlier = [node for node in pending if node.seq < last_seq]
    nodes = closure(values, earlier)
    verify(nodes)
    for node in nodes:
        if node.spent:
            raise KoilaError(
                f"'{_name(node.call)}' has run already, in tiles, and would draw or write again",
                location_of(node.frames),
                ("read what depends on it before, or call run() on it first",),
            )
    return Program(nodes, values)


def verify(nodes: list[Node]) -> None:
    """Raises if a tensor is not any more what it was when it was recorded. One
    that was frozen since, or no longer is, is as it was."""
    changed: dict[Value, Value] = {}
    hashed: set[Value] = set()
    for node in nodes:
        for index, entry in enumerate(node.inputs):
            if (
                not isinstance(entry, Value)
                or entry.version is None
                or entry.tensor is None
                or index in node.call.writes
            ):
                continue
            same = entry.tensor._version == entry.version
            if same and entry.hash is not None and entry not in hashed:
                hashed.add(entry)
                same = entry.is_as_hashed()
            if not same:
                raise KoilaError(
                    f"a tensor of shape {entry.meta.shape} that '{_name(node.call)}' reads was "
                    "written to after this was recorded and before it was computed",
                    location_of(node.frames),
                    ("read the value, or call koila.run() on it, before the optimizer steps",),
                )
            if entry.tensor.requires_grad != entry.meta.requires_grad:
                changed[entry] = _as_recorded(entry)
    if changed:
        for node in nodes:
            node.inputs = tuple(
                changed.get(entry, entry) if isinstance(entry, Value) else entry
                for entry in node.inputs
            )


def _as_recorded(leaf: Value) -> Value:
    """A tensor in the place of one whose ``requires_grad`` has changed. It
    takes the gradient that autograd, too, would not give to a frozen weight."""
    assert leaf.tensor is not None
    same = Value(leaf.meta, leaf.group)
    same.tensor = leaf.tensor.detach().requires_grad_(leaf.meta.requires_grad)
    same.version, same.origin, same.source = leaf.version, leaf.origin, leaf.source
    return same


def _name(call: Call) -> str:
    return str(getattr(call.function, "__name__", call.function))


def check_split(run: Run) -> None:
    """Raises CompileError for a program that is not one to compile."""
    if run.batch is None or not run.has_batch():
        raise CompileError("koila.lazy was not told which dim is the batch, and none can be")
    if run.batch < 2:
        raise CompileError("the batch is one sample")
    for leaf in run.program.leaves:
        if run.mode == "train" and leaf.meta.requires_grad and not is_weight(leaf):
            raise CompileError("an input of koila.lazy requires a gradient")
    for node in run.program.nodes:
        if any(node.inputs[index].group.external for index in node.call.writes):
            inner = node.frames[0]
            raise CompileError(
                f"'{_name(node.call)}' mixes the samples and writes their statistics, as "
                f"BatchNorm does in training mode ({inner.file}:{inner.line}); after eval() on "
                "those layers it would be split",
                location_of(node.frames),
            )


def flush() -> None:
    """Makes the writes to tensors of the user that nobody has asked for."""
    pending[:] = [node for node in pending if not node.done]
    if pending:
        run_nodes(list(pending))


@outside
def run_nodes(nodes: Iterable[Node]) -> None:
    """Runs what has to run before something else is written."""
    found = closure((), nodes)
    verify(found)
    Program(found, []).run()


def may_defer(call: Call, inputs: list[Any]) -> bool:
    """Whether a write to a tensor of the user may wait: running statistics of
    layers in training, whose results do not depend on them."""
    return call.grad and _name(call) in ("batch_norm", "instance_norm")


@outside
def materialize(values: list[Value], frames: Frames) -> list[Tensor]:
    """The tensors, with the graph that plain PyTorch would have built, for
    the user to do with them what he likes."""
    compute(values, frames)
    for value in values:
        _expose(value)
    return [value.tensor for value in values]  # type: ignore[misc]


def compute(values: list[Value], frames: Frames) -> None:
    unknown = [value for value in values if is_open(value)]
    if unknown:
        program = prepare(unknown, frames)
        if program.nodes:
            graph = any(value.meta.requires_grad for value in unknown)
            run = start(program, "forward-with-grad" if graph else "inference", frames)
            if graph:
                if not run.fits():
                    run.run_whole("its graph is asked for")
                program.run()
            else:
                _run_forward(run)


def is_open(value: Value) -> bool:
    write = value.group.last_write
    return value.tensor is None or (write is not None and not write.done)


def _expose(value: Value) -> None:
    """From now on others may write to the tensor."""
    tensor = value.tensor
    assert tensor is not None
    value.version = None if tensor.is_inference() else tensor._version
    value.group.external = True


def _run_forward(run: Run) -> None:
    """Computes roots that need no graph."""
    program = run.program
    if run.fits():
        program.run()
        return
    try:
        check_split(run)
        compiled = run.compile()
    except CompileError as error:
        run.run_whole(error)
        program.run()
        return
    for value, tensor in zip(program.roots, call_forward(run, compiled), strict=True):
        value.settle(tensor)
    spend(program)
    run.note(compiled.tile, compiled.report["peak_bytes"])


def call_forward(run: Run, compiled: Compiled) -> list[Tensor]:
    with torch.no_grad():
        result = compiled.module(*run.traced().take(run.program))
    results = list(result) if isinstance(result, tuple) else [result]
    return [
        tensor.reshape(root.meta.shape)
        for tensor, root in zip(results, run.program.roots, strict=True)
    ]


def spend(program: Program) -> None:
    for node in program.nodes:
        if node.call.random or any(node.inputs[index].group.external for index in node.call.writes):
            node.spent = True
