"""Gradients of recorded programs, in tiles where the batch does not fit."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from koila import memory
from koila._capture.closure import closure, gradient_closure
from koila._capture.frames import Frames, location_of
from koila._capture.graphs import FreedGraphs
from koila._capture.leaves import is_weight, without_copies
from koila._capture.memory import Aliases
from koila._capture.program import Program
from koila._capture.recorder import current, known, wrap
from koila._capture.thread_recordings import recording
from koila._capture.values import (
    Node,
    Value,
    append_weakly,
    has_gradient_hooks,
    hash_of,
    is_direct,
    is_open,
)
from koila._compiler import Compiled, has_accumulation_hooks
from koila._errors import BudgetError, CompileError, KoilaError
from koila._execute.cuts import make_gradients, weigh
from koila._execute.delivery import Room, deliver
from koila._execute.errors import as_eager
from koila._execute.executor import (
    by_step,
    check_split,
    held_with,
    is_as_recorded,
    lay_out,
    outside,
    prepare,
    read,
    read_each,
    read_first_part,
    run_for_good,
    settle_results,
    verify,
)
from koila._execute.hooks import (
    apply_hooks,
    differentiate_at_cut,
    differentiate_at_hooks,
    find_hooked,
)
from koila._execute.smaller_tiles import begin, in_smaller_tiles, in_tiles, spoil
from koila._plan.announce import announce
from koila._plan.planner import Run, start

__all__ = [
    "announce_retained",
    "backward",
    "free_graphs",
    "gradients",
    "look",
    "read_held",
    "remember_gradients",
]


_SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you "
    "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
    "through the graph a second time or if you need to access saved tensors after calling "
    "backward."
)


def is_loss(value: Value) -> bool:
    count = 1
    for extent in value.meta.shape:
        count *= extent
    return count == 1 and value.meta.dtype.is_floating_point


# Steps.


def _start_step(value: Value, frames: Frames, is_alone: bool = False) -> tuple[Run, int]:
    """The step of a loss, with what else the program holds as further results;
    and what their own graphs need beside it where all of it runs whole. A part of a step
    ``is_alone``: what else begins where it begins would have no more than a part of its graph."""
    if is_alone:
        return start(prepare([value]), "train", frames), 0
    held = held_with([value])
    try:
        program = prepare([value, *held])
    except KoilaError:
        # Something else that is held may not be computed any more with its graph.
        held = [other for other in held if is_as_recorded(other)]
        program = prepare([value, *held])
    for node in program.nodes:
        node.forget_written()
    run = start(program, "train", frames)
    inside = set(gradient_closure(value)[0])
    outside_values = [
        other
        for other in [*held, *_held_with_graph(program)]
        if other.meta.requires_grad and set(gradient_closure(other)[0]) - inside
    ]
    more = 0
    if outside_values:
        branch = Program(closure(outside_values), outside_values)
        try:
            beside = start(branch, "forward-with-grad", frames)
            more = max((beside.peak() or 0) - beside.resident, 0)
        except CompileError:
            more = 0  # of the whole program nothing is known, either
    return run, more


def _run_whole(run: Run, is_alone: bool = False) -> None:
    """Runs a step whole, and remembers for reads that it did."""
    run.note(None)
    peak = None
    with contextlib.suppress(CompileError):
        peak = run.peak()
    nodes = set(run.program.nodes)
    reads = [plan for plan, _ in recording.reads]
    for plan, made in recording.reads:
        plan.step_peak = peak if all(reference() in nodes for reference in made) else None
    recording.reads.clear()
    roots = run.program.roots
    beside = [] if is_alone else _held_with_graph(run.program)
    program = prepare([*roots, *beside]) if beside else run.program
    begins = any(
        leaf.tensor is not None and leaf.tensor.grad_fn is not None and not leaf.graphs
        for leaf in program.leaves
    )
    if is_alone:
        spoil()  # it is a part of what is done
    rewind = begin(run, program, reads)
    with memory.count_memory(run.device) if begins else contextlib.nullcontext() as counted:
        run_for_good(program, rewind)
        live = 0 if counted is None else counted.get_live()
    for graph in {graph for root in roots for graph in root.graphs}:
        if peak is not None:
            graph.step = peak, run.budget, run.announced
        if begins and peak is not None and peak <= run.budget:
            # What the pass goes through in front of the program is in no figure. (A step that
            # fits by none was said to run whole.)
            graph.room = Room.of(run, run.resident + live, is_whole=True)


def _held_with_graph(program: Program) -> list[Value]:
    """What the program holds and has read, and is made of the same calls: where
    these run whole, it has a graph as well."""
    nodes = set(program.nodes)
    return [
        value
        for value in recording.list_held()
        if value.meta.requires_grad
        and value.seen is not None
        and value not in program.roots
        and not nodes.isdisjoint(gradient_closure(value)[0])
        and is_as_recorded(value)
    ]


class _Step:
    """A step in tiles: the loss, further results and gradients by leaf."""

    def __init__(self, run: Run, beside: int, or_raise: bool = False) -> None:
        self.run = run
        self.traced = run.traced()
        run.beside = beside
        try:
            self.compiled: Compiled = run.compile(or_raise)
        except CompileError:
            run.beside = 0
            raise
        for plan, _ in recording.reads:
            plan.step_peak = None
        recording.reads.clear()

    def call(
        self,
        attempt: Callable[[Callable[[], Any]], dict[int, Tensor]],
        added_to: Iterable[Tensor] = (),
    ) -> dict[int, Tensor]:
        """Keeps the results, and returns all gradients. ``attempt`` prepares weights for what
        it is given, calls that, and returns their gradients; ``added_to`` are the tensors in
        which they are added up."""

        def step(compiled: Compiled) -> tuple[list[Tensor], dict[int, Tensor]]:
            results: list[Any] = []
            arguments = self.run.take()
            gradients = attempt(
                lambda: results.append(
                    as_eager(self.run, lambda: compiled.module.train_step(*arguments))
                )
            )
            return self._arrange(results.pop(), gradients)

        (found, gradients), self.compiled = in_tiles(self.run, self.compiled, step, added_to)
        settle_results(self.run.program.roots, found)
        self.run.note(self.compiled)
        return gradients

    def _arrange(
        self, results: Any, gradients: dict[int, Tensor]
    ) -> tuple[list[Tensor], dict[int, Tensor]]:
        """The results as the program has them, and all gradients."""
        run, traced = self.run, self.traced
        found = list(results) if isinstance(results, (tuple, list)) else [results]
        count = len(traced.differentiated)
        inputs = found[len(found) - count :] if count else []
        found = found[: len(found) - count] if count else found
        for index, gradient in zip(traced.differentiated, inputs, strict=True):
            order = traced.orders.get(index)
            if order is not None:
                gradient = gradient.permute(sorted(range(len(order)), key=order.__getitem__))
            leaf = run.program.leaves[index]
            assert leaf.tensor is not None
            gradients[index] = gradient.reshape(leaf.meta.shape).to(leaf.tensor.device)
        _hash_weights(run.program)
        roots = zip(found, run.program.roots, strict=True)
        return [
            tensor if root.is_leaf() else lay_out(tensor.reshape(root.meta.shape), root.meta)
            for tensor, root in roots
        ], gradients


def _step_beside_grads(run: Run, or_raise: bool = False) -> dict[int, Tensor]:
    """The gradients of the leaves that the loss depends on; ``.grad`` stays."""
    traced, leaves = run.traced(), run.program.leaves
    trained = {index: w for index, w in traced.weights.items() if w.requires_grad}
    # Here, too, a step adds to gradients that are there: to some of its own.
    run.grads = "present"
    step = _Step(run, sum(without_copies(leaves[index]).nbytes for index in trained), or_raise)

    def attempt(call: Callable[[], Any]) -> dict[int, Tensor]:
        for weight in trained.values():
            weight.grad = None
            weight.grad = torch.zeros_like(weight)
        call()
        found = {index: trained[index].grad for index in traced.reached}
        return {index: gradient for index, gradient in found.items() if gradient is not None}

    try:
        return step.call(attempt)
    finally:
        traced.release()


def _read_by_step(values: list[Value], frames: Frames) -> bool:
    """Computes values by a training step, whose gradients are of no use: where layers make
    what they need again, it takes less than a forward pass that keeps it."""
    lazy = [wrap(value) for value in values if value.meta.requires_grad]
    if not lazy or any(tensor._value.meta.dtype.is_complex for tensor in lazy):
        return False
    loss = weigh(lazy, make_gradients(lazy))
    run = start(prepare([loss, *values]), "train", frames)
    try:
        check_split(run, is_step=True)
        _refuse_inputs(run)
        _step_beside_grads(run, or_raise=True)
    except CompileError:
        return False
    return True


by_step.append(_read_by_step)


def _step_into_grads(run: Run, retain_graph: bool) -> None:
    """Adds the gradients of the loss to ``.grad``."""
    traced, leaves = run.traced(), run.program.leaves
    apart = {i: w for i, w in traced.weights.items() if not is_direct(leaves[i].tensor)}
    given = {
        index: leaves[index].tensor.grad  # type: ignore[union-attr]
        for index, weight in traced.weights.items()
        if weight.requires_grad and index not in apart
    }
    there = [gradient for gradient in given.values() if gradient is not None]
    # What they add up here is there beside `.grad`.
    beside = sum(without_copies(leaves[i]).nbytes for i, w in apart.items() if w.requires_grad)
    if "auto" in run.budgets and run.device.type == "cpu":
        beside += sum(gradient.nbytes for gradient in there)  # copies, to be put back
    step = _Step(run, beside)

    def attempt(call: Callable[[], Any]) -> dict[int, Tensor]:
        for index, weight in traced.weights.items():
            if not weight.requires_grad:
                continue
            weight.grad = None
            # Gradients are added to those that are there, in place.
            weight.grad = torch.zeros_like(weight) if index in apart else given[index]
        call()
        found = {index: traced.weights[index].grad for index in traced.reached}
        return {index: gradient for index, gradient in found.items() if gradient is not None}

    try:
        gradients = step.call(attempt, there)
        for index in given:
            if index in gradients:
                leaves[index].tensor.grad = gradients.pop(index)  # type: ignore[union-attr]
        deliver(run.program, gradients, retain_graph, Room.beside(run))
    finally:
        traced.release()


def _hash_weights(program: Program) -> None:
    """Weights are about to change, and what was recorded may still be read."""
    for leaf in program.leaves:
        if leaf.tensor is not None and is_weight(leaf) and leaf.tensor.layout is torch.strided:
            leaf.hash = hash_of(leaf.tensor)


# Losses that are read before they are differentiated.


class _Kept:
    """The gradients of a loss that was read, until backward() asks for them."""

    def __init__(self, room: Room, program: Program, gradients: dict[int, Tensor]) -> None:
        self.room = room
        self.leaves = {index: program.leaves[index] for index in gradients}
        self.gradients = gradients
        self.used = False

    def __del__(self) -> None:
        if not self.used:
            # Whoever only looks does not pay for a backward pass again.
            self.room.plan.only_read = True


def look(values: list[Value], frames: Frames) -> list[Tensor]:
    """What values are that the program looks at."""
    unknown = list(
        dict.fromkeys(value for value in values if is_open(value) and value.seen is None)
    )
    if not unknown:  # as of numbers that a loop takes one by one
        return [tensor for value in values if (tensor := known(value)) is not None]
    if len(unknown) == 1 and unknown[0].meta.requires_grad and is_loss(unknown[0]):
        _read_loss(unknown[0], frames)
        return read(values, frames)
    return read_held(values, frames)


def read_held(values: list[Value], frames: Frames) -> list[Tensor]:
    """What values are, without a promise of a graph. What updates running statistics on
    the way is run together with the backward pass of the loss that the program holds."""
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown and (loss := _find_loss(unknown)) is not None:
        _read_loss(loss, frames)
    return read(values, frames)


@outside
def _find_loss(values: list[Value]) -> Value | None:
    """The loss that was recorded of what is looked at: what updates running statistics is
    split together with the backward pass that is to follow."""
    nodes = closure(values, graph=False)
    if not any(node.writes_outside for node in nodes):
        return None
    losses = [
        held
        for held in recording.list_held()
        if is_open(held) and held.seen is None and held.meta.requires_grad and is_loss(held)
    ]
    last = max(losses, key=lambda held: 0 if held.node is None else held.node.seq, default=None)
    if last is None:
        return None
    inside = set(gradient_closure(last)[0])
    # Not one of several that may be differentiated.
    return last if all(held.node in inside for held in losses) else None


def _read_loss(value: Value, frames: Frames) -> None:
    """Computes a loss that is read. If it has to be split, its gradients come
    along, since backward() usually follows."""
    in_smaller_tiles(lambda: _compute_loss(value, frames), read=value)


@outside
def _compute_loss(value: Value, frames: Frames) -> None:
    # What a pass has found already is not differentiated for a look at it.
    if _is_known(value):
        read([value], frames)
        return
    run, more = _start_step(value, frames)
    if (problem := run.find_unknown()) is not None and read_first_part(run, problem):
        read([value], frames)
        return
    if run.fits(more):
        _run_whole(run)
        return
    if (run.plan.only_read and not run.program.writes()) or find_hooked(value):
        read([value], frames)
        return
    try:
        check_split(run, is_step=True)
        _refuse_inputs(run)
        gradients = _step_beside_grads(run, or_raise=True)
    except CompileError:
        # Without them it may fit; backward() has a step of its own.
        read([value], frames)
        return
    value.kept = _Kept(Room.beside(run), run.program, gradients)


def _is_known(value: Value) -> bool:
    """Whether a read before it has computed the tensors that it is made of."""
    return len(closure([value], graph=False)) < len(closure([value]))


def _refuse_inputs(run: Run) -> None:
    if run.traced().differentiated:
        raise CompileError("an input requires a gradient, which would be kept")


# Backward passes.


@dataclass(frozen=True)
class _Part:
    """What is part of a step: it was cut at ``ends``, and what it is made of ``stays`` for
    other parts."""

    ends: frozenset[Value] | None  # None where it is not cut again
    stays: bool


def backward(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    """Adds the gradients of a loss to ``.grad``."""
    _refuse_second(value)
    if retain_graph:
        announce_retained([value], frames)
    in_smaller_tiles(
        lambda: _differentiate_loss(value, frames, retain_graph, create_graph, inputs), of=value
    )


def _differentiate_loss(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    if not _backward(value, frames, retain_graph, create_graph, inputs):
        tensor = value.tensor
        assert tensor is not None
        rooms = (graph.room for graph in value.graphs if graph.room is not None)
        room: Room | None = next(rooms, None)
        differentiate: Any = tensor.backward
        given = None, retain_graph, create_graph, inputs
        if room is None or create_graph:
            differentiate(*given)
        else:
            room.run(lambda: differentiate(*given))
        if not retain_graph:
            free_graphs([value])


def announce_retained(values: list[Value], frames: Frames) -> None:
    """Of losses that were read, and ran whole with their graphs then: that a graph is to
    stay was not known, and a pass that frees nothing may need as much again."""
    for graph in {graph for value in values if not is_open(value) for graph in value.graphs}:
        need, budget, announced = graph.step or (0, 0, set())
        if 2 * need > budget:
            announce(
                f"a step that needs {memory.format_bytes(need)} of {memory.format_bytes(budget)} "
                "ran whole when its loss was read, and now its graph is to stay, which may need "
                "as much again; a backward() before the first read may be split",
                location_of(frames),
                announced,
            )


def free_graphs(values: list[Value]) -> None:
    """A backward pass has gone through the graphs in which they end."""
    for value in values:
        for graph in value.graphs:
            graph.free()


def _refuse_second(value: Value) -> None:
    if value.freed:
        raise RuntimeError(_SECOND_TIME)
    if any(leaf.freed for leaf in gradient_closure(value)[1]):
        raise RuntimeError(_SECOND_TIME)


def _free(value: Value, nodes: list[Node] | None = None) -> None:
    """The graph of a loss is gone, as autograd frees it: what lies on the way, the
    results of ``nodes``, has a value and no gradient any more."""
    found, read_values = gradient_closure(value)
    free_graphs([other for other in read_values if other.node is None])
    nodes = found if nodes is None else nodes
    value.free_graph()
    for node in nodes:
        made = [output for reference in node.outputs if (output := reference()) is not None]
        for output in made:
            if output.node is node and output.meta.requires_grad:
                output.free_graph()
        if not any(output.node is node for output in made):
            node.finish()
    # What else was made of it cannot be differentiated any more, either.
    freed = FreedGraphs()
    for other in recording.list_held():
        if other.seen is not None and any(
            leaf.freed or (leaf.tensor is not None and freed.has(leaf.tensor))
            for leaf in gradient_closure(other)[1]
        ):
            other.free_graph()
    # Nor can a write be made again that reads some of it.
    for other in recording.list_held():
        if other.seen is not None and is_open(other) and _reads_freed(closure([other])):
            other.leave_writes()


def _reads_freed(nodes: list[Node]) -> bool:
    return any(
        entry.tensor is None and entry.node is None
        for node in nodes
        for entry in node.inputs
        if isinstance(entry, Value)
    )


@outside
def _backward(
    value: Value,
    frames: Frames,
    retain_graph: bool,
    create_graph: bool,
    inputs: Any,
    part: _Part | None = None,
) -> bool:
    """Adds gradients of tiles, or computes the loss with its graph for PyTorch
    to differentiate, and is False. Of what is ``part`` of a step somebody else frees the
    graph."""
    if not is_open(value):
        return False
    kept = value.kept
    usable = not create_graph and inputs is None
    if kept is not None and usable and not _has_graph(value, kept) and not find_hooked(value):
        verify(closure([value]))
        kept.used = True
        program = Program([], [])
        places = list(kept.leaves)
        program.leaves = [kept.leaves[place] for place in places]
        deliver(
            program,
            {place: kept.gradients[index] for place, index in enumerate(places)},
            retain_graph,
            kept.room,
            are_kept=retain_graph,
        )
        if not retain_graph:
            _free(value)
        return True
    del kept
    if not retain_graph:
        _drop_kept(value)
    is_part = part is not None
    run, more = _start_step(value, frames, is_part)
    run.plan.only_read = False
    may_cut = not create_graph and inputs is None and (is_part or not retain_graph)
    may_cut = may_cut and (part is None or part.ends is not None) and not find_hooked(value)
    unknown = run.find_unknown() if may_cut else None
    if unknown is not None:
        if _differentiate_at_cut(value, run, unknown, part):
            return True
        if not is_open(value):
            return _say_it_ran(run)
        run, more = _start_step(value, frames, is_part)
    stays = retain_graph if part is None else part.stays
    if run.fits(more + (_measure_retained(run) if stays else 0)):
        _run_whole(run, is_part)
        return False
    if create_graph:
        run.run_whole("create_graph=True keeps the graph of the whole batch")
        _run_whole(run, is_part)
        return False

    hooked = find_hooked(value)
    if hooked and _are_written(hooked, closure([value])):
        run.run_whole("a hook sees the gradient of a tensor that is written to in place")
        _run_whole(run, is_part)
        return False
    if hooked and retain_graph:
        run.run_whole("a hook sees the gradient of a tensor whose graph is to stay")
        _run_whole(run, is_part)
        return False
    if hooked and run.program.writes():
        run.run_whole("a hook sees the gradient of a tensor that running statistics are made of")
        _run_whole(run, is_part)
        return False
    if hooked and inputs is not None:
        run.run_whole("a hook sees a gradient on its way to what inputs= names")
        _run_whole(run, is_part)
        return False
    if hooked:
        _read_beside(value, frames)
        nodes = gradient_closure(value)[0]
        made = [reference for node in nodes for reference in node.outputs]
        is_done = differentiate_at_hooks(
            value,
            hooked,
            frames,
            lambda loss, stays, before: _differentiate_part(loss, frames, stays, before),
        )
        if not is_done:
            run, _ = _start_step(value, frames, is_part)
            run.run_whole("hooks see gradients on both sides of a tensor that has one, too")
            _run_whole(run, is_part)
            return False
        _free_parts(value, nodes, made)
        return True

    def split(run: Run) -> None:
        check_split(run, is_step=True)
        if inputs is None:
            _step_into_grads(run, retain_graph)
        else:
            _step_for(run, inputs, retain_graph)

    problem, run = _split_or_read_first(value, run, frames, split, is_part)
    if problem is not None:
        if may_cut:
            if _differentiate_at_cut(value, run, problem, part):
                return True
            if not is_open(value):
                return _say_it_ran(run)
            run, _ = _start_step(value, frames, is_part)
        run.run_whole(problem)
        _run_whole(run, is_part)
        return False
    if not retain_graph:
        _free(value)
    return True


def _say_it_ran(run: Run) -> bool:
    """Says that a step has run whole, with its graph, while its first part was read."""
    run.announce(
        "koila cannot split this, so it runs whole: it writes in place to what the program "
        f"holds, and there are {memory.format_bytes(run.budget)}",
        None,
    )
    return False


def _differentiate_at_cut(
    value: Value, run: Run, problem: CompileError, part: _Part | None
) -> bool:
    """Adds the gradients of a loss of which only the first part can be in tiles; False
    where that cannot be."""
    ends = None if part is None else part.ends
    held = read_first_part(run, problem, ends or frozenset())
    frames = run.frames
    # The program is of no more use, and holds what it begins with.
    run.program = Program([], [])
    nodes = gradient_closure(value)[0]
    reached = set(nodes)
    cuts = [lazy for lazy in held if lazy.requires_grad and lazy._value.node in reached]
    places = frozenset(lazy._value for lazy in cuts)
    if not cuts:
        return False
    if part is None and not _read_beside(value, frames):
        return False
    recording.reads.clear()  # no step of the whole follows
    if not all(map(is_open, places)):
        return False  # what was read had to run with its graph
    made = [reference for node in nodes for reference in node.outputs]
    is_done = differentiate_at_cut(
        value,
        cuts,
        # What comes before the cut is not cut again: both would begin in the same calls.
        lambda loss, stays, _: _differentiate_part(
            loss, frames, stays, 0, places if loss is value else None
        ),
    )
    if is_done and part is None:
        _free_parts(value, nodes, made)
    return is_done


def _read_beside(value: Value, frames: Frames) -> bool:
    """What else the program holds is known from now on, as after any step; it needs what the
    parts begin with. What writes to something runs once, with the part that is run whole;
    False where it is no part of that."""
    beside = [held for held in held_with([value]) if is_as_recorded(held)]
    writing = [held for held in beside if prepare([held], graph=False).writes(statistics=False)]
    if others := [held for held in beside if held not in writing]:
        read_each(others, frames)
    inside = set(closure([value]))
    return all(held.node in inside for held in writing)


def _free_parts(value: Value, nodes: list[Node], made: list[weakref.ref[Value]]) -> None:
    """The graph of a loss that was differentiated in parts is gone."""
    _free(value, nodes)
    # Parts that fitted have graphs, which others may have needed.
    for reference in made:
        if (output := reference()) is not None and output.tensor is not None:
            output.tensor = output.tensor.detach()
            output.free_graph()
            free_graphs([output])


def _are_written(values: list[Value], nodes: list[Node]) -> bool:
    """Whether calls write to the memory of one of these values."""
    aliases = Aliases()
    writes = aliases.find_writes(nodes)
    return any(aliases.of(value) in writes for value in values)


def _drop_kept(value: Value) -> None:
    """Gradients of other losses that were read are of no use where this pass is to
    free their graphs, too."""
    kept = [other for other in recording.list_held() if other.kept is not None]
    nodes = set(gradient_closure(value)[0]) if kept else set()
    for other in kept:
        if not nodes.isdisjoint(gradient_closure(other)[0]):
            other.kept = None


def _measure_retained(run: Run) -> int:
    """Bytes that a pass does not free on its way where the graph is to stay: at
    most what a step needs."""
    with contextlib.suppress(CompileError):
        return max((run.peak() or 0) - run.resident, 0)
    return 0


def _has_graph(value: Value, kept: _Kept | None = None) -> bool:
    """Whether a part of it was computed with its graph, which this pass is to free; since the
    gradients that are ``kept`` were found, which go through the graphs that there were."""
    known = () if kept is None else kept.leaves.values()
    return any(
        leaf.node is None
        and leaf.tensor is not None
        and leaf.tensor.grad_fn is not None
        and leaf not in known
        for leaf in gradient_closure(value)[1]
    )


def _differentiate_part(
    value: Value,
    frames: Frames,
    stays: bool,
    before: int,
    ends: frozenset[Value] | None = frozenset(),
) -> None:
    """Adds the gradients of a part of a program to ``.grad``; what it is made of
    ``stays`` for other parts. Hooks held ``before`` bytes beside what is there now."""
    run = start(prepare([value]), "train", frames) if before else None
    if not _backward(value, frames, True, False, None, _Part(ends, stays)):
        assert value.tensor is not None
        value.tensor.backward(retain_graph=stays)  # type: ignore[no-untyped-call]
        if not stays:
            free_graphs([value])
    if run is not None and run.resident + before > run.budget:
        run.announce(
            f"a hook made another gradient of the whole batch, which took "
            f"{memory.format_bytes(run.resident + before)} of "
            f"{memory.format_bytes(run.budget)} with the one that it was given",
            None,
        )


def _split_or_read_first(
    value: Value, run: Run, frames: Frames, split: Callable[[Run], None], is_part: bool
) -> tuple[CompileError | None, Run]:
    """Runs a step in tiles. Where it needs numbers of the whole batch that have
    no graph themselves (advantages less their mean), these are computed before,
    in a forward pass of their own. If neither can be done, returns why, and the run
    that is left."""
    before = [] if run.plan.splits else _find_numbers(value)
    own = [node for node in closure([value]) if not node.writes_outside] if before else []
    if _are_written(before, own):
        before = []  # what was there before a write is no memory of a run with it
    try:
        if run.plan.reads_first:
            raise CompileError("")
        split(run)
        run.plan.splits = True
        return None, run
    except BudgetError:
        raise  # strictly, no tile fits
    except CompileError as error:
        problem = copy.copy(error)
    if before:
        # Held for as long as they are needed.
        held = [wrap(number) for number in before]
        read([current(number) for number in held], frames)
        plan, (run, _) = run.plan, _start_step(value, frames, is_part)
        try:
            split(run)
            plan.reads_first = True
            return None, run
        except BudgetError:
            raise
        except CompileError as error:
            problem = copy.copy(error)  # of this run
    return problem, run


def _find_numbers(value: Value) -> list[Value]:
    """What the graph of a loss reads without a graph, though it is made of the
    same weights."""
    nodes = gradient_closure(value)[0]
    inside = {id(node) for node in nodes}
    found: dict[Value, None] = {}
    for node in nodes:
        for index, entry in enumerate(node.inputs):
            if type(entry) is not Value or entry.meta.requires_grad or known(entry) is not None:
                continue
            if index in node.call.writes:
                continue  # running statistics, which it updates
            if any(id(other) in inside for other in closure([entry])):
                found[entry] = None
    return list(found)


def _step_for(run: Run, inputs: list[Tensor], retain_graph: bool) -> None:
    """``backward(inputs=...)``."""
    if not all(is_direct(item) or item.is_leaf for item in inputs):
        raise CompileError("gradients of tensors inside of the graph are asked")
    if any(map(has_gradient_hooks, inputs)):
        raise CompileError("a hook sees a gradient that backward(inputs=...) names")
    gradients = _collect(run, _step_beside_grads(run), inputs, retain_graph)
    for tensor, gradient in zip(inputs, gradients, strict=True):
        if gradient is not None:
            tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient


def _collect(
    run: Run, found: dict[int, Tensor], inputs: list[Tensor], retain_graph: bool
) -> list[Tensor | None]:
    """The gradients of ``inputs``, also through the graphs in which the program
    begins."""
    program = run.program
    places = {id(leaf.tensor): index for index, leaf in enumerate(program.leaves)}
    result = [found.get(places.get(id(tensor), -1)) for tensor in inputs]
    ends, given = [], []
    for index, gradient in found.items():
        leaf = program.leaves[index]
        end = without_copies(leaf)
        if end.grad_fn is not None:
            ends.append(end)
            given.append(gradient)
    if not ends:
        return result
    beyond = Room.beside(run).run(
        lambda: torch.autograd.grad(
            ends, inputs, given, retain_graph=retain_graph, allow_unused=True
        )
    )
    return [
        left if right is None else right if left is None else left + right
        for left, right in zip(result, beyond, strict=True)
    ]


def gradients(
    value: Value,
    inputs: list[Tensor],
    frames: Frames,
    allow_unused: bool,
    retain_graph: bool,
    otherwise: Callable[[], Any],
) -> Any:
    """What ``torch.autograd.grad`` returns for a loss and leaves, in tiles; if the program was
    run whole, what ``otherwise`` has of PyTorch."""

    def differentiate() -> Any:
        found = _find_gradients(value, inputs, frames, allow_unused, retain_graph)
        return otherwise() if found is None else found

    return in_smaller_tiles(differentiate)


@outside
def _find_gradients(
    value: Value, inputs: list[Tensor], frames: Frames, allow_unused: bool, retain_graph: bool
) -> tuple[Tensor | None, ...] | None:
    _refuse_second(value)
    if not is_open(value) or not is_loss(value) or not value.meta.requires_grad:
        return None
    if not all(is_direct(item) or (item.is_leaf and item.requires_grad) for item in inputs):
        return None
    run, more = _start_step(value, frames)
    if run.fits(more + (_measure_retained(run) if retain_graph else 0)):
        _run_whole(run)
        return None
    if (
        find_hooked(value)
        or any(map(has_accumulation_hooks, inputs))
        or (any(item._backward_hooks for item in inputs) and _has_graph(value))
    ):
        run.run_whole("a hook sees a gradient that torch.autograd.grad computes")
        _run_whole(run)
        return None
    try:
        check_split(run, is_step=True)
        found = _step_beside_grads(run)
    except BudgetError:
        raise
    except CompileError as error:
        run.run_whole(error)
        _run_whole(run)
        return None
    result = _collect(run, found, inputs, retain_graph)
    if not allow_unused and any(gradient is None for gradient in result):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    if not retain_graph:
        _free(value)
    given = tuple(
        None if gradient is None else apply_hooks((item._backward_hooks or {}).values(), gradient)
        for item, gradient in zip(inputs, result, strict=True)
    )
    remember_gradients(inputs, given)
    return given


def remember_gradients(inputs: list[Tensor], found: tuple[Tensor | None, ...]) -> None:
    """They count beside the steps that follow, for as long as the program holds them."""
    for item, gradient in zip(inputs, found, strict=True):
        if gradient is not None and not isinstance(item, torch.nn.Parameter):
            append_weakly(recording.gradients, gradient)
