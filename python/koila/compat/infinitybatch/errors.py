"""What is raised and warned here."""

from __future__ import annotations

from koila._errors import KoilaError, KoilaWarning

__all__ = ["InfinityBatchError", "InfinityBatchWarning"]


class InfinityBatchError(KoilaError):
    """The training cannot go on as it is set up."""


class InfinityBatchWarning(KoilaWarning):
    """The training does something else than it seems to."""
