"""Hooks that PyTorch calls for every module there is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules import module as modules

__all__ = ["calls_hooks", "has_hooks", "without_hooks"]

_TABLES: tuple[dict[int, Any], ...] = (
    modules._global_forward_hooks,
    modules._global_forward_pre_hooks,
    modules._global_backward_hooks,
    modules._global_backward_pre_hooks,
)


def calls_hooks() -> bool:
    """Whether the program has registered any. koila's own are not among them."""
    return any(table and any(map(_is_of_user, table.values())) for table in _TABLES)


def _is_of_user(hook: Any) -> bool:
    return not (getattr(hook, "__module__", None) or "").startswith("koila.")


def has_hooks(module: nn.Module) -> bool:
    """Whether this one has hooks of its own."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


@contextlib.contextmanager
def without_hooks() -> Iterator[None]:
    """What koila runs for itself is none of the calls that they are to see."""
    saved = [dict(table) for table in _TABLES]
    for table in _TABLES:
        table.clear()
    try:
        yield
    finally:
        for table, items in zip(_TABLES, saved, strict=True):
            for key, hook in items.items():
                table.setdefault(key, hook)
