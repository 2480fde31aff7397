"""Ctrl-C at a chosen moment of what runs in Python.

    moments = find_moments(call, 12)      # of the longest calls of C++
    with interrupted(moments[3]): call()  # is ended by KeyboardInterrupt there

While C++ runs Python does not hear a signal, so that nearly all that are sent
arrive where one of its longer calls returns.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# A function of C++, and how often it has been called before.
Moment = tuple[str, int]


def find_moments(call: Callable[[], Any], most: int) -> list[Moment]:
    """In the order in which they come."""
    found: list[tuple[float, int, Moment]] = []
    counts: collections.Counter[str] = collections.Counter()
    starts: list[float] = []

    def watch(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            starts.append(time.perf_counter())
        elif event in ("c_return", "c_exception") and starts:
            name = _name(function)
            seconds = time.perf_counter() - starts.pop()
            # Not Python's own: they are many, and short.
            if name.startswith(("torch.", "koila.")):
                found.append((seconds, len(found), (name, counts[name])))
            counts[name] += 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    longest = sorted(found, reverse=True)[:most]
    return [moment for _, _, moment in sorted(longest, key=lambda entry: entry[1])]


def _name(function: Any) -> str:
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', '')}"


@contextlib.contextmanager
def interrupted(moment: Moment | float) -> Iterator[None]:
    """At a moment, or after so many seconds: then by another process, since a thread
    would wait for Python's lock. What ends in time is not interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        with _after(moment) if isinstance(moment, float) else _at(moment):
            yield
        # A signal that was held back or just sent arrives here at the latest.
        time.sleep(0)


@contextlib.contextmanager
def _at(moment: Moment) -> Iterator[None]:
    count = 0

    def watch(frame: Any, event: str, function: Any) -> None:
        nonlocal count
        if event in ("c_return", "c_exception") and _name(function) == moment[0]:
            count += 1
            if count == moment[1] + 1:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def _after(seconds: float) -> Iterator[None]:
    parent, child = os.getpid(), os.fork()
    if not child:
        time.sleep(seconds)
        os.kill(parent, signal.SIGINT)
        os._exit(0)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
