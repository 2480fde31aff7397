"""koila ends ``CUDA out of memory`` for PyTorch users.

``analyze`` says what a program needs before it runs, ``compile`` runs its batch
in tiles that fit, ``fit`` gives what is compiled another budget, ``max_batch`` finds the
largest batch. ``lazy`` needs no
module: it records what is done to tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koila import (
    constants,
    eager,
    errors,
    gpus,
    interfaces,
    memory,
    prepasses,
    retry,
    shapes,
)
from koila._check import check_op
from koila._compile import CompiledModule, analyze, compile, fit, max_batch
from koila._errors import (
    BudgetError,
    CompileError,
    KoilaError,
    KoilaWarning,
    Location,
    OutOfMemoryError,
    UnpromisedError,
)
from koila._extensions import load_extension
from koila._lazy import BatchedPair, BatchInfo, Evaluation, LazyFunction, LazyTensor, run
from koila._operators import BatchArgument, Block, KernelTrace, register
from koila._plan.announce import Last, last, strict
from koila._report import Report, ReportDiff
from koila.eager import EagerTensor
from koila.errors import UnsupportedError
from koila.interfaces import Runnable, RunnableTensor, TensorMixin
from koila.prepasses import CallBack, MetaData, PrePass, PrePassFunc

if TYPE_CHECKING:
    from koila._lazy import lazy
else:
    from koila import lazy  # the function, and the module of that name

__all__ = [
    "BatchArgument",
    "BatchInfo",
    "BatchedPair",
    "Block",
    "BudgetError",
    "CallBack",
    "CompileError",
    "CompiledModule",
    "EagerTensor",
    "Evaluation",
    "KernelTrace",
    "KoilaError",
    "KoilaWarning",
    "Last",
    "LazyFunction",
    "LazyTensor",
    "Location",
    "MetaData",
    "OutOfMemoryError",
    "PrePass",
    "PrePassFunc",
    "Report",
    "ReportDiff",
    "Runnable",
    "RunnableTensor",
    "TensorMixin",
    "UnpromisedError",
    "UnsupportedError",
    "analyze",
    "check_op",
    "compile",
    "constants",
    "eager",
    "errors",
    "fit",
    "gpus",
    "interfaces",
    "last",
    "lazy",
    "load_extension",
    "max_batch",
    "memory",
    "prepasses",
    "register",
    "retry",
    "run",
    "shapes",
    "strict",
]


def load_ipython_extension(ipython: object) -> None:
    """``%load_ext koila``: the commands of docs/user/Memlab.md, as ``%koila``."""
    from koila.compat.pytorch_memlab import load_ipython_extension as load

    load(ipython)
