"""Files that appear whole or not at all, and work that a signal ends at once."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn, TypeVar

from koila._errors import KoilaError
from koila._temporary import temporary_folder

__all__ = ["apart", "end_by_signals", "replacing"]

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """The name of a file to write, which becomes ``path`` where nothing is
    raised, and is removed otherwise. A device or pipe is ``path`` itself. For
    the last output of a command: signals are ignored afterwards."""
    if os.path.exists(path) and not os.path.isfile(path):
        yield path
        return
    # A link stays a link.
    target = os.path.realpath(path)
    with temporary_folder(beside=path) as temporary:
        written = os.path.join(temporary, os.path.basename(target))
        try:
            yield written
        except KoilaError as error:
            # What was asked for is what errors name.
            error.message = error.message.replace(written, path)
            raise
        # Whoever says that it was interrupted has left everything as it was.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.replace(written, target)


def end_by_signals() -> None:
    """Has each signal that ends a command raise KeyboardInterrupt, as Ctrl-C
    does, so that what is temporary is removed."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def apart(work: Callable[[], T]) -> T:
    """What ``work`` returns, or a KoilaError that it raises, from a child process.

    Python hears of a signal when C++ returns, which may be minutes later; a
    child just ends.
    """
    sys.stdout.flush()
    with temporary_folder() as scratch:
        reader, writer = os.pipe()
        # No signal may come between the fork and the handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        child = os.fork()
        if child == 0:
            _run_child(work, writer, scratch, before)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(writer)
            with open(reader, "rb") as pipe:
                data = pipe.read()
            _, status = os.waitpid(child, 0)
        except BaseException:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            raise
    if os.WIFSIGNALED(status):
        _raise_ended(os.WTERMSIG(status))
    succeeded, result = pickle.loads(data)
    if not succeeded:
        raise result
    return result  # type: ignore[no-any-return]


def _run_child(
    work: Callable[[], object], writer: int, scratch: str, mask: set[int | signal.Signals]
) -> NoReturn:
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # It may be ended before it removes its own.
        tempfile.tempdir = scratch
        try:
            outcome = (True, work())
        except Exception as error:
            outcome = (False, error)
        with open(writer, "wb") as pipe:
            pickle.dump(outcome, pipe)
        sys.stdout.flush()
        os._exit(0)
    finally:
        os.abort()


def _raise_ended(number: int) -> NoReturn:
    if number in _SIGNALS:
        raise KeyboardInterrupt
    what = signal.strsignal(number)
    if number == signal.SIGKILL:
        what = "killed, which the system does when memory runs out"
    raise KoilaError(f"koila crashed ({what}), which is a bug in koila. No file was written")
