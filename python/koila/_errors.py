"""What koila raises."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any, NamedTuple, NoReturn

import torch

__all__ = [
    "GRADIENTS_STAY",
    "BudgetError",
    "CompileError",
    "KoilaError",
    "KoilaWarning",
    "Location",
    "OutOfMemoryError",
    "RuleError",
    "UnpromisedError",
    "explain_torch",
    "warn_at",
]

_PACKAGE = os.path.dirname(__file__) + os.sep


class Location(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int


class KoilaError(RuntimeError):
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

    @classmethod
    def raise_error(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises it, as a function that refuses any call; a name of koila 0.1.1."""
        raise cls("this function is not supported")

    def __str__(self) -> str:
        first = self.message
        if self.location is not None:
            first = f"{self.location.file}:{self.location.line}: {first}"
        return "\n".join([first, *(f"  {note}" for note in self.notes)])


class CompileError(KoilaError):
    """The program cannot be analysed or rewritten."""


class RuleError(KoilaError):
    """A rule that was registered for an operator raised, or gave no answer.

    The cause is what it raised.
    """


class BudgetError(CompileError, torch.OutOfMemoryError):
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


class UnpromisedError(CompileError):
    """A budget cannot be promised, as the memory of an operator is not known. It can be
    compiled in tiles of a given size."""


class OutOfMemoryError(KoilaError, torch.OutOfMemoryError):
    """Memory ran out while a program ran, and no smaller tiles were left to try.

    The cause is what PyTorch raised.
    """


#: A note, where nothing could be taken back.
GRADIENTS_STAY = "gradients may have a part of the step"


class KoilaWarning(UserWarning):
    """Something differs from what was asked, or is not protected."""


def warn_at(text: str, file: str, line: int, registry: dict[Any, int] | None = None) -> None:
    """A KoilaWarning about a line, once for each in ``registry``. Filters by module
    see the one that the line is in; code that is in none, as a notebook's, goes by its
    file: of a module that is given as None Python drops what it is warned of."""
    name = next(
        (
            name
            for name, module in list(sys.modules.items())
            if getattr(module, "__file__", None) == file
        ),
        None,
    )
    if name is None:
        warnings.warn_explicit(text, KoilaWarning, file, line, registry=registry)
    else:
        warnings.warn_explicit(text, KoilaWarning, file, line, module=name, registry=registry)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(":") if lines else "no reason given"


def explain_torch(error: Exception) -> tuple[str, Location | None]:
    """What torch said in one line, and the line of Python that it is about."""
    text = str(error)
    place = None
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        # The innermost outside of PyTorch, else the outermost.
        if place is None or "site-packages" not in file:
            place = Location(file, int(line))
    if place is None:
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if "site-packages" not in file and not file.startswith(_PACKAGE):
                place = Location(file, trace.tb_lineno)
            trace = trace.tb_next
    if "Traceback of TorchScript" in text:
        # Errors of a run end with what happened.
        last = text.strip().splitlines()[-1]
        return last.removeprefix("RuntimeError: "), place
    return _first_line(text), place
