"""A module that was compiled for one kind of call."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from koila import _compiler
from koila._capture.inputs import Arguments
from koila._capture.script import Captured
from koila._capture.structure import map_tensors
from koila._compile.call_kind import Call, Expected
from koila._compile.named_tuples import NamedTuples
from koila._compile.rollback import Undo
from koila._compile.staleness import Follower
from koila._compile.tile_table import find_methods
from koila._errors import CompileError
from koila._report.report import Report
from koila._temporary import temporary_folder

__all__ = ["Refused", "Specialization"]


class Refused(Exception):
    """The program does not stand for the original in this call."""


# How the facts that a program looks at first arrive.
_FACT = "RuntimeError: koila: "


def _report_of(compiled: _compiler.Compiled, options: _compiler.CompileOptions) -> Report:
    device = options.device
    return Report(compiled.report, device=device if isinstance(device, torch.device) else None)


def _bring_down(method: str, result: Any) -> Any:
    """What tiles have not left on the host; gradients stay with the weights."""
    if method != "grads":
        return map_tensors(torch.Tensor.cpu, result)
    loss, gradients = result
    return loss.cpu(), gradients


class Specialization:
    """The program of a module for one mode, one kind of arguments, and one budget.

    ``source`` is the ScriptModule that was compiled, ``script`` what became of it,
    ``tile`` the samples per tile, None if the batch is not split.
    """

    def __init__(
        self,
        original: nn.Module,
        captured: Captured,
        compiled: _compiler.Compiled,
        target_specs: Sequence[str],
        example: Call | None,
        batch: dict[str, int],
        options: _compiler.CompileOptions,
    ) -> None:
        self.original = original
        self.source: torch.jit.ScriptModule = captured.script
        self.script = compiled.module
        self.report = _report_of(compiled, options)
        self.tile = compiled.tile
        self.remarks = compiled.remarks
        self.options = options
        self.trains = options.mode == "train"
        self._captured = captured
        self._specs = [*captured.specs, *target_specs]
        self._batch = batch
        self._expected = None if example is None else Expected(example, self.trains)
        self._share(original, captured, compiled.module)

    def _share(
        self, original: nn.Module, captured: Captured, script: torch.jit.ScriptModule
    ) -> None:
        self.follower = Follower(original, captured, script)
        # Files are made for tensors on one device.
        weight = next(original.parameters(), None)
        device = torch.device("cpu") if weight is None else weight.device
        self._undo = Undo(original, self.follower, self.options.random != "refuse", device)
        # Layers that normalise write to their buffers then, and count no version.
        may_write = any(part.training for part in original.modules())
        self._is_undoing = self.trains or self.follower.assigns or may_write
        self._tuples = None if captured.layout is not None else NamedTuples(original)

    def _as_a_whole(self, method: str) -> contextlib.AbstractContextManager[None]:
        """Whatever is changed by a call is changed wholly, or not at all."""
        if self._is_undoing:
            return self._undo.step(method == "train_step")
        return contextlib.nullcontext()

    @property
    def specs(self) -> list[str]:
        """Of the arguments of ``source``, and of a target."""
        return self._specs

    @property
    def is_trace(self) -> bool:
        return self._captured.layout is not None

    @property
    def budget(self) -> int | None:
        """In bytes, that it was compiled for."""
        budget = self.options.budget
        return budget if isinstance(budget, int) else None

    @property
    def peak(self) -> int | None:
        """Bytes of the largest batch that it was compiled for."""
        return self.report.peak

    @property
    def is_undone(self) -> bool:
        """Whether nothing is left of the last call, which raised."""
        return self._undo.is_undone or not self._is_undoing

    def find_difference(self, call: Call) -> str | None:
        """How a call is another than those that this is for."""
        return None if self._expected is None else self._expected.find_difference(call)

    def holds(self, call: Call) -> bool:
        """Whether the promise of its budget is also for the batch of this call."""
        if self.budget is None or call.size is None:
            return True
        promise = self.report.data["promise"]
        most = next(iter(self._batch.values()), None) if promise is None else promise["holds_to"]
        return most is None or call.size <= most

    def run(self, method: str, arguments: Arguments) -> Any:
        """The result of a method of the script. Raises Refused where it finds that
        it is not for these arguments; then nothing was done."""
        function = getattr(self.script, method)
        layout = self._captured.layout
        tensors, kwargs = arguments.args, arguments.kwargs
        if layout is not None:
            taken = layout.take(arguments)
            if taken is None:
                raise Refused("the arguments are of other types than the example's")
            tensors, kwargs = tuple(taken), {}
        try:
            with self._as_a_whole(method):
                # A step differentiates, whoever asks for it.
                with torch.set_grad_enabled(self.trains or torch.is_grad_enabled()):
                    result = function(*tensors, *arguments.target, **kwargs)
                self.follower.read_back()
        except RuntimeError as error:
            last = str(error).rstrip().rpartition("\n")[2]
            if not last.startswith(_FACT):
                raise
            raise Refused(last.removeprefix(_FACT)) from None
        if self.options.from_host:
            result = _bring_down(method, result)
        if method != "forward":
            return result
        if layout is not None:
            return layout.give(result)
        return result if self._tuples is None else self._tuples.restore(result)

    def with_tile(self, tile: int | None, name: str) -> Specialization:
        """The same program in other tiles, whatever they need; of several plans the next one
        where its own has none so small (None: no tile is)."""
        options = dataclasses.replace(self.options, tile=tile, budget=None, plans=1)
        if "plans" in self.report.data:
            (method,) = find_methods(self.script)
            if (choice := method.step_down(self.script, tile)) is not None:
                choice.set(self.script)
                new = self.fitted(choice.row["budget_bytes"], choice.row, choice.plan.entry)
                new.options = dataclasses.replace(options, tile=new.tile)
                new.report = new.report.with_promise(None)
                return new
        if tile is None:
            raise CompileError("no tile is smaller")
        compiled = _compiler.compile_script(
            self.source,
            self._specs,
            batch=self._batch,
            name=name,
            **dataclasses.asdict(dataclasses.replace(options, guard="raise")),
        )
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.options, new.script, new.tile = options, compiled.module, compiled.tile
        new.report, new.remarks = _report_of(compiled, options), compiled.remarks
        new._share(self.original, self._captured, compiled.module)
        return new

    def fitted(
        self, limit: int, row: dict[str, Any] | None, plan: dict[str, Any] | None
    ) -> Specialization:
        """The same program within another budget, with the tile that its script has for it:
        a row of the report's ``by_tile``, None if the batch is not split; of several plans
        that of ``plan``, one of the report's ``plans``."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.options = dataclasses.replace(self.options, tile=None, budget=limit)
        if row is not None:
            new.tile = int(row["tile"])
            new.report = self.report.at_tile(row, limit, plan)
        elif (promise := self.report.data["promise"]) is not None:
            promise = {**promise, "budget_bytes": limit}
            new.report = self.report.with_promise(promise)
        if self.options.from_host:
            new.report.data["transfers"] = _compiler.describe_transfers(
                self._specs, self.options, self._batch, new.tile
            )
        return new

    def run_source(self, arguments: Arguments) -> Any:
        """What ``source`` returns, in place of the module."""
        layout = self._captured.layout
        if layout is not None:
            return layout.call(self.source, arguments)
        assert self._tuples is not None
        return self._tuples.restore(arguments.call(self.source))

    def copy_for(self, original: nn.Module, copies: Callable[[Any], Any]) -> Specialization:
        """The same for a copy of the original, with tensors of its own."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        source: Any = original if self.source is self.original else copies(self.source)
        new.original, new.source, new.script = original, source, copies(self.script)
        new._captured = dataclasses.replace(self._captured, script=source)
        new._share(original, new._captured, new.script)
        new.follower.bind_all()
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a TorchScript file, which is read back and compared first."""
        options = self.options
        if self.is_trace:
            # A trace may be wrong where the original would have to run.
            options = dataclasses.replace(options, guard="raise")
        with temporary_folder() as folder:
            source = os.path.join(folder, "model.pt")
            _compiler.save_script(self.source, source)
            _compiler.compile_file(
                source, os.fspath(path), self._specs, batch=self._batch, options=options
            )
