"""From an ``nn.Module`` to TorchScript: scripted, else traced and checked."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Sequence

import torch
from torch import nn

from koila._capture.inputs import Inputs
from koila._capture.module_snapshot import Snapshot
from koila._capture.module_trace import Captured, check_hooks, trace_module, warn_of_hooks
from koila._capture.reads import CodeReads
from koila._errors import CompileError, Location, explain_torch, warn_at

__all__ = ["Captured", "ModuleCapture"]

# Why modules of a class cannot be scripted.
_failures: weakref.WeakKeyDictionary[type, tuple[str, Location | None]]
_failures = weakref.WeakKeyDictionary()


class ModuleCapture:
    """What there is of a module as TorchScript, each made when it is asked for.

    A trace needs example tensors, and has less in it than what is scripted: the
    branches that were taken. It is compared with the module at two batch sizes,
    where it ``trains`` also by gradients, within ``limit`` bytes. What ``runs`` is not
    analysed alone, and has to be right in each call. What was ``told`` of is not said
    again.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        *,
        trains: bool = False,
        runs: bool = False,
        limit: int | None = None,
        told: set[Location] | None = None,
    ) -> None:
        self.module = module
        self._limit = limit
        self._told: set[Location] = set() if told is None else told
        self.is_script = isinstance(module, torch.jit.ScriptModule)
        self.can_trace = inputs.examples is not None and inputs.size is not None
        self._inputs = inputs
        self._trains = trains
        self._runs = runs
        if trains and not self.is_script:
            check_hooks(module)

    @functools.cached_property
    def snapshot(self) -> Snapshot:
        """The module before any call."""
        return Snapshot(self.module)

    def script(self) -> Captured:
        """Raises CompileError with the line that TorchScript cannot express."""
        specs = tuple(self._inputs.specs)
        if isinstance(self.module, torch.jit.ScriptModule):
            return Captured(self.module, specs)
        kind = type(self.module)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                script = torch.jit.script(self.module)
        except Exception as error:  # torch raises of every type here
            why, place = explain_torch(error)
        else:
            return Captured(script, specs, CodeReads(self.module))
        # From the second time on PyTorch says only that there was a first.
        if why.startswith("Can't redefine method"):
            why, place = _failures.get(kind, (why, None))
        _failures[kind] = why, place
        raise CompileError(f"TorchScript cannot express {kind.__name__}: {why}", place)

    def trace(self) -> Captured:
        """Raises NoTrace where a trace computes something else."""
        return trace_module(
            self.module, self.snapshot, self._inputs, self._trains, self._limit, self._runs
        )

    def warn_of(self, trace: Captured) -> None:
        """Says what a trace, which is about to be used, cannot follow."""
        decisions = [place for place in trace.decisions if place not in self._told]
        self._told.update(decisions)
        if decisions:
            _warn_of_decisions(type(self.module).__name__, decisions)
        warn_of_hooks(self.module)


def _warn_of_decisions(name: str, places: Sequence[Location]) -> None:
    """One warning of all the code that a trace takes for constant."""
    place = next((p for p in places if "site-packages" not in p.file), places[0])
    listed = ", ".join(f"{other.file}:{other.line}" for other in places[:5])
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    warn_at(
        f"{name} was traced: what Python decides there, by values of tensors, stays as it was "
        f"for a batch of 3: {listed}{more}",
        place.file,
        place.line,
    )
