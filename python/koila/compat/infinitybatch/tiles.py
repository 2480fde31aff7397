"""A batch on the host and a model on another device: samples go up a tile at a
time, outputs come down.

The loss is the user's own and is computed on the host, of all outputs. So tiles
run twice, with the same random numbers: first without a graph for the outputs,
and once more for the gradients when those of the outputs are known. What is
saved for gradients is then that of one tile. ``koila.lazy``, which does this
without the first pass, plans for one device.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from koila import memory
from koila._capture.structure import map_tensors
from koila._compile import max_batch
from koila._device import find_target
from koila._errors import KoilaError
from koila._execute.undo import RandomState, kept
from koila.compat.infinitybatch.errors import InfinityBatchError
from koila.compat.infinitybatch.structures import list_tensors
from koila.retry import Retry

__all__ = ["Tiler", "are_apart"]

# As many samples show whether they are computed apart.
_PROBE = 3


def are_apart(one: torch.device, other: torch.device) -> bool:
    """Whether tensors of one have to be moved to the other."""
    if one.type != other.type:
        return True
    return one.type != "cpu" and one.index is not None and one.index != other.index


@contextlib.contextmanager
def _without_hooks(weights: Sequence[Tensor]) -> Iterator[None]:
    """Hooks of weights are for the gradient of the whole, which comes later."""
    hooks = [weight._backward_hooks for weight in weights]
    try:
        for weight, found in zip(weights, hooks, strict=True):
            if found:
                weight._backward_hooks = None
        yield
    finally:
        for weight, found in zip(weights, hooks, strict=True):
            if found:
                weight._backward_hooks = found


def _take(inputs: Any, rows: Any, device: torch.device) -> Any:
    return map_tensors(lambda tensor: (tensor[rows] if tensor.dim() else tensor).to(device), inputs)


class Tiler:
    """Runs a model on ``device`` for batches on ``host``, in tiles that fit.

    ``call(model, inputs)`` is how it is called. ``budget`` is for the first size;
    where memory runs out after all, tiles shrink, and stay so for later batches.
    """

    def __init__(
        self,
        model: nn.Module,
        call: Callable[[Any, Any], Any],
        device: torch.device,
        host: torch.device,
        budget: int | str,
    ) -> None:
        self.model, self.call, self.device, self.host = model, call, device, host
        self.budget = budget
        self.tile: int | None = None  # of the last batch
        self._retries: dict[Any, tuple[Retry, int]] = {}
        self._apart: dict[Any, bool] = {}
        self.rehearsed: dict[Any, int] = {}  # tiles whose gradients did fit

    def run(self, inputs: Any, count: int) -> Any:
        """The outputs on the host, differentiable in the model's weights."""
        tensors = list_tensors(inputs)
        if any(tensor.requires_grad for tensor in tensors):
            raise InfinityBatchError(
                "gradients of the inputs are not computed where the model is on another device; "
                "detach them, or set backward_device to the model's device"
            )
        wrong = next((tensor for tensor in tensors if tensor.dim() and len(tensor) != count), None)
        if wrong is not None:
            raise InfinityBatchError(
                f"an input has the shape {tuple(wrong.shape)}, and the batch {count} samples; "
                "bind what is no sample to the model"
            )
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        with_graph = torch.is_grad_enabled() and bool(weights)
        step = _Step(self, inputs, count, with_graph)
        outputs, structure = step.forward()
        if with_graph:
            apply: Any = _Apply.apply
            outputs = list(apply(step, len(weights), *weights, *outputs))
        return pytree.tree_unflatten(outputs, structure)

    def find(self, inputs: Any, count: int, with_graph: bool) -> tuple[Retry, int]:
        """Who shrinks tiles, and the largest there is."""
        key = (with_graph, self.key(inputs), count)
        if key not in self._retries:
            self._retries[key] = Retry(), self._predict(inputs, count, with_graph)
        return self._retries[key]

    def key(self, inputs: Any) -> Any:
        modes = tuple(module.training for module in self.model.modules())
        return modes, tuple((x.shape[1:], x.dtype) for x in list_tensors(inputs))

    def _predict(self, inputs: Any, count: int, with_graph: bool) -> int:
        """By koila's figures for the device, where it can analyse the model; tiles that
        do not fit after all shrink."""
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        try:
            budget = memory.budget_bytes(self.budget, self.device)
            if with_graph:
                budget -= sum(weight.nbytes for weight in self.model.parameters())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = max_batch(
                    copy.deepcopy(self.model).cpu(),
                    *_take(arguments, slice(0, min(count, _PROBE)), torch.device("cpu")),
                    budget=max(budget, 0),
                    mode="forward-with-grad" if with_graph else "inference",
                    device=find_target(self.device),
                )
        except Exception:  # it cannot be copied or analysed: the whole batch is tried
            return count
        return count if found is None else min(max(found, 1), count)

    def is_apart(self, inputs: Any, count: int) -> bool:
        """Whether what comes out for a sample depends on that sample alone, found
        by changing those beside it."""
        key = self.key(inputs)
        if count > 1 and key not in self._apart:
            self._apart[key] = self._probe(inputs, count)
        return self._apart.get(key, True)

    def _probe(self, inputs: Any, count: int) -> bool:
        rows = [index % count for index in range(_PROBE)]
        others = [(count - 1 - index) % count for index in range(_PROBE)]
        others[1] = rows[1]
        state = RandomState(self.device)

        def disturb(tensor: Tensor) -> Tensor:
            # The samples may all be alike.
            if tensor.dim() and tensor.is_floating_point():
                tensor[::2] = tensor[::2] * 0.5 + 1
            return tensor

        def row(rows: list[int], place: int, disturbed: bool = False) -> list[Tensor]:
            taken = _take(inputs, rows, self.device)
            if disturbed:
                taken = map_tensors(disturb, taken)
            outputs = list_tensors(self.call(self.model, taken))
            if any(output.dim() == 0 or len(output) != len(rows) for output in outputs):
                raise InfinityBatchError(
                    "the model does not give a row for each sample; its outputs cannot come from "
                    "tiles"
                )
            return [output[place].detach().clone() for output in outputs]

        buffers = list(self.model.buffers())
        versions = [buffer._version for buffer in buffers]
        try:
            with kept(buffers), torch.no_grad():
                wanted = row(rows, 1)
                if [buffer._version for buffer in buffers] != versions:
                    return False  # statistics of the whole batch
                still = state.is_still()
                state.restore()
                found = row(others, 1, disturbed=True)
                same = all(map(_equals, found, wanted))
                if same and still:
                    alone = row(rows[1:2], 0)
                    same = all(map(_is_close, alone, wanted))
        finally:
            state.restore()
        return same


def _equals(found: Tensor, wanted: Tensor) -> bool:
    return torch.equal(found, wanted) or _is_close(found, wanted, 1e-6)


def _is_close(found: Tensor, wanted: Tensor, relative: float = 1e-3) -> bool:
    """Kernels of another size add up in another order."""
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    relative = max(relative, 8 * torch.finfo(wanted.dtype).eps)
    scale = float(wanted.abs().max()) if wanted.numel() else 0.0
    return torch.allclose(found, wanted, rtol=relative, atol=relative * scale, equal_nan=True)


class _Step:
    """One batch: its tiles, as they were drawn."""

    def __init__(self, tiler: Tiler, inputs: Any, count: int, with_graph: bool) -> None:
        self.tiler, self.inputs, self.count = tiler, inputs, count
        self.with_graph = with_graph
        self.tiles: list[tuple[int, int, RandomState]] = []
        self.autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in {tiler.device.type, "cpu"}
        ]

    def _run(self, start: int, end: int) -> Any:
        tiler = self.tiler
        outputs = tiler.call(tiler.model, _take(self.inputs, slice(start, end), tiler.device))
        wrong = next(
            (x for x in list_tensors(outputs) if x.dim() == 0 or len(x) != end - start), None
        )
        if wrong is not None:
            raise InfinityBatchError(
                f"an output has the shape {tuple(wrong.shape)} for {end - start} samples; "
                "only rows of samples can come from tiles"
            )
        return outputs

    def forward(self) -> tuple[list[Any], Any]:
        retry, size = self.tiler.find(self.inputs, self.count, self.with_graph)
        parts: list[list[Any]] = []
        structures: list[Any] = []

        def body(start: int, end: int) -> None:
            state = RandomState(self.tiler.device)
            try:
                self._rehearse(start, end, state)
                with torch.no_grad():
                    leaves, structure = pytree.tree_flatten(self._run(start, end))
                    host = self.tiler.host
                    down = [x.to(host) if isinstance(x, Tensor) else x for x in leaves]
            except Exception:
                state.restore()
                raise
            self.tiles.append((start, end, state))
            parts.append(down)
            structures.append(structure)

        retry.range(body, 0, self.count, size)
        self.tiler.tile = max(end - start for start, end, _ in self.tiles)
        outputs = [
            torch.cat(column) if isinstance(column[0], Tensor) else column[0]
            for column in zip(*parts, strict=True)
        ]
        return outputs, structures[0]

    def _rehearse(self, start: int, end: int, state: RandomState) -> None:
        """Whether the gradients of a tile fit is found before its numbers are drawn
        for good: once for each size."""
        tiler = self.tiler
        key = tiler.key(self.inputs)
        if not self.with_graph or end - start <= tiler.rehearsed.get(key, 0):
            return
        with kept(tiler.model.buffers()), torch.enable_grad():
            outputs = [x for x in list_tensors(self._run(start, end)) if x.requires_grad]
            if outputs:
                weights = [weight for weight in tiler.model.parameters() if weight.requires_grad]
                above = [torch.zeros_like(output) for output in outputs]
                # Room for what the tiles before it have given.
                reserve = [torch.empty_like(weight) for weight in weights]
                with _without_hooks(weights):
                    torch.autograd.grad(outputs, weights, above, allow_unused=True)
                del reserve
        state.restore()
        tiler.rehearsed[key] = end - start

    def differentiate(self, weights: list[Tensor], above: list[Any]) -> list[Tensor | None]:
        """The gradients of the weights, of those of the outputs."""
        totals: list[Tensor | None] = [None] * len(weights)
        tiler = self.tiler
        retry, _ = tiler.find(self.inputs, self.count, self.with_graph)
        now = RandomState(tiler.device)
        buffers = list(tiler.model.buffers())

        def add(start: int, end: int) -> None:
            with torch.enable_grad(), contextlib.ExitStack() as stack:
                for kind, enabled, dtype in self.autocast:
                    if not enabled and not torch.is_autocast_enabled(kind):
                        continue  # not every device has it
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
                outputs = pytree.tree_leaves(self._run(start, end))
            pairs = [
                (output, gradient[start:end].to(output.device))
                for output, gradient in zip(outputs, above, strict=True)
                if gradient is not None and isinstance(output, Tensor) and output.requires_grad
            ]
            if not pairs:
                return
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                weights,
                [gradient for _, gradient in pairs],
                allow_unused=True,
            )
            fresh = [
                gradient.clone() if gradient is not None and totals[index] is None else gradient
                for index, gradient in enumerate(found)
            ]
            # From here on nothing allocates, so no tile is added in part.
            for index, gradient in enumerate(fresh):
                if gradient is not None:
                    total = totals[index]
                    totals[index] = gradient if total is None else total.add_(gradient)

        try:
            with kept(buffers), _without_hooks(weights):
                for start, end, state in self.tiles:
                    # What was drawn for all of a tile is not what parts of it draw.
                    state.restore()
                    if end - start > 1 and state.is_still():
                        self._shrinkable(add, start, end, state, retry)
                    else:
                        add(start, end)
        finally:
            now.restore()
        return totals

    def _shrinkable(
        self,
        add: Callable[[int, int], None],
        start: int,
        end: int,
        state: RandomState,
        retry: Retry,
    ) -> None:
        """A tile whose gradients do not fit is cut where it draws nothing."""
        drew = False

        def body(at: int, until: int) -> None:
            nonlocal drew
            if drew and until - at < end - start:
                raise InfinityBatchError(
                    "memory ran out in the backward pass of a tile that drew random numbers, "
                    "which a smaller one would draw otherwise; set a smaller `budget`"
                )
            state.restore()
            try:
                add(at, until)
            except Exception:
                drew = not state.is_still()
                raise

        retry.range(body, start, end, end - start)


class _Apply(torch.autograd.Function):
    """Weights to outputs that are there already."""

    @staticmethod
    def forward(ctx: Any, step: _Step, count: int, *tensors: Any) -> tuple[Any, ...]:
        ctx.step, ctx.count = step, count
        ctx.save_for_backward(*tensors[:count])
        outputs = tensors[count:]
        ctx.mark_non_differentiable(
            *(
                output
                for output in outputs
                if isinstance(output, Tensor) and not output.is_floating_point()
            )
        )
        ctx.set_materialize_grads(False)
        return tuple(
            output.view_as(output) if isinstance(output, Tensor) else output for output in outputs
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *above: Any) -> tuple[Any, ...]:
        if ctx.step is None:
            raise KoilaError(
                "a second backward pass through outputs of `batch_`: its tiles are gone; "
                "add the losses up, and call backward once"
            )
        weights = list(ctx.saved_tensors)  # raises where they were written to since
        step, ctx.step = ctx.step, None
        gradients = step.differentiate(weights, list(above))
        return (None, None, *gradients, *(None for _ in above))
