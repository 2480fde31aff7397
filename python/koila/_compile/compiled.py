"""The module that ``koila.compile`` returns."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from torch import nn

# As torch.compiler.disable does it, without the import of all of torch.compile.
from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)

from koila import _compiler
from koila._capture.frames import warn_user
from koila._capture.global_hooks import calls_hooks, has_hooks
from koila._capture.inputs import Arguments, Signature, check_host
from koila._capture.structure import flatten, map_tensors
from koila._capture.thread_locks import tracing
from koila._capture.values import has_gradient_hooks
from koila._compile.call_kind import Call
from koila._compile.program_selection import Selection
from koila._compile.recorded_calls import can_record, is_lazy, make_lazy, run_all, step_loss
from koila._compile.specialize_call import Recipe
from koila._compile.specialized_module import Refused, Specialization
from koila._errors import GRADIENTS_STAY, CompileError, OutOfMemoryError, explain_torch
from koila._out_of_memory import is_out_of_memory, let_go, ran_out, release_cached
from koila._report.report import Report

__all__ = ["CompiledModule", "make_module"]


class CompiledModule(nn.Module):
    """A module whose batch runs in tiles.

    Parameters, buffers, submodules and ``state_dict`` are those of the module
    it was made of, which ``original`` is; attributes are read and set there. What
    changes there changes here: tensors are handed on, and after other changes, as
    in another mode, with other arguments, or with a larger batch than was promised,
    a call compiles the module for calls like it. Where that is not possible the
    calls of the original are recorded and run within the budget, as ``koila.lazy``
    does it, or run as they are after a KoilaWarning.

    ``report`` says what the program needs that was compiled last for the mode that
    was asked for, ``tile`` how many samples a tile has (None: the batch is not
    split), ``remarks`` what the compiler decided, and ``script`` is the
    ScriptModule, which needs no koila; ``source`` is the one that was compiled,
    ``options`` how, and ``trains`` whether for steps.
    """

    # Set beside nn.Module, which would register it a second time.
    original: nn.Module
    _recipe: Recipe
    _signature: Signature
    _selection: Selection

    def __init__(self, original: nn.Module, recipe: Recipe, first: Specialization) -> None:
        super().__init__()
        # Not through __setattr__, which sets what is the original's.
        self.__dict__.update(trains=recipe.trains, _recipe=recipe, _warned={})
        self._share(original, first)

    def _share(self, original: nn.Module, first: Specialization) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            self.__dict__[name] = getattr(original, name)
        self.__dict__.update(
            original=original,
            _signature=Signature(original),
            _selection=Selection(original, self._recipe, first),
        )

    @property
    def report(self) -> Report:
        return self._selection.main.report

    @property
    def tile(self) -> int | None:
        return self._selection.main.tile

    @property
    def remarks(self) -> tuple[_compiler.Remark, ...]:
        return self._selection.main.remarks

    @property
    def options(self) -> _compiler.CompileOptions:
        return self._selection.main.options

    @property
    def source(self) -> torch.jit.ScriptModule:
        return self._selection.main.source

    @property
    def script(self) -> torch.jit.ScriptModule:
        return self._selection.main.script

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if calls_hooks() and not has_hooks(self):
            # PyTorch would call those of all modules for this one as well.
            return self.forward(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self._bind(args, kwargs)
        if call is None:
            return self.original(*args, **kwargs)
        if self._needs_gradients(call):
            reason = "grad mode is on and something requires a gradient"
            if not self.trains and self.tile is not None:
                self._refuse(reason)
            return self._run_original(call, lambda given: given.call(self.original), reason)
        return self._run("forward", call, lambda given: run_all(given.call(self.original)))

    # Inside of what torch.compile makes a program of it is a call to Python.
    forward._torchdynamo_disable = True  # type: ignore[attr-defined]

    def train_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One step over the batch: the loss, a tensor of no dims without
        gradient. Gradients are added to ``.grad``. What raises, also Ctrl-C, leaves
        everything as before the step."""
        return self._step("train_step", args, kwargs, self._train_original)  # type: ignore[no-any-return]

    def grads(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """As ``train_step``, and leaves ``.grad`` alone: the loss and a gradient
        for each parameter that required one when this was compiled."""
        return self._step("grads", args, kwargs, self._grads_of_original)  # type: ignore[no-any-return]

    def _step(self, name: str, args: Any, kwargs: Any, untiled: Callable[[Arguments], Any]) -> Any:
        if not self.trains:
            raise CompileError(f"{name}() needs a loss: koila.compile(module, x, y, loss=...)")
        cut = len(args) - 1 if self._recipe.options.loss else len(args)
        call = self._bind(args[:cut], kwargs, args[cut:])
        if call is None:
            return untiled(Arguments(args[:cut], kwargs, args[cut:]))
        if self.tile is not None and any(map(has_gradient_hooks, self.original.parameters())):
            reason = "a weight has hooks, which would see the gradients of each tile"
            self._refuse(reason)
            return self._run_original(call, untiled, reason)
        return self._run(name, call, untiled)

    def _bind(self, args: Any, kwargs: Any, target: tuple[Any, ...] = ()) -> Call | None:
        """None for what ``forward`` does not take, which it says itself, and for a
        part of a module that is traced."""
        if tracing.is_mine():
            return None
        if torch._C._get_tracing_state() is not None or torch.compiler.is_exporting():
            raise CompileError(_NO_PROGRAM)
        try:
            arguments = self._signature.bind(args, kwargs, target)
        except TypeError:
            return None
        call, device = Call(arguments, self._recipe.batch_dim), self._recipe.device
        if device is not None and not is_lazy(call):
            for tensor in call.tensors:
                check_host(tensor, device)
        return call

    def _run(self, name: str, call: Call, untiled: Callable[[Arguments], Any]) -> Any:
        if reason := self._find_obstacle(call):
            self._refuse(reason)
            return self._run_original(call, untiled, reason)
        reason = ""
        for _ in range(2):
            found = self._selection.find(name, call)
            if not isinstance(found, Specialization):
                self._refuse(found)
                return self._run_original(call, untiled, found)
            try:
                return self._run_in_memory(found, name, call)
            except Refused as refused:
                # Another one may be made for it.
                self._selection.drop(found)
                reason = str(refused)
                self._refuse(reason)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise  # the module itself needs more than a tile
                # The module itself raises what PyTorch does, at its own line.
                return self._run_original(call, untiled, "the program raises")
        return self._run_original(call, untiled, reason)

    def _run_in_memory(self, found: Specialization, name: str, call: Call) -> Any:
        """The result of a program, of smaller tiles where memory runs out in these."""
        while True:
            versions = [tensor._version for tensor in call.tensors if not tensor.is_inference()]
            try:
                return found.run(name, call.arguments)
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                failed = let_go(error)
            now = [tensor._version for tensor in call.tensors if not tensor.is_inference()]
            try:
                if now != versions or not found.is_undone or self._recipe.options.guard == "raise":
                    notes = () if found.is_undone else (GRADIENTS_STAY,)
                    raise OutOfMemoryError(explain_torch(failed)[0], None, notes) from failed
                # Outside of the handler, which would keep the tensors of the call.
                release_cached()
                found = self._selection.shrink(found, call, failed)
            finally:
                del failed

    def _find_obstacle(self, call: Call) -> str | None:
        """Why no program stands for a call, whatever its shapes."""
        if calls_hooks():
            return "hooks of all modules are to be called"
        if torch._C._is_any_autocast_enabled() and self._recipe.budget is not None:
            return "autocast is on"
        if any(type(tensor) not in _TENSORS for tensor in call.tensors):
            return "an argument is a tensor of another class"
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "torch.func transforms the call"
        return None

    def _refuse(self, reason: str) -> None:
        """Of a call that the program was not compiled for."""
        if self._recipe.options.guard == "raise":
            raise CompileError(reason)

    def _run_original(self, call: Call, untiled: Callable[[Arguments], Any], reason: str) -> Any:
        """The call of the module itself: within the budget where it can be recorded,
        else after a warning if more than that may be needed."""
        budget, arguments, device = self._recipe.budget, call.arguments, self._recipe.device
        if is_lazy(call):
            pass  # it is being recorded, with a budget of its own
        elif budget is not None and can_record(self.original, call):
            arguments = make_lazy(call, budget, device)
        else:
            if self.tile is not None:
                warn_user(f"{reason}; running the untiled program", self._warned)
            if device is not None:
                arguments = arguments.map(lambda tensor: tensor.to(device))
        found = self._selection.call_original(lambda: untiled(arguments))
        if device is None or is_lazy(call):
            return found
        # What is still lazy comes down when it is computed; gradients stay with the weights.
        if untiled == self._grads_of_original:
            return found[0].cpu(), found[1]
        is_plain = all(type(tensor) is torch.Tensor for tensor in _list_tensors(found))
        return map_tensors(torch.Tensor.cpu, found) if is_plain else found

    def __prepare_scriptable__(self) -> nn.Module:
        if not tracing.is_mine():
            raise CompileError(_NO_PROGRAM)
        return self.original

    def _needs_gradients(self, call: Call) -> bool:
        return torch.is_grad_enabled() and (
            any(tensor.requires_grad for tensor in call.tensors)
            or any(weight.requires_grad for weight in self.original.parameters())
        )

    def _loss_of_original(self, arguments: Arguments) -> torch.Tensor:
        with torch.enable_grad():
            return step_loss(self.original, self._recipe.options.loss, arguments)

    def _train_original(self, arguments: Arguments) -> torch.Tensor:
        loss = self._loss_of_original(arguments)
        loss.backward()  # type: ignore[no-untyped-call]
        return run_all(loss.detach())  # type: ignore[no-any-return]

    def _grads_of_original(self, arguments: Arguments) -> tuple[torch.Tensor, list[torch.Tensor]]:
        weights = self._selection.main.follower.weights
        loss = self._loss_of_original(arguments)
        found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return run_all((loss.detach(), list(found)))  # type: ignore[no-any-return]

    def _refit(
        self,
        budget: int | str,
        limit: int,
        row: dict[str, Any] | None,
        plan: dict[str, Any] | None,
    ) -> None:
        """``koila.fit`` has set tile and plan of the script for another budget."""
        options = dataclasses.replace(self._recipe.options, tile=None)
        self.__dict__["_recipe"] = dataclasses.replace(self._recipe, options=options, budget=budget)
        self._selection.refit(self._recipe, limit, row, plan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a TorchScript file with the same methods and the report, which
        any PyTorch or LibTorch runs; it is read back and compared first.

        Of a module that was traced the file raises where this runs the original: a
        trace may be wrong there. Where its arguments or results are more than
        tensors, the file takes and gives these alone, in their order.
        """
        if (device := self._recipe.device) is not None:
            raise CompileError(
                f"the module was compiled with device={str(device)!r}, by which koila moves its "
                "inputs; a file takes them where its weights are: compile without device= for it"
            )
        self._selection.renew()
        self._selection.main.save(path)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "original" not in self.__dict__:
                raise
            return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith(("koila_tile", "koila_plan")):
            raise AttributeError(
                f"{name} is not set by hand here, or the report would be of other tiles: "
                "koila.fit(module, budget) sets it for a budget"
            )
        if "original" in self.__dict__ and name not in self.__dict__:
            setattr(self.original, name, value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        new: CompiledModule = type(self).__new__(type(self))
        memo[id(self)] = new
        nn.Module.__init__(new)
        original = copy.deepcopy(self.original, memo)
        for name in ("trains", "_recipe", "_warned"):
            new.__dict__[name] = self.__dict__[name]
        new._share(original, self._selection.main.copy_for(original, copy.deepcopy))
        return new

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise CompileError(
            "a compiled module cannot be pickled: store its state_dict() or .original and compile "
            "again, or call its save(path), which writes a TorchScript file"
        )


class CompiledContainer(CompiledModule):
    """Of a module that has parts by number or name, as nn.Sequential."""

    def __getitem__(self, key: Any) -> Any:
        return self.original[key]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self.original)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.original)  # type: ignore[call-overload, no-any-return]

    def __contains__(self, item: Any) -> bool:
        return item in self.original  # type: ignore[operator]


def make_module(original: nn.Module, recipe: Recipe, first: Specialization) -> CompiledModule:
    """The module of a program that was compiled."""
    has_parts = hasattr(type(original), "__len__") and hasattr(type(original), "__getitem__")
    kind = CompiledContainer if has_parts else CompiledModule
    return kind(original, recipe, first)


def _keep_from_dynamo() -> None:
    """torch.compile of a compiled module runs it as it is, with all that it calls."""
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for function in (
        CompiledModule.__call__,
        CompiledModule.forward,
        CompiledModule.train_step,
        CompiledModule.grads,
    ):
        set_code_exec_strategy(function.__code__, skip)


_keep_from_dynamo()

_TENSORS = {torch.Tensor, nn.Parameter}
_NO_PROGRAM = (
    "a compiled module is no program that PyTorch can script, trace or export again: give it "
    ".original, or write what was compiled by .save(path)"
)


def _list_tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    flatten(value, found)
    return found
