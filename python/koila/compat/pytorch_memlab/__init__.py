"""Memory of each line, of each tensor, and of a process that steps aside.

The names are those of pytorch_memlab by Kaiyu Shi (github.com/Stonesjtu, MIT license),
so that ``import koila.compat.pytorch_memlab as pytorch_memlab`` is all a program needs to
change. The code is koila's: it counts on the CPU as well, what PyTorch's allocator hands
out, and needs nothing but PyTorch. What differs says docs/user/Memlab.md.

``LineProfiler``, ``profile``, ``profile_every``: bytes line by line.
``MemReporter``: which tensors take memory, those that autograd saved among them.
``Courtesy``: moves all tensors off the accelerator, and back.
``%load_ext koila.compat.pytorch_memlab``: ``%mlrun`` and ``%%mlrun`` (extra ``ipython``).
"""

from __future__ import annotations

from koila.compat.pytorch_memlab.courtesy import Courtesy
from koila.compat.pytorch_memlab.line_profiler import (
    LineProfiler,
    clear_global_line_profiler,
    profile,
    profile_every,
    set_target_gpu,
)
from koila.compat.pytorch_memlab.line_profiler.extension import load_ipython_extension
from koila.compat.pytorch_memlab.mem_reporter import MemReporter

__all__ = [
    "Courtesy",
    "LineProfiler",
    "MemReporter",
    "clear_global_line_profiler",
    "load_ipython_extension",
    "profile",
    "profile_every",
    "set_target_gpu",
]
