"""What PyTorch's CPU allocator hands out to this thread."""

import ctypes


class Counter:
    """libkoila-counter.so (tools/koila-run/CounterLibrary.cpp)."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def measure(self, function, arguments=()):
        """Most bytes at once beyond those there before, bytes kept, and what
        the function gives."""
        peak, live = ctypes.c_int64(), ctypes.c_int64()
        self.library.koilaCounterStart()
        try:
            found = function(*arguments)
        finally:
            self.library.koilaCounterStop(ctypes.byref(peak), ctypes.byref(live))
        return peak.value, live.value, found
