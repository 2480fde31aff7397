"""All runs of one script, and what is to be said of them.

    report = study(script, memory, ["fits", "half", "quarter"], controls=True)

Plain PyTorch runs first, rounding in other ways and then as it is; what it takes
gives the budgets. Controls are fakes that the judge has to catch.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import variants
from check import check
from execute import Run, execute
from judge import Verdict, judge, need_of
from measure import Memory

ENOUGH = 1 << 40
ROUNDED_RUNS = 3
_PARTS = {"half": 2, "quarter": 4}
BUDGETS = ("fits", *_PARTS)
_HEADER = re.compile(r"^# koila: (tiles|whole: \S.*)$", re.MULTILINE)


@dataclass
class Report:
    """``tileable`` is what the script says of itself. ``missed`` are controls
    that were not caught, ``complaints`` what is wrong with the script itself."""

    name: str
    tileable: bool = True
    need: int = 0
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    seconds: float = 0.0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @staticmethod
    def of(data: dict[str, Any]) -> Report:
        """From what ``dataclasses.asdict`` made."""
        verdicts = {name: Verdict(**verdict) for name, verdict in data["verdicts"].items()}
        return Report(**{**data, "verdicts": verdicts})

    def is_good(self) -> bool:
        allowed = ("right",) if self.tileable else ("right", "announced")
        return not (self.missed or self.complaints) and all(
            verdict.verdict in allowed and not verdict.has_flags()
            for verdict in self.verdicts.values()
        )


def header(text: str) -> str | None:
    """``tiles``, ``whole: REASON``, or None where the script does not say."""
    found = _HEADER.search(text)
    return found[1] if found else None


def study(
    script: pathlib.Path,
    memory: Memory,
    budgets: list[str],
    controls: bool = False,
    checks: bool = False,
    timeout: float = 0,
    make: Callable[[int], Callable[..., Any]] = variants.within,
) -> Report:
    """``make`` gives the function that is called for ``koila.lazy`` with a
    budget: the real one, or a fake."""
    report = Report(script.stem, (header(script.read_text()) or "tiles") == "tiles")

    def run(call: Callable[..., Any], rounding: variants.Rounding | None = None) -> Run:
        return execute(script, call, memory, rounding, timeout)

    # First, so that the plain run finds loaded what PyTorch loads when it is used.
    rounded = [run(variants.plain, variants.Rounding(seed)) for seed in range(ROUNDED_RUNS)]
    lazies = Lazies()
    plain = run(lazies)
    report.need, report.seconds = need_of(plain), plain.seconds
    report.windows = [(window.start, window.peak, window.end) for window in plain.windows]
    if checks:
        report.complaints += check(script, header(script.read_text()), plain, rounded, lazies)
    if plain.raised is not None and plain.raised.type.endswith("TookTooLong"):
        report.complaints.append(f"plain PyTorch: {plain.raised}")
        return report
    if controls:
        _control(report, plain, rounded, run, script)
    for name in budgets:
        budget = report.need // _PARTS[name] if name in _PARTS else ENOUGH
        report.verdicts[name] = judge(
            run(make(budget)), budget, plain, rounded, script, binding=name in _PARTS
        )
    return report


class Lazies:
    """Plain PyTorch, which notes the most bytes that it was given at once, and
    those of the weights."""

    def __init__(self) -> None:
        self.given = self.weights = 0
        self._others = variants.find_weights()

    def __call__(self, *values: Any, **options: Any) -> Any:
        self.given = max(self.given, _bytes_of(values))
        if not self.weights:
            known = set(map(id, self._others))
            weights = [w for w in variants.find_weights() if id(w) not in known]
            self.weights = sum(weight.nbytes for weight in weights)
        return variants.plain(*values)


def _bytes_of(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_bytes_of, value)) if isinstance(value, (list, tuple)) else 0


def _control(
    report: Report,
    plain: Run,
    rounded: list[Run],
    run: Callable[..., Run],
    script: pathlib.Path,
) -> None:
    """A koila that loses samples must be wrong, and one that does nothing over
    its budget."""
    half = report.need // _PARTS["half"]
    dropped = judge(run(variants.drop), ENOUGH, plain, rounded, script)
    if dropped.verdict not in ("wrong", "crashed"):
        report.missed.append(f"vacuous: without the last samples it is {dropped.verdict}")
    again = run(variants.plain)
    nothing = judge(again, half, plain, rounded, script)
    if nothing.verdict != "silent":
        reason = f": {nothing.reasons[0]}" if nothing.reasons else ""
        report.missed.append(
            f"vacuous: plain PyTorch with half the need is {nothing.verdict}{reason}"
        )
    if any(not again.leaves[path].equals(leaf) for path, leaf in plain.leaves.items()):
        report.complaints.append("two runs of plain PyTorch differ")
