"""A case as a training step, whose weights are the tensors that the call reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from koila._generators.draw import compile_case, get_results, make_inputs, run
from koila._generators.generator import Case
from koila._generators.program import can_want, define_module

__all__ = ["Step", "make_step"]


@dataclass(frozen=True)
class Step:
    """A module whose forward gives the loss, the mean of the squares of the results."""

    module: torch.jit.ScriptModule
    arguments: Sequence[torch.Tensor]
    #: Specs of the arguments.
    inputs: Sequence[str]

    def run(self) -> None:
        """Forward and backward; gradients of weights are added to their ``.grad``."""
        loss = self.module(*self.arguments)
        loss.backward()


def make_step(case: Case, batch: int) -> Step | None:
    """With tensors of real and complex numbers as weights, and the others as arguments;
    None if autograd records nothing of the call."""
    values = {f"x{i}": value for i, value in enumerate(make_inputs(case, batch))}
    weights = {name: torch.nn.Parameter(x) for name, x in values.items() if can_want(x.dtype)}
    losses = _spell_losses(case, make_inputs(case, batch))
    if not losses:
        return None
    others = [name for name in values if name not in weights]
    specs = [
        dataclasses.replace(tensor, dims=[*tensor.shape(batch)]).spec()
        for name, tensor in zip(values, case.inputs, strict=True)
        if name in others
    ]
    lines = [f"{name} = self.{name}" for name in weights]
    lines += [*case.body, f"return {' + '.join(losses)}"]
    source = f"def forward(self{''.join(f', {name}: Tensor' for name in others)}):\n"
    source += "".join(f"    {line}\n" for line in lines)
    module = define_module(source, weights).train()
    return Step(module, [values[name] for name in others], specs)


def _spell_losses(case: Case, inputs: Sequence[torch.Tensor]) -> list[str]:
    """Of each result that has a gradient."""
    for x in inputs:
        x.requires_grad_(can_want(x.dtype))
    with torch.enable_grad():
        scope = run(compile_case(case), inputs)
    if isinstance(scope, Exception):
        return []
    found = []
    for name, result in zip(case.results, get_results(case, scope) or (), strict=True):
        if result.requires_grad:
            real = f"torch.view_as_real({name})" if result.is_complex() else name
            # A loss of float32 at least, whatever the type of what is compared.
            wide = real if result.dtype.itemsize > 2 else f"{real}.float()"
            found.append(f"{wide}.square().mean()")
    return found
