"""Errors that say that memory ran out, of every allocator and library, and
giving back what they leave behind.

Sources of the texts: c10/core/impl/alloc_cpu.cpp, CUDACachingAllocator.cpp,
XPUCachingAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm, the names of the
status codes of cuDNN, cuBLAS, cuSOLVER, cuSPARSE, cuFFT, MIOpen, rocBLAS and
hipBLAS, and cudaGetErrorString.
"""

from __future__ import annotations

import gc
import re
import traceback
from collections.abc import Callable
from typing import Literal, TypeVar

import torch

from koila._device import empty_caches
from koila._errors import KoilaError

__all__ = [
    "Place",
    "find_exhausted",
    "fits",
    "is_out_of_memory",
    "let_go",
    "ran_out",
    "release_cached",
]

_Error = TypeVar("_Error", bound=BaseException)

#: Where memory ran out. A library may be short of memory, or want a plan that
#: needs less.
Place = Literal["host", "device", "library"]

_DEVICE = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MLU|MUSA|HPU) out of memory"
    # As allocators of other devices say it.
    r"|\bout of memory\. Tried to allocate \d"
    r"|(?:CUDA|HIP)(?: driver| runtime)? error: out of memory"
    r"|\b(?:cuda|hip)Error(?:OutOfMemory|MemoryAllocation)\b"
    r"|\bCUDA_ERROR_OUT_OF_MEMORY\b"
    r"|MPS backend out of memory"
    r"|\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b"
    r"|\bZE_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b"
)
_LIBRARY = re.compile(
    r"\b(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUSPARSELT|HIPBLAS|HIPSOLVER|HIPSPARSE)"
    r"_STATUS_(?:INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED|ALLOC_FAILED)\b"
    r"|\bmiopenStatusAllocFailed\b|\brocblas_status_memory_error\b"
    r"|\b(?:CUFFT|HIPFFT)_ALLOC_FAILED\b"
    # github.com/pytorch/pytorch/issues/4107: what cuDNN says of tensors that are
    # too large for it.
    r"|cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\."
)
# What libraries say when they find no memory for a handle or a plan, and of much else:
# cuDNN, cuFFT and cuSOLVER on a full device (docs/results/GpuCompat.md).
_UNCLEAR = re.compile(
    r"\b(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|HIPBLAS|HIPSOLVER|HIPSPARSE)"
    r"_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED)\b"
    r"|\b(?:CUFFT|HIPFFT)_INTERNAL_ERROR\b|\bmiopenStatusInternalError\b"
)
# Less than this on a device may be too little for the handles of a library, which take
# up to 98 MiB there.
_LEAST = 256 << 20
_HOST = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"
    r"|\bstd::bad_alloc\b"
    r"|Cannot allocate memory"
)


def find_exhausted(error: BaseException) -> Place | None:
    """Where memory ran out, if that is what ``error`` says; None for all others,
    also such as speak of memory: illegal accesses, layouts, pinned memory.

    An internal error of a library of CUDA's or HIP's says so where the driver has
    next to nothing left now: ask before anything is freed.
    """
    if isinstance(error, MemoryError):
        return "host"
    if not isinstance(error, RuntimeError):
        return None
    text = str(error)
    if _HOST.search(text):
        return "host"
    if _LIBRARY.search(text):
        return "library"
    if _UNCLEAR.search(text) and _is_device_full():
        return "library"
    if isinstance(error, torch.OutOfMemoryError) or _DEVICE.search(text):
        return "device"
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on the host or on a device of
    any vendor. Of an internal error of cuDNN and its like the driver's free bytes
    decide, so ask before anything is freed."""
    return find_exhausted(error) is not None


def ran_out(error: BaseException) -> bool:
    """Whether a smaller tile may do where this was raised: not of what koila itself raises,
    which has tried."""
    return not isinstance(error, KoilaError) and is_out_of_memory(error)


def let_go(error: _Error) -> _Error:
    """The error without what its traceback keeps: the tensors of the calls that it has
    ended. What is freed so is there for whoever tries again."""
    waiting: list[BaseException] = [error]
    known: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return error


def _is_device_full() -> bool:
    cuda = torch.cuda
    if not (cuda.is_available() and cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return False
    current = cuda.current_device()
    # Of the others, those in use: asking starts a context.
    asked = [i for i in range(cuda.device_count()) if i == current or cuda.memory_reserved(i)]
    try:
        return any(cuda.mem_get_info(index)[0] < _LEAST for index in asked)
    except RuntimeError:
        return False  # after an illegal access nothing is told


def release_cached() -> None:
    """Collects what only cycles keep alive, and gives blocks that PyTorch's
    allocators of devices hold for later back to the driver."""
    gc.collect()
    empty_caches()
    if torch.xpu.is_available() and torch.xpu.is_initialized():  # type: ignore[no-untyped-call]
        torch.xpu.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def fits(call: Callable[[], object], may_shrink: Callable[[Exception], bool]) -> bool:
    """Whether ``call()`` returns; False where it raises an error of which
    ``may_shrink`` says that less may do. Others are raised.

    Nothing of a failed call is left, as its traceback would keep it: the caller
    tries again with the memory of this one.
    """
    try:
        call()
        return True
    except (RuntimeError, MemoryError) as error:
        if not may_shrink(error):
            raise
    release_cached()
    return False
