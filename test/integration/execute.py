"""Runs a script once, with something in the place of ``koila.lazy``.

    run = execute(script, call, memory)

The script finds a world as in a new process: seeds, grad mode, default type,
warnings, and a koila that knows nothing yet. What it leaves is read, and then
let go.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pathlib
import random
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import koila
import snapshot
import variants
from measure import Memory, Recorder, Window

# What is loaded by now stays, and need not be looked through after each run.
gc.collect()
gc.freeze()


@dataclass
class Warned:
    """A KoilaWarning, and the window in which it was said; -1 before the first."""

    text: str
    file: str
    line: int
    window: int


@dataclass
class Raised:
    """An exception that nobody caught, and the innermost line of the script."""

    type: str
    text: str
    line: int | None
    refusal: bool

    def first(self) -> str:
        return (self.text.splitlines() or [""])[0]

    def __str__(self) -> str:
        place = "reading what the script left" if self.line is None else f"line {self.line}"
        return f"{place}: {self.type}: {self.first()}"


@dataclass
class Run:
    windows: list[Window] = field(default_factory=list)
    warned: list[Warned] = field(default_factory=list)
    leaves: dict[str, snapshot.Leaf] = field(default_factory=dict)
    raised: Raised | None = None
    tiles: set[int] = field(default_factory=set)
    seconds: float = 0.0


class TookTooLong(BaseException):
    """Not an Exception, so that scripts do not catch it."""


def execute(
    script: pathlib.Path,
    call: Callable[..., Any],
    memory: Memory,
    rounding: variants.Rounding | None = None,
    timeout: float = 0,
) -> Run:
    """One run. ``call`` is called for ``koila.lazy``, after ``rounding`` has
    moved the weights."""
    code = compile(script.read_text(), str(script), "exec", dont_inherit=True)
    variants.forget_plans()
    reset()
    gc.collect()
    run = Run()
    recorder = Recorder(memory)

    def mark() -> None:
        recorder.mark()
        if rounding is not None:
            rounding.move()

    output = io.StringIO()
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    with (
        _in_place(variants.wrap(call, mark), main, script),
        _heard(run, recorder),
        recorder.watching(variants.find_weights if call is variants.plain else None),
        variants.watch_tiles() as run.tiles,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(io.StringIO()),
        rounding.running() if rounding is not None else contextlib.nullcontext(),
    ):
        start = time.perf_counter()
        _guarded(lambda: exec(code, vars(main)), run, script, timeout)
        run.seconds = time.perf_counter() - start
        if run.raised is not None:
            # What an exception held is gone with the program.
            gc.collect()
        recorder.end()
        _guarded(lambda: _read(run, main, output), run, script, timeout)
        recorder.finish()
    run.windows = recorder.windows
    vars(main).clear()
    variants.forget_plans()
    gc.collect()
    return run


def _read(run: Run, main: types.ModuleType, output: io.StringIO) -> None:
    run.leaves = snapshot.take(vars(main), output.getvalue())


def _guarded(call: Callable[[], None], run: Run, script: pathlib.Path, timeout: float) -> None:
    """Notes what is raised, the first time. Nothing keeps the traceback, which
    holds the tensors of all its frames."""
    try:
        with _limited(timeout):
            call()
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            run.raised = run.raised or _describe(error, script)
    except BaseException as error:
        run.raised = run.raised or _describe(error, script)


def _describe(error: BaseException, script: pathlib.Path) -> Raised:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(script):
            line = trace.tb_lineno
        trace = trace.tb_next
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return Raised(name, str(error), line, isinstance(error, koila.KoilaError))


def reset() -> None:
    """What scripts may have changed, as it is in a new process."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.set_printoptions(profile="default")
    np.set_printoptions(precision=8, threshold=1000, edgeitems=3, linewidth=75, suppress=False)
    np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
    # Would take the place of the budget.
    os.environ.pop("KOILA_BUDGET", None)


@contextlib.contextmanager
def _in_place(
    lazy: Callable[..., Any], main: types.ModuleType, script: pathlib.Path
) -> Iterator[None]:
    """The script as the program that Python runs, and ``lazy`` as koila's.

    Python does not look for cycles meanwhile: when it would is chance, and what
    waits for it takes memory. Plain runs have the same rules.
    """
    before = koila.lazy, sys.modules["__main__"], sys.argv, sys.path[:], gc.isenabled()
    koila.lazy, sys.modules["__main__"], sys.argv = lazy, main, [str(script)]
    sys.path.insert(0, str(script.parent))
    gc.disable()
    try:
        yield
    finally:
        koila.lazy, sys.modules["__main__"], sys.argv, sys.path[:], collects = before
        if collects:
            gc.enable()


@contextlib.contextmanager
def _heard(run: Run, recorder: Recorder) -> Iterator[None]:
    """Notes all KoilaWarnings, each time they are said."""

    def hear(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        if issubclass(category, koila.KoilaWarning):
            run.warned.append(Warned(str(message), filename, lineno, recorder.current))

    with warnings.catch_warnings():
        warnings.simplefilter("always", koila.KoilaWarning)
        warnings.showwarning = hear
        yield


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TookTooLong in what Python runs; a loop in C++ does not hear it,
    see --isolate."""

    def stop(*_: Any) -> None:
        raise TookTooLong(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
