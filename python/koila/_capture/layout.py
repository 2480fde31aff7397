"""How the call of a module is one of a trace, which takes and gives tensors alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from koila._capture.inputs import Arguments
from koila._capture.structure import Constant, Container, Leaf, Node, flatten, is_same, rebuild

__all__ = ["Layout"]


class Layout:
    """The arguments of a call, and what it returned, without their tensors.

    A trace has the tensors of the arguments as its own, in their order, and gives
    those of the result: one, or a tuple of several.
    """

    def __init__(self, arguments: Arguments, result: Any) -> None:
        self._arguments = _flatten_arguments(arguments, [])
        results: list[torch.Tensor] = []
        self._result = flatten(result, results)
        self._results = len(results)

    @property
    def has_results(self) -> bool:
        """Whether there is a tensor in what is returned."""
        return self._results > 0

    def take(self, arguments: Arguments) -> list[torch.Tensor] | None:
        """The tensors of a call; None if it differs in anything else."""
        tensors: list[torch.Tensor] = []
        is_alike = is_same(_flatten_arguments(arguments, tensors), self._arguments)
        return tensors if is_alike else None

    def give(self, result: Any) -> Any:
        """What the module returns in place of what a trace did."""
        return rebuild(self._result, (result,) if self._results == 1 else result)

    def call(self, trace: Any, arguments: Arguments) -> Any:
        """The call of a trace in place of the module's."""
        tensors = self.take(arguments)
        assert tensors is not None
        return self.give(trace(*tensors))

    def make_traceable(self, module: nn.Module) -> nn.Module:
        """The module with arguments and results of a trace, if its own are others."""
        if self._is_plain():
            return module
        return _Caller(module, self)

    def _is_plain(self) -> bool:
        args, kwargs = _parts_of(self._arguments)
        takes = [part.place for part in args if isinstance(part, Leaf)]
        if kwargs or takes != list(range(len(args))):
            return False
        if isinstance(self._result, Leaf):
            return True
        if not isinstance(self._result, Container) or self._result.kind is not tuple:
            return False
        gives = [part.place for part in self._result.parts if isinstance(part, Leaf)]
        return len(gives) > 1 and gives == list(range(len(self._result.parts)))

    def call_flat(self, module: nn.Module, tensors: tuple[torch.Tensor, ...]) -> Any:
        """The call of the module in place of a trace's."""
        args, kwargs = rebuild(self._arguments, tensors)
        found: list[torch.Tensor] = []
        node = flatten(module(*args, **kwargs), found)
        if not is_same(node, self._result):
            raise RuntimeError("the module returned something else than before")
        return found[0] if len(found) == 1 else tuple(found)


def _flatten_arguments(arguments: Arguments, tensors: list[torch.Tensor]) -> Node:
    return flatten((arguments.args, dict(arguments.kwargs)), tensors)


def _parts_of(node: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    assert isinstance(node, Container)
    args, kwargs = node.parts
    return (
        () if isinstance(args, Constant) else args.parts,  # type: ignore[union-attr]
        () if isinstance(kwargs, Constant) else kwargs.parts,  # type: ignore[union-attr]
    )


class _Caller(nn.Module):
    """Has everything that a module has, under the same names, and its own call."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        super().__init__()
        own = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}
        self.__dict__.update(
            {name: value for name, value in vars(module).items() if name not in own}
        )
        # Beside nn.Module, which would register it.
        self.__dict__["_koila_call"] = lambda tensors: layout.call_flat(module, tensors)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.__dict__["_koila_call"](tensors)
