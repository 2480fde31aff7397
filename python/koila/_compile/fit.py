"""``koila.fit``: another budget for what is compiled, without compiling it again."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from koila._capture.frames import warn_user
from koila._compile.compiled import CompiledModule
from koila._compile.specialize_call import coming_bytes
from koila._compile.tile_table import Choice, find_methods
from koila._device import find_target
from koila._errors import BudgetError, KoilaError
from koila.memory import budget_bytes, format_bytes

__all__ = ["fit"]


def _set(script: torch.jit.ScriptModule, limit: int, device: torch.device) -> list[Choice]:
    """All methods get the tiles that fit, or none does."""
    methods = find_methods(script)
    there = find_target(device)
    for method in methods:
        if method.device != there:
            raise KoilaError(
                f"what tiles of {method.name}() take is known for {method.device}, and the module "
                f"is on {device}"
                + (f", {there}" if there != device.type else "")
                + ": compile it there"
            )
    choices = [method.choose(limit) for method in methods]
    for choice in choices:
        choice.set(script)
        replan = choice.plan.replan_bytes
        if replan is not None and replan <= limit:
            warn_user(
                f"{choice.method.name}() runs part of its forward pass again for a smaller "
                f"budget: from {format_bytes(replan)} on a new compilation runs less of it again"
            )
    return choices


def fit(module: torch.nn.Module, budget: int | str = "auto") -> int | None:
    """Sets the tile of ``module``, so that its calls take ``budget`` bytes at most, and where
    it has several plans (``koila.compile(..., plans=4)``) the best of them that fits.

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
    return min(choice.row["tile"] for choice in _set(module, limit, device))


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
    plan: dict[str, Any] | None = None
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
        (choice,) = _set(module.script, limit, device)
        row, plan = choice.row, choice.plan.entry
    module._refit(budget, limit, row, plan)
    return module.tile


def _device_of(module: torch.nn.Module) -> torch.device:
    weight = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if weight is None else weight.device
