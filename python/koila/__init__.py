"""koila ends ``CUDA out of memory`` for PyTorch users.

``analyze`` says what a program needs before it runs, ``compile`` runs its batch
in tiles that fit, ``max_batch`` finds the largest batch.
"""

from __future__ import annotations

from koila import memory
from koila._api import CompiledModule, analyze, compile, max_batch
from koila._errors import BudgetError, CompileError, KoilaError, KoilaWarning, Location
from koila._report import Report, ReportDiff

__all__ = [
    "BudgetError",
    "CompileError",
    "CompiledModule",
    "KoilaError",
    "KoilaWarning",
    "Location",
    "Report",
    "ReportDiff",
    "analyze",
    "compile",
    "max_batch",
    "memory",
]
