"""Runs recorded programs: whole where memory is enough, else in tiles."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from koila import memory
from koila._compiler import Compiled
from koila._errors import BudgetError, CompileError, KoilaError
from koila._plan import Frames, Plan, Run, pending, start
from koila._program import Call, Group, Node, Program, Value, closure, hash_of, is_direct
from koila._trace import is_weight, location_of, without_copies

__all__ = [
    "backward",
    "detaching",
    "flush",
    "gradients",
    "is_open",
    "materialize",
    "may_defer",
    "number_of",
    "read",
    "run_nodes",
]

# What is made of a tensor without its graph.
detaching = (Tensor.detach, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _outside(function: Callable[_P, _R]) -> Callable[_P, _R]:
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


def _prepare(values: list[Value], frames: Frames) -> Program:
    """The program of the values, after what was recorded before it and writes
    to tensors that others see."""
    last_seq = max((value.node.seq for value in values if value.node is not None), default=-1)
    pending[:] = [node for node in pending if not node.done]
    earlier = [node for node in pending if node.seq < last_seq]
    nodes = closure(values, earlier)
    _verify(nodes)
    for node in nodes:
        if node.spent:
            raise KoilaError(
                f"'{_name(node.call)}' has run already, in tiles, and would draw or write again",
                location_of(node.frames),
                ("read what depends on it before, or call run() on it first",),
            )
    return Program(nodes, values)


def _verify(nodes: list[Node]) -> None:
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


def _check_split(run: Run) -> None:
    """Raises CompileError for a program that is not one to compile."""
    if run.batch is None:
        raise CompileError("koila.lazy was not told which dim is the batch")
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


@_outside
def run_nodes(nodes: Iterable[Node]) -> None:
    """Runs what has to run before something else is written."""
    found = closure((), nodes)
    _verify(found)
    Program(found, []).run()


def may_defer(call: Call, inputs: list[Any]) -> bool:
    """Whether a write to a tensor of the user may wait: running statistics of
    layers in training, whose results do not depend on them."""
    return call.grad and _name(call) in ("batch_norm", "instance_norm")


@_outside
def materialize(values: list[Value], frames: Frames) -> list[Tensor]:
    """The tensors, with the graph that plain PyTorch would have built, for
    the user to do with them what he likes."""
    _compute(values, frames)
    for value in values:
        _expose(value)
    return [value.tensor for value in values]  # type: ignore[misc]


def _compute(values: list[Value], frames: Frames) -> None:
    unknown = [value for value in values if is_open(value)]
    if unknown:
        program = _prepare(unknown, frames)
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


def number_of(value: Value) -> Tensor | None:
    """What a loss is, without a graph, if it was read or differentiated."""
    if value.seen is not None:
        return value.seen.detach()
    if value.meta.requires_grad and not value.meta.shape and not is_open(value):
        assert value.tensor is not None
        return value.tensor.detach()
    return None


def _cut(value: Value) -> None:
    """Lets calls that need a loss as a number keep that alone, and neither its
    program nor its graph, as weights change."""
    number = number_of(value)
    if number is None:
        return
    for node in value.group.open_readers():
        if value.differentiated or not node.call.grad or node.call.function in detaching:
            leaf = Value(value.meta._replace(requires_grad=False), Group(False))
            leaf.source, leaf.tensor = value.source, number
            node.inputs = tuple(leaf if entry is value else entry for entry in node.inputs)


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
        _check_split(run)
        compiled = run.compile()
    except CompileError as error:
        run.run_whole(error)
        program.run()
        return
    for value, tensor in zip(program.roots, _call_forward(run, compiled), strict=True):
        value.settle(tensor)
    _spend(program)
    run.note(compiled.tile, compiled.report["peak_bytes"])


def _call_forward(run: Run, compiled: Compiled) -> list[Tensor]:
    with torch.no_grad():
        result = compiled.module(*run.traced().take(run.program))
    results = list(result) if isinstance(result, tuple) else [result]
    return [
        tensor.reshape(root.meta.shape)
        for tensor, root in zip(results, run.program.roots, strict=True)
    ]


def _spend(program: Program) -> None:
    for node in program.nodes:
        if node.call.random or any(node.inputs[index].group.external for index in node.call.writes):
            node.spent = True


@_outside
def read(values: list[Value], frames: Frames) -> list[Tensor]:
    """What the values are, without a promise of a graph."""
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown:
        if not any(value.meta.requires_grad for value in unknown):
            _compute(unknown, frames)
        elif len(unknown) == 1 and _is_loss(unknown[0]):
            _read_loss(unknown[0], frames)
        else:
            _read_open(unknown, frames)
    return [value.seen if is_open(value) else value.tensor for value in values]  # type: ignore[misc]


def _is_loss(value: Value) -> bool:
    count = 1
    for extent in value.meta.shape:
        count *= extent
    return count == 1 and value.meta.dtype.is_floating_point


def _read_open(values: list[Value], frames: Frames) -> None:
    """Reads values that would have a graph, without keeping one if memory is
    short."""
    program = _prepare(values, frames)
    run = start(program, "forward-with-grad", frames)
    if run.fits():
        program.run()
        return
    run.mode = "inference"
    try:
        _check_split(run)
        compiled = None if run.report()["peak_bytes"] <= run.budget else run.compile()
    except CompileError as error:
        run.mode = "forward-with-grad"
        run.run_whole(error)
        program.run()
        return
    if compiled is not None:
        results = _call_forward(run, compiled)
        run.note(compiled.tile, compiled.report["peak_bytes"])
    else:
        with torch.no_grad():
            results = run.traced().script(*run.traced().take(program))
        results = list(results) if isinstance(results, tuple) else [results]
        run.note(None, run.report()["peak_bytes"])
    for value, tensor in zip(values, results, strict=True):
        value.seen = tensor.reshape(value.meta.shape)
    _spend(program)


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
    program = _prepare([value], frames)
    run = start(program, "train", frames)
    if run.fits():
        program.run()
        return
    if run.plan.only_read:
        _read_open([value], frames)
        return
    try:
        _check_split(run)
        loss, gradients = _call_grads(run)
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
    _spend(program)


def _call_grads(run: Run) -> tuple[Tensor, dict[int, Tensor]]:
    """The loss, and the gradients of the leaves that it depends on."""
    traced, leaves = run.traced(), run.program.leaves
    weights = {
        id(traced.holders.get(index, leaf.tensor)): index
        for index, leaf in enumerate(leaves)
        if is_weight(leaf) and leaf.meta.requires_grad
    }
    # The method holds sums and a tile's gradients, which a step has in `.grad`.
    held = 2 * sum(without_copies(leaves[index]).nbytes for index in weights.values())
    run.grads = "present"
    compiled = _compile_beside(run, held)
    loss, gradients = compiled.module.grads(*traced.take(run.program))
    trained = [weight for weight in compiled.module.parameters() if weight.requires_grad]
    _hash_weights(run.program)
    run.note(compiled.tile, compiled.report["peak_bytes"])
    return loss, {
        weights[id(weight)]: gradient
        for weight, gradient in zip(trained, gradients, strict=True)
        if weights[id(weight)] in traced.reached
    }


def _compile_beside(run: Run, held: int) -> Compiled:
    """The program in tiles for what ``held`` bytes leave of the budget."""
    whole, run.budget = run.budget, max(run.budget - held, 0)
    try:
        return run.compile()
    except BudgetError as error:
        if not held or error.smallest_budget is None:
            raise
        smallest = error.smallest_budget + held
        raise BudgetError(
            f"{error.message}; beside it gradients of weights are added up, so that "
            f"{memory.format_bytes(smallest)} ({smallest:,} bytes) would work",
            error.location,
            error.notes,
            smallest,
        ) from None
    finally:
        run.budget = whole


def _hash_weights(program: Program) -> None:
    """Weights are about to change, and what was recorded may still be read."""
    for leaf in program.leaves:
        if leaf.tensor is not None and is_weight(leaf) and leaf.tensor.layout is torch.strided:
            leaf.hash = hash_of(leaf.tensor)


def _deliver(program: Program, gradients: dict[int, Tensor], retain_graph: bool) -> None:
    """Adds gradients of leaves to ``.grad``, through the graphs before them."""
    ends: list[Tensor] = []
    given: list[Tensor] = []
    for index, gradient in gradients.items():
        leaf = program.leaves[index]
        weight = leaf.tensor
        assert weight is not None
        if not is_direct(weight):
            ends.append(without_copies(leaf))
            given.append(gradient)
        # Autograd, too, takes the first gradient and adds the others to it.
        elif weight.grad is None:
            weight.grad = gradient.clone() if retain_graph else gradient
        else:
            weight.grad += gradient
    if ends:
        torch.autograd.backward(ends, given, retain_graph=retain_graph)


def backward(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    """Adds the gradients of a loss to ``.grad``."""
    if not _backward(value, frames, retain_graph, create_graph, inputs):
        assert value.tensor is not None
        value.tensor.backward(  # type: ignore[no-untyped-call]
            None, retain_graph, create_graph, inputs
        )
    _cut(value)


@_outside
def _backward(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> bool:
    """Adds gradients of tiles, or computes the loss with its graph for PyTorch
    to differentiate, and is False."""
    if value.differentiated:
        raise RuntimeError(
            "Trying to backward through the graph a second time; say retain_graph=True the "
            "first time"
        )
    if value.kept is None or create_graph or inputs is not None:
        return _differentiate(value, frames, retain_graph, create_graph, inputs)
    nodes = closure([value])
    _verify(nodes)
    program = Program(nodes, [value])
    value.kept.used = True
    _deliver(program, value.kept.gradients, retain_graph)
    if not retain_graph:
        value.kept = None
        value.differentiated = True
    return True


def _differentiate(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> bool:
    if is_open(value):
        program = _prepare([value], frames)
        run = start(program, "train", frames)
        run.plan.only_read = False
        if not run.fits():
            try:
                if create_graph:
                    raise CompileError("create_graph=True keeps the graph of the whole batch")
                _check_split(run)
                if inputs is None:
                    _step(run, value, retain_graph)
                else:
                    _step_inputs(run, value, inputs)
            except CompileError as error:
                run.run_whole(error)
            else:
                _spend(program)
                value.differentiated = not retain_graph
                return True
        program.run()
    return False


def _step(run: Run, value: Value, retain_graph: bool) -> None:
    traced = run.traced()
    # What they add up here is there beside `.grad`.
    compiled = _compile_beside(
        run, sum(holder.nbytes for holder in traced.holders.values() if holder.requires_grad)
    )
    arguments = traced.take(run.program)
    for holder in traced.holders.values():
        holder.grad = torch.zeros_like(holder) if holder.requires_grad else None
    loss = compiled.module.train_step(*arguments)
    _deliver(
        run.program,
        {
            index: holder.grad
            for index, holder in traced.holders.items()
            if index in traced.reached and holder.grad is not None
        },
        retain_graph,
    )
    for holder in traced.holders.values():
        holder.grad = None
    value.seen = loss.reshape(value.meta.shape)
    _hash_weights(run.program)
    run.note(compiled.tile, compiled.report["peak_bytes"])


def _step_inputs(run: Run, value: Value, inputs: list[Tensor]) -> None:
    places = {id(leaf.tensor): index for index, leaf in enumerate(run.program.leaves)}
    if not all(is_direct(item) for item in inputs):
        raise CompileError("gradients of tensors that are no nn.Parameter or have hooks are asked")
    loss, gradients = _call_grads(run)
    for weight in inputs:
        gradient = gradients.get(places.get(id(weight), -1))
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
    value.seen = loss.reshape(value.meta.shape)


@_outside
def gradients(value: Value, inputs: list[Tensor], frames: Frames) -> tuple[Tensor, ...] | None:
    """What ``torch.autograd.grad`` returns for a loss and weights, in tiles;
    None if the program is to be run whole."""
    if not is_open(value) or not _is_loss(value) or not value.meta.requires_grad:
        return None
    if not all(is_direct(item) for item in inputs):
        return None
    program = _prepare([value], frames)
    run = start(program, "train", frames)
    if run.fits():
        return None
    try:
        _check_split(run)
        loss, found = _call_grads(run)
    except CompileError as error:
        run.run_whole(error)
        program.run()
        return None
    places = {id(leaf.tensor): index for index, leaf in enumerate(program.leaves)}
    result = []
    for weight in inputs:
        gradient = found.get(places.get(id(weight), -1))
        if gradient is None:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        result.append(gradient)
    value.seen = loss.reshape(value.meta.shape)
    value.differentiated = True
    _spend(program)
    return tuple(result)
