"""What kind of call a program was compiled for."""

from __future__ import annotations

from typing import NamedTuple

import torch

from koila._capture.inputs import Arguments
from koila._capture.structure import Constant, Container, Leaf, Node, flatten, is_same

__all__ = ["Call", "Expected"]


class Call:
    """The arguments of one call, taken apart: their tensors, and the samples of the
    batch, None where no tensor has dim ``batch_dim``."""

    def __init__(self, arguments: Arguments, batch_dim: int) -> None:
        self.arguments = arguments
        self.tensors: list[torch.Tensor] = []
        self.node = flatten(
            (arguments.args, dict(arguments.kwargs), arguments.target), self.tensors
        )
        self.batch_dim = batch_dim
        self.size = next(
            (int(item.shape[batch_dim]) for item in self.tensors if item.dim() > batch_dim), None
        )

    def is_batched(self, tensor: torch.Tensor) -> bool:
        return tensor.dim() > self.batch_dim and tensor.shape[self.batch_dim] == self.size


class _Tensor(NamedTuple):
    dtype: torch.dtype
    dims: list[int]
    device: torch.device
    is_batched: bool
    requires_grad: bool

    def __str__(self) -> str:
        text = f"{str(self.dtype).removeprefix('torch.')}{self.dims}"
        return text if self.device.type == "cpu" else f"{text} on {self.device}"


class Expected:
    """Calls like one: with its types, shapes and other values, but for the batch;
    for steps that have gradients also in what requires them."""

    def __init__(self, example: Call, trains: bool) -> None:
        self._node = example.node
        self._is_plain = _is_plain(example.node)
        self._trains = trains
        self._batch_dim = example.batch_dim
        self._tensors = [self._describe(item, example.is_batched(item)) for item in example.tensors]

    def _describe(self, tensor: torch.Tensor, is_batched: bool) -> _Tensor:
        return _Tensor(
            tensor.dtype,
            list(tensor.shape),
            tensor.device,
            is_batched,
            self._trains and tensor.requires_grad,
        )

    def find_difference(self, call: Call) -> str | None:
        """How a call is another than these; None if it is not."""
        # Where there are tensors alone, what is equal is the same.
        is_alike = call.node == self._node if self._is_plain else is_same(call.node, self._node)
        if is_alike and len(call.tensors) == len(self._tensors):
            return self._compare_tensors(call)
        return _find_difference(call.node, self._node)

    def _compare_tensors(self, call: Call) -> str | None:
        sizes: set[int] = set()
        for place, (tensor, wanted) in enumerate(zip(call.tensors, self._tensors, strict=True)):
            dims = list(tensor.shape)
            if wanted.is_batched and len(dims) == len(wanted.dims):
                sizes.add(dims[self._batch_dim])
                dims[self._batch_dim] = wanted.dims[self._batch_dim]
            if (
                dims != wanted.dims
                or tensor.dtype != wanted.dtype
                or tensor.device != wanted.device
            ):
                found = self._describe(tensor, False)
                return f"argument {place} is {found}, and the example was {wanted}"
            if self._trains and tensor.requires_grad != wanted.requires_grad:
                has = "requires a gradient" if tensor.requires_grad else "requires no gradient"
                return f"argument {place} {has}, unlike the example"
        return "the arguments have batches of different sizes" if len(sizes) > 1 else None


def _find_difference(found: Node, wanted: Node) -> str:
    """Of calls that are not alike in what is not a tensor."""
    assert isinstance(found, Container) and isinstance(wanted, Container)
    counts = [_count(node.parts[0]) + _count(node.parts[1]) for node in (found, wanted)]
    if counts[0] != counts[1]:
        return f"{counts[0]} arguments, and the example had {counts[1]}"
    pairs = zip(_parts(found.parts[0]), _parts(wanted.parts[0]), strict=False)
    for place, (left, right) in enumerate(pairs):
        if not is_same(left, right) and not isinstance(left, Leaf):
            return f"argument {place} is {_say(left)}, and the example had {_say(right)}"
    return "the arguments are of other types than the example's"


def _is_plain(node: Node) -> bool:
    """Whether it has no values but tensors."""
    if isinstance(node, Container):
        return all(map(_is_plain, (*node.parts, *(part for _, part in node.attributes))))
    return isinstance(node, Leaf)


def _parts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, Container) else ()


def _count(node: Node) -> int:
    return len(_parts(node))


def _say(node: Node) -> str:
    if isinstance(node, Leaf):
        return "a tensor"
    if isinstance(node, Constant):
        text = repr(node.value)
        return text if len(text) < 40 else f"a {type(node.value).__name__}"
    return f"a {node.kind.__name__} of {len(node.parts)} parts"
