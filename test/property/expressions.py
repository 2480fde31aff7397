"""What random programs are made of: values, places and conditions.

Tensors keep the shape and element type that they were made with, so that a
branch or one more turn of a loop changes values and storage, never shapes.
Extents are numbers, or texts over the batch B. Values are small multiples of a
quarter, which float32 adds and multiplies without rounding most of the time.
"""

import dataclasses
import random
import re

# What a program may have besides operators and views. Each program takes some.
FEATURES = (
    "writes",
    "if",
    "for",
    "while",
    "list",
    "tuple",
    "dict",
    "ints",
    "state",
    "optional",
    "calls",
    "exits",
    "foreign_writes",
)
ALWAYS = {"writes"}

BASE = re.compile(r"[a-z]+\d*$")


@dataclasses.dataclass(frozen=True)
class Info:
    """A tensor: `dense` is false where elements may share memory, which must
    not be written."""

    shape: tuple
    dtype: str = "f"
    dense: bool = True


@dataclasses.dataclass
class Var:
    name: str
    kind: str
    # Tensors and what containers hold.
    info: Info = None
    # Lists: at least so many elements. Dicts: the keys that are there.
    least: int = 0
    keys: tuple = ()
    parts: tuple = ()
    depth: int = 0
    # Writes to it are seen by the caller.
    foreign: bool = False
    # Loop counters, which must not be assigned.
    fixed: bool = False


def extent_text(extent):
    return str(extent) if isinstance(extent, int) else extent.replace("B", "x.size(0)")


def shape_text(shape):
    return "[" + ", ".join(map(extent_text, shape)) + "]"


def broadcast(one, other):
    """The common shape, or None."""
    rank = max(len(one), len(other))
    pair = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    result = []
    for a, b in pair:
        if a != b and a != 1 and b != 1:
            return None
        result.append(b if a == 1 else a)
    return tuple(result)


def index_text(rank, dim, text):
    return ", ".join([":"] * dim + [text])


class Expressions:
    def __init__(self, seed, allowed=FEATURES):
        self.random = random.Random(seed)
        wanted = self.random.choice((0.3, 0.6, 1.0))
        self.features = {
            name for name in allowed if name in ALWAYS or self.random.random() < wanted
        }
        self.frames = [[]]
        self.counts = {}
        self.pure = []
        self.loops = 0
        self.used = set()
        self.budget = self.random.choice((6, 10, 16, 24))

    # -- Small helpers ------------------------------------------------------

    def has(self, feature):
        return feature in self.features

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, things):
        return self.random.choice(things)

    def name(self, prefix):
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def vars(self, kind=None):
        return [var for frame in self.frames for var in frame if kind is None or var.kind == kind]

    def define(self, var):
        var.depth = len(self.frames)
        self.frames[-1].append(var)
        return var

    def tensor(self, text, info, prefix="t"):
        """A line that defines a variable; the variable is in scope after."""
        name = self.name(prefix)
        self.define(Var(name, "tensor", info))
        return f"{name} = {text}"

    # -- Things that can be read --------------------------------------------

    def places(self, write=False):
        """(text, Info, whether the caller sees writes) of tensors that are
        there without computing anything."""
        found = []
        for var in self.vars():
            if var.kind == "tensor":
                found.append((var.name, var.info, var.foreign))
            elif var.kind == "list" and var.least:
                found.append((f"{var.name}[0]", var.info, var.foreign))
                found.append((f"{var.name}[-1]", var.info, var.foreign))
            elif var.kind == "tuple":
                found += [
                    (f"{var.name}[{i}]", info, var.foreign) for i, info in enumerate(var.parts)
                ]
            elif var.kind == "dict":
                found += [(f"{var.name}['{key}']", var.info, var.foreign) for key in var.keys]
        if self.has("state"):
            found += [
                ("self.buf", Info((4, 6)), True),
                ("self.row", Info((6,)), True),
                ("self.weight", Info((4, 6)), True),
                ("self.sub.mem", Info((6,)), True),
            ]
        if write:
            found = [
                place
                for place in found
                if place[1].dense
                and place[1].dtype == "f"
                and (self.has("foreign_writes") or not place[2])
            ]
            # What was made last has been written least.
            return found + [place for place in found if BASE.match(place[0])][-3:] * 2
        return found

    def place(self, test=lambda info: True, write=False):
        found = [place for place in self.places(write) if test(place[1])]
        return self.pick(found) if found else None

    def integer(self):
        """An integer that is not negative."""
        names = [var.name for var in self.vars("int")]
        options = ["1", "2", "3", "x.size(0)", "x.dim()"]
        options += [f"len({var.name})" for var in self.vars("list")]
        if self.has("state"):
            options.append("self.counter")
        return self.pick(names * 3 + options)

    def index(self, extent):
        """An index below `extent`."""
        bounded = extent_text(extent)
        if self.chance(0.45):
            return self.pick(["0", "-1"] + (["1"] if extent != 1 else []))
        return f"{self.integer()} % {bounded}"

    # -- Views ---------------------------------------------------------------

    def view(self, place):
        """(text, Info) of a view, or None."""
        text, info = place[0], place[1]
        shape, rank = info.shape, len(info.shape)
        kind = self.pick(
            [
                "slice",
                "slice",
                "select",
                "select",
                "transpose",
                "reshape",
                "unsqueeze",
                "expand",
                "narrow",
                "permute",
                "diagonal",
                "step",
                "chunk",
                "same",
                "flatten",
                "alias",
            ]
        )

        def made(suffix, shape, dense=info.dense):
            return text + suffix, Info(tuple(shape), info.dtype, dense)

        if kind == "alias":
            # These return the tensor itself when there is nothing to do.
            suffix = self.pick(
                [
                    ".contiguous()",
                    f".reshape({shape_text(shape)})",
                    f".expand({shape_text(shape)})",
                    f".expand_as({text})",
                    f".view_as({text})",
                    ".detach()",
                    f".type_as({text})",
                ]
            )
            return made(suffix, shape)
        if kind == "same":
            return made(self.pick(["[:]", "[..., :]"]), shape) if rank else None
        if rank == 0:
            return made(".unsqueeze(0)", (1,))
        dim = self.random.randrange(rank)
        extent = shape[dim]

        def with_extent(value):
            return (*shape[:dim], value, *shape[dim + 1 :])

        if kind == "unsqueeze":
            dim = self.random.randrange(rank + 1)
            return made(f".unsqueeze({dim})", (*shape[:dim], 1, *shape[dim:]))
        if kind == "select":
            if rank < 2 and self.chance(0.7):
                return None
            return made(
                f"[{index_text(rank, dim, self.index(extent))}]", shape[:dim] + shape[dim + 1 :]
            )
        if kind in ("slice", "narrow"):
            if not isinstance(extent, int):
                cut = self.pick([(":1", 1), (":2", 2), ("1:2", 1), ("1:", f"({extent} - 1)")])
                return made(f"[{index_text(rank, dim, cut[0])}]", with_extent(cut[1]))
            if extent < 2:
                return None
            start = self.random.randrange(extent)
            end = self.random.randrange(start + 1, extent + 1)
            if kind == "narrow":
                return made(f".narrow({dim}, {start}, {end - start})", with_extent(end - start))
            return made(f"[{index_text(rank, dim, f'{start}:{end}')}]", with_extent(end - start))
        if kind == "step":
            if not isinstance(extent, int) or extent < 2:
                return None
            return made(f"[{index_text(rank, dim, '::2')}]", with_extent((extent + 1) // 2))
        if kind == "expand":
            if extent == 1:
                return made(f".expand({shape_text(with_extent(3))})", with_extent(3), dense=False)
            return made(
                f".unsqueeze({dim}).expand({shape_text((*shape[:dim], 2, *shape[dim:]))})",
                (*shape[:dim], 2, *shape[dim:]),
                dense=False,
            )
        if kind == "chunk":
            if not isinstance(extent, int) or extent % 2:
                return None
            part = self.random.randrange(2)
            form = self.pick([f".chunk(2, {dim})[{part}]", f".split({extent // 2}, {dim})[{part}]"])
            return made(form, with_extent(extent // 2))
        if kind == "reshape":
            if not isinstance(extent, int) or extent not in (4, 6):
                return None
            parts = {4: (2, 2), 6: self.pick([(2, 3), (3, 2)])}[extent]
            new = shape[:dim] + parts + shape[dim + 1 :]
            return made(f".{self.pick(['reshape', 'view'])}({shape_text(new)})", new)
        if rank < 2:
            return None
        other = self.pick([d for d in range(rank) if d != dim])
        if kind == "transpose":
            new = list(shape)
            new[dim], new[other] = new[other], new[dim]
            return made(f".transpose({dim}, {other})", new)
        if kind == "permute":
            order = list(range(rank))
            self.random.shuffle(order)
            return made(f".permute({', '.join(map(str, order))})", [shape[d] for d in order])
        if kind == "diagonal":
            if not (isinstance(extent, int) and isinstance(shape[other], int)):
                return None
            left = [shape[d] for d in range(rank) if d not in (dim, other)]
            return made(f".diagonal(0, {dim}, {other})", [*left, min(extent, shape[other])])
        if kind == "flatten":
            if dim + 1 >= rank or not all(isinstance(e, int) for e in shape[dim : dim + 2]):
                return None
            return made(
                f".flatten({dim}, {dim + 1})",
                (*shape[:dim], extent * shape[dim + 1], *shape[dim + 2 :]),
            )
        return None

    def viewed(self, place, most=2):
        """The place, or a view of it, or a view of a view."""
        for _ in range(self.random.randrange(most + 1)):
            view = self.view(place)
            if view:
                place = (*view, place[2])
        return place

    # -- Expressions ---------------------------------------------------------

    def number(self):
        return self.pick(["0.5", "2.", "-1.", "0.25", "1.", "-0.5"])

    def scalar(self):
        """Something that broadcasts to any shape."""
        if self.chance(0.3):
            return self.integer()
        found = self.place(lambda info: info.dtype == "f")
        if found and self.chance(0.3):
            return f"{found[0]}.{self.pick(['amax()', 'amin()', 'sum()'])}"
        return self.number()

    def unary(self, text):
        return (
            self.pick(
                [
                    "{}.relu()",
                    "torch.relu({})",
                    "-{}",
                    "{}.abs()",
                    "{} * {n}",
                    "{} + {n}",
                    "{}.clamp(-4., 4.)",
                    "{}.clone()",
                    "{}.contiguous()",
                    "{} * {s}",
                    "{} + {s}",
                    "torch.add({}, {n}, alpha=2)",
                    "{} - {s}",
                    "{}.floor()",
                    "torch.sigmoid({})",
                    "{}.neg()",
                    "torch.nn.functional.relu({})",
                    "{n} - {}",
                    "{}.masked_fill({} > {n}, {n2})",
                    "{}.flip(0)",
                    "{}.cumsum(0)",
                ]
            )
            .replace("{n}", self.number())
            .replace("{n2}", self.number())
            .replace("{s}", self.scalar())
            .replace("{}", text)
        )

    def binary(self, one, other):
        return self.pick(
            [
                "{0} + {1}",
                "{0} - {1}",
                "torch.minimum({0}, {1})",
                "torch.maximum({0}, {1})",
                "({0} * {1}).clamp(-8., 8.)",
                "torch.where({0} > {1}, {0}, {1})",
                "torch.add({0}, {1}, alpha=0.5)",
                "torch.lerp({0}, {1}, 0.5)",
                "{0}.sub({1})",
                "torch.where({1} > 0., {0}, {1} + 1.)",
            ]
        ).format(one, other)

    def fresh_tensor(self, shape):
        made = shape_text(shape)
        return self.pick(
            [
                f"torch.zeros({made})",
                f"torch.ones({made})",
                f"torch.full({made}, {self.number()})",
                f"x.new_zeros({made})",
                f"x.new_full({made}, 0.5)",
            ]
        )

    def value(self, shape, depth=2):
        """(text, Info) of a float tensor of this shape."""

        def named(place):
            return place[0], place[1]

        def fits(info):
            return info.dtype == "f" and info.shape == shape

        same = self.place(fits)
        roll = self.random.random()
        if same and (depth == 0 or roll < 0.3):
            return named(same)
        if roll < 0.45:
            # A view that happens to have the shape.
            for _ in range(12):
                found = self.place(lambda info: info.dtype == "f")
                view = self.viewed(found) if found else None
                if view and view[1].shape == shape:
                    return named(view)
        if roll < 0.55:
            reduced = self.reduction(shape)
            if reduced:
                return reduced, Info(shape)
        if depth == 0 or (not same and roll < 0.7):
            if same:
                return named(same)
            found = self.place(
                lambda info: info.dtype == "f" and broadcast(info.shape, shape) == shape
            )
            if found:
                return (f"({found[0]} + {self.fresh_tensor(shape)})", Info(shape))
            found = self.place(lambda info: info.dtype == "f")
            return (
                f"({self.fresh_tensor(shape)} + {found[0]}.sum() * 0.25)"
                if found
                else self.fresh_tensor(shape)
            ), Info(shape)
        one = self.value(shape, depth - 1)[0]
        if roll < 0.75:
            return f"({self.unary(one)})", Info(shape)
        found = self.place(lambda info: info.dtype == "f" and broadcast(info.shape, shape) == shape)
        other = found[0] if found and self.chance(0.5) else self.value(shape, depth - 1)[0]
        return f"({self.binary(one, other)})", Info(shape)

    def reduction(self, shape):
        options = []
        for text, info, _ in self.places():
            for dim in range(len(info.shape)):
                if info.dtype == "f" and info.shape[:dim] + info.shape[dim + 1 :] == shape:
                    options.append((text, dim))
        if not options:
            return None
        text, dim = self.pick(options)
        return self.pick(["{}.sum({})", "{}.amax({})", "{}.amin({})", "torch.mean({}, {})"]).format(
            text, dim
        )

    def pick_shape(self):
        shapes = [info.shape for _, info, _ in self.places() if info.dtype == "f"]
        return self.pick(shapes)

    def condition(self):
        options = ["x.size(0) > 3", "x.size(0) % 2 == 0"]
        for var in self.vars():
            if var.kind == "bool":
                options += [var.name, f"not {var.name}"] * 2
            elif var.kind == "int":
                options += [f"{var.name} % 2 == 0", f"{var.name} > 1"]
            elif var.kind == "list":
                options.append(f"len({var.name}) > {var.least + 1}")
            elif var.kind == "dict":
                options.append(f"'{self.pick('abc')}' in {var.name}")
        if self.has("state"):
            options += ["self.counter % 2 == 0", "self.flag"]
        found = self.place(lambda info: info.dtype == "f")
        if found:
            options += [
                f"bool({found[0]}.sum() > {self.number()})",
                f"{found[0]}.amax() > {self.number()}",
                f"float({found[0]}.sum()) > {self.number()}",
            ]
        one = self.pick(options)
        if self.chance(0.15):
            return f"{one} {self.pick(['and', 'or'])} {self.pick(options)}"
        return one
