"""What koila says of the calls of a program, by their lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koila.memory import AllocatorEvent

__all__ = ["EventList", "Figures", "get_line", "read_events", "read_figures"]


@dataclass
class Figures:
    """Bytes of one call: what it keeps, and what it holds beyond at its worst moment."""

    kept: int = 0
    transient: int = 0
    #: Why they are not exact; ``is_bound`` if they are no less than what is allocated.
    reasons: list[str] = field(default_factory=list)
    is_bound: bool = True


@dataclass
class EventList:
    """Blocks of one call as they come and go, and whether each is one of the allocator."""

    events: list[AllocatorEvent] = field(default_factory=list)
    is_exact: bool = True
    _blocks: dict[int, int] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """Takes an event of ``format=events``."""
        is_free = event["action"] == "free"
        if not is_free:
            self._blocks[event["id"]] = len(self._blocks)
        elif event["id"] not in self._blocks:
            return  # An operand that nothing reads any more.
        self.events.append(AllocatorEvent(is_free, self._blocks[event["id"]], event["bytes"]))
        self.is_exact &= event["exact"]


def get_line(entry: Mapping[str, Any]) -> int | None:
    """Of an entry of a report or of a list of events."""
    line = (entry.get("location") or {}).get("line")
    return None if line is None else int(line)


def read_figures(report: Mapping[str, Any], lines: Sequence[int]) -> list[Figures]:
    """Of the calls at these lines, from a report in JSON."""
    said = {line: Figures() for line in lines}
    for entry in report["timeline"]:
        if mine := said.get(get_line(entry) or 0):
            mine.transient += entry["transient_bytes"]
    for entry in report["storages"]:
        if mine := said.get(get_line(entry) or 0):
            mine.kept += entry["bytes"]
            # The timeline counts it among what is held inside.
            if entry["kind"] == "saved":
                mine.transient -= entry["bytes"]
    for entry in report["inexact"]:
        if mine := said.get(get_line(entry) or 0):
            mine.reasons.append(entry["reason"])
            mine.is_bound &= bool(entry.get("bound"))
    return [said[line] for line in lines]


def read_events(report: Mapping[str, Any], lines: Sequence[int]) -> list[EventList]:
    """Of the calls at these lines, from a list of events in JSON."""
    said = {line: EventList() for line in lines}
    for event in report["events"]:
        if mine := said.get(get_line(event) or 0):
            mine.add(event)
    return [said[line] for line in lines]
