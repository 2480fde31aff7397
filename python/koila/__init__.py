"""koila ends ``CUDA out of memory`` for PyTorch users.

``analyze`` says what a program needs before it runs, ``compile`` runs its batch
in tiles that fit, ``max_batch`` finds the largest batch. ``lazy`` needs no
module: it records what is done to tensors.
"""

from __future__ import annotations

from koila import constants, errors, gpus, memory, prepasses, retry
from koila._compile import CompiledModule, analyze, compile, max_batch
from koila._errors import BudgetError, CompileError, KoilaError, KoilaWarning, Location
from koila._lazy import BatchedPair, BatchInfo, Evaluation, LazyFunction, LazyTensor, lazy, run
from koila._plan.announce import Last, last, strict
from koila._report import Report, ReportDiff
from koila.errors import UnsupportedError

__all__ = [
    "BatchInfo",
    "BatchedPair",
    "BudgetError",
    "CompileError",
    "CompiledModule",
    "Evaluation",
    "KoilaError",
    "KoilaWarning",
    "Last",
    "LazyFunction",
    "LazyTensor",
    "Location",
    "Report",
    "ReportDiff",
    "UnsupportedError",
    "analyze",
    "compile",
    "constants",
    "errors",
    "gpus",
    "last",
    "lazy",
    "max_batch",
    "memory",
    "prepasses",
    "retry",
    "run",
    "strict",
]
