"""Ctrl-C, and other signals that raise, wait where they would leave half of
something behind: a type of TorchScript without its method, an imported package
without a part, a module that was put back in part, a step of which some tiles
have added their gradients.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

__all__ = ["held_back", "import_whole", "let_through", "uninterrupted"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Those that programs handle in Python; PyTorch's loaders raise at SIGCHLD.
_SIGNALS = [
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    if (number := getattr(signal, name, None)) is not None
]


class _Hold:
    """The handlers of the program, and what has come for them."""

    def __init__(self) -> None:
        self.active = self.held = True
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._pending: list[tuple[int, FrameType | None]] = []

    def install(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            # What is not handled in Python ends the process, or is ignored.
            if callable(handler):
                self._previous[number] = handler
                signal.signal(number, self._handle)

    def uninstall(self) -> None:
        try:
            for number, handler in self._previous.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)
        finally:
            # A handler that is left, since another raised just now, passes on.
            self.active = self.held = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.held:
            self._pending.append((number, frame))
            return
        # Whoever cleans up after an exception is not interrupted again.
        self.held = self.active
        self._previous[number](number, frame)
        self.held = False

    def deliver(self) -> None:
        if self._pending:
            number, frame = self._pending.pop(0)
            try:
                self._previous[number](number, frame)
            finally:
                self.deliver()


_hold: _Hold | None = None


def _is_main() -> bool:
    # No other thread runs handlers.
    return threading.get_ident() == threading.main_thread().ident


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that come in the block are handled at its end."""
    global _hold
    hold = _hold
    if not _is_main() or (hold is not None and hold.held):
        yield
    elif hold is not None:
        hold.held = True
        try:
            yield
        finally:
            hold.held = False
            hold.deliver()
    else:
        hold = _Hold()
        try:
            # Before the handlers, so that none is there without it.
            _hold = hold
            hold.install()
            yield
        finally:
            _hold = None
            hold.uninstall()
            hold.deliver()


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """In a block of ``held_back``: signals are handled when they come, and those
    that have come now. The outer block goes on without interruption."""
    hold = _hold
    if hold is None or not _is_main():
        yield
        return
    was_held = hold.held
    try:
        hold.held = False
        hold.deliver()
        yield
    finally:
        hold.held = was_held


def import_whole(name: str) -> None:
    """Imports what PyTorch would import later: an import that was interrupted has
    to fail from then on."""
    if name not in sys.modules:
        with held_back():
            importlib.import_module(name)


def uninterrupted(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, in a block of ``held_back``."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with held_back():
            return function(*args, **kwargs)

    return call
