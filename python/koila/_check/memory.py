"""What koila says of the memory of cases, next to what PyTorch's allocator does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from koila._check.asking import Prediction, ask_memory, ask_step
from koila._check.findings import Finding, Unanswered, show_events
from koila._check.step import make_step
from koila._generators.draw import ERRORS
from koila._generators.generator import Case
from koila._generators.program import can_want, script_call
from koila.memory import AllocatorEvent, record_events

__all__ = ["Run", "check_calls", "check_steps"]

# Samples of calls, and of steps.
_CALLS, _STEPS = (7, 1), 7


@dataclass(frozen=True)
class Run:
    """A case with a number of samples."""

    case: Case
    samples: int

    def __str__(self) -> str:
        return f"{self.case}; B = {self.samples}" if self.case.follows_batch() else str(self.case)


def check_calls(kind: str, cases: Sequence[Case], device: str) -> Finding:
    """Bytes and blocks of calls. ``kind`` is ``forward``, of which nothing is recorded, or
    ``saved``, those that autograd records."""
    finding = Finding(kind)
    grad = kind == "saved"
    if grad:
        cases = [c for c in cases if any(can_want(getattr(torch, x.dtype)) for x in c.inputs)]
    if not cases:
        finding.note = "no argument has a gradient"
    for samples in _CALLS:
        those = [c for c in cases if c.follows_batch() or samples == _CALLS[0]]
        mode = "forward-with-grad" if grad else "inference"
        said, refused = ask_memory(those, samples, mode, device)
        for index, case in enumerate(those):
            run = Run(case, samples)
            if index in refused:
                finding.others[f"koila gives no figure: {refused[index]}"] += 1
            else:
                finding.hold(_compare_call(said[index], run, grad), run)
    return finding


def _compare_call(said: Prediction, run: Run, grad: bool) -> Iterator[str | None]:
    with torch.set_grad_enabled(grad):
        try:
            call = script_call(run.case, run.samples, grad)
            found, events = record_events(call, of_all_threads=True)
        except ERRORS:
            return  # A call that is illegal with so many samples.
        del found, call
    yield from _compare(said, events, "results among them, ")


def check_steps(cases: Sequence[Case], device: str) -> Finding:
    """Bytes at the worst moment of a forward and a backward pass."""
    finding = Finding("backward")
    for case in cases:
        run = Run(case, _STEPS)
        finding.hold(_compare_step(run, device), run)
    return finding


def _compare_step(run: Run, device: str) -> Iterator[str | None]:
    with torch.enable_grad():
        try:
            step = make_step(run.case, run.samples)
            if step is None:
                raise Unanswered("autograd records nothing of it")
            # From the second step on gradients are there before.
            step.run()
            step.run()
            _, events = record_events(step.run, of_all_threads=True)
        except ERRORS as error:
            first = next(iter(str(error).splitlines()), "")
            raise Unanswered(f"PyTorch refuses its backward pass: {first}") from None
    said = ask_step(step, device)
    if isinstance(said, str):
        raise Unanswered(f"koila gives no figure: {said}")
    # In which order a backward pass frees is not told.
    said.blocks.is_exact = False
    yield from _compare(said, events, "of the step with its backward pass, ")


def _compare(said: Prediction, events: Sequence[AllocatorEvent], what: str) -> Iterator[str | None]:
    """Bytes at the worst moment, those that are kept, and the blocks themselves. ``what``
    says of which bytes the first are."""
    figures, blocks = said.figures, said.blocks
    peak, kept = _add_up(events)
    most = figures.kept + figures.transient
    # Of what data decide less may be left, and more be inside.
    by_data = any("decided by data" in reason for reason in figures.reasons)
    lists = f"(blocks: says {show_events(blocks.events)}; there are {show_events(events)})"
    if not figures.reasons:
        if most != peak:
            yield (
                f"says that {most} bytes are held at the worst moment, {what}and {peak} are {lists}"
            )
        elif figures.kept != kept:
            yield f"says that {figures.kept} bytes are kept, and {kept} are {lists}"
        elif blocks.is_exact and not _is_same(blocks.events, events):
            yield f"says that other blocks come and go than do {lists}"
        else:
            yield None
        return
    if not figures.is_bound:
        raise Unanswered(f"koila gives no figure: {figures.reasons[0]}")
    if peak > most and not by_data:
        yield (
            f"says that at most {most} bytes are held at the worst moment, {what}"
            f"and {peak} are {lists}"
        )
    elif kept > figures.kept:
        yield f"says that at most {figures.kept} bytes are kept, and {kept} are {lists}"
    raise Unanswered(f"koila gives a bound: {figures.reasons[0]}")


def _is_same(said: Sequence[AllocatorEvent], events: Sequence[AllocatorEvent]) -> bool:
    if torch.get_num_threads() == 1:
        return list(said) == list(events)
    # Which thread allocates first is chance.
    return sorted(e[::2] for e in said) == sorted(e[::2] for e in events)


def _add_up(events: Sequence[AllocatorEvent]) -> tuple[int, int]:
    """Bytes at the worst moment, and those that are left."""
    live = list(itertools.accumulate(-e.bytes if e.is_free else e.bytes for e in events))
    return max(live, default=0), live[-1] if live else 0
