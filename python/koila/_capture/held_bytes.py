"""What a call holds in tensors when Python runs it: a local variable keeps what it
names until it is assigned anew, which no program of TorchScript does."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from koila._capture.by_memory import place_of
from koila._capture.dispatch_mode import DispatchMode, call_operator
from koila._capture.module_snapshot import tensors_of

__all__ = ["HeldBytes"]


class HeldBytes(DispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, ``peak`` is the most bytes of storages that operations have
    made and something still refers to; not what kernels take inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        # The tensors of each storage.
        self._counts: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = call_operator(func, args, kwargs)
        given = {place_of(tensor) for tensor in tensors_of([args, kwargs])}
        for tensor in tensors_of([result]):
            key = place_of(tensor)
            # Of a view of what was there before nothing is made.
            if key is not None and (key in self._counts or key not in given):
                self._hold(tensor, key)
        return result

    def _hold(self, tensor: torch.Tensor, key: int) -> None:
        size = tensor.untyped_storage().nbytes()
        if key not in self._counts:
            self._counts[key] = 0
            self._live += size
            self.peak = max(self.peak, self._live)
        self._counts[key] += 1
        weakref.finalize(tensor, self._release, key, size).atexit = False

    def _release(self, key: int, size: int) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self._live -= size
