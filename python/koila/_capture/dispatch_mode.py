"""Modes that see each operation of PyTorch, without torch.compile."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode", "call_operator"]


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Of others the first operation imports all of torch.compile, to switch it
    off: 800 modules, 70 MiB and seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def call_operator(func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
    """What a mode calls. PyTorch hands a mode a 0-dim tensor that was made of a number as
    that number, which ``aten::equal`` does not take: by it TorchScript compares the
    constants of a program."""
    if func is torch.ops.aten.equal.default:
        args = tuple(map(torch.as_tensor, args))
    return func(*args, **(kwargs or {}))
