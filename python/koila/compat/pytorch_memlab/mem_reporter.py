"""Which tensors take memory, after pytorch_memlab by Stonesjtu (MIT)."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import FrameType
from typing import NamedTuple

import torch
from torch.utils.weak import TensorWeakRef

from koila.compat.pytorch_memlab import _sources, _tensors
from koila.compat.pytorch_memlab._names import Names
from koila.compat.pytorch_memlab.utils import readable_size

__all__ = ["Difference", "MemReporter"]

_WIDTH = 79
#: PyTorch's CUDA allocator hands out multiples of it, or more where the rest of a
#: segment is too small to be of use.
_CUDA_BYTES = 512

#: Name, size, elements and bytes of a tensor.
Stat = tuple[str, tuple[int, ...], int, int]


class _Entry(NamedTuple):
    """What was seen of a tensor; keeps nothing alive."""

    name: str
    size: tuple[int, ...]
    elements: int
    device: torch.device
    parts: list[_Part]


class _Part(NamedTuple):
    storage: int
    #: Its bytes, and what the allocator has given for it.
    total: int
    block: int
    #: Where in it the tensor lies.
    begin: int
    end: int


class MemReporter:
    """Lists the tensors of the process with their bytes.

    Each byte of a storage counts for one tensor; others that share it have 0 bytes
    (``verbose`` says with whom). Beside the tensors that Python knows there are those
    that autograd saved for the backward pass, named by node. Names come from ``model``,
    optimizers that were added, and variables and attributes of the callers.

    ``model``: names of its parameters and buffers. ``pre_collect``: collect garbage
    before each report. The reporter keeps nothing alive.
    """

    def __init__(self, model: torch.nn.Module | None = None, pre_collect: bool = False) -> None:
        self.pre_collect = pre_collect
        self._names = Names()
        self._entries: list[_Entry] = []
        self._closed: Counter[str] = Counter()
        #: By device, weak references to the tensors that were found.
        self.device_mapping: dict[torch.device, list[TensorWeakRef]] = {}
        #: By device, (name, size, elements, bytes) of each.
        self.device_tensor_stat: dict[torch.device, list[Stat]] = {}
        self._shared: dict[torch.device, list[str]] = {}
        #: By device, elements; one that several tensors show counts once.
        self._elements: Counter[torch.device] = Counter()
        _sources.count_cpu()
        if model is not None:
            self._names.add_model(model)

    @property
    def tensor_name(self) -> torch.utils.weak.WeakTensorKeyDictionary:
        """Names of parameters, buffers and optimizer state, by tensor."""
        return self._names.known

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Names its state, ``Adam.weight.exp_avg``; that of later steps, too."""
        self._names.add_optimizer(optimizer)

    def collect_tensor(self) -> None:
        """Looks which tensors there are."""
        self._collect(sys._getframe(1))

    def _collect(self, frame: FrameType | None) -> None:
        if self.pre_collect:
            gc.collect()
        self._entries, self.device_mapping = [], {}
        tensors = _tensors.get_live_tensors()
        names = self._names.get_all(frame)
        graphs = _tensors.walk_graphs(tensors)
        self._closed = graphs.closed
        for node, argument, tensor in graphs.saved:
            names.setdefault(id(tensor), f"{node}.{argument} (saved)")
        # Those with names first, as their storages are theirs.
        blocks = _get_cuda_blocks()
        order = {key: index for index, key in enumerate(names)}
        tensors.sort(key=lambda tensor: order.get(id(tensor), len(order)))
        number = 0
        for tensor in tensors:
            name = names.get(id(tensor))
            entry = _get_entry(name or f"Tensor{number}", tensor, blocks)
            if entry is not None:
                number += name is None
                self._entries.append(entry)
                self.device_mapping.setdefault(entry.device, []).append(TensorWeakRef(tensor))
        # What a node made is kept by it as another tensor of the same storage.
        seen = {part.storage for entry in self._entries for part in entry.parts}
        for node, argument, tensor in graphs.saved:
            entry = _get_entry(f"{node}.{argument} (saved)", tensor, blocks)
            if entry is not None and not all(part.storage in seen for part in entry.parts):
                self._entries.append(entry)

    def get_stats(self) -> None:
        """Works out ``device_tensor_stat`` of what was collected."""
        self.device_tensor_stat, self._shared, self._elements = {}, {}, Counter()
        free: dict[tuple[torch.device, int], list[tuple[int, int]]] = {}
        owners: dict[tuple[torch.device, int], str] = {}
        for entry in self._entries:
            taken, fresh, shared = 0, 0, ""
            for part in entry.parts:
                key = (entry.device, part.storage)
                if key not in free:
                    free[key], owners[key] = [(0, part.total)], entry.name
                    taken += part.block - part.total
                elif owners[key] != entry.name:
                    shared = owners[key]
                fresh += _take(free[key], part.begin, part.end)
            taken += fresh
            shown = sum(part.end - part.begin for part in entry.parts)
            self._elements[entry.device] += entry.elements * fresh // max(shown, 1)
            stat = (entry.name, entry.size, entry.elements, taken)
            self.device_tensor_stat.setdefault(entry.device, []).append(stat)
            self._shared.setdefault(entry.device, []).append(shared)
        for (device, storage), ranges in free.items():
            rest = sum(end - begin for begin, end in ranges)
            if rest:
                owner = owners[device, storage]
                self.device_tensor_stat[device].append((f"(rest of {owner})", (), 0, rest))
                self._shared[device].append("")

    def get_bytes(self, device: torch.device | str | int) -> int:
        """What the tensors of a device take, in bytes, as of the last ``get_stats``."""
        return sum(stat[3] for stat in self.device_tensor_stat.get(_as_device(device), []))

    def print_stats(
        self, verbose: bool = False, target_device: torch.device | str | int | None = None
    ) -> None:
        """Prints what ``get_stats`` worked out, of one device or of all."""
        target = None if target_device is None else _as_device(target_device)
        devices = [device for device in self.device_tensor_stat if target in (None, device)]
        print(_get_row("Element type", "Size", "Used MEM"))
        for device in devices:
            print("-" * _WIDTH)
            print(f"Storage on {device}")
            stats = self.device_tensor_stat[device]
            for (name, size, _, amount), shared in zip(stats, self._shared[device], strict=True):
                label = f"{name}(->{shared})" if verbose and shared else name
                text = str(tuple(size)) if not name.startswith("(rest") else ""
                print(_get_row(label, text, readable_size(amount)))
            print("-" * _WIDTH)
            tensors = [stat for stat in stats if not stat[0].startswith("(rest")]
            print(
                f"Total Tensors: {len(tensors)} ({self._elements[device]} elements) "
                f"\tUsed Memory: {readable_size(self.get_bytes(device))}"
            )
            self._print_allocated(device)
            print("-" * _WIDTH)
        if self._closed:
            nodes = ", ".join(f"{count} {name}" for name, count in self._closed.items())
            print(f"What these nodes of the graph saved cannot be seen: {nodes}")

    def _print_allocated(self, device: torch.device) -> None:
        if device.type == "cpu":
            allocated = _sources.get_cpu_bytes()
        elif device.type == "cuda":
            allocated = torch.cuda.memory_allocated(device)
        else:
            return
        print(f"The allocated memory on {device}: {readable_size(allocated)}")
        if device.type == "cuda":
            # What nvidia-smi counts, with the context of CUDA on top.
            reserved = readable_size(torch.cuda.memory_reserved(device))
            print(f"Reserved by PyTorch on {device}: {reserved}")
        hidden = allocated - self.get_bytes(device)
        if hidden > 0:
            print(f"Not seen: {readable_size(hidden)}, held by PyTorch, not by Python")
        elif hidden < 0:
            print(f"Not the allocator's, or older than the reporter: {readable_size(-hidden)}")

    def report(self, verbose: bool = False, device: torch.device | str | int | None = None) -> None:
        """Collects and prints. ``verbose`` says which tensors share memory; ``device``:
        that one only."""
        self._collect(sys._getframe(1))
        self.get_stats()
        self.print_stats(verbose, device)

    def difference(self, other: MemReporter) -> Difference:
        """What this report has more, or less, than that of another."""
        return Difference(self.device_tensor_stat, other.device_tensor_stat)

    def __sub__(self, other: MemReporter) -> Difference:
        return self.difference(other)


class Difference:
    """What one report has more than another (or less: negative).

    ``rows``: (device, name, size, tensors, bytes); tensors without a name are told apart
    by size. ``bytes``: by device.
    """

    def __init__(
        self,
        after: dict[torch.device, list[Stat]],
        before: dict[torch.device, list[Stat]],
    ) -> None:
        self.bytes: dict[torch.device, int] = {}
        self.rows: list[tuple[torch.device, str, tuple[int, ...], int, int]] = []
        for device in dict.fromkeys([*after, *before]):
            counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
            amounts: Counter[tuple[str, tuple[int, ...]]] = Counter()
            for stats, sign in ((after, 1), (before, -1)):
                for name, size, _, amount in stats.get(device, []):
                    key = (_without_number(name), size)
                    counts[key] += sign
                    amounts[key] += sign * amount
            self.bytes[device] = sum(amounts.values())
            self.rows += [
                (device, *key, counts[key], amounts[key])
                for key in counts
                if counts[key] or amounts[key]
            ]

    def __str__(self) -> str:
        lines = [_get_row("Element type", "Size", "Difference")]
        for device, total in self.bytes.items():
            lines += ["-" * _WIDTH, f"Storage on {device}"]
            for where, name, size, count, amount in self.rows:
                if where == device:
                    label = name if count in (1, -1, 0) else f"{name} (x{abs(count)})"
                    sign = "-" if count < 0 or amount < 0 else "+"
                    lines.append(_get_row(label, str(size), sign + readable_size(abs(amount))))
            sign = "-" if total < 0 else "+"
            lines += ["-" * _WIDTH, f"Difference: {sign}{readable_size(abs(total))}"]
        return "\n".join(lines)


def _without_number(name: str) -> str:
    return "Tensor" if name.startswith("Tensor") and name[6:].isdigit() else name


def _get_cuda_blocks() -> dict[int, int]:
    """The bytes of the blocks that PyTorch's CUDA allocator has handed out, by address."""
    blocks: dict[int, int] = {}
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return blocks
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        address = int(segment["address"])
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                blocks[address] = int(block["size"])
            address += int(block["size"])
    return blocks


def _get_part(part: _tensors.Part, blocks: dict[int, int]) -> _Part:
    total = block = part.storage.nbytes()
    if part.storage.device.type == "cuda":
        # Of another allocator nothing is known but this.
        block = blocks.get(part.storage.data_ptr(), total + -total % _CUDA_BYTES)
    return _Part(part.storage._cdata, total, block, part.begin, part.end)


def _get_entry(name: str, tensor: torch.Tensor, blocks: dict[int, int]) -> _Entry | None:
    try:
        parts = _tensors.get_parts(tensor)
        size = tuple(tensor.size())
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    elements = tensor.numel()
    if tensor.layout != torch.strided:
        elements = sum(one.numel() for one in _tensors.get_dense(tensor.detach()))
    return _Entry(
        name,
        size,
        elements,
        tensor.device,
        [_get_part(part, blocks) for part in parts],
    )


def _take(free: list[tuple[int, int]], begin: int, end: int) -> int:
    """Takes a range out of what is free, and returns the bytes of it that were."""
    left, taken = [], 0
    for first, last in free:
        low, high = max(first, begin), min(last, end)
        if low >= high:
            left.append((first, last))
            continue
        taken += high - low
        left += [r for r in ((first, low), (high, last)) if r[0] < r[1]]
    free[:] = left
    return taken


def _as_device(device: torch.device | str | int) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _get_row(name: str, size: str, amount: str) -> str:
    return f"{name:<44} {size:>{_WIDTH - 56}} {amount:>10}"
