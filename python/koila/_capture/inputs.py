"""What a program is called with, from example values to specs."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import torch

from koila._errors import CompileError

SYMBOL = "B"


def find_symbol(specs: Sequence[str]) -> str:
    """The symbol that is the batch: B, or the only one."""
    dims = re.findall(r"\[([^\[\]]*)\]", " ".join(specs))
    symbols = set(re.findall(r"[A-Za-z_]\w*", " ".join(dims)))
    return symbols.pop() if len(symbols) == 1 else SYMBOL


class Inputs:
    """Specs of the arguments of a call and the size of its batch.

    ``examples`` are the values, None if specs were given in their place.
    """

    def __init__(self, values: Sequence[Any], batch: int | None, batch_dim: int) -> None:
        if isinstance(batch_dim, bool) or not isinstance(batch_dim, int) or batch_dim < 0:
            raise CompileError(f"batch_dim={batch_dim!r} is no number of a dim, counted from 0")
        if batch is not None:
            batch = _check_batch(batch)
        texts = [isinstance(value, str) for value in values]
        self.batch_dim = batch_dim
        self.examples: tuple[Any, ...] | None = None
        self.batch: dict[str, int] = {}
        self.size: int | None = None
        self.device = torch.device("cpu")
        # None at all: of a file that knows its own.
        if all(texts):
            self.specs = [str(value) for value in values]
            if batch is not None:
                self.batch = {find_symbol(self.specs): batch}
            return
        if any(texts):
            raise CompileError(
                "inputs are either example values or specs as 'float32[B,64]', not both"
            )
        tensors = [value for value in _leaves(values) if isinstance(value, torch.Tensor)]
        for tensor in tensors:
            _check_tensor(tensor)
        if tensors:
            self.device = tensors[0].device
        size = self.size = _batch_size(tensors, batch_dim)
        if size == 0:
            raise CompileError("the examples have no samples; give one at least")
        if size is None and batch_dim:
            raise CompileError(f"batch_dim={batch_dim}: no input has that many dims")
        self.specs = [_make_spec(value, size, batch_dim) for value in values]
        self.examples = tuple(values)
        if size is not None:
            self.batch = {SYMBOL: size if batch is None else batch}
        elif batch is not None:
            raise CompileError("batch= was given, and no input is a tensor with a batch")

    def without_last(self) -> Inputs:
        """The inputs of the module alone, where the last one is a target."""
        if len(self.specs) < 2:
            raise CompileError("with a loss, the inputs are those of the module and a target")
        inputs = copy.copy(self)
        inputs.specs = self.specs[:-1]
        inputs.examples = self.examples and self.examples[:-1]
        return inputs

    def resize(self, size: int) -> tuple[Any, ...]:
        """Copies of the examples with their first ``size`` samples, repeated as
        needed."""
        if self.examples is None or self.size is None:
            raise CompileError("this needs example tensors, not specs")
        return tuple(_resize(value, self.size, size, self.batch_dim) for value in self.examples)

    def resized_bytes(self, size: int) -> int:
        """What ``resize(size)`` allocates, or little more."""
        leaves = [value for value in _leaves(self.examples or ()) if torch.is_tensor(value)]
        batched = [value for value in leaves if _is_batched(value, self.size, self.batch_dim)]
        others = sum(value.nbytes for value in leaves) - sum(value.nbytes for value in batched)
        samples = sum(value.nbytes for value in batched) * size // max(self.size or 0, 1)
        return samples + others + 8 * size


# What the analysis can count with.
_LARGEST_BATCH = 1 << 40


def _check_batch(batch: object) -> int:
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise CompileError(f"batch={batch!r} is no number of samples")
    if batch < 1:
        raise CompileError(f"a batch of {batch} has no samples")
    if batch > _LARGEST_BATCH:
        raise CompileError(f"a batch of {batch} is more than {_LARGEST_BATCH} samples")
    return batch


def _check_tensor(tensor: torch.Tensor) -> None:
    kind = None
    if tensor.is_nested:
        kind = "nested"
    elif tensor.layout != torch.strided:
        kind = "sparse"
    elif tensor.is_quantized:
        kind = "quantized"
    elif tensor.device.type == "meta":
        kind = "without data (device 'meta')"
    if kind:
        raise CompileError(f"an example is {kind}; give dense tensors, or specs as 'float32[B,64]'")


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _batch_size(tensors: Sequence[torch.Tensor], batch_dim: int) -> int | None:
    for tensor in tensors:
        if tensor.dim() > batch_dim:
            return int(tensor.shape[batch_dim])
    return None


def _is_batched(tensor: torch.Tensor, size: int | None, batch_dim: int) -> bool:
    return size is not None and tensor.dim() > batch_dim and tensor.shape[batch_dim] == size


def _make_spec(value: Any, size: int | None, batch_dim: int) -> str:
    if isinstance(value, torch.Tensor):
        dims = [str(extent) for extent in value.shape]
        if _is_batched(value, size, batch_dim):
            dims[batch_dim] = SYMBOL
        spec = f"{str(value.dtype).removeprefix('torch.')}[{','.join(dims)}]"
        last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
        if last and not value.is_contiguous():
            spec += "@channels_last"
        return spec + ("@grad" if value.requires_grad else "")
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    parts: list[str]
    if isinstance(value, (list, tuple)):
        parts = [_make_spec(item, size, batch_dim) for item in value]
        text = ",".join(parts)
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, dict):
        parts = [
            f"{_make_key(key)}:{_make_spec(item, size, batch_dim)}" for key, item in value.items()
        ]
        return "{" + ",".join(parts) + "}"
    raise CompileError(f"an input of type {type(value).__name__} cannot be described")


def _make_key(key: Any) -> str:
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise CompileError(f"a dict with keys of type {type(key).__name__} cannot be an input")
    return f'"{key}"' if isinstance(key, str) else str(key)


def _resize(value: Any, size: int, wanted: int, batch_dim: int) -> Any:
    if isinstance(value, torch.Tensor):
        if not _is_batched(value, size, batch_dim):
            return value.detach().clone().requires_grad_(value.requires_grad)
        indices = torch.arange(wanted, device=value.device) % max(size, 1)
        with torch.no_grad():
            resized = value.index_select(batch_dim, indices)
        return resized.requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _resize(item, size, wanted, batch_dim) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_resize(item, size, wanted, batch_dim) for item in value]
        # Of a named tuple the class takes each by itself.
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
