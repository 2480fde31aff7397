"""What a batch rule is told."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BatchArgument"]


@dataclass(frozen=True)
class BatchArgument:
    """A tensor argument of an operator, as a batch rule sees it.

    ``batch`` is the dim along which the samples lie, None if the tensor has nothing to
    do with the batch; ``ndim`` the number of its dims.
    """

    batch: int | None
    ndim: int
