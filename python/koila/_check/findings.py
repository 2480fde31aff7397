"""What became of the comparison of an operator's models with runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from koila._errors import KoilaError
from koila.memory import AllocatorEvent

__all__ = ["Finding", "OperatorCheck", "Unanswered", "show_events"]

# Of many calls, and of many reasons, the first ones show what they are like.
_MOST_SHOWN = 8
_MOST_REASONS = 3


class Unanswered(Exception):
    """There is nothing to compare in a run, and why."""


@dataclass
class Finding:
    """What became of one model: ``runs`` that agree, the first that does not, and of
    ``others`` what was said of how many."""

    kind: str
    runs: int = 0
    problem: str | None = None
    note: str | None = None
    others: Counter[str] = field(default_factory=Counter)

    def hold(self, check: Iterator[str | None], run: object) -> None:
        """Takes what a check of one run says: None for each comparison that agrees, or
        what is wrong. What the check raises is a problem, but for KoilaError."""
        try:
            for problem in check:
                if problem is None:
                    self.runs += 1
                elif self.problem is None:
                    self.problem = f"{problem}, of ({run})"
        except Unanswered as unanswered:
            self.others[str(unanswered)] += 1
        except KoilaError:
            raise
        except Exception as error:
            if self.problem is None:
                self.problem = f"raises {type(error).__name__}: {error}, of ({run})"

    def __str__(self) -> str:
        if self.problem:
            return f"WRONG: {self.problem}"
        parts = [f"agrees with {_count(self.runs)}"] if self.runs else []
        shown = self.others.most_common(_MOST_REASONS)
        parts += [
            f"{_count(count)}: {text}" if parts or len(shown) > 1 else text for text, count in shown
        ]
        if len(self.others) > len(shown):
            parts.append(f"and {_count(self.others.total() - sum(n for _, n in shown))} more")
        return "; ".join(parts) or self.note or "nothing to compare"


def _count(runs: int) -> str:
    return f"{runs} runs" if runs > 1 else "1 run"


@dataclass
class OperatorCheck:
    """The models of an operator, held against runs of it."""

    name: str
    calls: list[str]
    findings: list[Finding] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether no model is wrong."""
        return all(finding.problem is None for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "operator": self.name,
            "agrees": self.agrees,
            "calls": self.calls,
            "rules": {
                finding.kind: {
                    "runs": finding.runs,
                    "problem": finding.problem,
                    "note": finding.note,
                    "others": dict(finding.others),
                }
                for finding in self.findings
            },
        }

    def __str__(self) -> str:
        shown = self.calls
        if len(shown) > _MOST_SHOWN:
            shown = shown[: _MOST_SHOWN // 2]
        lines = [f"{self.name}, called with"]
        lines += [f"  {call}" for call in shown]
        if len(shown) < len(self.calls):
            lines.append(f"  and {len(self.calls) - len(shown)} more")
        lines += [f"{finding.kind:9} {finding}" for finding in self.findings]
        return "\n".join(lines)


def show_events(events: Sequence[AllocatorEvent]) -> str:
    """``+0:256 -0:256``: block 0, of 256 bytes, comes and goes."""
    return " ".join(map(str, events)) or "none"
