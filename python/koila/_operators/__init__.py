"""Operators that a program describes itself."""

from koila._operators.batch import BatchArgument
from koila._operators.kernel_trace import Block, KernelTrace
from koila._operators.registry import register

__all__ = ["BatchArgument", "Block", "KernelTrace", "register"]
