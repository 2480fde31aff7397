"""What a file says of its tiles and plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch

from koila._errors import BudgetError, KoilaError
from koila.memory import format_bytes

__all__ = ["Choice", "Method", "Plan", "find_methods"]

# The attribute of the first method in tiles, and that of its plan; others have their name
# behind it.
_TILE = "koila_tile"
_PLAN = "koila_plan"


@dataclass(frozen=True)
class Plan:
    """One way to write a method."""

    # What its attribute says, and the entry of the table; of a single plan there is neither.
    place: int | None
    entry: dict[str, Any] | None
    # Of the forward pass what runs again.
    share: float
    # What the tiles take, from the smallest: ``tile``, ``budget_bytes``, and more.
    rows: list[dict[str, int]]
    replan_bytes: int | None


@dataclass(frozen=True)
class Choice:
    method: Method
    plan: Plan
    row: dict[str, int]

    def set(self, script: torch.jit.ScriptModule) -> None:
        if self.plan.place is not None:
            setattr(script, self.method.plan_attribute, self.plan.place)
        setattr(script, self.method.attribute, self.row["tile"])


@dataclass(frozen=True)
class Method:
    """What a file says of a method in tiles (docs/user/Python.md)."""

    name: str
    attribute: str
    # Whose figures they are: ``cpu``, ``cuda`` or a card.
    device: str
    plans: list[Plan]
    batch: int

    def choose(self, limit: int) -> Choice:
        """Of the plans that have a tile which fits the one that runs least again, as the
        compiler would have it, and of that the largest tile; one of all samples only where no
        other does."""
        rows = [row for plan in self.plans for row in plan.rows]
        fitting = [
            Choice(self, plan, row)
            for plan in self.plans
            for row in plan.rows
            if row["budget_bytes"] <= limit
        ]
        if fitting:
            return max(fitting, key=self._rank)
        least = min(rows, key=lambda row: row["budget_bytes"])
        raise BudgetError(
            f"no tile of {self.name}() fits {format_bytes(limit)}: tile {least['tile']} takes "
            f"{format_bytes(least['budget_bytes'])} for a batch of {self.batch}; less needs a "
            "new compilation, with this budget",
            smallest_budget=least["budget_bytes"],
        )

    def _rank(self, choice: Choice) -> tuple[float, bool, int]:
        tile = choice.row["tile"]
        return -choice.plan.share, tile != self.batch, tile

    def step_down(self, script: torch.jit.ScriptModule, tile: int | None) -> Choice | None:
        """What is tried where memory ran out, with ``tile`` at most: the same plan, or the next
        one that takes less than its least tile. None: nothing takes less."""
        now = getattr(script, self.plan_attribute, None)
        plan = next((plan for plan in self.plans if plan.place == now), self.plans[0])
        rows = [row for row in plan.rows if tile is not None and row["tile"] <= tile]
        if rows:
            return Choice(self, plan, max(rows, key=lambda row: row["tile"]))
        least = min(row["peak_bytes"] for row in plan.rows)
        rest = [
            Choice(self, other, row)
            for other in self.plans
            for row in other.rows
            if row["peak_bytes"] < least
        ]
        return max(rest, key=lambda choice: choice.row["peak_bytes"], default=None)

    @property
    def plan_attribute(self) -> str:
        return _PLAN + self.attribute.removeprefix(_TILE)


def find_methods(script: torch.jit.ScriptModule) -> list[Method]:
    found = []
    names = sorted(script._c._method_names())
    for attribute in (_TILE, *(f"{_TILE}_{name}" for name in names)):
        if not hasattr(script, attribute):
            continue
        text = getattr(script, f"{attribute}s", None)
        if text is None:
            raise KoilaError(
                f"it is not known what the tiles take that {attribute} may be set to: the module "
                "was compiled without a batch (batch=64), or what an operator takes is not known "
                "exactly, as its report says; set it yourself"
            )
        try:
            found.append(_read_method(attribute, json.loads(text)))
        except (ValueError, KeyError, TypeError) as error:
            raise KoilaError(
                f"{attribute}s is not as koila writes it; compile the original again"
            ) from error
    if not found:
        raise KoilaError(
            f"the module has no {_TILE}: its batch is not split, or an earlier koila wrote it; "
            "compile the original with this budget"
        )
    return found


def _read_method(attribute: str, table: dict[str, Any]) -> Method:
    is_single = "plans" not in table
    entries = [table] if is_single else table["plans"]
    plans = []
    for place, entry in enumerate(entries):
        rows = [
            {key: int(row[key]) for key in ("tile", "peak_bytes", "budget_bytes")}
            for row in entry["by_tile"]
        ]
        if not rows:
            raise ValueError("no tile")
        replan = entry.get("replan_bytes")
        replan = replan and int(replan)
        share = float(entry.get("recomputed_share", 0))
        if is_single:
            plans.append(Plan(None, None, share, rows, replan))
        else:
            plans.append(Plan(place, entry, share, rows, replan))
    if not plans:
        raise ValueError("no plan")
    batch = int(table["batch"]["value"])
    return Method(str(table["function"]), attribute, str(table["device"]), plans, batch)
