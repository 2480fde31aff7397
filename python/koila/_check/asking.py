"""What koila says of cases: asked for many at once, and again without those refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from koila import _compiler
from koila._check.facts import Fact
from koila._check.predictions import EventList, Figures, read_events, read_figures
from koila._check.step import Step
from koila._errors import CompileError
from koila._generators.generator import Case
from koila._generators.program import ScriptedCases, script_cases

__all__ = ["Prediction", "ask_facts", "ask_memory", "ask_step"]

T = TypeVar("T")


@dataclass(frozen=True)
class Prediction:
    """What koila says of the memory of one call."""

    figures: Figures
    blocks: EventList


def _ask(
    cases: Sequence[Case], grad: bool, ask: Callable[[ScriptedCases], Sequence[T]]
) -> tuple[dict[int, T], dict[int, str]]:
    """Answers, and why others are refused, by the place of the case."""
    alive = list(range(len(cases)))
    refused: dict[int, str] = {}
    while alive:
        program = script_cases([cases[index] for index in alive], grad=grad)
        try:
            return dict(zip(alive, ask(program), strict=True)), refused
        except CompileError as error:
            place = program.cases.get(error.location.line) if error.location else None
            if place is None:
                raise
            refused[alive.pop(place)] = error.message
    return {}, refused


def ask_facts(cases: Sequence[Case]) -> tuple[dict[int, Fact], dict[int, str]]:
    """Of the call of each case, with the batch as a symbol."""

    def ask(program: ScriptedCases) -> list[Fact]:
        found: dict[int, Fact] = {}
        for fact in _compiler.describe_values(program.module, program.inputs):
            match = re.search(r'"<string>":(\d+):', fact["location"])
            if match and fact.get("schema"):
                found[int(match[1])] = fact
        return [found.get(line, {}) for line in program.calls]

    return _ask(cases, False, ask)


def ask_memory(
    cases: Sequence[Case], batch: int, mode: str, device: str
) -> tuple[dict[int, Prediction], dict[int, str]]:
    """Of the call of each case with so many samples; ``mode`` is ``inference``, or
    ``forward-with-grad``, where real and complex arguments want a gradient."""
    sizes: Mapping[str, int] = {"B": batch} if any(c.follows_batch() for c in cases) else {}

    def ask(program: ScriptedCases) -> list[Prediction]:
        report, events = _compiler.list_events(
            program.module, program.inputs, batch=sizes, mode=mode, device=device
        )
        figures = read_figures(report, program.calls)
        return [
            Prediction(*pair)
            for pair in zip(figures, read_events(events, program.calls), strict=True)
        ]

    return _ask(cases, mode != "inference", ask)


def ask_step(step: Step, device: str) -> Prediction | str:
    """Of a whole step, whose peak is the ``transient`` bytes; or why it is refused."""
    try:
        report, listed = _compiler.list_events(
            step.module, step.inputs, batch={}, mode="train", device=device
        )
    except CompileError as error:
        return error.message
    reasons = [entry["reason"] for entry in report["inexact"]]
    is_bound = all(entry.get("bound") for entry in report["inexact"])
    blocks = EventList()
    for event in listed["events"]:
        blocks.add(event)
    return Prediction(Figures(0, report["peak_bytes"], reasons, is_bound), blocks)
