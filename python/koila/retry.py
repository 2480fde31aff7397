"""Runs a function with smaller and smaller sizes until it fits into memory.

For code that koila cannot read ahead: a loop over chunks, a search, another
library. Where a module does the work, ``koila.compile`` and ``koila.lazy`` know
the size before anything fails::

    from koila import retry

    def embed(start, end):
        out[start:end] = model(data[start:end])

    retry.range(embed, 0, len(data), 4096)

``Retry`` has the options, and remembers for each function the size that fitted.
The idea is that of toma (https://github.com/BlackHC/toma); ``koila.compat.toma``
has its names.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from koila._errors import KoilaError
from koila._execute.undo import Snapshot, WriteWatch
from koila._out_of_memory import fits, is_out_of_memory

__all__ = ["Retry", "batch", "chunked", "is_out_of_memory", "map", "range"]

#: For so many functions the size that fitted is remembered.
_MOST_REMEMBERED = 4096

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Size:
    """The size that fits, as far as is known."""

    def __init__(self) -> None:
        #: None: none has failed.
        self.limit: int | None = None
        #: How many of this size have fitted since it changed, and how many have
        #: to before a larger one is tried.
        self.count = self.wait = 0
        self.has_grown = False

    def get(self, asked: int) -> int:
        return asked if self.limit is None else min(asked, self.limit)

    def shrink(self, limit: int) -> None:
        self.limit, self.count = limit, 0
        if self.has_grown:
            self.wait *= 2
        self.has_grown = False

    def grow(self, growth: int, factor: float, asked: int) -> None:
        """One more has fitted."""
        if self.limit is None or self.limit >= asked:
            return
        self.wait = self.wait or growth
        self.count += 1
        if self.count >= self.wait:
            self.limit, self.count = max(int(self.limit * factor), self.limit + 1), 0
            self.has_grown = True


class Retry:
    """How sizes shrink and grow, and what is taken back before a function runs again.

    ``factor``: what a size is divided by, rounded down, where memory runs out.
    ``minimum``: below it nothing is tried; the error is raised.
    ``growth``: after that many sizes that fitted, one ``factor`` times as large is
    tried again, up to the one asked for; each time that fails, it waits twice as
    long. None: sizes never grow.
    ``undo``: modules and tensors that the function adds to. Before it runs again,
    gradients, buffers and the values of these tensors are what they were before
    it; so are random generators, always. Costs a copy of them.
    ``strict``: a function that has changed something else before memory ran out
    is not run again: KoilaError says what, and the way out. Only PyTorch's
    operators are seen, no lists or files. Slower: each operator is looked at.
    ``on_retry``: called with the error's text, the size that failed and the next.
    """

    def __init__(
        self,
        *,
        factor: float = 2.0,
        minimum: int = 1,
        growth: int | None = None,
        undo: torch.nn.Module | Tensor | Iterable[torch.nn.Module | Tensor] = (),
        strict: bool = False,
        on_retry: Callable[[str, int, int], object] | None = None,
    ) -> None:
        if not factor > 1:
            raise KoilaError(f"factor={factor!r}: sizes shrink by a factor above 1")
        if minimum < 1:
            raise KoilaError(f"minimum={minimum!r}: the smallest size is at least 1")
        if growth is not None and growth < 1:
            raise KoilaError(f"growth={growth!r}: a count of at least 1, or None")
        self.factor, self.minimum, self.growth = factor, minimum, growth
        self.undo = (undo,) if isinstance(undo, (torch.nn.Module, Tensor)) else tuple(undo)
        self.strict, self.on_retry = strict, on_retry
        self._sizes: dict[object, _Size] = {}

    def batch(
        self,
        body: Callable[Concatenate[int, _P], _R],
        size: int,
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _R:
        """What ``body(size, *args, **kwargs)`` returns, for the largest size that
        fits. Raises what ``body`` raises, out of memory only at ``minimum``."""
        found, asked = self._find(body), _check_size(size)
        results: list[_R] = []
        while True:
            current = found.get(asked)

            def call(current: int = current) -> None:
                results.append(body(current, *args, **kwargs))

            if self._try(call, current, found):
                self._succeed(found, asked)
                return results[0]

    def range(
        self,
        body: Callable[Concatenate[int, int, _P], object],
        start: int,
        end: int,
        step: int,
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> None:
        """Calls ``body(at, until, *args, **kwargs)`` along ``range(start, end)``,
        ``step`` at a time or as many as fit; a part that failed is done again in
        smaller ones."""
        self._along(
            self._find(body), lambda at, to: body(at, to, *args, **kwargs), start, end, step
        )

    def chunked(
        self,
        body: Callable[Concatenate[Tensor, int, int, _P], object],
        tensor: Tensor,
        step: int,
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> None:
        """Calls ``body(chunk, start, end, *args, **kwargs)`` with parts of ``tensor``
        along its first dim. A chunk is a view: what is written there is written to
        ``tensor``. For another dim pass ``tensor.transpose(0, dim)``."""

        def call(start: int, end: int) -> None:
            body(tensor.narrow(0, start, end - start), start, end, *args, **kwargs)

        self._along(self._find(body), call, 0, len(tensor), step)

    def map(self, module: Callable[..., Tensor], tensor: Tensor, step: int | None = None) -> Tensor:
        """What ``module(chunk)`` returns for parts of ``tensor`` along its first dim,
        put together along theirs.

        Where koila can analyse the module, the first size is the largest that it
        says fits into what is free; ``step``, if given, is the most.
        """
        asked = len(tensor) if step is None else step
        found = self._find(module)
        if found.limit is None and isinstance(module, torch.nn.Module) and len(tensor):
            found.limit = _predict(module, tensor, self.minimum)
        parts: list[Tensor] = []

        def call(start: int, end: int) -> None:
            parts.append(module(tensor.narrow(0, start, end - start)))

        self._along(found, call, 0, len(tensor), max(asked, 1))
        return torch.cat(parts) if parts else module(tensor)

    def _along(
        self, found: _Size, call: Callable[[int, int], object], start: int, end: int, step: int
    ) -> None:
        asked, at = _check_size(step), start
        while at < end:
            size = min(found.get(asked), end - at)
            if self._try(functools.partial(call, at, at + size), size, found):
                at += size
                self._succeed(found, asked)

    def _find(self, body: object) -> _Size:
        key = identify(body)
        found = self._sizes.pop(key, None) or _Size()
        # The one that was used last comes last; the first is forgotten.
        self._sizes[key] = found
        if len(self._sizes) > _MOST_REMEMBERED:
            del self._sizes[next(iter(self._sizes))]
        return found

    def _try(self, call: Callable[[], object], size: int, found: _Size) -> bool:
        """False if the call ran out of memory and is to be done in a smaller size."""
        snapshot = Snapshot(self.undo) if self.undo or self.strict else None
        watch = WriteWatch(snapshot.tensors) if snapshot and self.strict else None
        text = ""

        def may_shrink(error: Exception) -> bool:
            nonlocal text
            if size <= self.minimum or not is_out_of_memory(error):
                return False
            text = str(error)
            if watch and (changes := watch.find_changes()):
                more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
                raise KoilaError(
                    f"memory ran out, and the function cannot run again: it changed {changes[0]}"
                    f"{more}; name what it adds to in undo="
                ) from error
            return True

        with watch or contextlib.nullcontext():
            if fits(call, may_shrink):
                return True
        if snapshot:
            snapshot.restore()
        smaller = max(min(int(size / self.factor), size - 1), self.minimum)
        found.shrink(smaller)
        if self.on_retry:
            self.on_retry(text, size, smaller)
        return False

    def _succeed(self, found: _Size, asked: int) -> None:
        if self.growth is not None:
            found.grow(self.growth, self.factor, asked)


def _predict(module: torch.nn.Module, tensor: Tensor, minimum: int) -> int | None:
    from koila import _compile

    mode = "forward-with-grad" if torch.is_grad_enabled() else "inference"
    with warnings.catch_warnings():
        # A size that may not fit is tried like any other.
        warnings.simplefilter("ignore")
        try:
            found = _compile.max_batch(module, tensor, mode=mode)
        except KoilaError:
            return None
    return None if found is None else max(found, minimum)


def identify(body: object) -> object:
    """What stands for a function: its code, so that a function made anew in each
    turn of a loop is the same one, and nothing that it refers to is kept."""
    while isinstance(body, functools.partial):
        body = body.func
    function = getattr(body, "__func__", body)
    code = getattr(function, "__code__", None)
    if code is not None:
        # Code compares by what it does; two files may have the same.
        return code.co_filename, code
    try:
        return weakref.ref(body)
    except TypeError:
        return type(body)


def _check_size(size: int) -> int:
    if size < 1:
        raise KoilaError(f"a size of {size}: at least 1 is tried")
    return int(size)


_plain = Retry()
batch, range, chunked, map = _plain.batch, _plain.range, _plain.chunked, _plain.map
