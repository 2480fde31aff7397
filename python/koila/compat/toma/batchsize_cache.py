"""Sizes that fitted before."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import CodeType
from typing import ClassVar

from koila.compat.toma import cpu_memory, torch_cuda_memory
from koila.compat.toma.stacktrace import find_call_sites, get_simple_traceback

__all__ = [
    "Batchsize",
    "BatchsizeCache",
    "GlobalBatchsizeCache",
    "NoBatchsizeCache",
    "StacktraceMemoryBatchsizeCache",
]


@dataclass
class Batchsize:
    """A size, and the largest that did not fail once one has failed."""

    value: int | None = None
    _limit: int | None = field(default=None, repr=False, compare=False)

    def set_initial_batchsize(self, initial_batchsize: int) -> None:
        """What this call asks for, or less where that has failed."""
        limit = self._limit
        self.value = initial_batchsize if limit is None else min(initial_batchsize, limit)

    def get(self) -> int:
        """The size to try now."""
        if self.value is None:
            raise RuntimeError("no size is set; call set_initial_batchsize() first")
        return self.value

    def decrease_batchsize(self) -> None:
        """Half of it, rounded down."""
        value = self.get() // 2
        if value < 1:
            raise RuntimeError("a size of one cannot be halved")
        self.value = self._limit = value


class BatchsizeCache:
    """Finds the size for a call."""

    #: All caches there are, by where they were made.
    all_instances: ClassVar[weakref.WeakValueDictionary[Hashable, BatchsizeCache]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self) -> None:
        BatchsizeCache.all_instances[(get_simple_traceback(1), id(self))] = self

    def get_batchsize(self, initial_batchsize: int) -> Batchsize:
        """The size for a call that asks for this one."""
        raise NotImplementedError


class NoBatchsizeCache(BatchsizeCache):
    """Remembers nothing."""

    def get_batchsize(self, initial_batchsize: int) -> Batchsize:
        return Batchsize(initial_batchsize)


class GlobalBatchsizeCache(BatchsizeCache):
    """One size for a function, wherever it is called."""

    def __init__(self, batchsize: Batchsize | None = None) -> None:
        super().__init__()
        self.batchsize = batchsize

    def get_batchsize(self, initial_batchsize: int) -> Batchsize:
        if self.batchsize is None:
            self.batchsize = Batchsize()
        self.batchsize.set_initial_batchsize(initial_batchsize)
        return self.batchsize


class StacktraceMemoryBatchsizeCache(BatchsizeCache):
    """One size for each place that a function is called from.

    ``TRACK_RAM``: also for each amount of free memory, in units of
    ``MEMORY_GRANULARITY`` bytes: then what was learnt is forgotten whenever other
    programs come and go, and asking costs time.
    """

    LRU_CACHE_SIZE: int = 2**16
    MEMORY_GRANULARITY: int = 2**28
    TRACK_RAM: bool = False

    def __init__(self, lru_cache_size: int | None = None) -> None:
        super().__init__()
        self._size = lru_cache_size or self.LRU_CACHE_SIZE
        self._found: OrderedDict[Hashable, tuple[Batchsize, list[CodeType]]] = OrderedDict()

    def get_batchsize(self, initial_batchsize: int) -> Batchsize:
        sites, codes = find_call_sites(1)
        key: Hashable = sites
        if self.TRACK_RAM:
            free = (
                cpu_memory.get_available_cpu_memory(),
                torch_cuda_memory.get_cuda_available_memory(),
            )
            key = (sites, *(size // self.MEMORY_GRANULARITY for size in free))
        entry = self._found.get(key)
        if entry is None:
            entry = self._found[key] = (Batchsize(), codes)
            if len(self._found) > self._size:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
        entry[0].set_initial_batchsize(initial_batchsize)
        return entry[0]
