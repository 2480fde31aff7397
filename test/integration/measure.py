"""Memory of a program, from one call of ``koila.lazy`` to the next.

    memory = Memory()             # once, before there are tensors
    recorder = Recorder(memory)
    recorder.mark()               # at every call of koila.lazy
    recorder.end()                # after the last line of the script
    recorder.finish()             # after what it left was read
    recorder.windows

KOILA_BUILD names another build folder than build.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from dataclasses import dataclass

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BUILD = pathlib.Path(os.environ.get("KOILA_BUILD", _ROOT / "build"))
_LIBRARY = _BUILD / "lib" / "libkoila-capped-allocator.so"
_NO_CAP = 1 << 62


@dataclass
class Window:
    """Bytes from one call of ``koila.lazy`` to the next, without those that were
    alive before the script."""

    start: int
    peak: int
    end: int

    @property
    def base(self) -> int:
        """What has to be there before or after, however the window is computed:
        weights, gradients, inputs, results, the state of the optimizer."""
        return max(self.start, self.end)

    @property
    def excess(self) -> int:
        return self.peak - self.base


class Memory:
    """PyTorch's allocator for the CPU, counted (tools/bench/CappedAllocator.cpp)."""

    def __init__(self) -> None:
        if not _LIBRARY.exists():
            raise SystemExit(f"{_LIBRARY} is not there; build the target koila-capped-allocator")
        self._library = ctypes.CDLL(str(_LIBRARY))
        self._library.koilaCapInstall()

    def read(self) -> tuple[int, int]:
        """The bytes that are alive, and the most since ``reset``."""
        live, peak, failures = (ctypes.c_int64() for _ in range(3))
        self._library.koilaCapRead(*map(ctypes.byref, (live, peak, failures)))
        return live.value, peak.value

    def reset(self) -> None:
        self._library.koilaCapSet(ctypes.c_int64(_NO_CAP))


class Recorder:
    """The windows of one run. What comes before the first is nobody's."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.before = memory.read()[0]
        self.windows: list[Window] = []
        self._open = False

    @property
    def current(self) -> int:
        """The window that is open; -1 before the first."""
        return len(self.windows) - 1

    def mark(self) -> None:
        """One window ends and the next begins. Nothing is collected here: what
        only Python's search for cycles would free takes memory, too."""
        live, peak = self.memory.read()
        if self.windows:
            last = self.windows[-1]
            last.peak, last.end = peak - self.before, live - self.before
        self.windows.append(Window(live - self.before, 0, 0))
        self.memory.reset()

    def end(self) -> None:
        """The script is over. Its peak may still grow, see ``finish``."""
        if self.windows:
            self.windows[-1].end = self.memory.read()[0] - self.before

    def finish(self) -> None:
        """What the script leaves was read. Where that computes, the peak is the
        last window's."""
        if self.windows:
            self.windows[-1].peak = self.memory.read()[1] - self.before
