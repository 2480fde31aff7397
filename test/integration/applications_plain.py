"""What stands in for koila while an application runs.

    Plain(memory)      plain PyTorch: the module untouched, steps by autograd,
                       figures measured
    Perturbing(memory) the same, with numbers that are a thousandth too large
    Keeping(memory)    the same, with a copy of each result that stays alive

The last two are controls: whoever judges them right is blind. All else that an
application asks koila for, as the types of its errors, is the real one's.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import koila
from measure import Memory

# The largest batch that is tried.
_MOST_SAMPLES = 1 << 12
_TOO_MUCH = 1.001


@dataclasses.dataclass
class Figures:
    """What a report of plain PyTorch is: it ran, and was measured."""

    peak: int
    batch: int
    exact: bool = True


class Plain:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(koila, name)

    def treat(self, result: Any) -> Any:
        """What a control does to a result."""
        return result

    def compile(
        self,
        module: nn.Module | os.PathLike[str],
        *inputs: Any,
        loss: str | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> Any:
        if not isinstance(module, nn.Module):
            module = torch.jit.load(module)
        return Untouched(module, loss, self.treat)

    def lazy(self, *values: Any, batch: int = 0, budget: Any = "auto") -> Any:
        return self.treat(values[0] if len(values) == 1 else values)

    def analyze(
        self, module: nn.Module, *inputs: Any, mode: str = "inference", loss: str | None = None
    ) -> Figures:
        return Figures(self._measure(module, inputs, mode, loss), len(inputs[0]))

    def max_batch(
        self,
        module: nn.Module,
        *inputs: Any,
        budget: int,
        mode: str = "inference",
        loss: str | None = None,
    ) -> int:
        """By trying; the first sample is repeated."""
        fits, fails = 0, _MOST_SAMPLES
        while fails - fits > 1:
            size = (fits + fails) // 2
            batch = tuple(value[:1].expand(size, *value.shape[1:]).clone() for value in inputs)
            if self._measure(module, batch, mode, loss) <= budget:
                fits = size
            else:
                fails = size
        return fits

    def _measure(
        self, module: nn.Module, inputs: tuple[Any, ...], mode: str, loss: str | None
    ) -> int:
        step = Untouched(module, loss, lambda result: result)
        call = step.train_step if mode == "train" else step
        with torch.set_grad_enabled(mode != "inference"):
            call(*inputs)  # a warm-up, which makes gradients
            gc.collect()
            start = self.memory.read()[0]
            self.memory.reset()
            call(*inputs)
        return self.memory.read()[1] - start


class Untouched:
    """A compiled module of plain PyTorch."""

    def __init__(self, module: nn.Module, loss: str | None, treat: Callable[[Any], Any]) -> None:
        self.original: Any = module
        self._loss, self._treat = loss, treat

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._treat(self.original(*inputs, **named))

    def train_step(self, *inputs: Any, **named: Any) -> torch.Tensor:
        loss = self._compute_loss(inputs, named)
        self._treat(loss).backward()
        return loss.detach()

    def grads(self, *inputs: Any, **named: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss = self._compute_loss(inputs, named)
        weights = [weight for weight in self.original.parameters() if weight.requires_grad]
        return loss.detach(), list(torch.autograd.grad(self._treat(loss), weights))

    def _compute_loss(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
        with torch.enable_grad():
            if self._loss is None:
                return self.original(*inputs, **named)
            output = self.original(*inputs[:-1], **named)
            call = self._loss if "(" in self._loss else f"{self._loss}()"
            names = {"output": output, "target": inputs[-1], "sum": "sum"}
            return eval(call.replace("(", "(output, target, ", 1), vars(functional), names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Untouched:
        return Untouched(copy.deepcopy(self.original, memo), self._loss, self._treat)

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, index: Any) -> Any:
        return self.original[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.original)


class Perturbing(Plain):
    def treat(self, result: Any) -> Any:
        for tensor in find_tensors(result):
            if tensor.is_floating_point():
                # Not a change that autograd should know of.
                tensor.data.mul_(_TOO_MUCH)
        return result

    def analyze(self, *args: Any, **options: Any) -> Figures:
        figures = super().analyze(*args, **options)
        return dataclasses.replace(figures, peak=figures.peak + 1)

    def max_batch(self, *args: Any, **options: Any) -> int:
        return super().max_batch(*args, **options) - 1


class Keeping(Plain):
    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.kept: list[torch.Tensor] = []

    def treat(self, result: Any) -> Any:
        # At least a MiB, since one percent of the need is allowed.
        for tensor in find_tensors(result):
            times = 1 + (1 << 20) // max(tensor.nbytes, 1)
            self.kept.append(tensor.detach().repeat(times, *[1] * tensor.dim()))
        return result


def find_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for item in value.values() for tensor in find_tensors(item))
    elif isinstance(value, (list, tuple)):
        yield from (tensor for item in value for tensor in find_tensors(item))
    elif dataclasses.is_dataclass(value):
        yield from find_tensors(list(vars(value).values()))
