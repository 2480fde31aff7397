"""Memory that runs out although a plan says that there is enough: what the run has added is
taken back, and it runs again in smaller tiles.

A program in tiles has changed gradients and running statistics by then, and nothing else. One
that runs whole has computed values for good, too: it is recorded again as it was
(``rewind.py``). Random numbers were drawn when it was recorded, and are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from koila._capture.frames import find_frames, find_raised_at, location_of, raise_at
from koila._capture.memory import written_by
from koila._capture.program import Program
from koila._capture.rewind import Rewind
from koila._capture.statistics import settle_updates
from koila._capture.thread_recordings import recording
from koila._capture.values import Value, has_gradient_hooks
from koila._compiler import Compiled
from koila._errors import GRADIENTS_STAY, CompileError, OutOfMemoryError, explain_torch
from koila._execute.undo import Copies
from koila._out_of_memory import let_go, ran_out, release_cached
from koila._plan.plan_cache import Plan
from koila._plan.planner import RanOut, Run

__all__ = ["begin", "in_smaller_tiles", "in_tiles", "spoil"]

_T = TypeVar("_T")


def in_tiles(
    run: Run,
    compiled: Compiled,
    attempt: Callable[[Compiled], _T],
    gradients: Iterable[Tensor] = (),
) -> tuple[_T, Compiled]:
    """What an attempt gives of a compiled program, and the program that had enough memory: in
    smaller tiles where the first one had not. ``gradients`` are those that it adds to. Its
    statistics are updated, and an attempt does nothing else that lasts."""
    spoil()
    copies = Copies.make([*gradients, *_list_statistics(run.program)])
    while True:
        try:
            found = attempt(compiled)
            break
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            failed = _describe(error, compiled.tile, run.need_of(compiled))
        # Outside of the handler, which would keep the tensors of the attempt.
        if copies is None:
            settle_updates(run.program.nodes)
            _raise(failed, stays=True)
        copies.restore()
        release_cached()
        compiled = run.shrink(failed)
        del failed
    settle_updates(run.program.nodes)
    return found, compiled


def _describe(error: Exception, tile: int | None, peak: int | None) -> RanOut:
    frames = find_raised_at(error)
    return RanOut(let_go(error), frames, tile, peak)


def _list_statistics(program: Program) -> list[Tensor]:
    """The running statistics that a program updates, each once."""
    updated = (value for node in program.nodes if node.writes_outside for value in written_by(node))
    found = {id(value.tensor): value.tensor for value in updated if value.tensor is not None}
    return list(found.values())


class _Trial:
    """What one program that runs whole changes. Where more than one has run nothing is taken
    back."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.peak: int | None = None
        self.is_spoilt = False
        self._rewind: Rewind | None = None
        self._copies: Copies | None = None
        self._has_statistics = False
        # Leaves of autograd, their gradients, and the versions of these.
        self._leaves: list[tuple[Tensor, Tensor | None, int]] = []
        self._has_copies = False  # of the gradients
        self._reads: list[Plan] = []

    def begin(self, run: Run, program: Program, reads: list[Plan]) -> Rewind | None:
        self._reads = reads
        rewind = Rewind(program.nodes)
        leaves = [leaf.tensor for leaf in program.leaves if leaf.meta.requires_grad]
        if not rewind.may_rewind() or not self._find_leaves(leaves):
            self.is_spoilt = True
            return None
        gradients = [gradient for _, gradient, _ in self._leaves if gradient is not None]
        self.peak = _find_peak(run)
        # Gradients are often as large as all weights.
        need = None if self.peak is None else self.peak + sum(each.nbytes for each in gradients)
        self._has_copies = need is not None and need <= run.budget
        self._begin(run, program, gradients if self._has_copies else [])
        self._rewind = rewind
        return rewind

    def begin_evaluation(self, run: Run) -> None:
        self.peak = _find_peak(run)
        self._begin(run, run.program, [])

    def _begin(self, run: Run, program: Program, gradients: list[Tensor]) -> None:
        statistics = _list_statistics(program)
        self.run, self._has_statistics = run, bool(statistics)
        self._copies = Copies.make([*gradients, *statistics], on_host=False)

    def _find_leaves(self, leaves: list[Tensor | None]) -> bool:
        """False where a backward pass does more than to add to their gradients."""
        self._leaves = []
        for tensor in leaves:
            if tensor is None:
                continue
            if not tensor.is_leaf or has_gradient_hooks(tensor):
                return False
            gradient = tensor.grad
            version = 0 if gradient is None else gradient._version
            self._leaves.append((tensor, gradient, version))
        return True

    def wait(self, loss: Value) -> None:
        """The program has run, to be differentiated later: memory may run out there."""
        if self.run is None or self._rewind is None or self.is_spoilt or self._has_statistics:
            return
        self._rewind.wait()
        # Nothing that leads to the loss.
        self.run = dataclasses.replace(self.run, program=Program([], []))
        self._copies, self._has_copies = Copies([]), False
        for graph in loss.graphs:
            graph.trial = self

    def go_on(self) -> bool:
        """Whether nothing else has become of it; a backward pass begins now."""
        assert self._rewind is not None
        return self._rewind.is_as_left() and self._find_leaves([leaf for leaf, *_ in self._leaves])

    def can_take_back(self) -> bool:
        if self.is_spoilt or self._copies is None:
            return False
        return self._has_copies or all(
            gradient is None or (leaf.grad is gradient and gradient._version == version)
            for leaf, gradient, version in self._leaves
        )

    def take_back(self) -> None:
        assert self._copies is not None
        if self._rewind is not None:
            self._rewind.restore()
        for leaf, gradient, _ in self._leaves:
            leaf.grad = gradient
        self._copies.restore()
        for plan in self._reads:
            plan.step_peak = None


def _find_peak(run: Run) -> int | None:
    with contextlib.suppress(CompileError):
        return run.peak()
    return None


def begin(
    run: Run, program: Program | None = None, reads: list[Plan] | None = None
) -> Rewind | None:
    """A program is about to run whole: for good, if ``program`` is what runs of it, which
    then takes what is returned. ``reads`` were planned by what this will have needed."""
    trial: _Trial | None = recording.trial
    if trial is None or trial.is_spoilt:
        return None
    can_split = run.batch is not None and run.batch > 1 and not run.plan.stays_whole
    if trial.run is not None or not can_split or (program or run.program).writes(statistics=False):
        trial.is_spoilt = True
        return None
    if program is None:
        trial.begin_evaluation(run)
        return None
    return trial.begin(run, program, reads or [])


def spoil() -> None:
    """Something has been done for good: it is not all taken back any more."""
    if recording.trial is not None:
        recording.trial.is_spoilt = True


def _find_waiting(loss: Value) -> _Trial | None:
    for graph in loss.graphs:
        trial: _Trial | None = graph.trial
        if trial is not None and trial.go_on():
            return trial
    return None


# So many programs of one step run out of memory as a whole.
_MOST_TRIALS = 4


def in_smaller_tiles(
    step: Callable[[], _T], *, of: Value | None = None, read: Value | None = None
) -> _T:
    """What ``step`` returns. If memory runs out where it runs a program whole (``begin``), or
    behind that, it is done again in tiles; where the program is in none, it is an
    OutOfMemoryError. It is the backward pass ``of`` a loss, which may have run before, or has
    ``read`` one, which may be differentiated later."""
    if recording.trial is not None:
        return step()  # it is part of another one
    try:
        return _attempt(step, of, read, _MOST_TRIALS)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error) or isinstance(error, torch.OutOfMemoryError):
            raise
        failed = _describe(error, None, None)
    _raise(failed, stays=False)


def _attempt(step: Callable[[], _T], of: Value | None, read: Value | None, left: int) -> _T:
    """The same, ``left`` times at most; where the program is in no tiles, what was raised is
    raised again."""
    if not left:
        return step()
    trial = (None if of is None else _find_waiting(of)) or _Trial()
    recording.trial = trial
    try:
        found = step()
        if read is not None:
            trial.wait(read)
        return found
    except (RuntimeError, MemoryError) as error:
        if trial.run is None or not ran_out(error):
            raise
        failed = _describe(error, None, trial.peak)
    finally:
        recording.trial = None
    # Outside of the handler, which would keep what the run has made.
    run = trial.run
    if not trial.can_take_back():
        _raise(failed, stays=True)
    trial.take_back()
    del trial
    release_cached()
    try:
        try:
            with run.again(failed):
                return _attempt(step, of, read, left - 1)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            let_go(error)
        # Not even what plans it has enough.
        run.raise_again(failed)
    finally:
        del failed  # an error that its own traceback leads to would stay


def _raise(failed: RanOut, *, stays: bool) -> NoReturn:
    """What was not to be done in less memory, at the line of the user's that asked for it."""
    frames = failed.frames or find_frames()
    text = f"memory ran out, and this is in no smaller tiles: {explain_torch(failed.error)[0]}"
    error = OutOfMemoryError(text, location_of(frames), (GRADIENTS_STAY,) if stays else ())
    error.__cause__ = failed.error
    del failed
    try:
        raise_at(error, frames)
    finally:
        del error  # which its own traceback leads to
    raise AssertionError  # it has raised
