"""``python -m koila`` as an application starts it.

    done = run_command(["report", "model.pt"], folder)
    done.code, done.stdout, done.stderr

Most commands run in a copy of this process, which has PyTorch loaded; ``fresh``
starts Python anew, as a shell does. ``limits`` are those of the shell's ulimit, as
{resource.RLIMIT_FSIZE: 1 << 20}; ``interrupt`` is a signal and the seconds after
which the command and its children get it, as from a terminal.
"""

from __future__ import annotations

import os
import pathlib
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

_LONGEST = 60.0


@dataclass
class Command:
    code: int  # less than 0: the signal that ended it
    stdout: str
    stderr: str
    seconds: float
    killed: bool = False


def run_command(
    arguments: list[str],
    folder: pathlib.Path,
    *,
    fresh: bool = False,
    program: list[str] | None = None,
    environment: Mapping[str, str] | None = None,
    limits: Mapping[int, int] | None = None,
    interrupt: tuple[signal.Signals, float] | None = None,
) -> Command:
    """``program`` is another than ``python -m koila``."""
    variables = {**os.environ, **(environment or {})}

    def prepare() -> None:
        os.setpgid(0, 0)
        for limit, value in (limits or {}).items():
            resource.setrlimit(limit, (value, value))

    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        if fresh or program is not None:
            command = [*(program or [sys.executable, "-m", "koila"]), *arguments]
            # Not a context: it is waited for below.
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                preexec_fn=prepare,
            ).pid
        else:
            child = os.fork()
            if not child:
                try:
                    os.dup2(output.fileno(), 1)
                    os.dup2(errors.fileno(), 2)
                    os.environ.update(variables)
                    os.chdir(folder)
                    _be_koila(arguments, prepare)
                finally:
                    os._exit(70)
        code, killed = _wait(child, start, interrupt)
        seconds = time.perf_counter() - start
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read())
    return Command(code, texts[0], texts[1], seconds, killed)


def _be_koila(arguments: list[str], prepare: object) -> None:
    # Those of the runner are not the shell's.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["koila", *arguments]
    assert callable(prepare)
    prepare()
    code: object = 0
    try:
        runpy.run_module("koila", run_name="__main__", alter_sys=False)
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        # As Python itself does at its end.
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _wait(
    child: int, start: float, interrupt: tuple[signal.Signals, float] | None
) -> tuple[int, bool]:
    killed = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), killed
        passed = time.perf_counter() - start
        if interrupt is not None and passed > interrupt[1]:
            os.killpg(child, interrupt[0])
            interrupt, killed = None, True
        if passed > _LONGEST:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
