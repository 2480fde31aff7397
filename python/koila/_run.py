"""Runs recorded programs: whole where memory is enough, else in tiles."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from koila import memory
from koila._calls import _fakes
from koila._compiler import Compiled, analyze_script, compile_script
from koila._errors import BudgetError, CompileError, KoilaError, KoilaWarning, Location
from koila._program import Call, Frame, Node, Program, Value, closure
from koila._trace import Traced, explain, is_weight, location_of, trace, without_copies

__all__ = [
    "Last",
    "backward",
    "check_budget",
    "count_buffer",
    "find_batch",
    "flush",
    "gradients",
    "last",
    "list_values",
    "location_of",
    "materialize",
    "may_defer",
    "pending",
    "read",
    "strict",
]

Frames = tuple[Frame, Frame]

# Calls that write to tensors of the user, in the order of recording.
pending: list[Node] = []


@dataclass(frozen=True)
class Last:
    """How the last recorded program ran.

    ``tile`` is the samples per tile, None if it ran whole; ``peak_bytes`` what
    koila predicted for it, None if it cannot; ``budget_bytes`` what there was;
    ``announced`` what was warned of.
    """

    tile: int | None
    peak_bytes: int | None
    budget_bytes: int | None
    announced: str | None


_last: Last | None = None


def last() -> Last | None:
    """How the last recorded program ran; None before there was one."""
    return _last


# Strictness.

_strict = False


class strict:
    """From now on what would be a warning is a KoilaError: a program that does
    not fit and cannot be split, or whose memory koila cannot bound. In a
    ``with`` statement, until its end. ``strict(False)`` warns again."""

    def __init__(self, on: bool = True) -> None:
        global _strict
        self._before = _strict
        _strict = on

    def __enter__(self) -> strict:
        return self

    def __exit__(self, *exception: object) -> None:
        global _strict
        _strict = self._before


# Plans.


@dataclass
class _Plan:
    """What is known of programs with one key."""

    keep: list[Any]  # what the key names by its id
    traced: dict[Any, Traced | CompileError] = field(default_factory=dict)
    reports: dict[Any, dict[str, Any] | CompileError] = field(default_factory=dict)
    compiled: dict[Any, list[_Choice]] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    only_read: bool = False


@dataclass(frozen=True)
class _Choice:
    """What compiling for a budget gave, and why its figures are in doubt."""

    budget: int
    made: Compiled | CompileError
    doubt: CompileError | None

    def holds(self, budget: int) -> bool:
        """Whether it is what compiling for another budget would give, or is
        as good. The largest tile below a budget is that below each smaller one
        which it still fits."""
        if isinstance(self.made, BudgetError):
            return budget == self.budget
        if isinstance(self.made, CompileError):
            return True
        peak = self.made.report["peak_bytes"]
        return (peak is None or peak <= budget) and budget <= self.budget * _SLACK


_plans: OrderedDict[Any, _Plan] = OrderedDict()
_MOST_PLANS = 256
# A tile that was chosen for a little less memory than there is now is kept.
_SLACK = 1.25
# So far from the limit a rough figure is good enough.
_FAR = 8


def _find_plan(program: Program) -> _Plan:
    key = program.key()
    plan = _plans.get(key)
    if plan is None:
        keep: list[Any] = [node.call for node in program.nodes]
        keep += [leaf.tensor for leaf in program.leaves if isinstance(leaf.tensor, nn.Parameter)]
        plan = _plans[key] = _Plan(keep)
        if len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return plan


@dataclass
class _Run:
    """One run of a program in one mode."""

    program: Program
    plan: _Plan
    mode: str
    frames: Frames
    batch: int | None
    budget: int
    grads: str
    budgets: set[int | str]
    device: torch.device

    def traced(self) -> Traced:
        key = (tuple(map(repr, self.program.numbers)), self.batch)
        found = self.plan.traced.get(key)
        if found is None:
            try:
                found = trace(self.program, self.batch)
            except CompileError as error:
                found = error
            self.plan.traced[key] = found
        if isinstance(found, CompileError):
            raise found
        return found

    def options(self) -> dict[str, Any]:
        named = {"B": self.batch} if self.batch and self._has_batch() else {}
        loss = {"loss": ""} if self.mode == "train" else {}
        return {"batch": named, "mode": self.mode, "grads": self.grads, **loss}

    def _has_batch(self) -> bool:
        return any("B" in spec for spec in self.traced().specs)

    def report(self) -> dict[str, Any]:
        """The analysis of the whole batch. It does not depend on numbers."""
        key = (self.mode, self.grads, torch.get_num_threads())
        found = self.plan.reports.get(key)
        if found is None:
            try:
                traced = self.traced()
                with _quiet():
                    found = analyze_script(
                        traced.script,
                        traced.specs,
                        floor=False,
                        batches=0,
                        name="the recorded program",
                        **self.options(),
                    )
            except CompileError as error:
                found = error
            self.plan.reports[key] = found
        if isinstance(found, CompileError):
            raise found
        return found

    def compile(self) -> Compiled:
        """The program in tiles for the budget; announced where the figures that
        the tile rests on are not exact."""
        key = (
            self.mode,
            self.grads,
            tuple(map(repr, self.program.numbers)),
            torch.get_num_threads(),
        )
        found = self.plan.compiled.setdefault(key, [])
        choice = next((entry for entry in found if entry.holds(self.budget)), None)
        if choice is None:
            choice = self._choose()
            found.append(choice)
        if isinstance(choice.made, CompileError):
            raise choice.made
        if choice.doubt is not None:
            text, place = explain(choice.doubt, self.program)
            self.announce(
                f"this runs in tiles of {choice.made.tile} samples, without a promise that they "
                f"fit {memory.format_bytes(self.budget)}: {text}",
                place,
            )
        return choice.made

    def _choose(self) -> _Choice:
        try:
            return _Choice(self.budget, self._compile(budget=self.budget), None)
        except CompileError as error:
            if "cannot be promised" not in error.message or self.batch is None:
                return _Choice(self.budget, error, None)
            doubt = error
        # Tiles of about the right size are better than the whole batch.
        tile = (
            1
            << max((self.batch - 1) * self.budget // self.report()["peak_bytes"], 1).bit_length()
            - 1
        )
        try:
            made = self._compile(tile=tile)
            while tile > 1 and (made.report["peak_bytes"] or 0) > self.budget:
                tile //= 2
                made = self._compile(tile=tile)
        except CompileError as error:
            return _Choice(self.budget, error, None)
        return _Choice(self.budget, made, doubt)

    def _compile(self, **size: Any) -> Compiled:
        traced = self.traced()
        with _quiet():
            return compile_script(
                traced.script,
                traced.specs,
                guard="raise",
                random="full-batch-masks",
                name="the recorded program",
                **self.options(),
                **size,
            )

    def fits(self) -> bool:
        """Whether the whole batch fits the budget; announces where koila
        cannot tell."""
        try:
            report = self.report()
            peak, text, place = report["peak_bytes"], "its shapes are not known", None
        except CompileError as error:
            peak, (text, place) = None, explain(error, self.program)
        if peak is None:
            if self._rough() * _FAR > self.budget:
                self.announce(
                    "koila cannot tell how much memory this needs, so nothing protects it: " + text,
                    place,
                )
            self.note(None, None)
            return True
        if peak * _FAR > self.budget:
            self.budget = min(memory.budget_bytes(budget, self.device) for budget in self.budgets)
        if peak > self.budget:
            return False
        if not report["exact"] and peak * _FAR > self.budget and report["inexact"]:
            first = report["inexact"][0]
            self.announce(
                f"this needs about {memory.format_bytes(peak)} of "
                f"{memory.format_bytes(self.budget)}, but the figure is not exact: "
                f"{first['reason']}",
                None,
            )
        self.note(None, peak)
        return True

    def _rough(self) -> int:
        """Bytes if nothing that is computed were freed, in both directions."""
        held = sum(leaf.tensor.nbytes for leaf in self.program.leaves if leaf.tensor is not None)
        return 2 * (held + sum(node.call.made for node in self.program.nodes))

    def note(self, tile: int | None, peak: int | None, announced: str | None = None) -> None:
        global _last
        if announced is None and _last is not None and _last.budget_bytes is None:
            announced = _last.announced
        _last = Last(tile, peak, self.budget, announced)

    def run_whole(self, error: CompileError | str) -> None:
        """Says that the program runs whole although it does not fit, and why."""
        if isinstance(error, BudgetError):
            text, place = explain(error, self.program)
            self.give_up()
            raise BudgetError(
                text, place or location_of(self.frames), (), error.smallest_budget
            ) from None
        if isinstance(error, CompileError):
            text, place = explain(error, self.program)
        else:
            text, place = error, None
        peak = self.report()["peak_bytes"]
        self.announce(
            f"this needs {memory.format_bytes(peak)}, and there are "
            f"{memory.format_bytes(self.budget)}; koila cannot split it, so it runs whole: {text}",
            place,
        )
        self.note(None, peak)

    def give_up(self) -> None:
        """What is refused does not write later, either."""
        refused = set(self.program.nodes)
        pending[:] = [node for node in pending if node not in refused]
        for node in refused:
            for index in node.call.writes:
                group = node.inputs[index].group
                if group.external and group.last_write in refused:
                    group.last_write = None

    def announce(self, text: str, place: Location | None) -> None:
        global _last
        place = place or location_of(self.frames)
        _last = Last(None, None, None, text)
        if _strict:
            self.give_up()
            raise KoilaError(text, place)
        # The bytes differ from step to step, what is wrong does not.
        key = text.rpartition(": ")[2]
        if key not in self.plan.announced:
            self.plan.announced.add(key)
            warnings.warn_explicit(text, KoilaWarning, place.file, place.line)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the compiler warns of is part of the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KoilaWarning)
        yield


def check_budget(budget: int | str) -> None:
    """Raises KoilaError for what is no budget."""
    if budget != "auto":
        memory.budget_bytes(budget)


def _prepare(values: list[Value], frames: Frames) -> Program:
    """The program of the values, after what was recorded before it and writes
    to tensors that others see."""
    last_seq = max((value.node.seq for value in values if value.node is not None), default=-1)
    pending[:] = [node for node in pending if not node.done]
    earlier = [node for node in pending if node.seq < last_seq]
    program = Program(closure(values, earlier), values)
    _verify(program)
    for node in program.nodes:
        if node.spent:
            raise KoilaError(
                f"'{_name(node.call)}' has run already, in tiles, and would draw or write again",
                location_of(node.frames),
                ("read what depends on it before, or call run() on it first",),
            )
    return program


def _verify(program: Program) -> None:
    """Raises if a tensor is not any more what it was when it was recorded."""
    for node in program.nodes:
        for index, entry in enumerate(node.inputs):
            if (
                isinstance(entry, Value)
                and entry.version is not None
                and entry.tensor is not None
                and entry.tensor._version != entry.version
                and index not in node.call.writes
            ):
                raise KoilaError(
                    f"a tensor of shape {entry.meta.shape} that '{_name(node.call)}' reads was "
                    "written to after this was recorded and before it was computed",
                    location_of(node.frames),
                    ("read the value, or call koila.run() on it, before the optimizer steps",),
                )


def _name(call: Call) -> str:
    return str(getattr(call.function, "__name__", call.function))


def _start(program: Program, mode: str, frames: Frames) -> _Run:
    origins = [leaf.source for leaf in program.leaves if leaf.source is not None]
    batch = next((origin.size for origin in origins if origin.batch is not None), None)
    device = next(
        (leaf.meta.device for leaf in program.leaves if leaf.source is not None),
        torch.device("cpu"),
    )
    budgets = {origin.budget for origin in origins} or {"auto"}
    budget = min(_recent_budget(budget, device) for budget in budgets)
    grads = "present"
    if mode == "train" and any(
        isinstance(leaf.tensor, nn.Parameter)
        and leaf.meta.requires_grad
        and leaf.tensor.grad is None
        for leaf in program.leaves
    ):
        grads = "absent"
    global _last
    _last = None
    return _Run(program, _find_plan(program), mode, frames, batch, budget, grads, budgets, device)


_recent: dict[tuple[int | str, torch.device, str | None], tuple[float, int]] = {}
# Asking the system takes a quarter of a millisecond. Programs far from the limit
# may go by an answer of this age, in seconds.
_RECENT = 0.1


def _recent_budget(budget: int | str, device: torch.device) -> int:
    key = (budget, device, os.environ.get("KOILA_BUDGET"))
    found = _recent.get(key)
    now = time.monotonic()
    if found is None or now - found[0] > _RECENT:
        found = _recent[key] = now, memory.budget_bytes(budget, device)
    return found[1]


def _check_split(run: _Run) -> None:
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


def run_nodes(nodes: Iterable[Node]) -> None:
    """Runs what has to run before something else is written."""
    program = Program(closure((), nodes), [])
    _verify(program)
    program.run()


def may_defer(call: Call, inputs: list[Any]) -> bool:
    """Whether a write to a tensor of the user may wait: running statistics of
    layers in training, whose results do not depend on them."""
    return call.grad and _name(call) in ("batch_norm", "instance_norm")


def materialize(values: list[Value], frames: Frames) -> list[Tensor]:
    """The tensors, with the graph that plain PyTorch would have built, for
    the user to do with them what he likes."""
    _compute(values, frames)
    for value in values:
        _expose(value)
    return [value.tensor for value in values]  # type: ignore[misc]


def _compute(values: list[Value], frames: Frames) -> None:
    unknown = [value for value in values if _is_open(value)]
    if unknown:
        program = _prepare(unknown, frames)
        if program.nodes:
            graph = any(value.meta.requires_grad for value in unknown)
            run = _start(program, "forward-with-grad" if graph else "inference", frames)
            if graph:
                if not run.fits():
                    run.run_whole("its graph is asked for")
                program.run()
            else:
                _run_forward(run)


def _is_open(value: Value) -> bool:
    write = value.group.last_write
    return value.tensor is None or (write is not None and not write.done)


def _expose(value: Value) -> None:
    """From now on others may write to the tensor."""
    tensor = value.tensor
    assert tensor is not None
    value.version = None if tensor.is_inference() else tensor._version
    value.group.external = True


def _run_forward(run: _Run) -> None:
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


def _call_forward(run: _Run, compiled: Compiled) -> list[Tensor]:
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


def read(values: list[Value], frames: Frames) -> list[Tensor]:
    """What the values are, without a promise of a graph."""
    unknown = [value for value in values if _is_open(value) and value.seen is None]
    if unknown:
        if not any(value.meta.requires_grad for value in unknown):
            _compute(unknown, frames)
        elif len(unknown) == 1 and _is_loss(unknown[0]):
            _read_loss(unknown[0], frames)
        else:
            _read_open(unknown, frames)
    return [value.seen if _is_open(value) else value.tensor for value in values]  # type: ignore[misc]


def _is_loss(value: Value) -> bool:
    count = 1
    for extent in value.meta.shape:
        count *= extent
    return count == 1 and value.meta.dtype.is_floating_point


def _read_open(values: list[Value], frames: Frames) -> None:
    """Reads values that would have a graph, without keeping one if memory is
    short."""
    program = _prepare(values, frames)
    run = _start(program, "forward-with-grad", frames)
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

    def __init__(self, plan: _Plan, gradients: dict[int, Tensor]) -> None:
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
    run = _start(program, "train", frames)
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


def _call_grads(run: _Run) -> tuple[Tensor, dict[int, Tensor]]:
    """The loss, and the gradients of the leaves that it depends on."""
    traced, leaves = run.traced(), run.program.leaves
    weights = {
        id(traced.holders.get(index, leaf.tensor)): index
        for index, leaf in enumerate(leaves)
        if is_weight(leaf) and leaf.meta.requires_grad
    }
    # The method holds sums and a tile's gradients, which a step has in `.grad`.
    held = 2 * sum(without_copies(leaves[index]).nbytes for index in weights.values())
    whole, run.budget, run.grads = run.budget, max(run.budget - held, 0), "present"
    compiled = run.compile()
    run.budget = whole
    loss, gradients = compiled.module.grads(*traced.take(run.program))
    trained = [weight for weight in compiled.module.parameters() if weight.requires_grad]
    run.note(compiled.tile, compiled.report["peak_bytes"])
    return loss, {
        weights[id(weight)]: gradient
        for weight, gradient in zip(trained, gradients, strict=True)
        if weights[id(weight)] in traced.reached
    }


def _deliver(program: Program, gradients: dict[int, Tensor], retain_graph: bool) -> None:
    """Adds gradients of leaves to ``.grad``, through the graphs before them."""
    ends: list[Tensor] = []
    given: list[Tensor] = []
    for index, gradient in gradients.items():
        leaf = program.leaves[index]
        weight = leaf.tensor
        assert weight is not None
        if not isinstance(weight, nn.Parameter):
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
    if value.differentiated:
        raise RuntimeError(
            "Trying to backward through the graph a second time; say retain_graph=True the "
            "first time"
        )
    if value.kept is None or create_graph or inputs is not None:
        _backward(value, frames, retain_graph, create_graph, inputs)
        return
    program = Program(closure([value]), [value])
    _verify(program)
    value.kept.used = True
    _deliver(program, value.kept.gradients, retain_graph)
    if not retain_graph:
        value.kept = None
        value.differentiated = True


def _backward(
    value: Value, frames: Frames, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    if _is_open(value):
        program = _prepare([value], frames)
        run = _start(program, "train", frames)
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
                return
        program.run()
    assert value.tensor is not None
    value.tensor.backward(None, retain_graph, create_graph, inputs)  # type: ignore[no-untyped-call]


def _step(run: _Run, value: Value, retain_graph: bool) -> None:
    compiled = run.compile()
    traced = run.traced()
    arguments = traced.take(run.program)
    for holder in traced.holders.values():
        holder.grad = torch.zeros_like(holder)
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
    value.seen = loss.reshape(value.meta.shape)
    run.note(compiled.tile, compiled.report["peak_bytes"])


def _step_inputs(run: _Run, value: Value, inputs: list[Tensor]) -> None:
    places = {id(leaf.tensor): index for index, leaf in enumerate(run.program.leaves)}
    if not all(isinstance(item, nn.Parameter) for item in inputs):
        raise CompileError("gradients of tensors that are no nn.Parameter are asked for")
    loss, gradients = _call_grads(run)
    for weight in inputs:
        gradient = gradients.get(places.get(id(weight), -1))
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
    value.seen = loss.reshape(value.meta.shape)


def gradients(value: Value, inputs: list[Tensor], frames: Frames) -> tuple[Tensor, ...] | None:
    """What ``torch.autograd.grad`` returns for a loss and weights, in tiles;
    None if the program is to be run whole."""
    if not _is_open(value) or not _is_loss(value) or not value.meta.requires_grad:
        return None
    if not all(isinstance(item, nn.Parameter) for item in inputs):
        return None
    program = _prepare([value], frames)
    run = _start(program, "train", frames)
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


# What is known of a recorded program without running it.


def list_values(value: Value) -> list[Value]:
    """The leaves of the program of a value, and what its nodes make."""
    program = Program(closure([value]), [value])
    made = [
        Value(meta, value.group, node, index)
        for node in program.nodes
        for index, meta in enumerate(node.call.metas)
    ]
    return [*program.leaves, *made]


def _shapes_at(program: Program, batch: int, count: int) -> list[tuple[int, ...]] | None:
    """The shapes of leaves and of what the nodes make, with ``count`` samples."""
    found: list[tuple[int, ...]] = []
    try:
        with _fakes:
            leaves = []
            for leaf in program.leaves:
                shape = list(leaf.meta.shape)
                if leaf.origin is not None and leaf.origin.size == batch:
                    assert leaf.origin.batch is not None
                    shape[leaf.origin.batch] = count
                found.append(tuple(shape))
                leaves.append(torch.empty(shape, dtype=leaf.meta.dtype, device=leaf.meta.device))

            def invoke(node: Node, position: int, args: Any, kwargs: Any) -> Any:
                with torch.no_grad():
                    result = node.call.function(*args, **kwargs)
                found.extend(tuple(tensor.shape) for tensor in node.call.flatten(result))
                return result

            program.replay(leaves, invoke)
    except Exception:
        return None  # it has no meaning for another number of samples
    return found


def _batch_of(program: Program) -> int | None:
    return next(
        (
            leaf.origin.size
            for leaf in program.leaves
            if leaf.origin is not None and leaf.origin.batch is not None
        ),
        None,
    )


def find_batch(value: Value) -> tuple[int, int] | None:
    """The dim whose extent follows the batch, and that extent."""
    if value.origin is not None:
        return None if value.origin.batch is None else (value.origin.batch, value.origin.size or 0)
    program = Program(closure([value]), [value])
    batch = _batch_of(program)
    if not program.nodes:
        # Computed already: the dim with as many rows, which is no promise.
        size = value.source.size if value.source else None
        return (value.meta.shape.index(size), size) if size in value.meta.shape else None
    if batch is None:
        return None
    other = _shapes_at(program, batch, batch + 1)
    if other is None:
        return None
    place = program.results[0]
    place = place if place >= 0 else len(program.leaves) - 1 - place
    for dim, extent in enumerate(value.meta.shape):
        if other[place][dim] != extent:
            return dim, extent
    return None


def count_buffer(value: Value, in_bytes: bool) -> tuple[int, int]:
    """Elements or bytes of the tensors of the program: those of one sample,
    and those that do not depend on the batch."""
    program = Program(closure([value]), [value])
    batch = _batch_of(program)
    other = _shapes_at(program, batch, batch + 1) if batch else None
    per_sample = fixed = 0
    for index, entry in enumerate(list_values(value)):
        size = entry.meta.dtype.itemsize if in_bytes else 1
        count = torch.Size(entry.meta.shape).numel()
        grown = torch.Size(other[index]).numel() if other else count
        if grown != count and batch:
            per_sample += (grown - count) * size
        else:
            fixed += count * size
    return per_sample, fixed
