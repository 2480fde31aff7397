"""Gradients of recorded losses, in tiles where memory is short."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from koila import memory
from koila._compiler import Compiled
from koila._errors import BudgetError, CompileError
from koila._plan import Frames, Run, start
from koila._program import Group, Program, Value, closure, hash_of, is_direct
from koila._run import check_split, detaching, is_open, outside, prepare, spend, verify
from koila._trace import is_weight, without_copies

__all__ = ["backward", "call_grads", "gradients", "is_loss", "number_of"]


def is_loss(value: Value) -> bool:
    count = 1
    for extent in value.meta.shape:
        count *= extent
    return count == 1 and value.meta.dtype.is_floating_point


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


def call_grads(run: Run) -> tuple[Tensor, dict[int, Tensor]]:
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


@outside
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
    verify(nodes)
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
        program = prepare([value], frames)
        run = start(program, "train", frames)
        run.plan.only_read = False
        if not run.fits():
            try:
                if create_graph:
                    raise CompileError("create_graph=True keeps the graph of the whole batch")
                check_split(run)
                if inputs is None:
                    _step(run, value, retain_graph)
                else:
                    _step_inputs(run, value, inputs)
            except CompileError as error:
                run.run_whole(error)
            else:
                spend(program)
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
    loss, gradients = call_grads(run)
    for weight in inputs:
        gradient = gradients.get(places.get(id(weight), -1))
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
    value.seen = loss.reshape(value.meta.shape)


@outside
def gradients(value: Value, inputs: list[Tensor], frames: Frames) -> tuple[Tensor, ...] | None:
    """What ``torch.autograd.grad`` returns for a loss and weights, in tiles;
    None if the program is to be run whole."""
    if not is_open(value) or not is_loss(value) or not value.meta.requires_grad:
        return None
    if not all(is_direct(item) for item in inputs):
        return None
    program = prepare([value], frames)
    run = start(program, "train", frames)
    if run.fits():
        return None
    try:
        check_split(run)
        loss, found = call_grads(run)
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
    spend(program)
    return tuple(result)
