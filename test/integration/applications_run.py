"""Runs an application once, with koila or what stands in for it.

    outcome = execute(script, make_koila, memory, timeout)

An application is a file of test/integration/applications with

    def application(koila, app): ...; return results

It gets koila, and ``app``: what it measures, checks and starts goes through that
(class App). ``results`` are compared with those of plain PyTorch. It runs in a
process of its own, with a folder of its own for temporary files.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import io
import os
import pathlib
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import koila
import torch

import snapshot
from applications_command import Command, run_command
from execute import Raised, reset
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
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]  # noqa: RUF012


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
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_lineno if frame is not None else 0


def execute(
    script: pathlib.Path, make: Callable[[Memory], Any], memory: Memory, timeout: float
) -> Outcome:
    """In a process of its own, which ends with it and all that it started."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="application-"))
    try:
        return _execute(script, make, memory, timeout, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _execute(
    script: pathlib.Path,
    make: Callable[[Memory], Any],
    memory: Memory,
    timeout: float,
    folder: pathlib.Path,
) -> Outcome:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        # A signal that the application sends to its group is not the runner's.
        os.setsid()
        try:
            _be_application(script, make, memory, folder)
        finally:
            os._exit(1)
    status = _wait(child, time.monotonic() + timeout)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    file = folder / "outcome"
    if file.exists():
        return pickle.loads(file.read_bytes())
    end = f"took longer than {timeout:g} s" if status is None else _say_end(status)
    words = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    at = [line.strip() for line in words if line.startswith("Fatal") or str(script) in line]
    outcome = Outcome()
    outcome.failures.append(("crashed", " / ".join([end, *(at or words[-3:])])))
    return outcome


def _wait(child: int, until: float) -> int | None:
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _say_end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"the process ended with {code}" if code >= 0 else signal.Signals(-code).name


def _be_application(
    script: pathlib.Path, make: Callable[[Memory], Any], memory: Memory, folder: pathlib.Path
) -> None:
    errors = open(folder / "stderr", "w")  # noqa: SIM115 (until the end of the process)
    os.dup2(errors.fileno(), 2)
    faulthandler.enable(errors, all_threads=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work, temporary = folder / "work", folder / "tmp"
    work.mkdir()
    temporary.mkdir()
    os.chdir(work)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    app = App(memory, script, work)
    reset()
    _run(app, make(memory))
    left = sorted(path.name for path in temporary.iterdir())
    app.check(not left, f"leaves {', '.join(left)} in the folder for temporary files")
    part = folder / "part"
    part.write_bytes(pickle.dumps(app.outcome))
    part.rename(folder / "outcome")
    os._exit(0)


def _run(app: App, stand_in: Any) -> None:
    outcome = app.outcome

    def hear(message: Any, category: Any, file: str, line: int, *rest: Any) -> None:
        if issubclass(category, koila.KoilaWarning):
            outcome.warned.append((str(message), file, line))

    def hear_thread(told: Any) -> None:
        raised = _describe(told.exc_value, app.script)
        verdict = "refused" if raised.refusal else "crashed"
        outcome.failures.append((verdict, f"a thread ended: {raised}"))

    threading.excepthook = hear_thread
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", koila.KoilaWarning)
    warnings.showwarning = hear  # type: ignore[assignment]
    # When Python looks for cycles is chance.
    gc.collect()
    gc.disable()
    before = app.memory.read()[0]
    output = io.StringIO()
    start = time.perf_counter()
    results = None
    try:
        with contextlib.redirect_stdout(output):
            results = _load(app.script).application(stand_in, app)
        outcome.leaves = snapshot.take({"results": results}, output.getvalue())
    except (Exception, KeyboardInterrupt) as error:
        outcome.raised = _describe(error, app.script)
    outcome.seconds = time.perf_counter() - start
    del results
    gc.collect()
    outcome.alive = app.memory.read()[0] - before


def _load(script: pathlib.Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    return module


def _describe(error: BaseException, script: pathlib.Path) -> Raised:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(script):
            line = trace.tb_lineno
        trace = trace.tb_next
    name = f"{type(error).__module__}.{type(error).__name__}".removeprefix("builtins.")
    return Raised(name, str(error), line, isinstance(error, koila.KoilaError))
