"""What a module is beside the values of its weights: read, compared, put back.

A compiled program has taken all of this as it was when it was compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from koila._capture.dispatch_mode import DispatchMode, call_operator
from koila._capture.guards import PLAIN, Guarded, Reading, say_change

__all__ = ["Changes", "Snapshot", "State", "seed", "tensors_of"]

# What says nothing of a call, or is followed apart.
_APART = {
    "training",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_parameters",
    "_buffers",
}
_HOOKS = {
    "_forward_hooks": "forward hooks",
    "_forward_pre_hooks": "forward pre-hooks",
    "_backward_hooks": "backward hooks",
    "_backward_pre_hooks": "backward pre-hooks",
}


class State:
    """Layers, settings, hooks and methods of a module and all its parts.

    ``skip`` are (part, name) of attributes that are followed elsewhere.
    """

    def __init__(self, module: nn.Module, skip: Collection[tuple[int, str]] = ()) -> None:
        self._module = module
        self._skip = skip
        self._read()

    def _read(self) -> None:
        self.parts: list[Guarded] = [
            _PartState(path, part, {key for owner, key in self._skip if owner == id(part)})
            for path, part in self._module.named_modules(remove_duplicate=False)
            if not isinstance(part, torch.jit.ScriptModule)
        ]

    def find_change(self) -> str | None:
        """What is not as it was, in words."""
        return next((change for part in self.parts if (change := part.find_change())), None)

    def keep_changes_of(self, call: Callable[[], Any]) -> Any:
        """What ``call`` returns; what it changes itself is as it should be."""
        is_same = self.find_change() is None
        result = call()
        if is_same and self.find_change() is not None:
            self._read()
        return result


class _PartState(Guarded):
    """The same of one part."""

    def __init__(self, path: str, part: nn.Module, skip: set[str]) -> None:
        self._path, self._part, self._skip = path, part, skip | _APART
        super().__init__()

    def _read(self, reading: Reading) -> dict[str, Any]:
        part = self._part
        kind = type(part)
        # Also what is not compared, as ``training``: whoever follows it is asked.
        for container in (vars(part), part._parameters, part._buffers):
            reading.watch(container)
        reading.guards.append(((kind, "forward"), kind.forward))
        values: dict[str, Any] = {"class": (kind, kind.forward)}
        for key, value in vars(part).items():
            if key not in self._skip:
                values[key] = reading.freeze(value)
        values["parameters"] = _present(part._parameters)
        values["buffers"] = _present(part._buffers)
        return values

    def _describe(self, key: Any, was: dict[Any, Any], now: dict[Any, Any]) -> str:
        return _describe(self._path, key, was, now)


def _present(tensors: dict[str, Any]) -> tuple[str, ...]:
    return tuple([name for name, tensor in tensors.items() if tensor is not None])


def _describe(path: str, key: str, was: dict[str, Any], now: dict[str, Any]) -> str:
    name = f"{path}.{key}" if path else key
    owner = f"'{path}'" if path else "the module"
    if key in _HOOKS:
        return f"{owner} has other {_HOOKS[key]} than when the module was compiled"
    if key == "_modules":
        return f"{owner} has other layers than when the module was compiled"
    if key == "class" or key == "forward":
        return f"{owner} has another forward() than when the module was compiled"
    if key in ("parameters", "buffers"):
        return f"{owner} has other {key} than when the module was compiled"
    if key in was and key in now:
        return say_change(f"'{name}'", was[key], now[key])
    return f"'{name}' is not what it was when the module was compiled"


def seed(devices: Iterable[torch.device]) -> None:
    """Draws on the host and on these GPUs are the same from here on. Unlike with
    ``torch.manual_seed``, those of other GPUs go on."""
    torch.default_generator.manual_seed(0)
    for device in devices:
        torch.cuda.default_generators[device.index or 0].manual_seed(0)


@dataclass
class Changes:
    """What a call did beside its result."""

    # Weights that were written to, and what they became.
    written: dict[str, torch.Tensor] = field(default_factory=dict)
    # Buffers and weights that were assigned anew.
    rebound: set[str] = field(default_factory=set)
    # Attributes of the module that are others now, and whether they are numbers
    # or texts.
    attributes: dict[str, bool] = field(default_factory=dict)


class Snapshot:
    """A module as it is, to which it can be put back."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self._parts = [_Part(path, part) for path, part in module.named_modules()]
        devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
        self._devices = sorted(devices, key=str)

    @contextlib.contextmanager
    def preserved(self, *, watch: bool = False, keep: Collection[str] = ()) -> Iterator[Changes]:
        """The module is afterwards what it was, and random numbers are drawn from
        a fixed seed, without a trace in the generators.

        Of weights, which may be large, those of ``keep`` are copied at once, with
        ``watch`` any that is about to be written to, which makes operations slower,
        and is not for scripts. What is yielded says on exit what the block changed.
        """
        changes = Changes()
        writes = _Writes(self._module, keep)
        with torch.random.fork_rng(devices=self._devices):
            seed(self._devices)
            try:
                with writes if watch else contextlib.nullcontext():
                    yield changes
            finally:
                with torch.no_grad():
                    for part in self._parts:
                        part.restore(changes)
                    for buffer, value in self._buffers:
                        buffer.copy_(value)
                    writes.restore(changes)


class _Part:
    """Attributes of one module, as they were."""

    def __init__(self, path: str, part: nn.Module) -> None:
        self.prefix = f"{path}." if path else ""
        self.attributes = vars(part)
        # A ScriptModule's are not here.
        self.tensors = [
            (tensors, dict(tensors))
            for name in ("_parameters", "_buffers")
            if type(tensors := self.attributes.get(name)) is dict
        ]
        self.saved = dict(self.attributes)
        self.lists = [
            (key, value, value.copy())
            for key, value in self.saved.items()
            if type(value) in (list, dict, set) and key not in ("_parameters", "_buffers")
        ]

    def restore(self, changes: Changes) -> None:
        for tensors, saved in self.tensors:
            if any(tensors.get(name) is not tensor for name, tensor in saved.items()):
                changes.rebound |= {
                    self.prefix + name
                    for name, tensor in saved.items()
                    if tensors.get(name) is not tensor
                }
                tensors.clear()
                tensors.update(saved)
        for key in dict.fromkeys([*self.saved, *self.attributes]):
            was, now = self.saved.get(key, self), self.attributes.get(key, self)
            is_plain = type(was) in PLAIN and type(now) in PLAIN
            if was is not now and not (is_plain and was == now):
                changes.attributes[self.prefix + key] = is_plain
        for key, value, copy in self.lists:
            if len(value) != len(copy) or (
                type(value) is list and any(a is not b for a, b in zip(value, copy, strict=True))
            ):
                changes.attributes[self.prefix + key] = False
            value.clear()
            (value.extend if type(value) is list else value.update)(copy)
        self.attributes.clear()
        self.attributes.update(self.saved)


class _Writes(DispatchMode):
    """Weights that are written to; while it is active, with a copy of each from
    before.

    A mode does not see all of what TorchScript calls, and has some of it raise.
    """

    def __init__(self, module: nn.Module, keep: Collection[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = dict(module.named_parameters())
        self._versions = {name: p._version for name, p in self._weights.items()}
        self._names = {
            p.untyped_storage()._cdata: name
            for name, p in self._weights.items()
            if p.layout == torch.strided
        }
        self._saved: dict[str, torch.Tensor] = {}
        for name in keep:
            self._keep(name)

    def _keep(self, name: str) -> None:
        if name not in self._saved:
            self._saved[name] = self._weights[name].detach().clone()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for place, argument in enumerate(func._schema.arguments):
                if argument.alias_info is None or not argument.alias_info.is_write:
                    continue
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                for tensor in tensors_of([given]):
                    if tensor.layout == torch.strided:
                        name = self._names.get(tensor.untyped_storage()._cdata)
                        if name is not None:
                            self._keep(name)
        return call_operator(func, args, kwargs)

    def restore(self, changes: Changes) -> None:
        for name, weight in self._weights.items():
            saved = self._saved.get(name)
            # Writes through .data have no version.
            if saved is None and weight._version == self._versions[name]:
                continue
            if saved is None or not torch.equal(weight, saved):
                changes.written[name] = weight.detach().clone()
            if saved is not None:
                weight.copy_(saved)


def tensors_of(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those in containers as well."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from tensors_of(value.values())
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)
