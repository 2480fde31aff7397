"""Where an operator is compared: threads and device."""

from __future__ import annotations

from koila import _compiler
from koila._errors import KoilaError
from koila._generators.program import define_module

__all__ = ["check_conditions"]

_NOTHING = "def forward(self, x: Tensor):\n    return x\n"


def check_conditions(calls: int, threads: int | None, device: str) -> None:
    """KoilaError for what is no number of calls or of threads, and for a device without
    kernel models, or other than the CPU."""
    if not _compiler.is_count(calls) or calls < 1:
        raise KoilaError(f"calls={calls!r} is no number of at least 1")
    if not isinstance(device, str):
        raise KoilaError(f'device={device!r}: it is the name of a target, as "cpu"')
    _compiler.list_events(
        define_module(_NOTHING), ["float32[1]"], batch={}, threads=threads, device=device
    )
    if device != "cpu":
        raise KoilaError(f"device={device}: runs are measured on the CPU: device=cpu")
