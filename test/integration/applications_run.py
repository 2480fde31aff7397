"""Runs an application once, with koila or what stands in for it.

    outcome = execute(script, make_koila, memory, timeout)

An application is a file of test/integration/applications with

    def application(koila, app): ...; return results

It gets koila, and ``app``, with which it measures and checks (applications_app.py).
``results`` are compared with those of plain PyTorch. It runs in a
process of its own, with a folder of its own for temporary files.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.util
import io
import os
import pathlib
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import koila
import snapshot
from applications_app import App, Outcome
from execute import Raised, reset
from measure import Memory


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
    # multiprocessing removes its folder only when a process ends by itself, which
    # workers of a loader do not always.
    left = sorted(path.name for path in temporary.iterdir() if not path.name.startswith("pymp-"))
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
    warnings.showwarning = hear
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
