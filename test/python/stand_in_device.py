"""A device for machines that have none: `standin`, whose memory is the host's and ends at a
cap (test/StandIn/StandInDevice.cpp). Registered when this is imported."""

import ctypes
import gc
import pathlib
import types
from typing import Any, NamedTuple

import torch

import koila
from koila import _device

_NO_CAP = 1 << 40


class Figures(NamedTuple):
    """Bytes; refusals are a number."""

    cap: int
    live: int
    peak: int
    reserved: int
    refusals: int
    taken_down: int  # copied to the CPU by programs, not inside of operators


class Memory:
    """Of the device."""

    def __init__(self):
        path = pathlib.Path(koila.__file__).parents[2] / "lib" / "libkoila-stand-in.so"
        self._library = ctypes.CDLL(str(path))
        self._library.koilaStandInCap.argtypes = [ctypes.c_int64]
        self._start = 0
        self.end()

    def read(self):
        figures = (ctypes.c_int64 * len(Figures._fields))()
        self._library.koilaStandInRead(figures)
        return Figures(*figures)

    def empty_cache(self):
        self._library.koilaStandInEmptyCache()

    def begin(self, room=None):
        """At most so many bytes more than now; the peak starts anew."""
        gc.collect()
        self.empty_cache()
        self._start = self.read().live
        self._library.koilaStandInCap(_NO_CAP if room is None else self._start + room)

    def end(self):
        """The most bytes since the beginning; from now on there is no cap."""
        peak = self.read().peak - self._start
        self._library.koilaStandInCap(_NO_CAP)
        return peak

    def measure(self, function, room=None):
        """The most bytes beyond those that are there, which are at most ``room``."""
        self.begin(room)
        try:
            function()
        finally:
            peak = self.end()
        return peak


memory = Memory()


def _make_module():
    """What PyTorch and koila ask of a device, by the names of ``torch.cuda``."""
    module: Any = types.ModuleType("torch.standin")

    def mem_get_info(device=None):
        figures = memory.read()
        return figures.cap - figures.reserved, figures.cap

    module.mem_get_info = mem_get_info
    module.memory_stats = lambda device=None: {}
    module.memory_allocated = lambda device=None: memory.read().live
    module.max_memory_allocated = lambda device=None: memory.read().peak
    module.memory_reserved = lambda device=None: memory.read().reserved
    module.empty_cache = memory.empty_cache
    module.is_available = module.is_initialized = lambda: True
    module.current_device = lambda: 0
    module.device_count = lambda: 1
    # It draws from the host's generator.
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    return module


torch.utils.rename_privateuse1_backend("standin")
torch._register_device_module("standin", _make_module())
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
_device.register(_device.Kind("standin", lambda device: "cuda"))
DEVICE = torch.device("standin", 0)
