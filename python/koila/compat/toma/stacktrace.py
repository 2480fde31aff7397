"""Where a call comes from, as something that can be compared and hashed."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import ParamSpec, TypeVar

__all__ = ["get_simple_traceback", "set_watermark", "watermark"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Local(threading.local):
    #: Frames below this one, counted from the outermost, do not count.
    first = 0


_local = _Local()


def _count_frames(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


def get_simple_traceback(ignore_top: int = 0) -> tuple[tuple[str, int, str], ...]:
    """File, line and function of each frame, from that of the caller to the
    outermost, without the ``ignore_top`` innermost ones and those outside of a
    watermark. Keeps no frame alive."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(frames[ignore_top : len(frames) - _local.first])


def find_call_sites(ignore_top: int) -> tuple[tuple[int, ...], list[CodeType]]:
    """The same without a look at lines: what stands for the calls, and what has to
    live for it to stay theirs."""
    sites: list[int] = []
    codes: list[CodeType] = []
    frame: FrameType | None = sys._getframe(1 + ignore_top)
    while frame is not None:
        codes.append(frame.f_code)
        sites += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    if _local.first:
        sites = sites[: -2 * _local.first]
    return tuple(sites), codes


@contextlib.contextmanager
def watermark() -> Iterator[None]:
    """In the block only frames from the one that has it on count."""
    # This generator, contextlib's __enter__, and the block's own frame, which counts.
    yield from _count_from(_count_frames(sys._getframe(2)) - 1)


def _count_from(first: int) -> Iterator[None]:
    before, _local.first = _local.first, first
    try:
        yield
    finally:
        _local.first = before


def set_watermark(func: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; in its calls only frames from its own on count."""

    @functools.wraps(func)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before, _local.first = _local.first, _count_frames(sys._getframe())
        try:
            return func(*args, **kwargs)
        finally:
            _local.first = before

    return call
