"""What there is for calls that run past what koila records."""

from __future__ import annotations

from typing import NamedTuple

import torch

from koila import memory
from koila._capture.frames import Frames, location_of
from koila._capture.values import Value
from koila._plan.announce import Announced, announce

__all__ = ["Limit", "find_limit", "limit_of"]

_announced: dict[frozenset[int | str], Announced] = {}  # by the budgets


class Limit(NamedTuple):
    """``budget`` bytes, the least of those of the tensors that a call is given."""

    budget: int
    known: Announced
    device: torch.device

    def announce(self, text: str, frames: Frames) -> None:
        announce(text, location_of(frames), self.known)


def find_limit(values: list[Value]) -> Limit | None:
    """None where none of them is of a batch that was given to ``koila.lazy``."""
    budgets = frozenset(value.source.budget for value in values if value.source is not None)
    return limit_of(budgets, values[0].meta.device) if budgets else None


def limit_of(budgets: frozenset[int | str], device: torch.device) -> Limit:
    least = min(memory.budget_bytes(budget, device) for budget in budgets)
    return Limit(least, _announced.setdefault(budgets, set()), device)
