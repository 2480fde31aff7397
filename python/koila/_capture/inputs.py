"""What a program is called with, from example values to specs."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from koila._capture.structure import flatten, map_tensors
from koila._errors import CompileError

__all__ = ["SYMBOL", "Arguments", "Inputs", "Signature", "find_symbol"]

SYMBOL = "B"


def find_symbol(specs: Sequence[str]) -> str:
    """The symbol that is the batch: B, or the only one."""
    dims = re.findall(r"\[([^\[\]]*)\]", " ".join(specs))
    symbols = set(re.findall(r"[A-Za-z_]\w*", " ".join(dims)))
    return symbols.pop() if len(symbols) == 1 else SYMBOL


@dataclass(frozen=True)
class Arguments:
    """Those of one call of a module, and the target of the loss of a step."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: tuple[Any, ...] = ()

    def call(self, function: Callable[..., Any]) -> Any:
        """Without the target."""
        return function(*self.args, **self.kwargs)

    @property
    def all(self) -> tuple[Any, ...]:
        """All values, for what looks at their tensors."""
        return (*self.args, *self.kwargs.values(), *self.target)

    def tensors(self) -> list[torch.Tensor]:
        leaves: list[torch.Tensor] = []
        flatten(self.all, leaves)
        return leaves

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        return Arguments(
            *map_tensors(function, (self.args, dict(self.kwargs), self.target)),
        )


class Signature:
    """How ``forward`` of a module takes its arguments."""

    def __init__(self, module: nn.Module) -> None:
        self._signature = _signature_of(module)
        self._count = -1
        if self._signature is not None:
            parameters = self._signature.parameters.values()
            kinds = {parameter.kind for parameter in parameters}
            if kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
                self._count = len(parameters)

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: tuple[Any, ...] = ()
    ) -> Arguments:
        """The same call with all that can be positional in its place, and with
        defaults. Raises TypeError for what ``forward`` does not take."""
        if self._signature is None or (not kwargs and len(args) == self._count):
            return Arguments(args, kwargs, target)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Arguments(bound.args, bound.kwargs, target)

    def takes(self, name: str) -> bool:
        """Whether there is a parameter of this name, or any will do."""
        if self._signature is None:
            return True
        parameters = self._signature.parameters
        return name in parameters or any(
            parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
        )


def _signature_of(module: nn.Module) -> inspect.Signature | None:
    """None where PyTorch alone knows."""
    if not isinstance(module, torch.jit.ScriptModule):
        try:
            return inspect.signature(module.forward)
        except (TypeError, ValueError):
            return None
    parameters = []
    method: Any = module.forward
    for argument in method.schema.arguments[1:]:
        has_default = argument.has_default_value()
        parameters.append(
            inspect.Parameter(
                argument.name,
                inspect.Parameter.KEYWORD_ONLY
                if argument.kwarg_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if has_default else inspect.Parameter.empty,
            )
        )
    try:
        return inspect.Signature(parameters)
    except ValueError:
        # Names that Python does not have.
        return None


class Inputs:
    """Specs of the arguments of a call, and of a target, and the size of the batch.

    ``values`` and ``named`` are the arguments, the last of ``values`` the target
    if it ``has_target``. ``examples`` are these, None if specs were given in their
    place, which ``may_be_specs`` allows. Where the module is on a ``device`` of its own, they
    stay on the CPU, and ``resize`` gives what the module takes of them. Raises
    CompileError for what is no input.
    """

    def __init__(
        self,
        values: Sequence[Any],
        batch: int | None,
        batch_dim: int,
        *,
        named: Mapping[str, Any] | None = None,
        signature: Signature | None = None,
        has_target: bool = False,
        may_be_specs: bool = True,
        device: torch.device | None = None,
    ) -> None:
        if isinstance(batch_dim, bool) or not isinstance(batch_dim, int) or batch_dim < 0:
            raise CompileError(f"batch_dim={batch_dim!r} is no number of a dim, counted from 0")
        if batch is not None:
            batch = _check_batch(batch)
        named = named or {}
        if has_target and len(values) + len(named) < 2:
            raise CompileError("with a loss, the inputs are those of the module and a target")
        if has_target and not values:
            raise CompileError("with a loss, the last input without a name is its target")
        self.batch_dim = batch_dim
        self.examples: Arguments | None = None
        self.batch: dict[str, int] = {}
        self.size: int | None = None
        self.device = torch.device("cpu") if device is None else device
        self._moves = self.device.type != "cpu"
        cut = len(values) - 1 if has_target else len(values)
        own, target = tuple(values[:cut]), tuple(values[cut:])
        # None at all: of a file that knows its own.
        texts = [isinstance(value, str) for value in (*values, *named.values())]
        if may_be_specs and all(texts):
            self._given = [str(value) for value in own]
            self._given += [f"{name}={value}" for name, value in named.items()]
            self._given_target = [str(value) for value in target]
            if batch is not None:
                self.batch = {find_symbol([*self._given, *self._given_target]): batch}
            return
        for value in (*values, *named.values()):
            if may_be_specs and isinstance(value, str) and "[" in value:
                raise CompileError(
                    "inputs are either example values or specs as 'float32[B,64]', not both"
                )
        try:
            bind = Arguments if signature is None else signature.bind
            arguments = bind(own, named, target)
        except TypeError as error:
            raise CompileError(f"forward() does not take these inputs: {error}") from None
        tensors = arguments.tensors()
        for tensor in tensors:
            _check_tensor(tensor)
            if self._moves:
                check_host(tensor, self.device)
        if tensors and not self._moves:
            self.device = tensors[0].device
        size = self.size = _batch_size(tensors, batch_dim)
        if size == 0:
            raise CompileError("the examples have no samples; give one at least")
        if size is None and batch_dim:
            raise CompileError(f"batch_dim={batch_dim}: no input has that many dims")
        self.examples = arguments
        if size is not None:
            self.batch = {SYMBOL: size if batch is None else batch}
        elif batch is not None:
            raise CompileError("batch= was given, and no input is a tensor with a batch")

    @classmethod
    def of_call(
        cls,
        arguments: Arguments,
        batch_dim: int,
        batch: int | None = None,
        device: torch.device | None = None,
    ) -> Inputs:
        """With the arguments of a call as the examples."""
        return cls(
            (*arguments.args, *arguments.target),
            batch,
            batch_dim,
            named=arguments.kwargs,
            has_target=bool(arguments.target),
            may_be_specs=False,
            device=device,
        )

    @functools.cached_property
    def specs(self) -> list[str]:
        """Of the arguments of ``forward``. Raises CompileError for objects."""
        if self.examples is None:
            return self._given
        named = [f"{name}={self._spec(item)}" for name, item in self.examples.kwargs.items()]
        return [*map(self._spec, self.examples.args), *named]

    @functools.cached_property
    def target_specs(self) -> list[str]:
        """Of the target of the loss, if there is one."""
        if self.examples is None:
            return self._given_target
        return [self._spec(item) for item in self.examples.target]

    def list_specs(self, tensors: Sequence[torch.Tensor]) -> list[str]:
        """Of these arguments in place of those of ``forward``."""
        return [self._spec(tensor) for tensor in tensors]

    def _spec(self, value: Any) -> str:
        return _make_spec(value, self.size, self.batch_dim)

    def resize(self, size: int) -> Arguments:
        """Copies of the examples with their first ``size`` samples, repeated as
        needed."""
        if self.examples is None or self.size is None:
            raise CompileError("this needs example tensors, not specs")
        return self.examples.map(lambda tensor: self._resize(tensor, size))

    def is_batched(self, tensor: torch.Tensor) -> bool:
        """Whether its dim ``batch_dim`` is the batch."""
        return _is_batched(tensor, self.size, self.batch_dim)

    def list_from_host(self, specs: Sequence[str]) -> tuple[int, ...]:
        """Of the arguments that a program takes by these specs, the places of the tensors that
        go to its device. Raises CompileError for containers of tensors."""
        found = []
        for place, spec in enumerate(specs) if self._moves else ():
            if _TENSOR_SPEC.match(spec):
                found.append(place)
            elif _TENSOR_SPEC.search(spec) or "=" in spec:
                raise CompileError(
                    f"device={str(self.device)!r}: the input {spec} is no tensor by its place, "
                    "and only such are moved; give example values, so that the module can be traced"
                )
        return tuple(found)

    def _resize(self, tensor: torch.Tensor, wanted: int) -> torch.Tensor:
        where = self.device if self._moves else tensor.device
        if not self.is_batched(tensor):
            copy = tensor.detach().to(where, copy=True)
            return copy.requires_grad_(tensor.requires_grad)
        indices = torch.arange(wanted, device=tensor.device) % max(self.size or 0, 1)
        with torch.no_grad():
            resized = tensor.index_select(self.batch_dim, indices).to(where)
        return resized.requires_grad_(tensor.requires_grad)

    def resized_bytes(self, size: int) -> int:
        """What ``resize(size)`` allocates, or little more."""
        leaves = [] if self.examples is None else self.examples.tensors()
        batched = [value for value in leaves if self.is_batched(value)]
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


# `float32[B,64]`, and not a list of such.
_TENSOR_SPEC = re.compile(r"\b[a-z]+\d*\[")


def check_host(tensor: torch.Tensor, device: torch.device) -> None:
    """Raises CompileError for an input that is not on the host, where all is to be."""
    if tensor.device.type != "cpu":
        raise CompileError(
            f"an input is on {tensor.device}, and device={str(device)!r} takes inputs on the CPU; "
            "give them there, or compile without device="
        )


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
    if isinstance(value, str):
        return json.dumps(value)
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
