"""Compiled modules next to their originals, within the same memory."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import torch

from koila import _compiler
from koila._errors import CompileError, KoilaWarning
from koila._inputs import Inputs, find_symbol
from koila._script import compare, preserved

if TYPE_CHECKING:
    from koila._api import CompiledModule

__all__ = ["check"]

# One whole tile and a remainder of one sample.
LEAST = 2


def check(compiled: CompiledModule, inputs: Inputs, name: str) -> None:
    """Compares samples of the example with the original: a full tile and a
    remainder where both stay within the budget, else fewer. Warns where not
    even two samples do. Raises CompileError where results differ."""
    if inputs.size is None or compiled.tile is None:
        return
    if compiled.trains and not hasattr(compiled.script, "grads_untiled"):
        return
    size = compiled.tile + max(1, compiled.tile // 2)
    limit = compiled.options.budget
    if isinstance(limit, int):
        size = min(size, _most_samples(compiled, inputs, limit, size))
    try:
        if size < LEAST:
            raise torch.OutOfMemoryError(f"two samples take more than {limit} bytes")
        problem = _compare(compiled, inputs.resize(size))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        warnings.warn(
            f"{name}: compiled, and not compared with the original on the example, which there "
            f"is no memory for ({str(error).splitlines()[-1]}); check=False skips this",
            KoilaWarning,
            stacklevel=3,
        )
        return
    if problem:
        raise CompileError(
            f"{name}: compiled, and checked on {size} samples of the example: {problem}",
            None,
            (
                "this is a defect of koila unless the module itself is not deterministic; "
                "check=False skips the check",
            ),
        )


def _most_samples(compiled: CompiledModule, inputs: Inputs, limit: int, size: int) -> int:
    """Samples whose untiled step, and one more set of gradients, which
    ``grads`` sums up, are within ``limit``."""
    options = compiled.options
    trains = compiled.trains
    limit -= inputs.resized_bytes(size)
    if trains:
        weights = [p for p in compiled.original.parameters() if p.requires_grad]
        gradients = sum(p.numel() * p.element_size() for p in weights)
        if options.grads == "present" and all(p.grad is None for p in weights):
            # They are not part of the budget, and not there yet.
            limit += gradients
        limit -= gradients
    report = _compiler.analyze_script(
        compiled.source,
        inputs.specs,
        batch={find_symbol(inputs.specs): size},
        mode=options.mode,
        loss=options.loss,
        budget=max(limit, 0),
        grads="absent" if trains else "present",
        threads=options.threads,
        batches=0,
        floor=False,
    )
    most = report["max_batch"]
    return most if isinstance(most, int) else size


def _compare(compiled: CompiledModule, arguments: tuple[Any, ...]) -> str | None:
    with (
        tempfile.TemporaryDirectory(prefix="koila-") as folder,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        if compiled.trains:
            with preserved(compiled.original):
                wanted = _put_aside(compiled.script.grads_untiled(*arguments), folder)
            with preserved(compiled.original):
                found = compiled.grads(*arguments)
        else:
            with torch.no_grad(), preserved(compiled.original):
                wanted = _put_aside(compiled.original(*arguments), folder)
            with torch.no_grad(), preserved(compiled.original):
                found = compiled(*arguments)
        problem = compare(found, wanted)
    for warning in caught:
        if "running the untiled program" in str(warning.message):
            problem = f"on the example it does not run in tiles: {warning.message}"
    return problem


def _put_aside(result: Any, folder: str) -> Any:
    """The same, its tensors in files: two sets of gradients may not fit."""
    if isinstance(result, torch.Tensor):
        if not result.numel() or result.layout != torch.strided:
            return result
        path = os.path.join(folder, str(len(os.listdir(folder))))
        kept = torch.from_file(path, shared=True, size=result.numel(), dtype=result.dtype)
        return kept.view(result.shape).copy_(result.detach())
    if isinstance(result, dict):
        return {key: _put_aside(value, folder) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        parts = [_put_aside(value, folder) for value in result]
        return parts if isinstance(result, list) else tuple(parts)
    return result


def _is_out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator has no class of its own (c10/core/impl/alloc_cpu.cpp).
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
