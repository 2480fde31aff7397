"""What is known of recorded programs: whether they fit, and in which tiles."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch import nn

from koila import memory
from koila._capture.frames import Frame, Frames, location_of, raise_at
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
from koila._capture.statistics import show_updated
from koila._capture.thread_locks import tracing
from koila._capture.thread_recordings import recording
from koila._compiler import Compiled, analyze_script, compile_script
from koila._errors import (
    BudgetError,
    CompileError,
    KoilaWarning,
    Location,
    OutOfMemoryError,
    UnpromisedError,
    explain_torch,
)
from koila._plan.announce import Announced, announce, is_strict, note, restart
from koila._plan.plan_cache import MOST_VARIANTS, Choice, Plan, bare, find_plan, remember
from koila._plan.resident import find_device, find_resident
from koila._plan.unpromised import choose_tile

__all__ = [
    "RanOut",
    "Run",
    "check_budget",
    "half_of",
    "in_figures",
    "start",
]


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


_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Again(threading.local):
    """What ran out of memory as a whole and is run again, and whether that was said."""

    ran_out: RanOut | None = None
    run: Run | None = None
    is_said = False


_again = _Again()


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
            return remember(
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
        return remember(self.plan.reports, key, self._analyze)

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
            problem = bare(error)
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
                problem = bare(error)
                continue
            if budget > left and (made.report["peak_bytes"] or 0) <= budget:
                self._say_results(made)
            self._say_again(made)
            return made
        assert problem is not None
        if or_raise:
            raise bare(problem)  # not what this frame holds: that would be a cycle
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
            del found[:-MOST_VARIANTS]
            if len(self.plan.compiled) > MOST_VARIANTS:
                del self.plan.compiled[next(iter(self.plan.compiled))]
        if isinstance(choice.made, CompileError):
            raise bare(choice.made)
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
            found.append(Choice(traced, 0, self._rewrite(grads, tile=most), None))
        made = found[0].made
        assert isinstance(made, Compiled)
        return made

    def _choose(self, grads: str, budget: int) -> Choice:
        traced = self.traced()
        try:
            return Choice(traced, budget, self._rewrite(grads, budget=budget), None)
        except CompileError as error:
            if not isinstance(error, UnpromisedError) or self.batch is None:
                return Choice(traced, budget, bare(error), None)
            doubt = bare(error)
        peak, batch = self.report()["peak_bytes"], self.batch
        try:
            made = choose_tile(batch, peak, budget, lambda tile: self._rewrite(grads, tile=tile))
        except CompileError as error:
            return Choice(traced, budget, bare(error), None)
        return Choice(traced, budget, made, doubt)

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
    device, mix = find_device(program)
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
        resident = find_resident(program, device)
    restart()
    plan = find_plan(program)
    beside = sum(program.tensor_of(program.leaves[place]).nbytes for place in program.copied)
    return Run(
        program, plan, mode, frames, batch, budget, grads, budgets, device, resident, beside, mix
    )
