"""Memory line by line, after pytorch_memlab by Stonesjtu (MIT)."""

from koila.compat.pytorch_memlab.line_profiler.line_profiler import LineProfiler
from koila.compat.pytorch_memlab.line_profiler.profile import (
    clear_global_line_profiler,
    profile,
    profile_every,
    set_target_gpu,
)

__all__ = [
    "LineProfiler",
    "clear_global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
]
