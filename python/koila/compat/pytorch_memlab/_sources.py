"""Where the profiler's figures come from: PyTorch's CPU allocator, or a GPU's.

On the CPU koila counts what the allocator hands out and takes back, in all threads.
The columns there:

* ``active_bytes.all.*`` and ``allocated_bytes.all.*``, in bytes, the same figures;
* ``active.all.*`` and ``allocation.all.*``, in blocks;

each with ``current`` (live when the line ended), ``peak`` (the most at once while it ran),
``allocated`` and ``freed`` (by the line, all its runs) and ``increment`` (the difference of
these two). Nothing is rounded, cached or reserved there: other columns of
``torch.cuda.memory_stats`` are a GPU's. There it is they that are read, and ``increment``
is added to each ``allocated`` and ``freed``.

Not counted on the CPU: memory that is not the allocator's (NumPy's, files, memory shared
between processes, pinned memory, what oneDNN and MKL take from the system).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import torch

from koila import _C
from koila.compat.pytorch_memlab._tensors import get_live_tensors

_PARTS = ("current", "peak", "allocated", "freed")

#: How figures of several laps become one.
SUM, MOST, LAST = range(3)


def _how(column: str) -> int:
    if column.endswith(".peak"):
        return MOST
    return LAST if column.endswith((".current", "_size")) else SUM


class Source:
    """Figures of one device, from lap to lap."""

    def __init__(self, device: torch.device, fields: Sequence[str]) -> None:
        self.device = device
        #: What a lap has, in its order.
        self.fields = tuple(fields)
        self.how = tuple(map(_how, self.fields))

    def lap(self) -> Sequence[int]:
        """What happened since the last one of this thread."""
        raise NotImplementedError

    def get_columns(self) -> dict[str, tuple[int, int]]:
        """What can be shown: where it is in a lap, and what to take from it or -1."""
        columns = {}
        for index, field in enumerate(self.fields):
            columns[field] = (index, -1)
            stem, _, part = field.rpartition(".")
            if part == "allocated" and f"{stem}.freed" in self.fields:
                columns[f"{stem}.increment"] = (index, self.fields.index(f"{stem}.freed"))
        return columns


class CPUSource(Source):
    """What PyTorch's CPU allocator hands out and takes back, to the byte."""

    def __init__(self) -> None:
        super().__init__(
            torch.device("cpu"),
            [f"{stem}.all.{part}" for stem in ("active_bytes", "active") for part in _PARTS],
        )

    def lap(self) -> Sequence[int]:
        return _C.take_cpu_lap()

    def get_columns(self) -> dict[str, tuple[int, int]]:
        columns = super().get_columns()
        for name, like in (("allocated_bytes", "active_bytes"), ("allocation", "active")):
            for part in (*_PARTS, "increment"):
                columns[f"{name}.all.{part}"] = columns[f"{like}.all.{part}"]
        return columns


class CUDASource(Source):
    """``torch.cuda.memory_stats``. The caching allocator counts for the process, not
    for a thread: what others do counts in the line that ends next."""

    def __init__(self, device: torch.device) -> None:
        self._lock = threading.Lock()
        # Before, there are no figures.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        stats = torch.cuda.memory_stats(device)
        super().__init__(device, [name for name in stats if isinstance(stats[name], int)])
        self._before = [int(stats[name]) for name in self.fields]
        torch.cuda.reset_peak_memory_stats(device)

    def lap(self) -> Sequence[int]:
        with self._lock:
            stats = torch.cuda.memory_stats(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            now = [int(stats.get(name, 0)) for name in self.fields]
            figures = [
                figure - before if how == SUM else figure
                for figure, before, how in zip(now, self._before, self.how, strict=True)
            ]
            self._before = now
            return figures


_sources: dict[torch.device, Source] = {}
_counting = False


def get_source(target: int | str | torch.device) -> Source:
    """The figures of a device; a number is a GPU's, or the CPU where there is no GPU."""
    if isinstance(target, bool) or not isinstance(target, int | str | torch.device):
        raise TypeError(f"a device is an int or a torch.device, not {target!r}")
    if isinstance(target, int):
        device = torch.device("cuda", target) if torch.cuda.is_available() else torch.device("cpu")
    else:
        device = torch.device(target)
    if device.type == "cpu":
        device = torch.device("cpu")
    elif device.type != "cuda":
        raise ValueError(f"memory is profiled on the CPU and on CUDA devices, not on {device}")
    elif device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    elif device.index >= torch.cuda.device_count():
        raise ValueError(f"there is no {device}: PyTorch finds {torch.cuda.device_count()} GPU(s)")
    source = _sources.get(device)
    if source is None:
        source = _sources[device] = CPUSource() if device.type == "cpu" else CUDASource(device)
    if device.type == "cpu":
        count_cpu()
    return source


def count_cpu(tensors: Iterable[torch.Tensor] | None = None) -> None:
    """Counts the CPU's memory from now on, tensors that are there already among it."""
    global _counting
    if tensors is None and not _counting:
        tensors = get_live_tensors()
    _counting = True
    _C.count_cpu_memory([t for t in tensors or () if _has_memory(t)])


def get_cpu_bytes() -> int:
    """What the CPU's allocator has handed out and not got back, of what is counted."""
    return int(_C.cpu_memory()[0])


def _has_memory(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
