"""What autocast casts of weights, from one call to the next."""

from __future__ import annotations

from typing import Any

import torch

from koila._capture.values import Call

__all__ = ["CastCache"]


class CastCache:
    """Weights that calls read under autocast are cast once, as in plain PyTorch, which
    remembers casts to the end of the block (at::autocast::cached_cast): a graph of
    several calls holds one. They are forgotten where the modes change, since what was
    cast without a graph has none."""

    def __init__(self) -> None:
        self._modes: tuple[Any, ...] | None = None

    def __enter__(self) -> CastCache:
        torch.autocast_increment_nesting()
        return self

    def __exit__(self, *exception: object) -> None:
        self._enter(None)
        torch.autocast_decrement_nesting()

    def before(self, call: Call) -> None:
        self._enter(None if call.autocast is None else (call.grad, call.autocast))

    def _enter(self, modes: tuple[Any, ...] | None) -> None:
        if modes != self._modes:
            torch.clear_autocast_cache()
            self._modes = modes
