"""The module that ``koila.compile`` returns."""

from __future__ import annotations

import ast
import copy
import dataclasses
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn import functional

from koila import _compiler
from koila._capture.frames import warn_user
from koila._capture.inputs import Inputs
from koila._capture.module_snapshot import tensors_of
from koila._capture.script import Captured
from koila._compile.staleness import Expected, Follower
from koila._errors import CompileError
from koila._report.report import Report

__all__ = ["CompiledModule", "step_loss"]


class CompiledModule(nn.Module):
    """A module whose batch runs in tiles.

    Parameters, buffers, submodules and ``state_dict`` are those of the module
    it was made of, which ``original`` is; attributes are read and set there.
    Tensors that are replaced there are replaced here; after other changes calls
    raise CompileError, and it is to be compiled again. Calls that tiles are not
    made for run ``original``, after a KoilaWarning that says why. ``report``
    says what it needs, ``tile`` how many samples a tile has (None: the batch is
    not split), ``remarks`` what the compiler decided, and ``script`` is the
    ScriptModule, which needs no koila; ``source`` is the one that was compiled,
    ``options`` how, and ``trains`` whether for steps.
    """

    # Set beside nn.Module, which would register them a second time.
    original: nn.Module
    source: torch.jit.ScriptModule
    script: torch.jit.ScriptModule

    def __init__(
        self,
        original: nn.Module,
        captured: Captured,
        compiled: _compiler.Compiled,
        inputs: Inputs,
        options: _compiler.CompileOptions,
    ) -> None:
        super().__init__()
        source = captured.script
        # What was a trace when it came is what it is.
        is_trace = source is not original and isinstance(
            source, torch.jit._trace.TopLevelTracedModule
        )
        # Not through __setattr__, which sets what is the original's.
        self.__dict__.update(
            report=Report(compiled.report),
            tile=compiled.tile,
            remarks=compiled.remarks,
            trains=options.mode == "train",
            options=options,
            _specs=inputs.specs,
            _batch=inputs.batch,
            _expected=Expected(inputs) if is_trace else None,
            _warned={},
            _assigned=captured.assigned,
        )
        self._share(original, source, compiled.module)

    def _share(
        self, original: nn.Module, source: torch.jit.ScriptModule, script: torch.jit.ScriptModule
    ) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            self.__dict__[name] = getattr(original, name)
        self.__dict__.update(original=original, source=source, script=script)
        self.__dict__["_follower"] = Follower(
            original, source, script, self._expected is not None, self._assigned
        )

    @property
    def training(self) -> bool:
        return bool(self.original.training) if "original" in self.__dict__ else True

    @training.setter
    def training(self, mode: bool) -> None:
        if "original" in self.__dict__:
            self.original.training = mode

    def train(self, mode: bool = True) -> CompiledModule:
        # A module may have a train() of its own, which leaves layers frozen.
        self.original.train(mode)
        return self

    def forward(self, *inputs: Any) -> Any:
        if self.trains:
            return self._run_original(inputs)
        self._follower.update()
        reason = self._find_reason(inputs)
        if reason is None and self._needs_gradients(inputs):
            # Scripts lack hooks, and traces grad mode; without tiles nothing is
            # lost.
            if self.tile is None:
                return self._run_original(inputs)
            reason = (
                "grad mode is on and something requires a gradient, with which tiles would not "
                "save memory; call it under torch.no_grad()"
            )
        if reason:
            self._refuse(reason)
            return self._run_original(inputs)
        return self._call(self.script, inputs, lambda: self._run_original(inputs))

    def train_step(self, *inputs: Any) -> torch.Tensor:
        """One step over the batch: the loss, a tensor of no dims without
        gradient. Gradients are added to ``.grad``; where a tile raises, those
        before it have added theirs."""
        return self._step("train_step", inputs, self._train_original)  # type: ignore[no-any-return]

    def grads(self, *inputs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """As ``train_step``, and leaves ``.grad`` alone: the loss and a gradient
        for each parameter that required one when this was compiled."""
        return self._step("grads", inputs, self._grads_of_original)  # type: ignore[no-any-return]

    def _step(
        self, name: str, inputs: tuple[Any, ...], untiled: Callable[[tuple[Any, ...]], Any]
    ) -> Any:
        if not self.trains:
            raise CompileError(f"{name}() needs a loss: koila.compile(module, x, y, loss=...)")
        self._follower.update()
        reason = self._find_reason(inputs)
        if self.tile is not None and any(map(_has_hooks, self.original.parameters())):
            reason = "a weight has hooks, which would see the gradients of each tile"
        if reason:
            self._refuse(reason)
            return untiled(inputs)
        return self._call(getattr(self.script, name), inputs, lambda: untiled(inputs))

    def _call(
        self, script: Callable[..., Any], inputs: tuple[Any, ...], untiled: Callable[[], Any]
    ) -> Any:
        try:
            result = script(*inputs)
        except torch.jit.Error as error:
            # Facts are looked at before anything else is done.
            last = str(error).rstrip().rpartition("\n")[2]
            if not last.startswith(_FACT):
                raise
            reason = last.removeprefix(_FACT)
        else:
            self._follower.read_back()
            return result
        self._refuse(reason)
        return untiled()

    def _refuse(self, reason: str) -> None:
        """Of a call that the tiles are not made for."""
        if self.options.guard == "raise":
            raise CompileError(reason)
        warn_user(f"{reason}; running the untiled program", self._warned)

    def _find_reason(self, inputs: tuple[Any, ...]) -> str | None:
        """Why a trace does not stand for the original in this call."""
        if self._expected is None:
            return None
        reason: str | None = self._follower.find_mode()
        return reason or self._expected.find_difference(inputs)

    def _needs_gradients(self, inputs: tuple[Any, ...]) -> bool:
        return torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (*tensors_of(inputs), *self.original.parameters())
        )

    def _run_original(self, inputs: tuple[Any, ...]) -> Any:
        return self._follower.call_original(lambda: self.original(*inputs))

    def _loss_of_original(self, inputs: tuple[Any, ...]) -> torch.Tensor:
        with torch.enable_grad():
            return self._follower.call_original(  # type: ignore[no-any-return]
                lambda: step_loss(self.original, self.options.loss, inputs)
            )

    def _train_original(self, inputs: tuple[Any, ...]) -> torch.Tensor:
        loss = self._loss_of_original(inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _grads_of_original(
        self, inputs: tuple[Any, ...]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        weights = self._follower.weights
        loss = self._loss_of_original(inputs)
        found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return loss.detach(), list(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a TorchScript file with the same methods and the report, which
        any PyTorch or LibTorch runs; it is read back and compared first.

        Of a module that was traced the file raises where this runs the
        original: a trace may be wrong there.
        """
        self._follower.update()
        options = self.options
        if self._expected is not None:
            options = dataclasses.replace(options, guard="raise")
        with tempfile.TemporaryDirectory(prefix="koila-") as folder:
            source = os.path.join(folder, "model.pt")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                torch.jit.save(self.source, source)
            _compiler.compile_file(
                source,
                os.fspath(path),
                self._specs,
                batch=self._batch,
                options=options,
            )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "original" not in self.__dict__:
                raise
            return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "original" in self.__dict__ and name not in self.__dict__:
            setattr(self.original, name, value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        new: CompiledModule = type(self).__new__(type(self))
        memo[id(self)] = new
        nn.Module.__init__(new)
        original = copy.deepcopy(self.original, memo)
        source: Any = original if self.source is self.original else copy.deepcopy(self.source)
        script: Any = copy.deepcopy(self.script)
        for name in _OWN:
            new.__dict__[name] = self.__dict__[name]
        new._share(original, source, script)
        new._follower.bind_all()
        return new

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise CompileError(
            "a compiled module cannot be pickled: store its state_dict() or .original and compile "
            "again, or call its save(path), which writes a TorchScript file"
        )


# What a copy has as it is.
_OWN = ["report", "tile", "remarks", "trains", "options"]
_OWN += ["_specs", "_batch", "_expected", "_warned", "_assigned"]
_FACT = "RuntimeError: koila: "


def _has_hooks(weight: torch.Tensor) -> bool:
    return bool(weight._backward_hooks or weight._post_accumulate_grad_hooks)


def step_loss(module: nn.Module, loss: str | None, inputs: tuple[Any, ...]) -> torch.Tensor:
    """What a step differentiates: ``loss`` is one of ``torch.nn.functional``
    with arguments, of the last input as its target; None: the module's own."""
    if not loss:
        return module(*inputs)  # type: ignore[no-any-return]
    call = ast.parse(loss, mode="eval").body
    options = {}
    if isinstance(call, ast.Call):
        options = {str(keyword.arg): _read_literal(keyword.value) for keyword in call.keywords}
        call = call.func
    function = getattr(functional, ast.unparse(call))
    return function(module(*inputs[:-1]), inputs[-1], **options)  # type: ignore[no-any-return]


def _read_literal(node: ast.expr) -> Any:
    # Texts have no quotes there: reduction=sum.
    if isinstance(node, ast.Name):
        return {"true": True, "false": False, "none": None}.get(node.id.lower(), node.id)
    return ast.literal_eval(node)
