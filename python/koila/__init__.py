"""koila ends ``CUDA out of memory`` for PyTorch users."""

from __future__ import annotations

from koila._errors import BudgetError, CompileError, KoilaError, KoilaWarning, Location

__all__ = ["BudgetError", "CompileError", "KoilaError", "KoilaWarning", "Location"]
