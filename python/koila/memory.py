"""How much memory there is for a program."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import torch

from koila._device import BlockCounter, find_kind
from koila._errors import KoilaError

__all__ = ["CountedMemory", "budget_bytes", "count_memory", "free", "recent_budget_bytes"]

T = TypeVar("T")

# What gaps between tensors take: glibc cuts blocks of less than this from its heap
# (DEFAULT_MMAP_THRESHOLD_MAX in malloc/malloc.c), where as large a gap may be too small
# for the next one. Python and the compiler take less.
_BESIDE = 32 << 20
# On a GPU it is what cuBLAS keeps for good, at most 32 MiB for each of the two threads of a
# step, and what tensors leave of their segments.
_BESIDE_ON_DEVICE = 96 << 20


def free(device: torch.device | str = "cpu") -> int:
    """Bytes that this process can still get on ``device`` now.

    On a GPU: what the driver has free, and what PyTorch's allocator holds in
    its cache, but for gaps between tensors, or less where
    ``torch.cuda.set_per_process_memory_fraction`` leaves less. ``cuda:0`` is the
    first of CUDA_VISIBLE_DEVICES. On the host: what Linux calls available, or less
    where a control group or a limit of the process (``ulimit -v``, ``ulimit -d``)
    leaves less. Raises KoilaError where nothing says how much there is.
    """
    device = torch.device(device)
    kind = find_kind(device)
    if kind is not None:
        return kind.ask(device).available()
    if device.type != "cpu":
        raise KoilaError(f"koila cannot ask a device of type '{device.type}' for its free memory")
    from koila import _C

    try:
        return int(_C.free_host_memory()[0])
    except RuntimeError as error:
        raise KoilaError(f"{error}; give the bytes that are free") from None


def budget_bytes(budget: int | str, device: torch.device | str = "cpu") -> int:
    """Bytes of a budget: a number, a size as ``"64MiB"``, or ``"auto"``.

    ``"auto"`` is what the environment variable KOILA_BUDGET says, else what is
    free on ``device`` now, but for a sixteenth, or 32 MiB on the host and 96 MiB on a GPU if
    that is more (but no more than half): for gaps between tensors, and there for what cuBLAS
    keeps. Raises KoilaError for what is none of these.
    """
    given = find_given_bytes(budget)
    if given is not None:
        return given
    found = free(device)
    least = _BESIDE if find_kind(torch.device(device)) is None else _BESIDE_ON_DEVICE
    return found - min(max(found >> 4, least), found >> 1)


def find_given_bytes(budget: int | str) -> int | None:
    """Bytes of a budget; None for ``"auto"`` of which KOILA_BUDGET says nothing. Raises
    KoilaError for what is no budget."""
    source = f"budget={budget!r}"
    if budget == "auto":
        value = os.environ.get("KOILA_BUDGET", "auto")
        if value == "auto":
            return None
        budget, source = value, f"KOILA_BUDGET={value!r}"
    if isinstance(budget, str):
        from koila._compiler import parse_size

        try:
            budget = parse_size(budget)
        except ValueError as error:
            raise KoilaError(f"{source}: {error}") from None
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        raise KoilaError(f"{source} is no number of bytes")
    return budget


class CountedMemory:
    """Bytes that PyTorch's CPU allocator hands out and takes back in a ``with`` block: in all
    threads that PyTorch starts for it, or beside other threads of Python in this one alone,
    since theirs are not told from what they do meanwhile. Tensors in cycles that were there
    before stay until its end: what is freed of them would be taken from what the block takes."""

    # Those whose blocks have not ended: another one restarts the peak that they ask for.
    _open: ClassVar[list[CountedMemory]] = []
    _peak: int

    def __enter__(self) -> CountedMemory:
        from koila import _C

        self._collects = gc.isenabled()
        gc.disable()
        # What was there before is no part of it.
        _C.count_cpu_memory([])
        self._thread = threading.get_ident()
        self._figures: Callable[[], list[int]] = (
            _C.cpu_memory if threading.active_count() == 1 else _C.thread_cpu_memory
        )
        for other in self._open:
            if other._figures is _C.cpu_memory or other._thread == self._thread:
                other._peak = max(other._peak, other._figures()[1])
        self._before = self._peak = self._figures()[0]
        self._open.append(self)
        _C.restart_cpu_peak()
        return self

    def __exit__(self, *_: object) -> None:
        self._peak = self._before + self.get_peak()
        self._open.remove(self)
        if self._collects:
            gc.enable()

    def get_live(self) -> int:
        """Bytes more than at the start of the block; of blocks that are older, what has
        been freed since."""
        return int(self._figures()[0] - self._before)

    def get_peak(self) -> int:
        """The most at once since the start of the block, and until its end."""
        peak = max(self._peak, self._figures()[1]) if self in self._open else self._peak
        return int(peak - self._before)


Counter = CountedMemory | BlockCounter


def count_memory(device: torch.device) -> Counter:
    """What counts the bytes that a ``with`` block takes of a device."""
    kind = find_kind(device)
    return CountedMemory() if kind is None else BlockCounter(kind, device)


_recent: dict[tuple[int | str, torch.device, str | None], tuple[float, int]] = {}
# Asking the system takes a quarter of a millisecond. Programs far from the limit
# may go by an answer of this age, in seconds.
_RECENT = 0.1


def recent_budget_bytes(budget: int | str, device: torch.device | str = "cpu") -> int:
    """As ``budget_bytes``, as of a moment ago: for each call of a program."""
    key = (budget, torch.device(device), os.environ.get("KOILA_BUDGET"))
    found = _recent.get(key)
    now = time.monotonic()
    if found is None or now - found[0] > _RECENT:
        found = _recent[key] = now, budget_bytes(budget, device)
    return found[1]


def format_bytes(count: float) -> str:
    """``1.50 MiB``; for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} bytes" if unit == "bytes" else f"{count:,.2f} {unit}"


class AllocatorEvent(NamedTuple):
    """A block that the CPU allocator handed out or took back: its number in the order of
    allocations, and its bytes, as they were asked for."""

    is_free: bool
    block: int
    bytes: int

    def __str__(self) -> str:
        return f"{'-' if self.is_free else '+'}{self.block}:{self.bytes}"


def record_events(
    call: Callable[[], T], of_all_threads: bool | None = None
) -> tuple[T, list[AllocatorEvent]]:
    """What ``call`` returns, and what the CPU allocator handed out and took back of it, in
    order. Blocks that were there before are left out. ``of_all_threads``: also what other
    threads do meanwhile; None: if they are those that PyTorch starts for it, since there
    are no other threads of Python."""
    from koila import _C

    _C.count_cpu_memory([])
    if of_all_threads is None:
        of_all_threads = threading.active_count() == 1
    _C.start_event_log(of_all_threads)
    try:
        result = call()
    finally:
        log = _C.stop_event_log()
    blocks: dict[int, int] = {}
    events = []
    count = 0
    for address, size in log:
        if size > 0:
            blocks[address] = count
            count += 1
            events.append(AllocatorEvent(False, blocks[address], size))
        elif address in blocks:
            events.append(AllocatorEvent(True, blocks.pop(address), -size))
    return result, events


class OperatorMemory(NamedTuple):
    """Of an operator that allocated or freed on the CPU: bytes that were live when it
    ended, and the most while it ran."""

    name: str
    live: int
    peak: int


def log_operators(call: Callable[[], T]) -> tuple[T, list[OperatorMemory], int]:
    """What ``call`` returns, the operators that it called in this thread, and the most that
    was live at once, in bytes above what was live before. Operators that others consist of
    count in these."""
    from koila import _C

    _C.count_cpu_memory([])
    _C.start_operator_log()
    try:
        result = call()
    finally:
        operators, peak = _C.stop_operator_log()
    return result, list(itertools.starmap(OperatorMemory, operators)), peak
