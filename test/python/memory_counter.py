"""Bytes of PyTorch's allocator, as tests measure them."""

import ctypes
import pathlib

import koila


def peak_of(function):
    """The most bytes that this thread's tensors took, beyond those before."""
    library = pathlib.Path(koila.__file__).parents[2] / "lib" / "libkoila-counter.so"
    counter = ctypes.CDLL(str(library))
    peak, live = ctypes.c_int64(), ctypes.c_int64()
    counter.koilaCounterStart()
    try:
        found = function()
    finally:
        counter.koilaCounterStop(ctypes.byref(peak), ctypes.byref(live))
    return peak.value, found
