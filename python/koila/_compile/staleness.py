"""What changes in a module after it was compiled, and in its scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from koila._capture.inputs import Inputs
from koila._capture.module_snapshot import State
from koila._errors import CompileError

__all__ = ["Expected", "Follower"]


class Follower:
    """Keeps the tensors of two scripts those of the original, and knows whether
    that is still what was compiled."""

    def __init__(
        self,
        original: nn.Module,
        source: torch.jit.ScriptModule,
        script: torch.jit.ScriptModule,
        is_trace: bool,
        assigned_by_original: frozenset[str],
    ) -> None:
        self._original = original
        self._assigned_by_original = assigned_by_original
        assigned = _assigned_names(source)
        self._bindings = _bind(original, script, assigned)
        self._assigned = [binding for binding in self._bindings if binding.name in assigned]
        if source is not original:
            self._bindings += _bind(original, source, assigned)
        self._ties = self._find_ties()
        # A trace has taken all of them for constant.
        self._modes = _read_modes(original) if is_trace else None
        # By name: a trace may lack what it did not use.
        self._weights = [name for name, p in script.named_parameters() if p.requires_grad]
        self.renew()

    @property
    def weights(self) -> list[nn.Parameter]:
        """Those that gradients are returned for."""
        parameters = dict(self._original.named_parameters())
        return [parameters[name] for name in self._weights]

    def renew(self) -> None:
        """What the original is now is as it should be."""
        skip = {(id(b.owner), b.name) for b in self._bindings}
        parts = dict(self._original.named_modules())
        for name in self._assigned_by_original:
            path, _, key = name.rpartition(".")
            if path in parts:
                skip.add((id(parts[path]), key))
        self._state = State(self._original, skip)

    def bind_all(self) -> None:
        """Hands on every tensor, to scripts that have others."""
        for binding in self._bindings:
            binding.set()

    def update(self) -> None:
        """Hands on what was replaced in the original. Raises CompileError where
        it is another module than the one that was compiled."""
        replaced = [binding for binding in self._bindings if binding.update()]
        if replaced and self._find_ties() != self._ties:
            raise CompileError(
                "weights that were one when the module was compiled are others now, or the "
                "reverse; compile it again"
            )
        if change := self._state.find_change():
            raise CompileError(f"{change}; compile it again")

    def read_back(self) -> None:
        """What the script assigned in a call, the original gets."""
        if not self._assigned:
            return
        for binding in self._assigned:
            binding.read_back()
        self.renew()
        self.update()

    def find_mode(self) -> str | None:
        """Why a trace is not for this call; None if it is."""
        if self._modes is None or (modes := _read_modes(self._original)) == self._modes:
            return None
        for (path, part), was, now in zip(
            self._original.named_modules(), self._modes, modes, strict=False
        ):
            if was != now:
                where = f"'{path}'" if path else "the module"
                return f"{where} ({type(part).__name__}) is{'' if now else ' not'} in training mode"
        return "the module has other layers"

    def call_original(self, call: Callable[[], Any]) -> Any:
        return self._state.keep_changes_of(call)

    def _find_ties(self) -> list[int]:
        """For each parameter which is the first that is the same."""
        first: dict[int, int] = {}
        named = self._original.named_parameters(remove_duplicate=False)
        return [first.setdefault(id(tensor), place) for place, (_, tensor) in enumerate(named)]


class _Binding:
    """A tensor of the original, or its ``training``, and where a script has it."""

    def __init__(self, owner: nn.Module, name: str, script: Any) -> None:
        self.owner, self.name, self.script = owner, name, script
        self.value = getattr(owner, name)

    def set(self) -> None:
        self.script.setattr(self.name, self.value)

    def update(self) -> bool:
        """Whether there was another."""
        value = getattr(self.owner, self.name, None)
        if value is self.value:
            return False
        if isinstance(self.value, torch.Tensor):
            same = (
                isinstance(value, torch.Tensor)
                and value.shape == self.value.shape
                and value.dtype == self.value.dtype
                and value.device == self.value.device
                and value.stride() == self.value.stride()
            )
            if not same:
                raise CompileError(
                    f"'{self.name}' of {type(self.owner).__name__} was replaced by something of "
                    "another type or shape; compile the module again"
                )
        self.value = value
        self.set()
        return True

    def read_back(self) -> None:
        value = self.script.getattr(self.name)
        if value is not self.value:
            setattr(self.owner, self.name, value)
            self.value = value


def _bind(
    original: nn.Module, script: torch.jit.ScriptModule, assigned: set[str]
) -> list[_Binding]:
    owners = dict(original.named_modules(remove_duplicate=False))
    bindings = []
    for path, part in script.named_modules(remove_duplicate=False):
        # A trace lacks the modules that did nothing.
        owner = owners.get(path)
        if owner is None or owner is part:
            continue
        bindings += [
            _Binding(owner, name, part._c)
            for name in dict.fromkeys([*_tensor_names(owner), "training", *assigned])
            if part._c.hasattr(name) and hasattr(owner, name)
        ]
    return bindings


def _tensor_names(owner: nn.Module) -> list[str]:
    if isinstance(owner, torch.jit.ScriptModule):
        found = [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]
        return [name for name, _ in found]
    attributes = {**owner._parameters, **owner._buffers, **vars(owner)}
    return [name for name, value in attributes.items() if isinstance(value, torch.Tensor)]


def _assigned_names(script: torch.jit.ScriptModule) -> set[str]:
    """Attributes that a call assigns, of any part."""
    # Nodes do not keep their graph.
    graph: Any = script.inlined_graph
    return {node.s("name") for node in graph.findAllNodes("prim::SetAttr", recurse=True)}


def _read_modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


class Expected:
    """What the arguments of a trace were, but for the batch."""

    def __init__(self, inputs: Inputs) -> None:
        self._values = [
            _describe(value, inputs.size, inputs.batch_dim) for value in inputs.examples or ()
        ]
        self._batch_dim = inputs.batch_dim

    def find_difference(self, values: tuple[Any, ...]) -> str | None:
        """How ``values`` are others than a trace is for; None if they are not."""
        if len(values) != len(self._values):
            return f"{len(values)} arguments, and it was traced with {len(self._values)}"
        sizes: set[int] = set()
        for place, (value, wanted) in enumerate(zip(values, self._values, strict=True)):
            if difference := self._compare(value, wanted, sizes):
                return f"argument {place}: {difference}"
        return "arguments have batches of their own" if len(sizes) > 1 else None

    def _compare(self, value: Any, wanted: Any, sizes: set[int]) -> str | None:
        if isinstance(wanted, _Tensor):
            if not isinstance(value, torch.Tensor):
                return f"it is a {type(value).__name__}, and was traced as a tensor"
            found = _describe(value, None, self._batch_dim)
            dims = list(found.dims)
            if wanted.is_batched and len(dims) == len(wanted.dims):
                sizes.add(dims[self._batch_dim])
                dims[self._batch_dim] = wanted.dims[self._batch_dim]
            if (tuple(dims), found.dtype) != (wanted.dims, wanted.dtype):
                return f"{found}, and it was traced as {wanted}"
            return None
        kind = type(wanted)
        # Subclasses, as named tuples, are described as what they are of.
        if not (isinstance(value, kind) if kind in (dict, list, tuple) else type(value) is kind):
            return "it was traced as another type"
        if kind in (dict, list, tuple) and len(value) != len(wanted):
            return f"it has {len(value)} parts, and was traced with {len(wanted)}"
        if isinstance(wanted, dict):
            if value.keys() != wanted.keys():
                return "it was traced with other keys"
            pairs = [(value[key], wanted[key]) for key in wanted]
        elif isinstance(wanted, (list, tuple)):
            pairs = list(zip(value, wanted, strict=True))
        else:
            return None if value == wanted else f"it is {value!r}, and was traced as {wanted!r}"
        return next((found for pair in pairs if (found := self._compare(*pair, sizes))), None)


class _Tensor(NamedTuple):
    dtype: torch.dtype
    dims: tuple[int, ...]
    is_batched: bool

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.dims)}"


def _describe(value: Any, size: int | None, batch_dim: int) -> Any:
    if isinstance(value, torch.Tensor):
        dims = tuple(value.shape)
        return _Tensor(value.dtype, dims, len(dims) > batch_dim and dims[batch_dim] == size)
    if isinstance(value, dict):
        return {key: _describe(item, size, batch_dim) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_describe(item, size, batch_dim) for item in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value
