"""What changes in a module after it was compiled, and in its scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from koila._capture.guards import Guarded, are_all_unchanged
from koila._capture.module_snapshot import State
from koila._capture.script import Captured

__all__ = ["Follower"]


class Follower:
    """Keeps the tensors of two scripts those of the original, and knows whether
    that is still what was compiled, and in its mode."""

    def __init__(
        self, original: nn.Module, captured: Captured, script: torch.jit.ScriptModule
    ) -> None:
        self._original = original
        self._captured = captured
        source = captured.script
        assigned = _assigned_names(source)
        self._bindings = _bind(original, script, assigned)
        self._assigned = [binding for binding in self._bindings if binding.name in assigned]
        if source is not original:
            self._bindings += _bind(original, source, assigned)
        self._ties = self._find_ties()
        self._modes = _read_modes(original)
        # By name: a trace may lack what it did not use.
        self._weights = [name for name, p in script.named_parameters() if p.requires_grad]
        # The attributes of a ScriptModule are not in Python.
        self._is_script = isinstance(original, torch.jit.ScriptModule)
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
        for name in self._captured.assigned:
            path, _, key = name.rpartition(".")
            if path in parts:
                skip.add((id(parts[path]), key))
        self._state = State(self._original, skip)
        self._guard()

    def _guard(self) -> None:
        reads: list[Guarded] = [] if self._captured.reads is None else [self._captured.reads]
        self._are_unchanged = are_all_unchanged([*self._state.parts, *reads])

    def is_unchanged(self) -> bool:
        """Whether nothing has happened to the original; False says nothing."""
        return not self._is_script and self._are_unchanged()

    def bind_all(self) -> None:
        """Hands on every tensor, to scripts that have others."""
        for binding in self._bindings:
            binding.set()

    def find_mode(self) -> str | None:
        """Why the original is in another mode; None if it is not."""
        modes = _read_modes(self._original)
        for (path, part), was, now in zip(
            self._original.named_modules(), self._modes, modes, strict=False
        ):
            if was != now:
                where = f"'{path}'" if path else "the module"
                return f"{where} ({type(part).__name__}) is{'' if now else ' not'} in training mode"
        return None

    def update(self) -> str | None:
        """Hands on what was replaced in the original; why it is another module than
        the one that was compiled."""
        replaced = False
        for binding in self._bindings:
            if problem := binding.find_problem():
                return problem
            replaced |= binding.update()
        if replaced and self._find_ties() != self._ties:
            return (
                "weights that were one when the module was compiled are others now, or the reverse"
            )
        change = self._state.find_change()
        if change is None and self._captured.reads is not None:
            change = self._captured.reads.find_change()
        self._guard()
        return change

    def read_back(self) -> None:
        """What the script assigned in a call, the original gets; that, and what else
        a call writes to, is as it should be."""
        for binding in self._assigned:
            binding.read_back()
        if not self._is_script and not self._are_unchanged():
            self.renew()
            self.update()

    @property
    def assigns(self) -> bool:
        """Whether a call assigns attributes."""
        return bool(self._assigned)

    def list_assigned(self) -> list[Any]:
        """What the original has now of what calls assign."""
        return [binding.value for binding in self._assigned]

    def assign(self, values: list[Any]) -> None:
        """Puts these back, in the original and in the script."""
        for binding, value in zip(self._assigned, values, strict=True):
            if binding.value is not value:
                setattr(binding.owner, binding.name, value)
                binding.update()
            else:
                binding.set()  # a script that raised may have another one already
        if self._assigned:
            self.renew()

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

    def find_problem(self) -> str | None:
        """Why there cannot be what is there now."""
        value = getattr(self.owner, self.name, None)
        if value is self.value or not isinstance(self.value, torch.Tensor):
            return None
        if (
            isinstance(value, torch.Tensor)
            and value.shape == self.value.shape
            and value.dtype == self.value.dtype
            and value.device == self.value.device
            and value.stride() == self.value.stride()
        ):
            return None
        return (
            f"'{self.name}' of {type(self.owner).__name__} was replaced by something of another "
            "type or shape"
        )

    def update(self) -> bool:
        """Whether there was another."""
        value = getattr(self.owner, self.name, None)
        if value is self.value:
            return False
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
