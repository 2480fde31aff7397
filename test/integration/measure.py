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

import contextlib
import ctypes
import os
import pathlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

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
    gradients: int = 0  # those that a step of an optimizer had and that are gone

    @property
    def base(self) -> int:
        """What has to be there before or after, however the window is computed:
        weights, gradients, inputs, results, the state of the optimizer."""
        return max(self.start, self.end + self.gradients)

    @property
    def excess(self) -> int:
        return self.peak - self.base


class Memory:
    """PyTorch's allocator for the CPU, counted (tools/koila-run/CappedAllocator.cpp)."""

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
    """The windows of one run. What comes before the first is nobody's, and what an
    optimizer takes for its step is the optimizer's."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.before = memory.read()[0]
        self.windows: list[Window] = []
        self._peak = 0  # before the last step of an optimizer
        self._steps: list[Any] = []  # that are going on: the hooks, None with a closure
        self._gradients: dict[int, tuple[weakref.ref[Any], int]] = {}

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
            last.peak = max(self._peak, peak) - self.before
            last.end, last.gradients = live - self.before, self._gone()
        self.windows.append(Window(live - self.before, 0, 0))
        self._peak = 0
        self._gradients.clear()
        self.memory.reset()

    @contextlib.contextmanager
    def watching(self, find_weights: Callable[[], list[Any]] | None = None) -> Iterator[None]:
        """While the script runs: its optimizers are watched and, if there is a way to
        find its weights, its backward passes, since some step without an optimizer."""
        before = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            before(*args, **kwargs)
            assert find_weights is not None
            self._note_gradients(find_weights())

        if find_weights is not None:
            torch.autograd.backward = backward
        hooks = [
            register_optimizer_step_pre_hook(self._meet_step),
            register_optimizer_step_post_hook(self._end_step),
        ]
        try:
            yield
        finally:
            torch.autograd.backward = before
            for hook in hooks:
                hook.remove()

    def _note_gradients(self, weights: list[Any]) -> None:
        for weight in weights:
            if weight.grad is not None:
                self._gradients[id(weight)] = weakref.ref(weight), weight.grad.nbytes

    def _meet_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Hooks of the optimizer itself come after all others, as koila's."""
        self._steps.append(
            None
            if _takes_closure(args, kwargs)
            else optimizer.register_step_pre_hook(self._begin_step)
        )

    def _begin_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._peak = max(self._peak, self.memory.read()[1])

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            self._note_gradients(group["params"])
        handle = self._steps.pop()
        if handle is not None:
            handle.remove()
            self.memory.reset()

    def _gone(self) -> int:
        """Bytes of gradients that are not there any more."""
        alive = [(reference(), size) for reference, size in self._gradients.values()]
        return sum(size for weight, size in alive if weight is not None and weight.grad is None)

    def end(self) -> None:
        """The script is over. Its peak may still grow, see ``finish``."""
        if self.windows:
            last = self.windows[-1]
            last.end, last.gradients = self.memory.read()[0] - self.before, self._gone()

    def finish(self) -> None:
        """What the script leaves was read. Where that computes, the peak is the
        last window's."""
        if self.windows:
            self.windows[-1].peak = max(self._peak, self.memory.read()[1]) - self.before


def _takes_closure(args: Any, kwargs: Any) -> bool:
    """Whether a step computes losses itself, which is no optimizer's memory. The
    optimizer is the first of ``args``."""
    return any(item is not None for item in [*args[1:], *kwargs.values()])
