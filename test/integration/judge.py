"""What is to be said of a run of koila, next to plain PyTorch.

    verdict = judge(run, budget, plain, rounded, script)

``right``      results, state, draws and exceptions are plain PyTorch's, and
               every window stayed in its budget
``announced``  right, over the budget, and koila warned before
``silent``     right, over the budget, and nobody was told
``wrong``      something that the user can see differs
``refused``    koila raised an error of its own
``crashed``    something else was raised, which plain PyTorch does not
"""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass, field

from compare import compare, floor_of
from execute import Raised, Run

MIB = 1 << 20
# Beside its budget koila may hold scalars, sums of a few numbers, and the states
# of generators.
SLACK = 4096
# What stays behind of a window may be this part of the need: results that share
# memory with what is a little larger.
KEPT_PART = 0.01


@dataclass
class Verdict:
    verdict: str = "right"
    reasons: list[str] = field(default_factory=list)
    keeps: list[tuple[int, int]] = field(default_factory=list)  # window, bytes
    over: list[tuple[int, int]] = field(default_factory=list)  # window, bytes
    warned: list[str] = field(default_factory=list)
    false_warning: bool = False
    unlocated: bool = False
    tiles: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def has_flags(self) -> bool:
        return bool(self.keeps or self.false_warning or self.unlocated)


def need_of(plain: Run) -> int:
    """Bytes that plain PyTorch takes beside what has to be there anyway."""
    return max((window.excess for window in plain.windows), default=0)


def judge(
    run: Run,
    budget: int,
    plain: Run,
    rounded: list[Run],
    script: pathlib.Path,
    binding: bool = True,
) -> Verdict:
    """``binding`` is whether the budget is less than the script needs."""
    found = Verdict(tiles=sorted(run.tiles), seconds=run.seconds)
    _judge_warnings(run, found, script, binding)
    same_windows = len(run.windows) == len(plain.windows)
    if same_windows:
        _judge_memory(run, budget, plain, found)
    wrong = _raises_otherwise(run, plain)
    if wrong is not None:
        found.verdict, reason = wrong
        found.reasons.insert(0, reason)
        return found
    floor = floor_of(script.read_text())
    differences = compare(run.leaves, plain.leaves, [other.leaves for other in rounded], floor)
    if not same_windows:
        differences.insert(
            0, f"other number of windows: {len(run.windows)}, in plain PyTorch {len(plain.windows)}"
        )
    if differences:
        found.verdict = "wrong"
        found.reasons[:0] = differences
    elif found.over:
        first = found.over[0][0]
        told = any(warned.window <= first for warned in run.warned)
        found.verdict = "announced" if told else "silent"
    return found


def _judge_warnings(run: Run, found: Verdict, script: pathlib.Path, binding: bool) -> None:
    for warned in run.warned:
        place = f"{pathlib.Path(warned.file).name}:{warned.line}"
        found.warned.append(f"window {warned.window}, {place}: {warned.text}")
        if warned.file != str(script):
            found.unlocated = True
            found.reasons.append(f"warning without the line: {place}: {warned.text}")
        if not binding:
            found.false_warning = True
            found.reasons.append(f"false warning: {place}: {warned.text}")


def _judge_memory(run: Run, budget: int, plain: Run, found: Verdict) -> None:
    for index, (window, wanted) in enumerate(zip(run.windows, plain.windows, strict=True)):
        used = window.peak - wanted.base
        if used > budget + SLACK:
            found.over.append((index, used - budget))
            found.reasons.append(
                f"window {index} takes {mib(used)}, {mib(used - budget)} more than its budget"
            )
        kept = window.end - wanted.end
        # What is left of a program that an exception ended is freed with it.
        if kept > SLACK + KEPT_PART * need_of(plain) and run.raised is None:
            found.keeps.append((index, kept))
            found.reasons.append(f"window {index} keeps {mib(kept)} at its end")


def _raises_otherwise(run: Run, plain: Run) -> tuple[str, str] | None:
    """A verdict and its reason, if exceptions are not those of plain PyTorch."""
    if run.raised is None:
        if plain.raised is None:
            return None
        return "wrong", f"does not raise; in plain PyTorch {plain.raised}"
    if plain.raised is None:
        return ("refused" if run.raised.refusal else "crashed"), str(run.raised)
    if _key(run.raised) == _key(plain.raised):
        return None
    verdict = "refused" if run.raised.refusal else "wrong"
    return verdict, f"{run.raised}; in plain PyTorch {plain.raised}"


def _key(raised: Raised) -> tuple[str, str, int | None]:
    return raised.type, re.sub("0x[0-9a-f]+", "0x", raised.first()), raised.line


def mib(count: float) -> str:
    return f"{count / MIB:.2f} MiB" if abs(count) >= MIB / 100 else f"{count:.0f} bytes"
