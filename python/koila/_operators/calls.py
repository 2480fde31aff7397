"""Calls of an operator to hold its rules against."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from koila._errors import KoilaError
from koila._operators.rules import OperatorRules, get_name

__all__ = ["EXPANDED", "TRANSPOSED", "Call", "TensorSpec", "find_calls", "parse_inputs"]


#: How a tensor may lie in memory but in rows: with its last two dims swapped, or with all
#: elements of the last dim in one place.
TRANSPOSED, EXPANDED = "transposed in memory", "expanded"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: extents, ``None`` for the batch, and integers below ``limit``."""

    dtype: torch.dtype
    dims: tuple[int | None, ...]
    limit: int = 8
    #: How it lies in memory; empty: in rows.
    layout: str = ""

    @property
    def batch(self) -> int | None:
        """The dim of the batch."""
        return self.dims.index(None) if None in self.dims else None

    @property
    def has_limit(self) -> bool:
        """Whether its elements are integers."""
        is_number = self.dtype.is_floating_point or self.dtype.is_complex
        return not is_number and self.dtype != torch.bool

    def make(self, samples: int, generator: torch.Generator) -> torch.Tensor:
        """Random values, without two that are equal among real numbers."""
        sizes = [samples if extent is None else extent for extent in self.dims]
        extent = sizes[-1] if sizes else 1
        if self.layout == TRANSPOSED:
            sizes[-1], sizes[-2] = sizes[-2], sizes[-1]
        elif self.layout == EXPANDED:
            sizes[-1] = 1
        if self.dtype.is_floating_point or self.dtype.is_complex:
            made = torch.randn(sizes, generator=generator, dtype=torch.float64).to(self.dtype)
        elif self.dtype == torch.bool:
            made = torch.rand(sizes, generator=generator) < 0.5
        else:
            made = torch.randint(self.limit, sizes, generator=generator, dtype=self.dtype)
        if self.layout == TRANSPOSED:
            return made.transpose(-1, -2)
        return made.expand(*sizes[:-1], extent) if self.layout == EXPANDED else made

    def __str__(self) -> str:
        dims = ",".join("B" if extent is None else str(extent) for extent in self.dims)
        limit = "" if self.dtype.is_floating_point else f"{{0:{self.limit}}}"
        layout = f" ({self.layout})" if self.layout else ""
        return f"{str(self.dtype).removeprefix('torch.')}[{dims}]{limit}{layout}"


@dataclass(frozen=True)
class Call:
    """What an operator is called with: specs of tensors, and other values."""

    arguments: tuple[Any, ...]

    def make(self, samples: int, seed: int = 0) -> list[Any]:
        generator = torch.Generator().manual_seed(seed)

        def make(argument: Any) -> Any:
            if isinstance(argument, list):
                return list(map(make, argument))
            is_tensor = isinstance(argument, TensorSpec)
            return argument.make(samples, generator) if is_tensor else argument

        return list(map(make, self.arguments))

    @property
    def has_batch(self) -> bool:
        return any(isinstance(a, TensorSpec) and a.batch is not None for a in self.arguments)

    def vary(self) -> Iterator[Call]:
        """The same with the first tensor of two dims or more that lies otherwise."""
        for at, argument in enumerate(self.arguments):
            if isinstance(argument, TensorSpec) and len(argument.dims) > 1:
                for layout in (TRANSPOSED, EXPANDED):
                    other = TensorSpec(argument.dtype, argument.dims, argument.limit, layout)
                    yield Call((*self.arguments[:at], other, *self.arguments[at + 1 :]))
                return

    def __str__(self) -> str:
        return ", ".join(map(_spell, self.arguments))


def _spell(argument: Any) -> str:
    if isinstance(argument, list):
        return f"[{', '.join(map(_spell, argument))}]"
    return repr(argument) if isinstance(argument, str) else str(argument)


_SPEC = re.compile(r"(?P<dtype>\w+)\[(?P<dims>[\w, ]*)\](?:\{0:(?P<limit>\d+)\})?")


def parse_inputs(operator: torch._ops.OpOverload, texts: Sequence[str]) -> Call:
    """A call from ``float32[B,64]``, ``int64[B]{0:10}``, ``2.5``, ``true``, ``none``,
    ``'mean'`` or ``[1, 2]``, in the order of the schema; arguments that are left out have
    their defaults. KoilaError for what is none of these, and for too many or too few."""
    parameters, name = operator._schema.arguments, get_name(operator)
    if len(texts) > len(parameters):
        raise KoilaError(f"{len(texts)} inputs, and '{name}' has {len(parameters)} arguments")
    arguments = [_parse(text) for text in texts]
    for parameter in parameters[len(texts) :]:
        if not parameter.has_default_value():
            raise KoilaError(
                f"no input for the argument '{parameter.name}' of '{name}' ({operator._schema})"
            )
        arguments.append(parameter.default_value)
    return Call(tuple(arguments))


def _parse(text: str) -> Any:
    simple = {"true": True, "false": False, "none": None}
    if text.lower() in simple:
        return simple[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_parse(part.strip()) for part in _split(text[1:-1])]
    match = _SPEC.fullmatch(text)
    dtype = getattr(torch, match["dtype"], None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise KoilaError(
            f"input '{text}' is no spec, as float32[B,64] or int64[B]{{0:10}}, and no number, "
            "text in quotes, list in brackets, true, false or none"
        )
    dims: list[int | None] = []
    for part in filter(None, (part.strip() for part in match["dims"].split(","))):
        if part == "B":
            dims.append(None)
        elif part.isascii() and part.isdigit():
            dims.append(int(part))
        else:
            raise KoilaError(f"input '{text}': an extent is a number, or B for the batch")
    if dims.count(None) > 1:
        raise KoilaError(f"input '{text}': one dim is the batch")
    return TensorSpec(dtype, tuple(dims), int(match["limit"] or 8))


def _split(text: str) -> list[str]:
    """At the commas outside of brackets and braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


_FLOAT = torch.float32
_FIRST = (
    TensorSpec(_FLOAT, (None, 8)),
    TensorSpec(_FLOAT, (None, 6, 8)),
    TensorSpec(_FLOAT, (None, 4, 8, 8)),
    TensorSpec(_FLOAT, (None,)),
    TensorSpec(torch.int64, (None, 8)),
)
_OTHER = (
    TensorSpec(_FLOAT, (8,)),
    TensorSpec(_FLOAT, (8, 8)),
    TensorSpec(_FLOAT, (4,)),
    TensorSpec(_FLOAT, (4, 4, 3, 3)),
    TensorSpec(_FLOAT, ()),
    TensorSpec(torch.int64, (None,)),
    TensorSpec(torch.bool, (None, 8)),
)
_VALUES = {"int": (1, 2), "float": (0.5,), "bool": (True, False), "number": (0.5,)}
# Tried before koila gives up, and kept of those that the operator takes.
_MOST_TRIES, _MOST_CALLS = 400, 4


def find_calls(rules: OperatorRules) -> list[Call]:
    """Calls that the operator takes. KoilaError if none of those that koila makes up is."""
    found: list[Call] = []
    last = ""
    for call in itertools.islice(_make_up(rules), _MOST_TRIES):
        try:
            positional, named = rules.bind(call.make(3))
            with torch.no_grad():
                rules.operator(*positional, **named)
        except Exception as error:
            last = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        found.append(call)
        if len(found) == _MOST_CALLS:
            break
    if not found:
        raise KoilaError(
            f"'{rules.name}' takes none of the calls that koila makes up ({last}): say what it is "
            f"called with, an --input for each argument of {rules.operator._schema}"
        )
    return found


def _make_up(rules: OperatorRules) -> Iterator[Call]:
    for first in _FIRST:
        yield from map(Call, itertools.product(*_list_choices(rules, first)))


def _list_choices(rules: OperatorRules, first: TensorSpec) -> Iterator[Sequence[Any]]:
    is_first = True
    for parameter in rules.parameters:
        kind = str(parameter.type)
        if kind == "Tensor":
            yield [first] if is_first else [first, *_OTHER]
            is_first = False
        elif parameter.has_default_value():
            yield [parameter.default_value]
        elif kind.startswith("Optional"):
            yield [None]
        elif kind in _VALUES:
            yield _VALUES[kind]
        else:
            raise KoilaError(
                f"koila makes up no {kind} for the argument '{parameter.name}' of '{rules.name}': "
                f"give an --input for each argument of {rules.operator._schema}"
            )
