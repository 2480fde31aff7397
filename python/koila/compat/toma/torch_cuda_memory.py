"""Memory of the current CUDA device, in bytes; 0 where there is none."""

from __future__ import annotations

import torch

from koila._out_of_memory import find_exhausted, release_cached

__all__ = [
    "cuda_meminfo",
    "gc_cuda",
    "get_cuda_assumed_available_memory",
    "get_cuda_available_memory",
    "get_cuda_blocked_memory",
    "get_cuda_total_memory",
    "is_cuda_out_of_memory",
    "is_cudnn_snafu",
]


def gc_cuda() -> None:
    """Collects what only cycles keep alive, and empties the caches of devices."""
    release_cached()


def get_cuda_total_memory() -> int:
    """What the device has."""
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def get_cuda_assumed_available_memory() -> int:
    """What the device has less what this process has reserved."""
    if not torch.cuda.is_available():
        return 0
    return get_cuda_total_memory() - torch.cuda.memory_reserved()


def get_cuda_available_memory() -> int:
    """What this process can still reserve."""
    return get_cuda_assumed_available_memory() - get_cuda_blocked_memory()


def get_cuda_blocked_memory() -> int:
    """What others hold: other processes, and contexts. Asked of the driver."""
    if not torch.cuda.is_available():
        return 0
    free, _ = torch.cuda.mem_get_info()
    return max(get_cuda_assumed_available_memory() - int(free), 0)


def is_cuda_out_of_memory(exception: BaseException) -> bool:
    """Whether it says that a device, of whatever vendor, has no memory left."""
    return find_exhausted(exception) == "device"


def is_cudnn_snafu(exception: BaseException) -> bool:
    """Whether cuDNN, or a library like it, has no memory left or no plan for a size
    as large."""
    return find_exhausted(exception) == "library"


def cuda_meminfo() -> None:
    """Prints what is allocated and reserved, now and at most, in GiB."""
    if not torch.cuda.is_available():
        return
    for name, allocated, reserved in (
        ("Total", torch.cuda.memory_allocated(), torch.cuda.memory_reserved()),
        ("Max Total", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()),
    ):
        print(f"{name}: {allocated / 2**30:.3f} GiB Cached: {reserved / 2**30:.3f} GiB")
