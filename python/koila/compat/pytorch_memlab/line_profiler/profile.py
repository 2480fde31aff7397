"""Decorators that profile a function, after pytorch_memlab by Stonesjtu (MIT)."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import torch

from koila.compat.pytorch_memlab.line_profiler.line_profiler import DEFAULT_COLUMNS, LineProfiler

__all__ = [
    "clear_global_line_profiler",
    "global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
]

#: What ``profile`` uses.
global_line_profiler = LineProfiler()

_intervals: weakref.WeakSet[_Interval] = weakref.WeakSet()

_F = TypeVar("_F", bound=Callable[..., Any])


def clear_global_line_profiler() -> None:
    """Forgets what the decorators have measured, and what they were put on."""
    global_line_profiler.clear()
    for interval in list(_intervals):
        interval.forget()


def set_target_gpu(gpu_id: int | str | torch.device) -> None:
    """The device whose memory the decorators show, from now on: a GPU's number or a
    ``torch.device``, ``torch.device("cpu")`` among them. May be called by a profiled
    function. A number is the CPU where there is no GPU."""
    global_line_profiler.target_gpu = gpu_id
    for interval in list(_intervals):
        interval.profiler.target_gpu = gpu_id


def _print(profiler: LineProfiler, func: Callable[..., Any], columns: Sequence[str]) -> None:
    # Cleared meanwhile; or nobody listens any more.
    with contextlib.suppress(ValueError, BrokenPipeError):
        profiler.print_stats(func, columns, sys.stdout)


def profile(func: _F, columns: Sequence[str] = DEFAULT_COLUMNS) -> _F:
    """Measures each line of a function, and prints the figures when the program ends,
    by an exception or ^C, too. Returns the function itself."""
    LineProfiler().display(columns=columns)  # Says now if there is no such column.
    global_line_profiler.add_function(func)
    global_line_profiler.enable()
    atexit.register(_print, global_line_profiler, func, columns)
    return func


class _Interval:
    """What ``profile_every`` knows of a function."""

    def __init__(self, func: Callable[..., Any], every: int, columns: Sequence[str]) -> None:
        self.func, self.every, self.columns = func, every, columns
        self.profiler = LineProfiler(func, target_gpu=global_line_profiler.target_gpu)
        self.calls = self.running = 0
        self.due = self.unseen = False
        self.profiler.display(columns=columns)
        self.profiler.enable()
        atexit.register(self.finish)
        _intervals.add(self)

    @contextlib.contextmanager
    def count(self) -> Iterator[None]:
        self.running += 1
        self.unseen = True
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            self.due = True
            raise
        finally:
            self.running -= 1
            self.calls += 1
            self.due = self.due or self.calls % self.every == 0
            # Called by itself: when all of it has run.
            if self.due and not self.running:
                self.show()

    def show(self) -> None:
        self.due = self.unseen = False
        _print(self.profiler, self.func, self.columns)
        self.profiler.forget_figures()

    def finish(self) -> None:
        if self.unseen:
            self.show()

    def forget(self) -> None:
        self.unseen = self.due = False
        self.profiler.clear()


def profile_every(
    output_interval: int = 1, enable: bool = True, columns: Sequence[str] = DEFAULT_COLUMNS
) -> Callable[[_F], _F]:
    """Measures each line of a function, and prints the figures of its last
    ``output_interval`` runs whenever that many have ended, where one ends by an
    exception, and what is left at exit. With ``enable=False`` the function stays as it
    is. May stand beside ``profile``."""
    if isinstance(output_interval, bool) or not isinstance(output_interval, int):
        raise TypeError(f"output_interval is a number of runs, not {output_interval!r}")
    if output_interval < 1:
        raise ValueError(f"output_interval is at least 1, not {output_interval}")

    def decorate(func: _F) -> _F:
        if not enable:
            return func
        interval = _Interval(func, output_interval, columns)
        run: Callable[..., Any]
        if inspect.iscoroutinefunction(func):

            async def run(*args: Any, **kwargs: Any) -> Any:
                with interval.count():
                    return await func(*args, **kwargs)

        elif inspect.isasyncgenfunction(func):

            async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
                with interval.count():
                    values = func(*args, **kwargs)
                    sent: Any = None
                    try:
                        for step in itertools.count():
                            value = await (values.asend(sent) if step else anext(values))
                            try:
                                sent = yield value
                            except GeneratorExit:
                                raise
                            except BaseException as error:
                                sent = yield await values.athrow(error)
                    except StopAsyncIteration:
                        pass
                    finally:
                        await values.aclose()

        elif inspect.isgeneratorfunction(func):

            def run(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                with interval.count():
                    return (yield from func(*args, **kwargs))

        else:

            def run(*args: Any, **kwargs: Any) -> Any:
                with interval.count():
                    return func(*args, **kwargs)

        return functools.wraps(func)(run)  # type: ignore[return-value]

    return decorate
