"""What is known of recorded programs: whether they fit, and in which tiles."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch import nn

from koila import memory
from koila._capture.dispatch_cache import is_arithmetic
from koila._capture.frames import Frame, Frames, location_of, raise_at
from koila._capture.graphs import measure_graphs
from koila._capture.memory import written_by
from koila._capture.program import Program
from koila._capture.program_trace import (
    Traced,
    explain,
    find_recorded,
    in_user_lines,
    refuse_unseen_writes,
    trace,
    whole_bytes,
)
from koila._capture.statistics import is_momentum, show_updated
from koila._capture.thread_locks import tracing
from koila._capture.thread_recordings import recording
from koila._capture.values import Call, Value, is_float
from koila._compiler import Compiled, analyze_script, compile_script
from koila._device import describe_mix, find_device_of
from koila._errors import (
    BudgetError,
    CompileError,
    KoilaWarning,
    Location,
    OutOfMemoryError,
    UnpromisedError,
    explain_torch,
)
from koila._operators import registry
from koila._out_of_memory import let_go, ran_out
from koila._plan.announce import Announced, announce, is_strict, note, restart
from koila._plan.unpromised import choose_tile

__all__ = [
    "Cut",
    "Plan",
    "RanOut",
    "Run",
    "check_budget",
    "forget",
    "half_of",
    "in_figures",
    "start",
]


@dataclass(frozen=True)
class Cut:
    """The call behind which a program is cut, and the dims that are samples of each result
    that is handed on there."""

    place: int
    dims: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RanOut:
    """Memory ran out in tiles of so many samples (None: in the whole batch), though they were
    to need no more than ``peak`` bytes (None: nobody knew). Of the ``error`` nothing is left
    that holds tensors; ``frames`` are those of the call that raised it, where one is known."""

    error: Exception
    frames: Frames | None
    tile: int | None
    peak: int | None


def half_of(samples: int) -> int | None:
    """The samples of the next smaller tile; None below a tile of one."""
    return 1 << (samples // 2).bit_length() - 1 if samples > 1 else None


@dataclass
class Plan:
    """What is known of programs with one key."""

    calls: list[Call]  # which the key names by their ids
    numbers: list[Any]  # of the first such program
    varying: frozenset[int] = frozenset()  # which of them were others since
    traced: dict[Any, Traced | CompileError] = field(default_factory=dict)
    reports: dict[Any, dict[str, Any] | CompileError] = field(default_factory=dict)
    compiled: dict[Any, list[_Choice]] = field(default_factory=dict)
    # By the budget that was named, if one was.
    announced: dict[int | None, Announced] = field(default_factory=dict)
    only_read: bool = False  # a loss that was read and not differentiated
    splits: bool = False  # as it is
    reads_first: bool = False  # once numbers of the whole batch are there
    # Where it is cut, since what follows is in no tiles; None where no place will do.
    cut: Cut | None = None
    is_cut_known: bool = False
    # What the step needs that followed, with the graph that it leaves.
    step_peak: int | None = None
    # By mode: samples of the largest tile that is tried, since memory ran out in a larger one
    # or in the whole batch.
    most: dict[str, int] = field(default_factory=dict)
    # It ran out of memory as a whole, and cannot run in another way.
    stays_whole: bool = False
    whole: int | None = None  # bytes of a trace that has few of what was named
    trace_bytes: int = 0  # what the last trace took, until it has been looked at
    # What the backward pass takes of what weights were computed by before the step; with
    # that of the step where this runs whole.
    before_weights: dict[bool, int] = field(default_factory=dict)
    # The thread whose programs run by it: its scripts hold their weights.
    owner: threading.Thread = field(default_factory=threading.current_thread)

    def adopt(self) -> bool:
        """Whether it is this thread's, from now on where the owner has ended."""
        thread = threading.current_thread()
        if self.owner is not thread:
            if self.owner.is_alive():
                return False
            self.owner = thread
        return True


@dataclass(frozen=True)
class _Choice:
    """What compiling a trace for a budget gave, and why its figures are in doubt. It
    has the weights of its trace, which are lent to no other one."""

    traced: Traced
    budget: int
    made: Compiled | CompileError
    doubt: CompileError | None

    def holds(self, budget: int) -> bool:
        """Whether it is what compiling for another budget would give, or is
        as good. The largest tile below a budget is that below each smaller one
        which it still fits."""
        if isinstance(self.made, BudgetError):
            smallest = self.made.smallest_budget
            return budget < smallest if smallest is not None else budget == self.budget
        if isinstance(self.made, CompileError):
            return True
        peak = self.made.report["peak_bytes"]
        return (peak is None or peak <= budget) and budget <= self.budget * _SLACK


_plans: OrderedDict[Any, list[Plan]] = OrderedDict()  # one for each thread
_finding = threading.Lock()
# Those of long ago go.
_MOST_PLANS = 64
_MOST_VARIANTS = 8
# A tile that was chosen for a little less memory than there is now is kept.
_SLACK = 1.25
# So far from the limit an old answer of the system is good enough, and a figure
# that is not exact.
_FAR = 8
# A figure to which something is missing is no promise for less than so many times as much
# (the gradient of nn.Bilinear took 22 times what is known of it, measured).
_MISSING = 32
# What the guard of a program says of which the type of a result is the default one.
_DEFAULT = "the default dtype is not float32"
# Kernels take so much more than what they return at most: workspaces and what
# they save (oneDNN's LSTM 3.3, transposed convolutions 1.7, measured).
_INSIDE = 4
# A trace of a few samples takes about as much.
_LEAST_TRACE = 64 << 10
# Results of such a part of the budget are not worth a word.
_FEW_RESULTS = 64
# So close to it what is not exact is not taken to fit.
_CLOSE = 1.25


def forget() -> None:
    """Forgets all programs: rules have changed since they were planned."""
    _plans.clear()


registry.listeners.append(forget)


_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Again(threading.local):
    """What ran out of memory as a whole and is run again, and whether that was said."""

    ran_out: RanOut | None = None
    run: Run | None = None
    is_said = False


_again = _Again()


def _remember(cache: dict[Any, _T | CompileError], key: Any, make: Callable[[], _T]) -> _T:
    """What ``make`` gave for this key, or the refusal that it raised."""
    if key not in cache:
        problem = ""
        try:
            with tracing:
                cache[key] = make()
        except CompileError as error:
            cache[key] = _bare(error)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            problem = explain_torch(let_go(error))[0]
        if problem:
            # Another time there may be enough.
            raise CompileError(f"memory ran out while it was planned: {problem}")
        if len(cache) > _MOST_VARIANTS:
            del cache[next(iter(cache))]
    found = cache[key]
    if isinstance(found, CompileError):
        raise _bare(found)
    return found


_Error = TypeVar("_Error", bound=CompileError)


def _bare(error: _Error) -> _Error:
    """A copy without the traceback, which holds tensors."""
    return copy.copy(error)


def _find_plan(program: Program) -> Plan:
    key = program.key()
    with _finding:
        plans = _plans.setdefault(key, [])
        _plans.move_to_end(key)
        plan = next((plan for plan in plans if plan.adopt()), None)
        if plan is None:
            calls = [node.call for node in program.nodes]
            plan = Plan(calls, list(program.numbers))
            plans.append(plan)
            if len(_plans) > _MOST_PLANS:
                _plans.popitem(last=False)
            return plan
    plan.varying |= _find_varying(plan, program)
    return plan


def _find_varying(plan: Plan, program: Program) -> frozenset[int]:
    """The numbers that are others now, as an annealed weight: from then on they
    are inputs, so that no value is compiled anew."""
    if plan.numbers == program.numbers:
        return frozenset()
    found = set()
    position = 0
    for node, step in zip(program.nodes, program.steps, strict=True):
        for index, entry in enumerate(step):
            if entry is not None:
                continue
            old, new = plan.numbers[position], program.numbers[position]
            if (
                is_float(old)
                and is_float(new)
                and old != new
                and (is_arithmetic(node) or is_momentum(node, index))
            ):
                found.add(position)
            position += 1
    return frozenset(found)


@dataclass
class Run:
    """One run of a program in one mode; of ``train`` the first root is the loss.

    ``beside`` are bytes that whoever runs it holds beside what the program
    does; ``resident`` those that recording it has made already.
    """

    program: Program
    plan: Plan
    mode: str
    frames: Frames
    batch: int | None
    budget: int
    grads: str
    budgets: set[int | str]
    device: torch.device
    resident: int
    beside: int = 0
    mix: str | None = None  # what is where, of a program on several devices
    copied: int = 0  # arguments of tiles that have gaps
    apart: int = 0  # results that do not count in the budget

    @property
    def announced(self) -> Announced:
        # What is free differs from step to step.
        named = None if "auto" in self.budgets else self.budget
        return self.plan.announced.setdefault(named, set())

    # What the program is.

    def _numbers(self) -> tuple[Any, ...]:
        fixed = (
            repr(number)
            for position, number in enumerate(self.program.numbers)
            if position not in self.plan.varying
        )
        return (self.plan.varying, *fixed)

    def traced(self) -> Traced:
        if self.mix is not None:
            raise CompileError(f"{self.mix}, and koila knows programs on one device")
        trains = self.mode == "train"
        try:
            return _remember(
                self.plan.traced,
                (self._numbers(), trains, *self._way()),
                lambda: self._trace(trains),
            )
        finally:
            self._say_trace()

    def measure_trace(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs what runs a few samples, and says so where that takes too much."""
        with memory.count_memory(self.device) as counted:
            found = function(*args, **kwargs)
        self.plan.trace_bytes = counted.get_peak()
        self._say_trace()
        return found

    def _say_trace(self) -> None:
        taken, self.plan.trace_bytes = self.plan.trace_bytes, 0
        if taken > self._most_trace:
            self.announce(
                "to plan it the first step ran a few samples, which took "
                f"{memory.format_bytes(self.resident + taken)} of "
                f"{memory.format_bytes(self.budget)}; later ones do not",
                None,
            )

    @property
    def _most_trace(self) -> int:
        """Bytes that a trace may take."""
        return max(self.budget - self.resident, _LEAST_TRACE)

    def _trace(self, trains: bool) -> Traced:
        """Runs a few samples. What they take nobody knows before: it is measured."""
        with memory.count_memory(self.device) as counted:
            try:
                return trace(
                    self.program,
                    self.batch,
                    trains,
                    self.plan.varying,
                    self._may_be_whole,
                    self._traces_whole(),
                    lambda few: few * counted.get_peak() <= self._most_trace,
                )
            finally:
                self.plan.trace_bytes = counted.get_peak()

    def _way(self) -> tuple[Any, ...]:
        """What the program is traced for beside its numbers: what follows from one trace
        is no answer about another."""
        return self.batch, self._may_be_whole, self._traces_whole()

    def _traces_whole(self) -> bool:
        """Whether a trace may run all of it: what nothing but its figure is asked of, since
        it is in no tiles."""
        return self._may_be_whole and self.plan.is_cut_known and self.plan.cut is None

    @functools.cached_property
    def _may_be_whole(self) -> bool:
        """Whether a trace may run all that has none of the batches that were named.
        Asked once: what ran is gone."""
        if self._rough() <= self._most_trace:
            return True
        if self.plan.whole is None:
            self.plan.whole = whole_bytes(self.program, self.batch)
        return self.plan.whole <= self._most_trace

    def take(self) -> list[Any]:
        """The arguments of the traced program."""
        return self.traced().take(self.program)

    def options(self) -> dict[str, Any]:
        named = {"B": self.batch} if self.batch and self.has_batch() else {}
        loss = {"loss": ""} if self.mode == "train" else {}
        return {"batch": named, "mode": self.mode, **loss}

    def has_batch(self) -> bool:
        """Whether the program works for another number of samples."""
        return any("B" in spec for spec in self.traced().specs)

    # What it needs.

    def report(self) -> dict[str, Any]:
        """The analysis of the whole batch. It does not depend on numbers."""
        key = (self.mode, self.grads, torch.get_num_threads(), *self._way())
        return _remember(self.plan.reports, key, self._analyze)

    def _analyze(self) -> dict[str, Any]:
        traced = self.traced()
        with self._compiler(traced):
            report = analyze_script(
                traced.script,
                traced.specs,
                floor=False,
                batches=0,
                grads=self.grads,
                device=self.device,
                from_host=traced.list_from_host(self.program),
                name="the recorded program",
                **self.options(),
            )
        return report

    def peak(self) -> int | None:
        """Bytes of the whole batch, None if that is not known. Raises
        CompileError where nothing is known of the program."""
        peak = self.report()["peak_bytes"]
        return None if peak is None else int(peak) + self.resident + self.beside

    def find_unknown(self) -> CompileError | None:
        """Why it is not known what the whole batch needs, if that may be more than there is."""
        if self.batch == 0:
            return None
        try:
            if self.peak() is not None:
                return None
            problem = CompileError("its shapes are not known")
        except CompileError as error:
            problem = _bare(error)
        rough = _INSIDE * self._rough()
        return problem if rough > self._current_budget(rough) else None

    def fits(self, more: int = 0) -> bool:
        """Whether the whole batch, and ``more`` bytes, fit the budget; announces
        where koila cannot tell."""
        if self.batch == 0:
            return True
        if self.most is not None:
            return False
        try:
            peak = self.peak()
        except CompileError:
            peak = None
        if peak is None:
            problem = self.find_unknown()
            if problem is not None:
                text, place = explain(problem, self.program)
                self.announce(
                    "koila cannot tell how much memory this needs, so nothing protects it: " + text,
                    place,
                )
            return True
        peak += more
        if peak > self._current_budget(peak):
            return False
        report = self.report()
        doubts = [entry for entry in report["inexact"] if not entry.get("bound")]
        if not report["exact"] and doubts and peak * _CLOSE > self.budget:
            return False
        if not report["exact"] and doubts and self._most(peak, doubts) > self.budget:
            self.announce(
                f"this needs about {memory.format_bytes(peak)} of "
                f"{memory.format_bytes(self.budget)}, but the figure is not exact: "
                f"{doubts[0]['reason']}",
                None,
            )
        return True

    def _most(self, peak: int, doubts: list[dict[str, Any]]) -> int:
        """Bytes with what the calls of which the figures are not known take inside."""
        nodes = find_recorded((entry.get("location") for entry in doubts), self.program)
        inside = sum(node.call.made for node in nodes)
        return max(_MISSING * peak, peak + _INSIDE * inside)

    def _current_budget(self, peak: int) -> int:
        """The budget, asked for anew if ``peak`` is not far from it."""
        if peak * _FAR > self.budget:
            self.budget = min(memory.budget_bytes(budget, self.device) for budget in self.budgets)
        return self.budget

    def _rough(self) -> int:
        """Bytes if nothing that is computed were freed, in both directions."""
        held = sum(leaf.tensor.nbytes for leaf in self.program.leaves if leaf.tensor is not None)
        return 2 * (held + sum(node.call.made for node in self.program.nodes))

    # The tiles in which it fits.

    def compile(self, or_raise: bool = False) -> Compiled:
        """The program in tiles for the budget; announced where the figures that
        the tile rests on are not exact, or where even the least are too much
        (``or_raise``: then BudgetError)."""
        self.copied = self.traced().copied_bytes(self.program)
        left = self._left
        attempts = [(self.grads, left)]
        if "auto" not in self.budgets and not or_raise:
            # A budget of the user's is for what a step needs beside what plain
            # PyTorch keeps as well: gradients of weights, and results.
            kept = sum(root.meta.nbytes for root in self.program.roots)
            attempts.append(("present", left + kept))
        problem: BudgetError | None = None
        for grads, budget in attempts:
            self.apart = budget - left
            try:
                made = self._compile_within(grads, max(budget, 0))
            except BudgetError as error:
                problem = _bare(error)
                continue
            if budget > left and (made.report["peak_bytes"] or 0) <= budget:
                self._say_results(made)
            self._say_again(made)
            return made
        assert problem is not None
        if or_raise:
            raise _bare(problem)  # not what this frame holds: that would be a cycle
        text, place = explain(problem, self.program)
        if problem.smallest_budget is None:
            raise CompileError(text, place)
        smallest = problem.smallest_budget + self.budget - attempts[-1][1]
        if is_strict():
            self._give_up()
        known = BudgetError(problem.message, problem.location, (), smallest)
        need = self._find_with_results(problem.smallest_budget, smallest)
        results = (
            ""
            if need is None
            else f", and takes {memory.format_bytes(need)} with the results that the program holds"
        )
        self.announce(
            f"no tile fits {memory.format_bytes(self.budget)}; this runs in the least, which "
            f"needs {memory.format_bytes(smallest)} ({smallest:,} bytes){results}: "
            + (in_user_lines(problem.notes[0], self.program) if problem.notes else text),
            place,
            known,
        )
        made = self._compile_within(attempts[-1][0], problem.smallest_budget)
        self._say_again(made)
        return made

    def _say_results(self, made: Compiled) -> None:
        """Says that results which the program holds are there beside the budget: they are
        no part of it, and no reason to refuse anything."""
        need = self._find_with_results(made.report["peak_bytes"], self.budget)
        if need is not None and not is_strict():
            self.announce(
                f"results that the program holds are there beside the budget of "
                f"{memory.format_bytes(self.budget)}: with them it takes "
                f"{memory.format_bytes(need)}",
                None,
            )

    def _find_with_results(self, peak: int | None, budget: int) -> int | None:
        """Bytes of tiles with this peak and of the results that the program holds, where these
        are more than a loss and a few numbers beside the budget."""
        need = 0 if peak is None else peak + self.budget - self._left
        return need if need > budget + budget // _FEW_RESULTS else None

    @property
    def _left(self) -> int:
        """Bytes of the budget for what the program does itself."""
        return self.budget - self.resident - self.beside - self.copied

    def _compile_within(self, grads: str, budget: int) -> Compiled:
        key = (self.mode, grads, self._numbers(), torch.get_num_threads(), *self._way())
        found = self.plan.compiled.setdefault(key, [])
        traced = self.traced()
        # A trace that was forgotten, and made again, has weights of its own.
        found[:] = [entry for entry in found if entry.traced is traced]
        choice = next((entry for entry in found if entry.holds(budget)), None)
        if choice is None:
            choice = self._choose(grads, budget)
            found.append(choice)
            del found[:-_MOST_VARIANTS]
            if len(self.plan.compiled) > _MOST_VARIANTS:
                del self.plan.compiled[next(iter(self.plan.compiled))]
        if isinstance(choice.made, CompileError):
            raise _bare(choice.made)
        if choice.doubt is not None:
            text, place = explain(choice.doubt, self.program)
            self.announce(
                f"this runs in tiles of {choice.made.tile} samples, without a promise that they "
                f"fit {memory.format_bytes(self.budget)}: {text}",
                place,
            )
        if self.most is not None and (choice.made.tile or self.most + 1) > self.most:
            return self._compile_smaller(key, grads)
        return choice.made

    def _compile_smaller(self, key: tuple[Any, ...], grads: str) -> Compiled:
        """In the largest tile that is tried, whatever budget there is."""
        traced, most = self.traced(), self.most
        found = self.plan.compiled.setdefault((*key, most), [])
        found[:] = [entry for entry in found if entry.traced is traced]
        if not found:
            found.append(_Choice(traced, 0, self._rewrite(grads, tile=most), None))
        made = found[0].made
        assert isinstance(made, Compiled)
        return made

    def _choose(self, grads: str, budget: int) -> _Choice:
        traced = self.traced()
        try:
            return _Choice(traced, budget, self._rewrite(grads, budget=budget), None)
        except CompileError as error:
            if not isinstance(error, UnpromisedError) or self.batch is None:
                return _Choice(traced, budget, _bare(error), None)
            doubt = _bare(error)
        peak, batch = self.report()["peak_bytes"], self.batch
        try:
            made = choose_tile(batch, peak, budget, lambda tile: self._rewrite(grads, tile=tile))
        except CompileError as error:
            return _Choice(traced, budget, _bare(error), None)
        return _Choice(traced, budget, made, doubt)

    def _rewrite(self, grads: str, **size: Any) -> Compiled:
        if self.mode == "train":
            refuse_unseen_writes(self.program)
        traced = self.traced()
        with tracing, self._compiler(traced):
            made = compile_script(
                traced.script,
                traced.specs,
                guard="raise",
                grads=grads,
                device=self.device,
                from_host=traced.list_from_host(self.program),
                name="the recorded program",
                **self.options(),
                **size,
            )
        method = "train_step" if self.mode == "train" else "forward"
        if (
            torch.get_default_dtype() != torch.float32
            and _DEFAULT in getattr(made.module, method).code
        ):
            raise CompileError(
                "floats are made of integers, in the type of torch.get_default_dtype(), which is "
                f"{torch.get_default_dtype()}; koila knows them as float32"
            )
        return made

    @contextlib.contextmanager
    def _compiler(self, traced: Traced) -> Iterator[None]:
        """The weights are there to look at; what is warned of is in the report."""
        traced.lend(self.program)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KoilaWarning)
                yield
        finally:
            traced.release()

    def need_of(self, compiled: Compiled) -> int | None:
        """Bytes that tiles of the program need of the budget; None if that is not known."""
        peak: int | None = compiled.report["peak_bytes"]
        if peak is None:
            return None
        return peak + self.resident + self.beside + self.copied - self.apart

    # What is said of it.

    def note(self, compiled: Compiled | None, *, is_read: bool = False) -> None:
        """How it runs: in tiles, or whole."""
        if compiled is not None:
            note(compiled.tile, self.need_of(compiled), self.budget, is_read=is_read)
            return
        try:
            peak = None if self.batch == 0 else self.peak()
        except CompileError:
            peak = None
        note(None, peak, self.budget, is_read=is_read)

    def run_whole(self, error: CompileError | str) -> None:
        """Says that the program runs whole although it does not fit, and why."""
        if _again.ran_out is not None:
            self.raise_again(_again.ran_out)
        if isinstance(error, CompileError):
            text, place = explain(error, self.program)
        else:
            text, place = error, None
        try:
            peak = self.peak()
        except CompileError:
            peak = None
        need = "more" if peak is None else memory.format_bytes(peak)
        self.announce(
            f"this needs {need}, and there are {memory.format_bytes(self.budget)}; koila cannot "
            f"split it, so it runs whole: {text}",
            place,
        )

    # Where memory runs out all the same.

    @property
    def most(self) -> int | None:
        """The samples of the largest tile that is tried; None: nothing has run out of memory."""
        return self.plan.most.get(self.mode)

    def shrink(self, ran_out: RanOut) -> Compiled:
        """Smaller tiles than those that ran out of memory, also for later runs; said with the
        sizes. Raises OutOfMemoryError where there are none."""
        samples = ran_out.tile or self.batch or 0
        half = half_of(samples)
        if half is None:
            self._give_up()
            raise OutOfMemoryError(
                f"memory ran out with one sample at once, {self._in_figures(ran_out)}, and "
                f"no tile is smaller: {explain_torch(ran_out.error)[0]}",
                location_of(self.frames),
            ) from ran_out.error
        self.plan.most[self.mode] = half
        self._say_shrunk(ran_out, half)
        try:
            return self.compile()
        except CompileError as error:
            self._give_up()
            raise OutOfMemoryError(
                f"memory ran out with {samples} samples at once, "
                f"{self._in_figures(ran_out)}, and no tile is smaller: {error.message}",
                location_of(self.frames),
            ) from ran_out.error

    @contextlib.contextmanager
    def again(self, ran_out: RanOut) -> Iterator[None]:
        """The program ran out of memory as a whole: in this block it runs in tiles, as from
        now on. Where it cannot, what was raised then is raised again."""
        half = half_of(self.batch or 0)
        if half is None:
            self.raise_again(ran_out)
        else:
            self.plan.most[self.mode] = half
        self.plan.step_peak = None
        before = _again.ran_out, _again.run
        _again.ran_out, _again.run, _again.is_said = ran_out, self, False
        del ran_out  # an error that its own traceback leads to would stay
        try:
            yield
        finally:
            _again.ran_out, _again.run = before

    def _say_again(self, made: Compiled) -> None:
        """Says that a program which ran whole runs in tiles."""
        ran_out = _again.ran_out
        if ran_out is not None and not _again.is_said:
            _again.is_said = True
            self._say_shrunk(ran_out, made.tile or self.batch or 0)

    def _say_shrunk(self, ran_out: RanOut, tile: int) -> None:
        samples = ran_out.tile or self.batch
        text = (
            f"memory ran out with {samples} samples at once, {self._in_figures(ran_out)}; "
            f"this runs again with {tile} at once, or fewer, and so do later steps"
        )
        place = location_of(self.frames)
        if is_strict():
            self._give_up()
            raise OutOfMemoryError(text, place) from ran_out.error
        self.announce(text, place)

    def _in_figures(self, ran_out: RanOut) -> str:
        return in_figures(ran_out.error, ran_out.peak, self.budget)

    def raise_again(self, ran_out: RanOut) -> NoReturn:
        """There is no other way to run it than that which ran out of memory."""
        failed = _again.run or self
        failed.plan.most.pop(failed.mode, None)
        failed.plan.stays_whole = True
        error, frames = ran_out.error, ran_out.frames
        del ran_out
        try:
            raise_at(error, frames or (Frame("", 0), Frame("", 0)))
        finally:
            del error  # which its own traceback leads to
        raise AssertionError  # it has raised

    def _give_up(self) -> None:
        """What is refused does not write later, either."""
        refused = set(self.program.nodes)
        recording.pending[:] = [node for node in recording.pending if node not in refused]
        for node in refused:
            for index in node.call.writes:
                group = node.inputs[index].group
                if group.external and group.last_write in refused:
                    group.last_write = None
        show_updated()

    def announce(self, text: str, place: Location | None, error: BudgetError | None = None) -> None:
        if is_strict():
            self._give_up()
        announce(text, place or location_of(self.frames), self.announced, error)


_ASKED = re.compile(r"tried to allocate ([\d.,]+ [A-Za-z]+)", re.IGNORECASE)


def in_figures(error: Exception, peak: int | None, budget: int | None = None) -> str:
    """What was planned, and what there was no more memory for, in words."""
    need = "without a figure" if peak is None else f"planned with {memory.format_bytes(peak)}"
    limit = "" if budget is None else f" of {memory.format_bytes(budget)}"
    asked = _ASKED.search(str(error))
    failed = f", at an allocation of {asked[1]}" if asked else ""
    return f"{need}{limit}{failed}"


def check_budget(budget: int | str) -> None:
    """Raises KoilaError for what is no budget."""
    if budget != "auto":
        memory.budget_bytes(budget)


def start(program: Program, mode: str, frames: Frames) -> Run:
    """A run of ``program``, with the budget that there is now."""
    origins = [leaf.source for leaf in program.leaves if leaf.source is not None]
    batch = next((origin.size for origin in origins if origin.batch is not None), None)
    if batch is None:
        # None was named. What is tried is proven like any other.
        batch = next(
            (leaf.meta.shape[0] for leaf in program.leaves if leaf.source and leaf.meta.shape),
            None,
        )
    device, mix = _find_device(program)
    budgets = {origin.budget for origin in origins} or {"auto"}
    budget = min(memory.recent_budget_bytes(budget, device) for budget in budgets)
    # What the environment says in its place is no memory that is free now.
    named = os.environ.get("KOILA_BUDGET", "auto")
    budgets = {named if given == "auto" else given for given in budgets}
    grads = "present"
    if mode == "train" and any(
        isinstance(leaf.tensor, nn.Parameter)
        and leaf.meta.requires_grad
        and leaf.tensor.grad is None
        for leaf in program.leaves
    ):
        grads = "absent"
    # Of the memory that is free now they were taken already.
    resident = 0
    if "auto" not in budgets:
        resident = _find_resident(program, device)
    restart()
    plan = _find_plan(program)
    beside = sum(program.tensor_of(program.leaves[place]).nbytes for place in program.copied)
    return Run(
        program, plan, mode, frames, batch, budget, grads, budgets, device, resident, beside, mix
    )


def _find_device(program: Program) -> tuple[torch.device, str | None]:
    """Where a program runs, and what is where if that is more than one device: then it is
    the first that is no CPU, whose memory is less."""
    devices = {leaf.meta.device for leaf in program.leaves}
    for node in program.nodes:
        devices.update(meta.device for meta in node.call.metas)
    found = find_device_of(sorted(devices, key=str))
    if len(devices) < 2:
        return found, None
    kinds = {True: "a weight", False: "a tensor"}
    tensors = [
        (kinds[isinstance(leaf.tensor, nn.Parameter)], leaf.meta.shape, leaf.meta.device)
        for leaf in program.leaves
    ]
    for node in program.nodes:
        name = getattr(node.call.function, "__name__", node.call.function)
        tensors += [(f"a result of '{name}'", x.shape, x.device) for x in node.call.metas]
    return found, describe_mix(tensors)


# Of a tensor that the leaf of a program alone holds, with those of the question.
_OWN_REFERENCES = 3
# Of a base that its view alone holds, with those of the question; and of their memory,
# with that by which the recording knows the view.
_BASE_REFERENCES = 3
_STORAGE_REFERENCES = 4
# Of their memory, by each further view.
_VIEW_REFERENCES = 2
_use_count: Any = torch._C._storage_Use_Count


def _find_resident(program: Program, device: torch.device) -> int:
    """Bytes on the device of masks that were drawn, of what has been computed of the batch
    and is held, as what a read has found that a step computes again, of what nobody else
    holds any more, as the first state of a recurrent layer, and of graphs: those that programs have
    left, and those of the user's that end here."""
    values = [*program.leaves, *recording.list_all()]
    given = {
        tensor.untyped_storage().data_ptr()
        for value in values
        if value.origin
        for tensor in value.list_tensors()
    }
    found: dict[int, int] = {}  # bytes by storage
    for value in _list_computed(program):
        for computed in value.list_tensors():
            if computed.device != device:
                continue
            storage = computed.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if value.group.external:
                # It may be a view of memory of the user's.
                size = min(size, computed.nbytes)
            found[place] = max(size, found.get(place, 0))
    # Gradients of inputs are results of the steps before; those of weights are beside.
    gradients = [_gradient_of(value.tensor) for value in values]
    for gradient in (*gradients, *(reference() for reference in recording.gradients)):
        if gradient is not None and gradient.device == device:
            found.setdefault(gradient.untyped_storage().data_ptr(), gradient.nbytes)
    own: dict[int, list[torch.Tensor]] = {}
    for leaf in program.leaves:
        tensor = leaf.tensor
        if tensor is None or tensor.layout is not torch.strided or leaf.origin:
            continue
        if tensor.device != device:
            continue
        # Views of what was given have no bytes of their own.
        if leaf.source is not None or sys.getrefcount(tensor) <= _OWN_REFERENCES:
            own.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for place, tensors in own.items():
        found.setdefault(place, _own_bytes(tensors))
    resident = sum(size for place, size in found.items() if place not in given)
    ends = (leaf.tensor for leaf in program.leaves if leaf.tensor is not None)
    return resident + measure_graphs(ends, given | found.keys())


def _gradient_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """That of a tensor which is no weight."""
    if tensor is None or isinstance(tensor, nn.Parameter) or not tensor.is_leaf:
        return None
    gradient = tensor.grad
    return gradient if gradient is not None and gradient.layout is torch.strided else None


def _own_bytes(tensors: list[torch.Tensor]) -> int:
    """Of what nobody else holds, in one memory: parts of it keep all, as ``x.clone()[:n]``,
    or ``noise[t]`` of each step, where what they are parts of is gone."""
    base: Any = tensors[0]._base
    storage = tensors[0].untyped_storage()
    is_gone = base is not None and sys.getrefcount(base) <= _BASE_REFERENCES
    others = _VIEW_REFERENCES * (len(tensors) - 1)
    if is_gone and _use_count(storage._cdata) <= _STORAGE_REFERENCES + others:
        return storage.nbytes()
    return min(sum(tensor.nbytes for tensor in tensors), storage.nbytes())


def _list_computed(program: Program) -> Iterator[Value]:
    """What the user's program holds that was computed of the batches that this one is made
    of, or that this one computes again or reads."""
    calls = {leaf.source.call for leaf in program.leaves if leaf.source is not None}
    nodes, leaves = set(program.nodes), set(program.leaves)
    values = recording.list_all()
    for value in (*values, *_list_before_writes(values)):
        is_of_batch = value.source is not None and value.source.call in calls
        is_seen = value.tensor is None and (value.node in nodes or value in leaves)
        if is_of_batch or is_seen:
            yield value


def _list_before_writes(values: list[Value]) -> Iterator[Value]:
    """What there is of their memory from before writes that have still to run: nobody holds
    it, and reads begin with a copy of what was seen of it."""
    groups = {value.group for value in values}
    waiting = list(groups)
    while waiting:
        write = waiting.pop().open_write()
        for written in () if write is None else written_by(write):
            if written.group not in groups:
                groups.add(written.group)
                waiting.append(written.group)
                yield from written.group.list_members()
