"""toma's names, over ``koila.retry``.

toma (https://github.com/BlackHC/toma, by Andreas Kirsch) had the idea: run a
function with a size, and with half of it where memory runs out. What differs,
and why, is in ``docs/user/Migration.md``. In short: nothing is collected while
all goes well; the errors of all vendors are known; a function that has been
given other sizes before gets the one it asks for, or less.

The module and toma's class of that name are one object: ``from koila.compat.toma
import toma`` and ``from koila.compat import toma`` give the same, and
``toma.DEFAULT_CACHE_TYPE`` may be set on either.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any

from torch import Tensor

from koila._out_of_memory import fits, is_out_of_memory
from koila.compat.toma import batchsize_cache, cpu_memory, stacktrace, torch_cuda_memory
from koila.compat.toma.batchsize_cache import (
    Batchsize,
    BatchsizeCache,
    GlobalBatchsizeCache,
    NoBatchsizeCache,
    StacktraceMemoryBatchsizeCache,
)
from koila.compat.toma.cpu_memory import is_out_of_cpu_memory
from koila.compat.toma.torch_cuda_memory import gc_cuda, is_cuda_out_of_memory, is_cudnn_snafu
from koila.retry import identify

__all__ = [
    "CONTEXT_CACHE_SIZE",
    "DEFAULT_CACHE_TYPE",
    "Batchsize",
    "BatchsizeCache",
    "GlobalBatchsizeCache",
    "NoBatchsizeCache",
    "StacktraceMemoryBatchsizeCache",
    "batch",
    "batchsize_cache",
    "chunked",
    "cpu_memory",
    "execute",
    "explicit",
    "gc_cuda",
    "get_cache_for_context",
    "is_cuda_out_of_memory",
    "is_cudnn_snafu",
    "is_out_of_cpu_memory",
    "range",
    "should_reduce_batch_size",
    "simple",
    "stacktrace",
    "toma",
    "torch_cuda_memory",
]

_CacheType = type[BatchsizeCache]

#: Where a call names none. Setting it works.
DEFAULT_CACHE_TYPE: _CacheType = StacktraceMemoryBatchsizeCache
#: How many functions and contexts have a cache.
CONTEXT_CACHE_SIZE = 2**14

_caches: OrderedDict[Hashable, BatchsizeCache] = OrderedDict()


def should_reduce_batch_size(exception: BaseException) -> bool:
    """Whether a smaller size may do."""
    return is_out_of_memory(exception)


def get_cache_for_context(batchsize_cache_type: _CacheType, context: Any) -> BatchsizeCache:
    """The cache of a function, or of anything that can be hashed. Functions are told
    apart by their code, and are not kept alive."""
    is_function = callable(context) and not isinstance(context, type)
    key = (batchsize_cache_type, identify(context) if is_function else context)
    cache = _caches.get(key)
    if cache is None:
        cache = _caches[key] = batchsize_cache_type()
        if len(_caches) > CONTEXT_CACHE_SIZE:
            _caches.popitem(last=False)
    else:
        _caches.move_to_end(key)
    return cache


def _run(size: Batchsize, call: Callable[[int], object]) -> int:
    """The size with which ``call`` returned."""
    while True:
        value = size.get()
        if fits(
            functools.partial(call, value),
            lambda error: value > 1 and should_reduce_batch_size(error),  # noqa: B023
        ):
            return value
        size.decrease_batchsize()


def _run_batch(size: Batchsize, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    results: list[Any] = []
    _run(size, lambda value: results.append(func(value, *args, **kwargs)))
    return results[0]


def _run_range(size: Batchsize, start: int, end: int, call: Callable[[int, int], object]) -> None:
    at = start
    while at < end:
        at += _run(size, lambda value: call(at, min(at + value, end)))  # noqa: B023


def _run_chunked(
    size: Batchsize,
    tensor: Tensor,
    dimension: int,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
) -> None:
    def call(start: int, end: int) -> None:
        func(tensor.narrow(dimension, start, end - start), start, end, *args, **kwargs)

    _run_range(size, 0, tensor.shape[dimension], call)


class simple:
    """Without a memory of sizes."""

    @staticmethod
    def batch(func: Callable[..., Any], initial_batchsize: int, *args: Any, **kwargs: Any) -> Any:
        """What ``func(batchsize, *args, **kwargs)`` returns, for the first size of
        ``initial_batchsize``, a half of it, … that fits."""
        return _run_batch(Batchsize(initial_batchsize), func, args, kwargs)

    @staticmethod
    def range(
        func: Callable[..., Any], start: int, end: int, initial_step: int, *args: Any, **kwargs: Any
    ) -> None:
        """Calls ``func(start, end, *args, **kwargs)`` along a range, a step at a time."""
        _run_range(
            Batchsize(initial_step), start, end, lambda at, to: func(at, to, *args, **kwargs)
        )

    @staticmethod
    def chunked(
        func: Callable[..., Any], tensor: Tensor, initial_step: int, dimension: int = 0
    ) -> None:
        """Calls ``func(chunk, start, end)`` for parts of a tensor, which are views."""
        _run_chunked(Batchsize(initial_step), tensor, dimension, func, (), {})


def _find_size(
    cache_type: _CacheType | None, context: Any, func: Callable[..., Any], initial: int | None
) -> Batchsize:
    if initial is None:
        raise TypeError("an initial size is missing: name it in the decorator or the call")
    cache = get_cache_for_context(cache_type or toma.DEFAULT_CACHE_TYPE, context or func)
    return cache.get_batchsize(initial)


class explicit:
    """With a memory of sizes, by default one for each place that calls."""

    @staticmethod
    def batch(
        func: Callable[..., Any],
        initial_batchsize: int,
        *args: Any,
        toma_context: Any = None,
        toma_cache_type: _CacheType | None = None,
        **kwargs: Any,
    ) -> Any:
        """As ``simple.batch``."""
        size = _find_size(toma_cache_type, toma_context, func, initial_batchsize)
        return _run_batch(size, func, args, kwargs)

    @staticmethod
    def range(
        func: Callable[..., Any],
        start: int,
        end: int,
        initial_step: int,
        *args: Any,
        toma_context: Any = None,
        toma_cache_type: _CacheType | None = None,
        **kwargs: Any,
    ) -> None:
        """As ``simple.range``."""
        size = _find_size(toma_cache_type, toma_context, func, initial_step)
        _run_range(size, start, end, lambda at, to: func(at, to, *args, **kwargs))

    @staticmethod
    def chunked(
        func: Callable[..., Any],
        tensor: Tensor,
        initial_step: int,
        *args: Any,
        toma_dimension: int | None = None,
        toma_context: Any = None,
        toma_cache_type: _CacheType | None = None,
        **kwargs: Any,
    ) -> None:
        """As ``simple.chunked``; further arguments are passed on."""
        size = _find_size(toma_cache_type, toma_context, func, initial_step)
        _run_chunked(size, tensor, toma_dimension or 0, func, args, kwargs)


def batch(
    func: Callable[..., Any] | None = None,
    *,
    initial_batchsize: int | None = None,
    cache_type: _CacheType | None = None,
    context: Any = None,
) -> Any:
    """A decorator: ``func(batchsize, …)`` is called without its first argument.
    ``toma_initial_batchsize`` and ``toma_context`` of a call come before those here."""
    if func is None:
        return functools.partial(
            batch, initial_batchsize=initial_batchsize, cache_type=cache_type, context=context
        )

    @functools.wraps(func)
    def wrapped(
        *args: Any,
        toma_initial_batchsize: int | None = None,
        toma_context: Any = None,
        **kwargs: Any,
    ) -> Any:
        initial = toma_initial_batchsize or initial_batchsize
        size = _find_size(cache_type, toma_context or context, func, initial)
        return _run_batch(size, func, args, kwargs)

    return wrapped


def range(
    func: Callable[..., Any] | None = None,
    *,
    initial_step: int | None = None,
    cache_type: _CacheType | None = None,
    context: Any = None,
) -> Any:
    """A decorator: a call ``(start, end, …)`` becomes calls of ``func`` with parts of
    that range. A call may name ``toma_initial_step`` and ``toma_context``."""
    if func is None:
        return functools.partial(
            range, initial_step=initial_step, cache_type=cache_type, context=context
        )

    @functools.wraps(func)
    def wrapped(
        start: int,
        end: int,
        *args: Any,
        toma_initial_step: int | None = None,
        toma_context: Any = None,
        **kwargs: Any,
    ) -> None:
        initial = toma_initial_step or initial_step
        size = _find_size(cache_type, toma_context or context, func, initial)
        _run_range(size, start, end, lambda at, to: func(at, to, *args, **kwargs))

    return wrapped


def chunked(
    func: Callable[..., Any] | None = None,
    *,
    initial_step: int | None = None,
    dimension: int | None = None,
    cache_type: _CacheType | None = None,
    context: Any = None,
) -> Any:
    """A decorator: a call ``(tensor, …)`` becomes calls ``func(chunk, start, end, …)``
    along ``dimension``, by default the first. A call may name ``toma_initial_step``,
    ``toma_dimension`` and ``toma_context``."""
    if func is None:
        return functools.partial(
            chunked,
            initial_step=initial_step,
            dimension=dimension,
            cache_type=cache_type,
            context=context,
        )

    @functools.wraps(func)
    def wrapped(
        tensor: Tensor,
        *args: Any,
        toma_initial_step: int | None = None,
        toma_dimension: int | None = None,
        toma_context: Any = None,
        **kwargs: Any,
    ) -> None:
        along = dimension if toma_dimension is None else toma_dimension
        initial = toma_initial_step or initial_step
        size = _find_size(cache_type, toma_context or context, func, initial)
        _run_chunked(size, tensor, along or 0, func, args, kwargs)

    return wrapped


class execute:
    """Decorators that call the function at once; its name becomes the result."""

    @staticmethod
    def batch(
        initial_batchsize: int, cache_type: _CacheType | None = None, context: Any = None
    ) -> Callable[[Callable[..., Any]], Any]:
        """``func(batchsize)``."""
        context = context or stacktrace.get_simple_traceback(1)
        return lambda func: explicit.batch(
            func, initial_batchsize, toma_cache_type=cache_type, toma_context=context
        )

    @staticmethod
    def range(
        start: int,
        end: int,
        initial_step: int,
        cache_type: _CacheType | None = None,
        context: Any = None,
    ) -> Callable[[Callable[..., Any]], None]:
        """``func(start, end)`` for parts of the range."""
        context = context or stacktrace.get_simple_traceback(1)
        return lambda func: explicit.range(
            func, start, end, initial_step, toma_cache_type=cache_type, toma_context=context
        )

    @staticmethod
    def chunked(
        tensor: Tensor,
        initial_step: int,
        dimension: int | None = None,
        cache_type: _CacheType | None = None,
        context: Any = None,
    ) -> Callable[[Callable[..., Any]], None]:
        """``func(chunk, start, end)`` for parts of the tensor."""
        context = context or stacktrace.get_simple_traceback(1)
        return lambda func: explicit.chunked(
            func,
            tensor,
            initial_step,
            toma_dimension=dimension,
            toma_cache_type=cache_type,
            toma_context=context,
        )


toma: ModuleType = sys.modules[__name__]
