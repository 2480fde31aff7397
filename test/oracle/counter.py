"""What PyTorch's CPU allocator hands out to this thread."""

import ctypes


class Event(ctypes.Structure):
    """Bytes are below zero where the allocator took them back."""

    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_int64)]


class Counter:
    """libkoila-counter.so (tools/koila-run/CounterLibrary.cpp)."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.koilaCounterGetEvents.restype = ctypes.c_int64
        self.library.koilaCounterGetEvents.argtypes = [ctypes.c_void_p, ctypes.c_int64]

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

    def count_events(self):
        """How many events record() has seen so far."""
        return self.library.koilaCounterGetEvents(None, 0)

    def record(self, function, arguments=()):
        """What the allocator did, as tuples of whether it took a block back, the number of
        the block in the order of allocations, and bytes; and what the function gives."""
        unused = ctypes.c_int64()
        self.library.koilaCounterStartEvents()
        try:
            found = function(*arguments)
            size = self.count_events()
            kept = (Event * size)()
            self.library.koilaCounterGetEvents(kept, size)
        finally:
            self.library.koilaCounterStop(ctypes.byref(unused), ctypes.byref(unused))
        events, ids, count = [], {}, 0
        for event in kept:
            if event.bytes > 0:
                ids[event.address] = count
                events.append((False, count, event.bytes))
                count += 1
            elif event.bytes < 0:
                events.append((True, ids.pop(event.address), -event.bytes))
        return events, found
