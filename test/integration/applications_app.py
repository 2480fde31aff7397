"""What an application is given beside koila: what it measures, checks and starts.

with app.within(budget): y = compiled(x)
app.check(holds, "what is wrong if it does not")
done = app.command("report", "model.pt", "--batch=64")
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import snapshot
from applications_command import Command, run_command
from execute import Raised
from measure import Memory

# What a KoilaWarning has to speak of if it is to excuse what a call takes.
_ABOUT_MEMORY = re.compile("budget|memory|tile|whole|bytes|[KMG]iB")


@dataclass
class Within:
    """A part of an application that has a budget: bytes alive before it and after,
    and at most; of them ``gradients``, which were made and stay."""

    budget: int
    start: int
    peak: int
    end: int
    gradients: int
    line: int
    excused: bool  # a KoilaWarning about memory came before its end
    strict: bool  # none excuses it

    @property
    def used(self) -> int:
        return self.peak - self.start - self.gradients


@dataclass
class Outcome:
    parts: list[Within] = field(default_factory=list)
    warned: list[tuple[str, str, int]] = field(default_factory=list)  # text, file, line
    failures: list[tuple[str, str]] = field(default_factory=list)  # verdict, reason
    leaves: dict[str, snapshot.Leaf] = field(default_factory=dict)
    raised: Raised | None = None
    alive: int = 0  # bytes, after it
    seconds: float = 0.0


class App:
    """What an application is given beside koila."""

    def __init__(self, memory: Memory, script: pathlib.Path, folder: pathlib.Path) -> None:
        self.memory, self.script, self.folder = memory, script, folder
        self.outcome = Outcome()
        self._measures = False

    @contextlib.contextmanager
    def within(self, budget: int, weights: Any = (), strict: bool = False) -> Iterator[None]:
        """What is done there may take ``budget`` bytes beside what was alive before
        and gradients of ``weights``, or koila warns before; with ``strict`` no
        warning will do, since tiles can."""
        assert not self._measures, "parts lie beside one another"
        self._measures = True
        weights = list(weights)
        line = _line_of(self.script)
        gc.collect()
        before = _gradient_bytes(weights)
        start = self.memory.read()[0]
        self.memory.reset()
        try:
            yield
        finally:
            end, peak = self.memory.read()
            made = max(_gradient_bytes(weights) - before, 0)
            excused = any(_ABOUT_MEMORY.search(text) for text, _, _ in self.outcome.warned)
            self.outcome.parts.append(Within(budget, start, peak, end, made, line, excused, strict))
            self._measures = False

    @property
    def warnings(self) -> list[str]:
        """What koila warned of, each time that it did."""
        return [text for text, _, _ in self.outcome.warned]

    def check(self, holds: Any, text: str, verdict: str = "wrong") -> None:
        """``text`` says what is wrong if it does not hold."""
        if not holds:
            line = _line_of(self.script)
            self.outcome.failures.append((verdict, f"line {line}: {text}" if line else text))

    def error(self, call: Callable[[], Any]) -> Exception | None:
        """What a call raises, without what its frames hold."""
        try:
            call()
        except Exception as error:
            return error.with_traceback(None)
        return None

    def command(self, *arguments: Any, **options: Any) -> Command:
        """``python -m koila ARGUMENTS`` in the folder, see applications_command.py.
        An end that no user should see is noted."""
        done = run_command([str(argument) for argument in arguments], self.folder, **options)
        if "program" not in options:
            shown = " ".join(["koila", *map(str, arguments)])
            fine = done.code in (0, 1) or done.killed
            self.check(fine, f"{shown}: exit code {done.code}: {done.stderr[-300:]}", "crashed")
            fine = "Traceback" not in done.stderr and "LLVM ERROR" not in done.stderr
            self.check(fine, f"{shown}: {done.stderr[-300:]}", "crashed")
        return done

    def grow(self, call: Callable[[], Any], first: int, times: int) -> float:
        """Bytes that each call leaves behind, after the first ones."""
        for _ in range(first):
            call()
        before = used_bytes()
        for _ in range(times):
            call()
        return (used_bytes() - before) / times


class _Mallinfo(ctypes.Structure):
    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def used_bytes() -> int:
    """What malloc and Python have handed out, in all arenas. What is resident would
    be that and chance."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd + 64 * sys.getallocatedblocks())


def _gradient_bytes(weights: list[torch.Tensor]) -> int:
    return sum(weight.grad.nbytes for weight in weights if weight.grad is not None)


def _line_of(script: pathlib.Path) -> int:
    """The line of the application that is being run."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != str(script):
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0
