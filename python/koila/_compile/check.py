"""Compiled modules next to their originals, within the same memory."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from koila import _compiler
from koila._capture.coarsest_type import CoarsestType
from koila._capture.compare import compare, compare_gradients, put_aside
from koila._capture.frames import warn_user
from koila._capture.held_bytes import HeldBytes
from koila._capture.inputs import Arguments, Inputs, find_symbol
from koila._capture.module_snapshot import Changes, Snapshot
from koila._capture.structure import flatten, map_tensors
from koila._compile.recorded_calls import step_loss
from koila._compile.specialized_module import Refused, Specialization
from koila._errors import CompileError, explain_torch
from koila._interrupt import let_through
from koila._out_of_memory import is_out_of_memory
from koila._temporary import temporary_folder

__all__ = ["check"]

# One whole tile and a remainder of one sample.
LEAST = 2


class _DoesNotRun(Exception):
    """The original raises for that many samples."""


def check(compiled: Specialization, snapshot: Snapshot, inputs: Inputs, name: str) -> None:
    """Compares samples of the example with the original: two, with what they
    write to, then a full tile and a remainder of one, or fewer where that is more than
    the example or the budget. Warns where not even two samples are within it.
    Raises CompileError where results, gradients or effects differ, and where the
    original runs on none of these."""
    if inputs.size is None:
        return
    limit = compiled.options.budget
    report: dict[str, Any] = {}
    if isinstance(limit, int):
        report = _analyze(compiled, inputs, limit, LEAST)
        if _most_samples(report, LEAST) < LEAST:
            return _warn_unchecked(name, f"two samples take more than {limit} bytes")
    comparison = _Comparison(compiled, snapshot, inputs, name)
    try:
        try:
            comparison.check(LEAST, watch=True)
            if compiled.tile is None:
                return
            watch = False
        except _DoesNotRun:
            # Some modules take multiples of a number.
            watch = True
        whole = max(LEAST, inputs.size, *inputs.batch.values())
        sizes = [whole]
        if compiled.tile is not None:
            # In a tile of one there is what no other tile has: dims of extent 1.
            rests = 1, max(1, compiled.tile // 2)
            sizes = [min(compiled.tile + rest, whole) for rest in rests]
        for index, size in enumerate(sizes):
            if isinstance(limit, int):
                # Python holds more than the program, which is what figures are of.
                held = int(limit / _find_share(report, comparison.held))
                size = min(size, _most_samples(_analyze(compiled, inputs, held, size), size))
            try:
                if size > LEAST or watch:
                    comparison.check(size, watch)
                return
            except _DoesNotRun:
                if index + 1 == len(sizes):
                    raise
    except _DoesNotRun as error:
        raise CompileError(
            f"{name}: compiled, and not compared with the original, which does not run on "
            f"samples of the example: {error}",
            None,
            ("the batch may be another dim, see batch_dim=; check=False skips the check",),
        ) from None
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        _warn_unchecked(name, explain_torch(error)[0])


def _warn_unchecked(name: str, why: str) -> None:
    warn_user(
        f"{name}: compiled, and not compared with the original on the example, which there "
        f"is no memory for ({why}); check=False skips this"
    )


def _most_samples(report: dict[str, Any], size: int) -> int:
    most = report["max_batch"]
    return most if isinstance(most, int) else size


def _find_share(report: dict[str, Any], held: int) -> float:
    """How many times the peak of the report Python takes, which holds so much in
    tensors: at least once."""
    inside = max((entry["transient_bytes"] for entry in report["timeline"]), default=0)
    return max(1.0, (held + inside) / max(report["peak_bytes"] or 0, 1))


def _analyze(compiled: Specialization, inputs: Inputs, limit: int, size: int) -> dict[str, Any]:
    """The report of ``size`` samples, with as the largest batch those whose untiled
    step, and one more set of gradients, which ``grads`` sums up, are within
    ``limit``."""
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
    return _compiler.analyze_script(
        compiled.source,
        compiled.specs,
        batch={find_symbol(compiled.specs): size},
        mode=options.mode,
        loss=options.loss,
        budget=max(limit, 0),
        grads="absent" if trains else "present",
        threads=options.threads,
        device=options.device,
        batches=0,
        floor=False,
    )


@dataclass
class _Comparison:
    """A compiled module and its original, on samples of the example."""

    compiled: Specialization
    snapshot: Snapshot
    inputs: Inputs
    name: str
    # Weights that the original writes to, as far as was seen.
    written: set[str] = field(default_factory=set)
    # Bytes that it held in tensors, where that was watched.
    held: int = 0
    # The type of its rounding, where that was watched.
    coarsest: torch.dtype | None = None

    def check(self, size: int, watch: bool) -> None:
        problem = self._compare(size, watch)
        if problem:
            raise CompileError(
                f"{self.name}: compiled, and checked on {size} samples of the example: {problem}",
                None,
                (self._find_cause(size),),
            )

    def _compare(self, size: int, watch: bool) -> str | None:
        """How results and effects differ; None if they do not."""
        with temporary_folder() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Each has arguments of its own, which it may write to.
            arguments = self.inputs.resize(size)
            keeping = self.snapshot.preserved(watch=watch, keep=self.written)
            holding = HeldBytes() if watch else contextlib.nullcontext()
            typing = CoarsestType() if watch else contextlib.nullcontext()
            try:
                with keeping as changes, holding as held, typing as types, let_through():
                    wanted = _run_original(self.compiled, arguments)
                self.held = self.held if held is None else held.peak
                self.coarsest = self.coarsest if types is None else types.dtype
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                raise _DoesNotRun(explain_torch(error)[0]) from error
            wanted = put_aside((wanted, arguments), folder)
            self.written.update(changes.written)
            arguments = self.inputs.resize(size)
            try:
                with self.snapshot.preserved(keep=self.written) as found_changes, let_through():
                    found = _run_compiled(self.compiled, arguments)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                if isinstance(error, Refused):
                    return f"on the example it does not run in tiles: {error}"
                return f"it raises: {explain_torch(error)[0]}"
            problem = _compare_changes(found_changes, changes, self.coarsest)
            plain, written = wanted
            if problem is None and self.compiled.trains:
                results: list[torch.Tensor] = []
                flatten(found[0], results)
                results = [result.detach() for result in results]
                problem = compare_gradients(found[1], plain[1], results, self.coarsest)
                found, plain = found[0], plain[0]
            pair = (found, arguments), (plain, written)
            return problem or compare(*pair, coarsest=self.coarsest)

    def _find_cause(self, size: int) -> str:
        """Whose the difference is."""
        compiled = self.compiled
        results: list[Any] = []
        written: set[str] = set()
        for runs_source in (False, False, True):
            keeping = self.snapshot.preserved(watch=not runs_source, keep=written)
            arguments = self.inputs.resize(size)
            try:
                with keeping as changes, torch.no_grad(), let_through():
                    results.append(
                        compiled.run_source(arguments)
                        if runs_source
                        else arguments.call(compiled.original)
                    )
            except Exception as error:
                return f"without koila the program raises: {explain_torch(error)[0]}"
            written.update(changes.written)
        if compare(results[1], results[0]):
            return "the module itself gives another result each time; check=False skips the check"
        if compare(results[2], results[1]):
            return (
                "TorchScript makes another program of the module, without koila, as where it asks "
                "torch.jit.is_scripting(); rewrite that"
            )
        return "this is a defect of koila unless forward() does more than compute its result"


def _run_original(compiled: Specialization, arguments: Arguments) -> Any:
    # What waits on the host comes back there.
    is_moved = bool(compiled.options.from_host)
    if not compiled.trains:
        with torch.no_grad():
            result = arguments.call(compiled.original)
        return map_tensors(torch.Tensor.cpu, result) if is_moved else result
    with torch.enable_grad():
        loss = step_loss(compiled.original, compiled.options.loss, arguments)
    weights = compiled.follower.weights
    found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return loss.detach().cpu() if is_moved else loss.detach(), list(found)


def _run_compiled(compiled: Specialization, arguments: Arguments) -> Any:
    # Buffers are others since the last run was undone.
    compiled.follower.update()
    if not compiled.trains:
        with torch.no_grad():
            return compiled.run("forward", arguments)
    return compiled.run("grads", arguments)


def _compare_changes(found: Changes, wanted: Changes, coarsest: torch.dtype | None) -> str | None:
    for name in sorted({*found.written, *wanted.written}):
        if name not in found.written:
            return f"the original writes to '{name}', which TorchScript does not"
        if name not in wanted.written:
            return f"it writes to '{name}', which the original does not"
        if problem := compare(found.written[name], wanted.written[name], coarsest=coarsest):
            return f"'{name}', which is written to, is {problem}"
    if other := sorted(found.rebound ^ wanted.rebound):
        return f"the buffer '{other[0]}' is assigned anew by one of both"
    return None
