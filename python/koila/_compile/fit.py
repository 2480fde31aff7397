"""``koila.fit``: another budget for what is compiled, without compiling it again."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import torch

from koila._capture.frames import warn_user
from koila._compile.compiled import CompiledModule
from koila._compile.specialize_call import coming_bytes
from koila._device import find_target
from koila._errors import BudgetError, KoilaError
from koila.memory import budget_bytes, format_bytes

__all__ = ["fit"]

# The attribute of the first method in tiles; others have their name behind it.
_TILE = "koila_tile"


@dataclass(frozen=True)
class _Method:
    """What a file says of a method in tiles (docs/user/Python.md)."""

    name: str
    attribute: str
    # Whose figures they are: ``cpu``, ``cuda`` or a card.
    device: str
    # What the tiles take, from the smallest: ``tile``, ``budget_bytes``, and more.
    rows: list[dict[str, int]]
    batch: int
    replan_bytes: int | None

    def choose(self, limit: int) -> dict[str, int]:
        """The row of the largest tile that fits; one of all samples only where no other
        does."""
        fitting = [row for row in self.rows if row["budget_bytes"] <= limit]
        if not fitting:
            least = min(self.rows, key=lambda row: row["budget_bytes"])
            raise BudgetError(
                f"no tile of {self.name}() fits {format_bytes(limit)}: tile {least['tile']} takes "
                f"{format_bytes(least['budget_bytes'])} for a batch of {self.batch}; less needs a "
                "new compilation, with this budget",
                smallest_budget=least["budget_bytes"],
            )
        return max(fitting, key=lambda row: (row["tile"] != self.batch, row["tile"]))


def _find_methods(script: torch.jit.ScriptModule) -> list[_Method]:
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


def _read_method(attribute: str, table: dict[str, Any]) -> _Method:
    rows = [
        {key: int(row[key]) for key in ("tile", "peak_bytes", "budget_bytes")}
        for row in table["by_tile"]
    ]
    if not rows:
        raise ValueError("no tile")
    replan = table.get("replan_bytes")
    batch = int(table["batch"]["value"])
    name, device = str(table["function"]), str(table["device"])
    return _Method(name, attribute, device, rows, batch, replan and int(replan))


def _set(script: torch.jit.ScriptModule, limit: int, device: torch.device) -> list[dict[str, int]]:
    """All methods get the tiles that fit, or none does."""
    methods = _find_methods(script)
    there = find_target(device)
    for method in methods:
        if method.device != there:
            raise KoilaError(
                f"what tiles of {method.name}() take is known for {method.device}, and the module "
                f"is on {device}"
                + (f", {there}" if there != device.type else "")
                + ": compile it there"
            )
    chosen = [(method, method.choose(limit)) for method in methods]
    for method, row in chosen:
        setattr(script, method.attribute, row["tile"])
        if method.replan_bytes is not None and method.replan_bytes <= limit:
            warn_user(
                f"{method.name}() runs part of its forward pass again for a smaller budget: from "
                f"{format_bytes(method.replan_bytes)} on a new compilation runs less of it again"
            )
    return [row for _, row in chosen]


def fit(module: torch.nn.Module, budget: int | str = "auto") -> int | None:
    """Sets the tile of ``module``, so that its calls take ``budget`` bytes at most.

    ``module`` is what ``koila.compile`` returned, or a TorchScript module that koila wrote.
    Nothing is compiled, and nothing searched: the module has what each tile takes, for
    batches up to the one that it was compiled for. ``budget`` is a number of bytes, a size
    as ``"6GiB"``, or ``"auto"``: what is free now. Returns the samples per tile; of several
    methods in tiles, the least; None if the batch of a compiled module is not split, and
    need not be.

    Raises BudgetError where no tile fits: a smaller budget needs a new compilation, and so
    does a larger one where the batch is not split. A KoilaWarning says from which budget on
    a training step that runs part of its forward pass again would run less of it.
    """
    if isinstance(module, CompiledModule):
        return _fit_compiled(module, budget)
    if not isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"expected a module that koila has compiled, not {type(module).__name__}: give it to "
            "koila.compile first"
        )
    device = _device_of(module)
    limit = budget_bytes(budget, device)
    if budget == "auto" and hasattr(module, "train_step"):
        coming = [p for p in module.parameters() if p.requires_grad and p.grad is None]
        limit = max(limit - sum(weight.nbytes for weight in coming), 0)
    return min(row["tile"] for row in _set(module, limit, device))


def _fit_compiled(module: CompiledModule, budget: int | str) -> int | None:
    main = module._selection.main
    # Where it was compiled for: it may have no weights.
    device = main.options.device
    if not isinstance(device, torch.device):
        device = _device_of(module)
    limit = budget_bytes(budget, device)
    if budget == "auto" and main.trains:
        coming = coming_bytes(main.original, main.source, main.specs, main.options)
        limit = max(limit - coming, 0)
    row: dict[str, int] | None = None
    if main.tile is None:
        misses = any(not entry.get("bound") for entry in main.report.data["inexact"])
        peak = None if misses else main.peak
        if peak is None or peak > limit:
            takes = "an unknown number of bytes" if peak is None else format_bytes(peak)
            raise BudgetError(
                f"the batch is not split, and takes {takes}; less needs a new compilation, with "
                "this budget",
                smallest_budget=peak,
            )
    else:
        (row,) = _set(module.script, limit, device)
    module._refit(budget, limit, row)
    return module.tile


def _device_of(module: torch.nn.Module) -> torch.device:
    weight = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if weight is None else weight.device
