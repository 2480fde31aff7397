"""Work in a copy of the process, of which nothing is left but its result."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

import torch

from koila._capture.thread_locks import tracing
from koila._errors import KoilaError
from koila._temporary import temporary_folder

__all__ = ["isolated"]

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD)


def isolated(work: Callable[[], T], seconds: float) -> T:
    """What ``work`` returns, or an exception that it raises, from a fork of this process.

    Whatever it writes to, draws, prints, opens or allocates, this process stays as it is: the
    fork has no file of it, not even its output. KoilaError where it crashes or takes more than
    ``seconds``; OSError where there is no room for another process.
    """
    with temporary_folder() as scratch:
        return _fork(work, seconds, scratch)


def _fork(work: Callable[[], T], seconds: float, scratch: str) -> T:
    reader, writer = os.pipe()
    try:
        # No signal may come between the fork and the handlers. Another thread that traces
        # would leave a lock taken.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            with tracing, _without_warning():
                child = os.fork()
            if child == 0:
                _run(work, writer, scratch, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(writer)
        data = _read(reader, child, seconds)
    finally:
        os.close(reader)
    if not data:
        raise KoilaError("koila crashed in the analysis, which is a bug in koila")
    succeeded, result = pickle.loads(data)
    if not succeeded:
        raise result
    return result  # type: ignore[no-any-return]


@contextlib.contextmanager
def _without_warning() -> Iterator[None]:
    """From Python 3.12 on a fork warns where there are threads. The child needs none of
    what they may hold."""
    if sys.version_info < (3, 12):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _read(reader: int, child: int, seconds: float) -> bytes:
    data = bytearray()
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    end = time.monotonic() + seconds
    try:
        while True:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise KoilaError(f"the analysis takes more than {seconds:.0f} seconds")
            part = os.read(reader, 1 << 16)
            if not part:
                break
            data += part
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        # The program may wait for any child, and then has waited for this one.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    return bytes(data)


def _run(
    work: Callable[[], object], writer: int, scratch: str, mask: set[int | signal.Signals]
) -> NoReturn:
    try:
        sys.settrace(None)
        threading.settrace(None)
        for handled in _SIGNALS:
            signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        pipe = fcntl.fcntl(writer, fcntl.F_DUPFD, 3)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        # It may be ended before it removes its own.
        tempfile.tempdir = scratch
        # To look at every object would copy the pages of all.
        gc.disable()
        # The threads of OpenMP are not in a fork.
        torch.set_num_threads(1)
        try:
            outcome = (True, work())
        except Exception as error:
            outcome = (False, error)
        with open(pipe, "wb") as out:
            pickle.dump(outcome, out)
    finally:
        os._exit(0)
