"""infinitybatch's tools: snapshots of memory, seeds, comparisons; and a count of
parameters."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from koila._execute.undo import RandomState, kept
from koila.compat.infinitybatch.errors import InfinityBatchError, InfinityBatchWarning
from koila.compat.infinitybatch.structures import call_model
from koila.memory import format_bytes

__all__ = [
    "ERROR_TOLERANCE",
    "CudaHistory",
    "CudaMemorySnapShot",
    "CudaMemorySnapshot",
    "ParameterCount",
    "compare_with_error_",
    "count_parameters",
    "determinize",
    "is_equal_network",
    "is_equal_with_error",
]

#: How far numbers may be apart and still be called equal.
ERROR_TOLERANCE = 1e-7


class CudaMemorySnapShot:
    """The memory of a GPU at one moment, in bytes: ``total`` of the device,
    ``reserved`` by PyTorch, ``allocated`` for tensors. These do not change.

    Raises InfinityBatchError without a GPU."""

    total: int
    reserved: int
    allocated: int
    device: torch.device | str | int | None

    def __init__(
        self, device_id: torch.device | str | int | None = None, synchronize: bool = True
    ) -> None:
        if not torch.cuda.is_available():
            raise InfinityBatchError("a snapshot is of a GPU's memory, and PyTorch finds none")
        if synchronize:
            torch.cuda.synchronize(device_id)
        figures = {
            "device": device_id,
            "total": torch.cuda.get_device_properties(device_id).total_memory,
            "reserved": torch.cuda.memory_reserved(device_id),
            "allocated": torch.cuda.memory_allocated(device_id),
        }
        self.__dict__.update(figures)

    @property
    def free_cache(self) -> int:
        """What PyTorch has reserved and not given to tensors."""
        return self.reserved - self.allocated

    def __setattr__(self, name: str, value: object) -> None:
        warnings.warn(
            f"a snapshot keeps what was measured; `{name}` is not changed",
            InfinityBatchWarning,
            stacklevel=2,
        )


def CudaMemorySnapshot(
    device_id: torch.device | str | int | None = None, synchronize: bool = True
) -> CudaMemorySnapShot:
    """``CudaMemorySnapShot``, with a warning."""
    warnings.warn(
        "the name is CudaMemorySnapShot; this is taken as it", InfinityBatchWarning, stacklevel=2
    )
    return CudaMemorySnapShot(device_id, synchronize)


class CudaHistory(list[tuple[str, CudaMemorySnapShot]]):
    """Snapshots and their names, in the order of time; ``str()`` is a table."""

    def __init__(self) -> None:
        super().__init__()

    def append(  # type: ignore[override]
        self,
        name: str,
        device_id: torch.device | str | int | None = None,
        synchronize: bool = True,
    ) -> None:
        """Takes a snapshot of this name, of which 20 characters are kept."""
        super().append((name[:20], CudaMemorySnapShot(device_id, synchronize)))

    def __str__(self) -> str:
        if not self:
            return "CudaHistory is empty."
        rows = [
            (name, str(snapshot.total), str(snapshot.reserved), str(snapshot.allocated))
            for name, snapshot in self
        ]
        return "CudaHistory:\n" + _table(("Name", "Total", "Reserved", "Allocated"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, tuple("-" * width for width in widths), *rows)
    ]
    return "\n".join(lines) + "\n"


def determinize(seed: int | None = None, be_deterministic: bool = True) -> None:
    """Seeds PyTorch, NumPy and ``random``, and sets whether cuDNN takes only
    deterministic algorithms. Without a seed it is 0, or one by chance where it need
    not be deterministic."""
    torch.backends.cudnn.deterministic = be_deterministic
    torch.backends.cudnn.benchmark = not be_deterministic
    if seed is None:
        seed = 0 if be_deterministic else random.SystemRandom().randrange(2**32)
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


def is_equal_network(one: nn.Module, another: nn.Module) -> bool:
    """Whether both have the same state, bit by bit; they may be on two devices."""
    first, second = one.state_dict(), another.state_dict()
    if first.keys() != second.keys():
        return False
    return all(
        torch.equal(value.detach().cpu(), second[name].detach().cpu())
        if isinstance(value, Tensor)
        else value == second[name]
        for name, value in first.items()
    )


def is_equal_with_error(one: Tensor, another: Tensor, detach: bool = True) -> bool:
    """Whether tensors of one shape are apart by no more than ``ERROR_TOLERANCE``
    anywhere. ``detach`` does not matter: nothing here has a graph."""
    if one.shape != another.shape:
        return False
    first, second = one.detach().cpu(), another.detach().cpu()
    wide = torch.promote_types(first.dtype, second.dtype)
    wide = torch.complex128 if wide.is_complex else torch.float64
    apart = (first.to(wide) - second.to(wide)).abs()
    # Infinities are equal to themselves, and apart from them by nan.
    return bool(((apart <= ERROR_TOLERANCE) | (first == second)).all())


def compare_with_error_(one: float, another: float) -> bool:
    """Whether two numbers are apart by no more than ``ERROR_TOLERANCE``."""
    return one == another or abs(one - another) <= ERROR_TOLERANCE


class ParameterCount(NamedTuple):
    """A layer's own parameters; those that an earlier layer has as well are not
    counted again. ``seconds``: of a forward pass, None if none was made."""

    name: str
    kind: str
    elements: int
    learnable: int
    bytes: int
    seconds: float | None


class ParameterCounts(list[ParameterCount]):
    """The layers of a model; ``str()`` is a table with their sum."""

    @property
    def total(self) -> ParameterCount:
        times = [row.seconds for row in self if row.seconds is not None]
        return ParameterCount(
            "total",
            "",
            sum(row.elements for row in self),
            sum(row.learnable for row in self),
            sum(row.bytes for row in self),
            sum(times) if times else None,
        )

    def __str__(self) -> str:
        rows = [
            (
                row.name or "(model)",
                row.kind,
                f"{row.elements:,}",
                f"{row.learnable:,}",
                format_bytes(row.bytes),
                "" if row.seconds is None else f"{row.seconds * 1e3:.3f} ms",
            )
            for row in (*self, self.total)
        ]
        return _table(("layer", "kind", "elements", "learnable", "memory", "time"), rows)


def count_parameters(model: nn.Module, inputs: Any = None) -> ParameterCounts:
    """The parameters of each layer that has some, and with ``inputs`` the time that
    its calls take in one forward pass, children apart."""
    times = None if inputs is None else _measure(model, inputs)
    seen: set[int] = set()
    counts = ParameterCounts()
    for name, module in model.named_modules():
        own = [weight for weight in module.parameters(recurse=False) if id(weight) not in seen]
        seen.update(map(id, own))
        took = None if times is None else times.get(name)
        if own or took is not None:
            counts.append(
                ParameterCount(
                    name,
                    type(module).__name__,
                    sum(weight.numel() for weight in own),
                    sum(weight.numel() for weight in own if weight.requires_grad),
                    sum(weight.numel() * weight.itemsize for weight in own),
                    took,
                )
            )
    return counts


def _measure(model: nn.Module, inputs: Any) -> dict[str, float]:
    times: dict[str, float] = {}
    running: list[list[float]] = []  # when each call began, and what its children took

    def clock() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def begin(module: nn.Module, args: Any) -> None:
        running.append([clock(), 0.0])

    def end_of(name: str) -> Any:
        def end(module: nn.Module, args: Any, result: Any) -> None:
            start, children = running.pop()
            took = clock() - start
            times[name] = times.get(name, 0.0) + took - children
            if running:
                running[-1][1] += took

        return end

    handles = []
    # Looking at a model does not change it.
    state = RandomState()
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(begin))
            handles.append(module.register_forward_hook(end_of(name)))
        with torch.no_grad(), kept(model.buffers()):
            call_model(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
        state.restore()
    return times
