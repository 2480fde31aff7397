"""Random calls of operators.

A case is a few statements of TorchScript and the tensors they read; its last
statement is the call under test. Nothing here says which cases are legal or
what they return: who draws them asks PyTorch (draw.py).

A family has a module FAMILY.py beside this one with a dictionary GENERATORS from
schema name (`aten::add.Tensor`) to a function of a Generator that returns a Case,
or None where it has none this time:

    def add(g):
        dims = g.dims(g.rng.randint(0, 4))
        x, y = g.strided(dims, g.dtype()), g.tensor(dims)
        return g.call("r = torch.ops.aten.add(%s, %s)", x, y)

Several results: `r, s = ...`; the elements of a list of tensors likewise. `_` is a
result that a mask leaves out, which nothing reads.
"""

from __future__ import annotations

import dataclasses
import random
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar


@dataclasses.dataclass(frozen=True)
class Batch:
    """An extent of `factor` times the batch."""

    factor: int = 1

    def __str__(self) -> str:
        return "B" if self.factor == 1 else f"{self.factor}*B"


#: An extent of a tensor.
Dim = int | Batch


def extent(dim: Dim, batch: int) -> int:
    return dim.factor * batch if isinstance(dim, Batch) else dim


@dataclasses.dataclass
class Input:
    """An argument. `low` and `high` bound the values of integers: indices."""

    dims: list[Dim]
    dtype: str = "float32"
    channels_last: bool = False
    low: int | None = None
    high: int | None = None

    def spec(self) -> str:
        dims = ",".join(str(dim) for dim in self.dims)
        values = "" if self.low is None else f"{{{self.low}:{self.high}}}"
        layout = "@channels_last" * self.channels_last
        return f"{self.dtype}[{dims}]{values}{layout}"

    def shape(self, batch: int) -> list[int]:
        return [extent(dim, batch) for dim in self.dims]


def read_names(statement: str) -> list[str]:
    """Those that a statement assigns."""
    names = (name.strip() for name in statement.split(" = ")[0].split(","))
    return [name for name in names if name]


@dataclasses.dataclass
class Case:
    """`body` reads x0, x1, ... and assigns the names in `results`."""

    op: str
    body: list[str]
    inputs: list[Input]
    results: list[str]
    #: Draws random numbers: values are not compared.
    random: bool = False
    #: The statements, to run them.
    code: types.CodeType | None = dataclasses.field(default=None, repr=False, compare=False)
    #: What PyTorch says of an illegal call.
    error: str | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def places(self) -> list[int]:
        """Where the results are among all that the call gives."""
        return [place for place, name in enumerate(self.made()) if name != "_"]

    def made(self) -> list[str]:
        return read_names(self.body[-1])

    def follows_batch(self) -> bool:
        return any(isinstance(dim, Batch) for tensor in self.inputs for dim in tensor.dims)

    def __str__(self) -> str:
        specs = " ".join(tensor.spec() for tensor in self.inputs)
        body = "; ".join(self.body).replace("torch.ops.aten.", "")
        return f"{body} for {specs}"


FLOATS = ["float32"] * 7 + ["float64", "float64", "float16", "bfloat16"]
INTEGERS = ["int64"] * 4 + ["int32", "int16", "int8", "uint8"]
ANY = ["float32"] * 6 + ["float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
COMPLEX = ["complex64", "complex128"]


MakeCase = Callable[["Generator"], Case | None]
T = TypeVar("T")


def takes_all(make: MakeCase, does: bool = True) -> MakeCase:
    """Marks a function all of whose calls are legal."""
    vars(make)["takes_all"] = does
    return make


def reads_data(make: MakeCase) -> MakeCase:
    """Marks a function whose calls have results with extents that data decide."""
    vars(make)["data"] = True
    return make


def other_if_empty(make: MakeCase) -> MakeCase:
    """Marks a function whose results have other strides if a batch has no samples."""
    vars(make)["other_if_empty"] = True
    return make


def needs_elements(make: MakeCase) -> MakeCase:
    """Marks a function of whose calls PyTorch dies if a tensor is empty."""
    vars(make)["needs_elements"] = True
    return make


def masked(wanted: Sequence[bool]) -> str:
    """The left side of a call that has the results that are wanted."""
    return ", ".join(name if made else "_" for name, made in zip("rst", wanted, strict=True))


class Generator:
    """Makes one case from a seeded source of numbers.

    `wrong` says that this case had better be illegal: ask spoil() at places
    where an argument can be made so.
    """

    def __init__(
        self,
        op: str,
        rng: random.Random,
        wrong: float = 0.25,
        only: str | None = None,
        most: int = 6,
    ) -> None:
        self.op, self.rng = op, rng
        #: The element type of all tensors, if there is one, and the largest
        #: extent of a matrix.
        self.only, self.most = only, most
        self.inputs: list[Input] = []
        self.prepared: list[str] = []
        self.wrong = rng.random() < wrong
        # Whether extents may follow the batch.
        self.symbolic = rng.random() < 0.6
        self.random = False

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, *values: T) -> T:
        return self.rng.choice(values)

    def spoil(self, probability: float = 0.4) -> bool:
        return self.wrong and self.chance(probability)

    def dtype(self, among: Sequence[str] = ANY) -> str:
        return self.only or self.rng.choice(among)

    # Tensors ---------------------------------------------------------------

    def tensor(
        self,
        dims: Sequence[Dim],
        dtype: str = "float32",
        low: int | None = None,
        high: int | None = None,
        channels_last: bool | None = None,
    ) -> str:
        """An argument as it comes: contiguous, or channels last if 4-D."""
        if channels_last is None:
            channels_last = len(dims) == 4 and self.chance(0.25)
        self.inputs.append(Input(list(dims), dtype, channels_last and len(dims) == 4, low, high))
        return f"x{len(self.inputs) - 1}"

    def strided(
        self,
        dims: Sequence[Dim],
        dtype: str = "float32",
        low: int | None = None,
        high: int | None = None,
    ) -> str:
        """A tensor of these dims that is often not contiguous."""
        dims, kind = list(dims), self.rng.random()
        name = f"p{len(self.prepared)}"
        if kind < 0.55 or not dims:
            return self.tensor(dims, dtype, low, high)
        if kind < 0.8 and len(dims) > 1:
            order = list(range(len(dims)))
            self.rng.shuffle(order)
            source: list[Dim] = [0] * len(dims)
            for place, dim in enumerate(order):
                source[dim] = dims[place]
            x = self.tensor(source, dtype, low, high, channels_last=False)
            self.prepare(f"{name} = torch.ops.aten.permute({x}, {order})")
            return name
        plain = {d: e for d, e in enumerate(dims) if not isinstance(e, Batch)}
        if not plain:
            return self.tensor(dims, dtype, low, high)
        dim = self.rng.choice(list(plain))
        if kind < 0.92:
            source = list(dims)
            step = self.pick(1, 2)
            source[dim] = plain[dim] * step + self.pick(0, 1)
            x = self.tensor(source, dtype, low, high, channels_last=False)
            stop = plain[dim] * step
            self.prepare(f"{name} = torch.ops.aten.slice({x}, {dim}, 0, {stop}, {step})")
            return name
        if dims[dim] == 0:
            return self.tensor(dims, dtype, low, high)
        source = list(dims)
        source[dim] = 1
        sizes = [-1] * len(dims)
        sizes[dim] = dims[dim]
        x = self.tensor(source, dtype, low, high, channels_last=False)
        self.prepare(f"{name} = torch.ops.aten.expand({x}, {sizes})")
        return name

    def prepare(self, statement: str) -> None:
        self.prepared.append(statement)

    def mask(self) -> list[bool]:
        """Which of three gradients are computed; some are."""
        wanted = [self.chance(0.6) for _ in range(3)]
        wanted[self.rng.randrange(3)] |= not any(wanted)
        return wanted

    # Extents ---------------------------------------------------------------

    def batch(self) -> Dim:
        if not self.symbolic:
            return self.rng.randint(1, 4)
        return Batch() if self.chance(0.8) else Batch(2)

    def dims(self, rank: int, low: int = 1, high: int = 6) -> list[Dim]:
        """Extents of which few are zero; the batch most often leads."""
        dims: list[Dim] = [
            0 if self.chance(0.03) else self.rng.randint(low, high) for _ in range(rank)
        ]
        if dims:
            place = 0 if self.chance(0.85) else self.rng.randrange(rank)
            dims[place] = self.batch()
        return dims

    def rank(self, low: int, high: int) -> int:
        if self.spoil(0.3):
            return self.pick(max(low - 1, 0), high + 1)
        return self.rng.randint(low, high)

    def dim(self, rank: int) -> int:
        """A dim of a tensor of that rank, counted from either end."""
        if self.spoil():
            return self.pick(rank + 1, rank + 2, -rank - 2)
        return self.rng.randint(-rank, rank - 1) if rank else self.pick(0, -1)

    def broadcast(self, dims: Sequence[Dim]) -> list[Dim]:
        """Extents that broadcast with `dims`."""
        pick, other = self.rng.random(), list(dims)
        if 0.35 < pick < 0.6:
            other = [1 if self.chance(0.5) else dim for dim in other]
        elif pick > 0.6:
            other = other[self.rng.randint(0, len(other)) :]
            if pick > 0.85:
                other = [1 if self.chance(0.3) else dim for dim in other]
        if other and self.spoil(0.7):
            place = self.rng.randrange(len(other))
            if not isinstance(other[place], Batch):
                other[place] = self.pick(2, 3, 5, 8)
        return other

    # Cases -----------------------------------------------------------------

    def call(self, text: str, *arguments: Any) -> Case:
        """The case whose last statement is `text % arguments`."""
        statement = text % tuple(
            argument if isinstance(argument, str) else repr(argument) for argument in arguments
        )
        return Case(
            self.op,
            [*self.prepared, statement],
            self.inputs,
            [name for name in read_names(statement) if name != "_"],
            self.random,
        )
