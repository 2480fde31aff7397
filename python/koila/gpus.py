"""Names of koila 0.1.1: free memory of a GPU, and splitting of batches."""

from __future__ import annotations

import torch

from koila import memory
from koila._errors import KoilaError
from koila._lazy.lazy_tensor import BatchedPair

__all__ = [
    "free_memory",
    "maximum_batch",
    "nvidia_free_memory",
    "split_batch",
    "torch_free_memory",
]


def nvidia_free_memory() -> int | None:
    """Bytes that the driver has free on the current GPU; None without one."""
    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None


def torch_free_memory() -> int | None:
    """Bytes that PyTorch holds on the current GPU and does not use; None without one."""
    if not torch.cuda.is_available():
        return None
    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def free_memory() -> int | None:
    """Bytes that tensors can still get on the current GPU; None without one."""
    return memory.free("cuda") if torch.cuda.is_available() else None


def maximum_batch(memory: BatchedPair, total_memory: int | None = None) -> int | None:
    """The most samples that fit ``total_memory`` bytes, by default those free
    on the GPU; None without either. ``memory`` is bytes per sample and bytes
    beside. Raises KoilaError if not one sample fits, or samples need nothing.
    """
    total = free_memory() if total_memory is None else total_memory
    if total is None:
        return None
    if memory.batch <= 0:
        raise KoilaError(f"{memory.batch} bytes per sample bound no batch")
    most = (total - memory.no_batch) // memory.batch
    if most < 1:
        raise KoilaError(
            f"a sample needs {memory.batch + memory.no_batch} bytes, and {total} are free"
        )
    return int(most)


def split_batch(
    memory: BatchedPair, current_batch: int, total_memory: int | None = None
) -> tuple[int, ...]:
    """The parts of a batch that fit: powers of two, from the largest. A batch
    that fits is not split."""
    most = maximum_batch(memory, total_memory)
    if most is None or current_batch <= most:
        return (current_batch,)
    part = 1 << (most.bit_length() - 1)
    parts = []
    while current_batch:
        while part > current_batch:
            part //= 2
        parts.append(part)
        current_batch -= part
    return tuple(parts)
