"""Modes that see each operation of PyTorch, without torch.compile."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode"]


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Of others the first operation imports all of torch.compile, to switch it
    off: 800 modules, 70 MiB and seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
