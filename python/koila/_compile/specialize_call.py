"""From a module and example arguments to a program for calls like these."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from koila import _compiler
from koila._capture.frames import warn_user
from koila._capture.global_hooks import without_hooks
from koila._capture.inputs import Inputs, find_symbol
from koila._capture.script import Captured, ModuleCapture
from koila._capture.thread_locks import exclusive
from koila._compile.call_kind import Call
from koila._compile.check import check as run_check
from koila._compile.choose_form import choose
from koila._compile.specialized_module import Specialization
from koila._device import describe_mix, find_device_of, find_target
from koila._errors import CompileError, Location, UnpromisedError
from koila._interrupt import uninterrupted
from koila._plan.unpromised import choose_tile
from koila.memory import budget_bytes, format_bytes

__all__ = ["Recipe", "coming_bytes", "find_device", "specialize"]


@dataclass(frozen=True)
class Recipe:
    """How a module is to be compiled. ``budget`` is what the user gave, None with
    a tile; the options have none of it yet."""

    name: str
    options: _compiler.CompileOptions
    budget: int | str | None
    batch_dim: int
    check: bool
    # Of inputs that stay on the CPU, where the module is.
    device: torch.device | None = None
    # The lines that were warned of.
    told: set[Location] = field(default_factory=set)

    @property
    def trains(self) -> bool:
        return self.options.mode == "train"

    def for_calls(self) -> Recipe:
        """The same for calls without gradients of what is compiled for steps."""
        options = dataclasses.replace(
            self.options, mode="inference", loss=None, optimizer=None, grads="present"
        )
        return dataclasses.replace(self, options=options)


@exclusive
@uninterrupted
def specialize(
    module: nn.Module,
    inputs: Inputs,
    recipe: Recipe,
    *,
    limit: int | None = None,
    may_script: bool = True,
) -> Specialization:
    """Compiles the module; within ``limit`` bytes in place of the recipe's budget.

    Raises BudgetError where no tile fits, CompileError where it cannot be
    compiled. Without ``may_script`` it is traced: TorchScript keeps programs of
    classes whose constants have changed since.
    """
    device = find_device(module, inputs, recipe.device)
    options = dataclasses.replace(recipe.options, device=device)
    is_auto = limit is None and recipe.budget == "auto"
    if options.tile is None and limit is None:
        assert recipe.budget is not None
        limit = budget_bytes(recipe.budget, device)
    capture = ModuleCapture(
        module, inputs, trains=recipe.trains, runs=True, limit=limit, told=recipe.told
    )
    if not may_script and not capture.can_trace:
        raise CompileError("TorchScript would give the program of before")
    example = None
    if inputs.examples is not None:
        example = Call(inputs.examples, inputs.batch_dim)

    def rewrite(captured: Captured) -> Specialization:
        chosen = dataclasses.replace(options, budget=limit)
        specs = [*captured.specs, *inputs.target_specs]
        chosen = dataclasses.replace(chosen, from_host=inputs.list_from_host(specs))
        if limit is not None and is_auto and recipe.trains:
            coming = coming_bytes(module, captured.script, specs, chosen)
            chosen = dataclasses.replace(chosen, budget=max(limit - coming, 0))
        # Where tiles are not made for a call, the original runs, not its script.
        guarded = dataclasses.replace(chosen, guard="raise")
        compiled = _rewrite(captured.script, specs, inputs.batch, guarded, recipe.name)
        result = Specialization(
            module, captured, compiled, inputs.target_specs, example, inputs.batch, chosen
        )
        # What draws or normalises anew in each tile is not what the original does.
        per_tile = "per-tile" in (options.random, options.batchnorm)
        if recipe.check and not per_tile and inputs.examples is not None:
            run_check(result, capture.snapshot, inputs, recipe.name)
        return result

    with without_hooks():
        return choose(capture, rewrite, may_script=may_script)


def _rewrite(
    script: torch.jit.ScriptModule,
    specs: list[str],
    batch: dict[str, int],
    options: _compiler.CompileOptions,
    name: str,
) -> _compiler.Compiled:
    """On a GPU, where the workspaces of convolutions are not known, without a promise rather
    than not at all: that is said, and where memory runs out smaller tiles are tried."""

    def rewrite(options: _compiler.CompileOptions) -> _compiler.Compiled:
        return _compiler.compile_script(
            script, specs, batch=batch, name=name, **dataclasses.asdict(options)
        )

    try:
        return rewrite(options)
    except UnpromisedError as error:
        if find_target(options.device) == "cpu" or not isinstance(options.budget, int):
            raise
        problem = error.message.removesuffix("; give tile=N instead")
    report = _analyze(script, specs, batch, options)
    compiled = choose_tile(
        max(batch.values(), default=1),
        report["peak_bytes"],
        options.budget,
        lambda tile: rewrite(dataclasses.replace(options, tile=tile, budget=None, plans=1)),
    )
    warn_user(
        f"{name}: this runs in tiles of {compiled.tile} samples, without a promise that they fit "
        f"{format_bytes(options.budget)}: {problem}"
    )
    return compiled


def _analyze(
    script: torch.jit.ScriptModule,
    specs: list[str],
    batch: dict[str, int],
    options: _compiler.CompileOptions,
) -> dict[str, Any]:
    """The report on the whole batch."""
    return _compiler.analyze_script(
        script,
        specs,
        batch=batch,
        mode=options.mode,
        loss=options.loss,
        grads=options.grads,
        optimizer=options.optimizer,
        threads=options.threads,
        device=options.device,
        from_host=options.from_host,
        batches=0,
        floor=False,
    )


def coming_bytes(
    original: nn.Module,
    script: torch.jit.ScriptModule,
    specs: list[str],
    options: _compiler.CompileOptions,
) -> int:
    """What training makes once and keeps, and has not made yet, unless the
    budget counts it: gradients, and the optimizer's state beside them."""
    coming = [p for p in original.parameters() if p.requires_grad and p.grad is None]
    if not coming:
        return 0
    count = 0
    if options.grads == "present":
        count += sum(p.numel() * p.element_size() for p in coming)
    if options.optimizer is not None:
        report = _analyze(script, specs, {find_symbol(specs): 1}, options)
        count += report["optimizer_bytes"]
    return count


def find_device(module: object, inputs: Inputs, there: torch.device | None = None) -> torch.device:
    """Where a module and its inputs are, or, of inputs on the CPU, the module alone is to be
    (``there``). Raises CompileError where these are several devices, KoilaError where
    koila has no figures of them."""
    tensors = [
        (f"input {place}", tuple(tensor.shape), there or tensor.device)
        for place, tensor in enumerate(inputs.examples.tensors() if inputs.examples else ())
    ]
    if isinstance(module, nn.Module):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensors.append((f"'{name}'", tuple(tensor.shape), tensor.device))
    if there is not None:
        own = tensors[len(inputs.examples.tensors() if inputs.examples else ()) :]
        wrong = next((entry for entry in own if entry[2] != there), None)
        if wrong is not None:
            raise CompileError(
                f"{wrong[0]} is on {wrong[2]}, and device={str(there)!r}: move the module there"
            )
        return there
    if (mix := describe_mix(tensors)) is not None:
        raise CompileError(f"{mix}: move the module and its inputs to one device")
    return find_device_of(device for _, _, device in tensors)
