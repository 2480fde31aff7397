"""What one call of a module needs, with the lines of all that called what it runs."""

from __future__ import annotations

from typing import Any

from torch import nn

from koila import _compiler
from koila._capture.global_hooks import without_hooks
from koila._capture.inputs import Arguments, Inputs
from koila._capture.script import Captured, ModuleCapture
from koila._capture.thread_locks import exclusive
from koila._compile.choose_form import choose
from koila._compile.specialize_call import find_device
from koila._errors import CompileError
from koila._interrupt import uninterrupted

__all__ = ["report_call"]


@exclusive
@uninterrupted
def report_call(
    module: nn.Module, arguments: Arguments, *, mode: str, threads: int
) -> dict[str, Any]:
    """The report (docs/user/Reports.md) on a call with these values, with ``frames`` in its
    timeline, and without what other batches need.

    ``mode`` is ``inference`` or ``forward-with-grad``. Raises CompileError as
    ``koila.analyze`` does.
    """
    given = Inputs.of_call(arguments, 0)
    device = find_device(module, given)
    if device.type != "cpu":
        # What lines are measured to take there is in blocks of the allocator.
        raise CompileError(f"calls are told line by line on the CPU, and this one is on {device}")

    def probe(captured: Captured) -> dict[str, Any]:
        return _compiler.analyze_script(
            captured.script,
            captured.specs,
            batch=given.batch,
            mode=mode,
            threads=threads,
            batches=0,
            floor=False,
            frames=True,
            name=type(module).__name__,
        )

    capture = ModuleCapture(module, given, trains=mode != "inference")
    with without_hooks():
        return choose(capture, probe, lambda data: bool(data["exact"]))
