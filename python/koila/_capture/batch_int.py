"""Sizes that remember that they come from a recorded tensor.

Arithmetic on them keeps the expression, so that a program that was recorded at
one batch size can be run at another.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["BatchInt"]


class BatchInt(int):
    """An int and where it comes from.

    ``expression`` is ``("size", reference, dim)`` for the extent of a recorded
    tensor, or ``(operator, left, right)``; operands are ints or BatchInts. The
    tensor is referred to weakly: a count of samples keeps no batch. ``batch``
    tells the sizes of one ``koila.lazy`` call from those of others, with which
    they make an ordinary int.
    """

    expression: tuple[Any, ...]
    batch: object

    def __new__(cls, value: int, expression: tuple[Any, ...], batch: object) -> BatchInt:
        self = super().__new__(cls, value)
        self.expression = expression
        self.batch = batch
        return self

    @staticmethod
    def of_size(value: int, tensor: Any, dim: int, batch: object) -> BatchInt:
        return BatchInt(value, ("size", weakref.ref(tensor), dim), batch)

    # A copy has no program to be part of.
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)

    def __neg__(self) -> BatchInt:
        return BatchInt(-int(self), (operator.mul, self, -1), self.batch)


def _make(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def combine(self: BatchInt, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            # Floats and tensors: ordinary arithmetic with a number.
            pair = (other, int(self)) if reflected else (int(self), other)
            return function(*pair) if not hasattr(other, "__torch_function__") else NotImplemented
        left, right = (other, self) if reflected else (self, other)
        value = function(int(left), int(right))
        if isinstance(other, BatchInt) and other.batch is not self.batch:
            return value
        return BatchInt(value, (function, left, right), self.batch)

    return combine


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _function = getattr(operator, _name)
    setattr(BatchInt, f"__{_name}__", _make(_function, False))
    setattr(BatchInt, f"__r{_name}__", _make(_function, True))
