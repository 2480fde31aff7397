"""The coarsest type that a call computes in, which is that of its rounding: of a step under
``torch.autocast``, whose results are float32, that of half types."""

from __future__ import annotations

from typing import Any

import torch

from koila._capture.dispatch_mode import DispatchMode, call_operator
from koila._capture.module_snapshot import tensors_of

__all__ = ["CoarsestType"]


class CoarsestType(DispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, ``dtype`` is the floating-point type with the fewest digits of what
    operations have made; None before there was one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype: torch.dtype | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call_operator(func, args, kwargs)
        for tensor in tensors_of([result]):
            dtype = tensor.dtype
            if dtype.is_floating_point and (
                self.dtype is None or torch.finfo(dtype).eps > torch.finfo(self.dtype).eps
            ):
                self.dtype = dtype
        return result
