"""The lines of the user that recorded something."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from koila._errors import Location, warn_at

__all__ = [
    "Frame",
    "Frames",
    "find_frames",
    "find_raised_at",
    "location_of",
    "raise_at",
    "warn_user",
]


class Frame(NamedTuple):
    """A line of Python that recorded something."""

    file: str
    line: int


# The innermost line outside of PyTorch, and the innermost of the user.
Frames = tuple[Frame, Frame]

_kinds: dict[CodeType, int] = {}
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = torch.__file__.rsplit("/", 1)[0] + "/"
_LIBRARY = tuple(
    {path for path in (sys.prefix, sys.base_prefix) if path not in ("/", "/usr")}
    | {"/usr/lib/python"}
)


def _kind(code: CodeType) -> int:
    """0: koila or PyTorch; 1: another library; 2: the user's."""
    file = code.co_filename
    kind = 2
    if file.startswith((_PACKAGE, _TORCH)):
        kind = 0
    elif (
        "/site-packages/" in file
        or "/dist-packages/" in file
        or (file.startswith(_LIBRARY) and "/lib/python" in file)
    ):
        kind = 1
    _kinds[code] = kind
    return kind


def find_frames() -> Frames:
    frame: FrameType | None = sys._getframe(1)
    inner: Frame | None = None
    while frame is not None:
        code = frame.f_code
        kind = _kinds.get(code)
        if kind is None:
            kind = _kind(code)
        if kind:
            if inner is None:
                inner = Frame(code.co_filename, frame.f_lineno)
            if kind == 2:
                return inner, Frame(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    inner = inner or Frame("", 0)
    return inner, inner


def location_of(frames: Frames) -> Location:
    return Location(*frames[1])


def raise_at(error: BaseException, frames: Frames) -> None:
    """Raises an error of a recorded call with the user's line innermost, as it
    would have come without recording."""
    place = frames[1]
    if place.line <= 0:
        raise error.with_traceback(None)
    code = compile("\n" * (place.line - 1) + "raise error", place.file, "exec")
    scope = {"error": error.with_traceback(None)}
    # An error that its own traceback leads to would keep all tensors on the way.
    del error
    try:
        exec(code, scope)
    finally:
        scope.clear()


def find_raised_at(error: BaseException) -> Frames | None:
    """The user's line that ``raise_at`` has put into the traceback of an error."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and code.co_names == ("error",):
            place = Frame(code.co_filename, trace.tb_lineno)
            found = place, place
        trace = trace.tb_next
    return found


def warn_user(text: str, registry: dict[Any, int] | None = None) -> None:
    """A KoilaWarning at the user's line, once for each in ``registry``."""
    place = find_frames()[1]
    warn_at(text, place.file, place.line, registry)
