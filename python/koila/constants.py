"""Names of koila 0.1.1: units of memory, and bytes of types."""

from __future__ import annotations

import torch

__all__ = ["MEMORY_BYTES", "UNITS"]

UNITS: dict[str, int] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

MEMORY_BYTES: dict[torch.dtype, int] = {
    dtype: dtype.itemsize
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex32,
        torch.complex64,
        torch.complex128,
    )
}
