"""What is known of recorded programs: whether they fit, and in which tiles."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from koila import memory
from koila._compiler import Compiled, analyze_script, compile_script
from koila._errors import BudgetError, CompileError, KoilaError, KoilaWarning, Location
from koila._program import Frame, Node, Program
from koila._trace import Traced, explain, location_of, trace

__all__ = [
    "Frames",
    "Last",
    "Plan",
    "Run",
    "announce",
    "check_budget",
    "last",
    "pending",
    "start",
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
class Plan:
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


_plans: OrderedDict[Any, Plan] = OrderedDict()
# Plans hold the weights of their programs, and each variant of a program a
# compiled one: those of long ago go.
_MOST_PLANS = 32
_MOST_VARIANTS = 8
# A tile that was chosen for a little less memory than there is now is kept.
_SLACK = 1.25
# So far from the limit a rough figure is good enough.
_FAR = 8


_T = TypeVar("_T")


def _remember(cache: dict[Any, _T | CompileError], key: Any, make: Callable[[], _T]) -> _T:
    """What ``make`` gave for this key, or the refusal that it raised."""
    if key not in cache:
        try:
            cache[key] = make()
        except CompileError as error:
            cache[key] = error
        if len(cache) > _MOST_VARIANTS:
            del cache[next(iter(cache))]
    found = cache[key]
    if isinstance(found, CompileError):
        raise found
    return found


def _find_plan(program: Program) -> Plan:
    key = program.key()
    plan = _plans.get(key)
    if plan is None:
        keep: list[Any] = [node.call for node in program.nodes]
        keep += [leaf.tensor for leaf in program.leaves if isinstance(leaf.tensor, nn.Parameter)]
        plan = _plans[key] = Plan(keep)
        if len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return plan


@dataclass
class Run:
    """One run of a program in one mode."""

    program: Program
    plan: Plan
    mode: str
    frames: Frames
    batch: int | None
    budget: int
    grads: str
    budgets: set[int | str]
    device: torch.device

    def traced(self) -> Traced:
        key = (tuple(map(repr, self.program.numbers)), self.batch)
        return _remember(self.plan.traced, key, self._trace)

    def _trace(self) -> Traced:
        try:
            return trace(self.program, self.batch)
        except CompileError:
            for leaf in self.program.leaves:
                tensor = leaf.tensor
                if tensor is None or tensor.grad_fn is None or self.batch not in tensor.shape:
                    continue
                raise CompileError(
                    f"a tensor of shape {tuple(tensor.shape)} was computed before with its graph, "
                    "for all samples, as run(), hooks, retain_grad() and scripted modules ask for"
                ) from None
            raise

    def options(self) -> dict[str, Any]:
        named = {"B": self.batch} if self.batch and self.has_batch() else {}
        loss = {"loss": ""} if self.mode == "train" else {}
        return {"batch": named, "mode": self.mode, "grads": self.grads, **loss}

    def has_batch(self) -> bool:
        """Whether the program works for another number of samples."""
        return any("B" in spec for spec in self.traced().specs)

    def report(self) -> dict[str, Any]:
        """The analysis of the whole batch. It does not depend on numbers."""
        key = (self.mode, self.grads, torch.get_num_threads())
        return _remember(self.plan.reports, key, self._analyze)

    def _analyze(self) -> dict[str, Any]:
        traced = self.traced()
        with _quiet():
            report = analyze_script(
                traced.script,
                traced.specs,
                floor=False,
                batches=0,
                name="the recorded program",
                **self.options(),
            )
        if doubt := self._doubt():
            report["exact"] = False
            report["inexact"].insert(0, {"reason": doubt.message})
        return report

    def _doubt(self) -> CompileError | None:
        """Why figures are none of the device's."""
        if self.device.type == "cpu":
            return None
        return CompileError(f"figures are those of the CPU, and this runs on {self.device}")

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
            del found[:-_MOST_VARIANTS]
            if len(self.plan.compiled) > _MOST_VARIANTS:
                del self.plan.compiled[next(iter(self.plan.compiled))]
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
            return _Choice(self.budget, self._compile(budget=self.budget), self._doubt())
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
        if self.batch == 0:
            self.note(None, None)
            return True
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


def announce(text: str, stacklevel: int) -> None:
    """Warns of what belongs to no program; under ``strict`` an error."""
    if _strict:
        raise KoilaError(text)
    warnings.warn(text, KoilaWarning, stacklevel=stacklevel + 1)


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


def _shapes_given(program: Program) -> Iterator[tuple[int, ...]]:
    return (leaf.meta.shape for leaf in program.leaves if leaf.source is not None)


def start(program: Program, mode: str, frames: Frames) -> Run:
    origins = [leaf.source for leaf in program.leaves if leaf.source is not None]
    batch = next((origin.size for origin in origins if origin.batch is not None), None)
    if batch is None:
        # None was named. What is tried is proven like any other.
        batch = next((shape[0] for shape in _shapes_given(program) if shape), None)
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
    return Run(program, _find_plan(program), mode, frames, batch, budget, grads, budgets, device)


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
