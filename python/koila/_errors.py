"""What koila raises."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BudgetError", "CompileError", "KoilaError", "KoilaWarning", "Location"]


class Location(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int


class KoilaError(Exception):
    """koila cannot do what was asked.

    ``message`` says why, ``location`` where (None: nowhere in particular), and
    ``notes`` what else there is to know, a line each.
    """

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, location, notes)
        self.message = message
        self.location = location
        self.notes = notes

    def __str__(self) -> str:
        first = self.message
        if self.location is not None:
            first = f"{self.location.file}:{self.location.line}: {first}"
        return "\n".join([first, *(f"  {note}" for note in self.notes)])


class CompileError(KoilaError):
    """The program cannot be analysed or rewritten."""


class BudgetError(CompileError):
    """No tile fits the budget.

    ``smallest_budget`` is the least number of bytes that would work; None if
    it is not known.
    """

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        notes: tuple[str, ...] = (),
        smallest_budget: int | None = None,
    ) -> None:
        super().__init__(message, location, notes)
        self.smallest_budget = smallest_budget


class KoilaWarning(UserWarning):
    """Something differs from what was asked, or is not protected."""
