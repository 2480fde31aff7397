"""The lines of the user that recorded something."""

from __future__ import annotations

import sys
import warnings
from types import CodeType, FrameType
from typing import Any

import torch

from koila._errors import KoilaWarning
from koila._program import Frame

__all__ = ["find_frames", "warn_user"]

_kinds: dict[CodeType, int] = {}
_PACKAGE = __file__.rsplit("/", 1)[0] + "/"
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


def find_frames() -> tuple[Frame, Frame]:
    """The innermost line outside of PyTorch, and the innermost of the user."""
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


def warn_user(text: str, registry: dict[Any, int] | None = None) -> None:
    """A KoilaWarning at the user's line, once for each in ``registry``."""
    place = find_frames()[1]
    warnings.warn_explicit(text, KoilaWarning, place.file, place.line, registry=registry)
