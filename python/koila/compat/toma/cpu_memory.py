"""Memory of the host."""

from __future__ import annotations

from koila import memory
from koila._out_of_memory import find_exhausted

__all__ = ["get_available_cpu_memory", "is_out_of_cpu_memory", "set_cpu_memory_limit"]


def get_available_cpu_memory() -> int:
    """Bytes that this process can still get, as ``koila.memory.free`` says."""
    return memory.free("cpu")


def set_cpu_memory_limit(num_gigabytes: float) -> None:
    """Limits the address space of the process to that many GiB, or less where it is
    limited already. The limit may be raised again: only the soft one is set."""
    import resource

    # Loads the library that tells it, for which there may be no room later.
    get_available_cpu_memory()
    size = int(num_gigabytes * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def is_out_of_cpu_memory(exception: BaseException) -> bool:
    """Whether it says that the host has no memory left."""
    return find_exhausted(exception) == "host"
