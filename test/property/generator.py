"""Random TorchScript programs.

Tensors keep the shape and element type that they were made with, so that a
branch or one more turn of a loop changes values and storage, never shapes.
Extents are numbers, or texts over the batch B. Values are small multiples of a
quarter, which float32 adds and multiplies without rounding most of the time.
"""

import dataclasses
import random
import re

import torch

from program import NAME, Argument, Block, Program

# What a program may have besides operators and views. Each program takes some.
FEATURES = ("writes", "if", "for", "while", "list", "tuple", "dict", "ints",
            "state", "optional", "calls", "exits", "foreign_writes")
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
    return (str(extent) if isinstance(extent, int)
            else extent.replace("B", "x.size(0)"))


def shape_text(shape):
    return "[" + ", ".join(map(extent_text, shape)) + "]"


def broadcast(one, other):
    """The common shape, or None."""
    rank = max(len(one), len(other))
    pair = zip((1,) * (rank - len(one)) + one,
               (1,) * (rank - len(other)) + other)
    result = []
    for a, b in pair:
        if a != b and a != 1 and b != 1:
            return None
        result.append(b if a == 1 else a)
    return tuple(result)


def index_text(rank, dim, text):
    return ", ".join([":"] * dim + [text])


class Generator:
    def __init__(self, seed, allowed=FEATURES):
        self.random = random.Random(seed)
        wanted = self.random.choice((0.3, 0.6, 1.0))
        self.features = {name for name in allowed if name in ALWAYS
                         or self.random.random() < wanted}
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
        return [var for frame in self.frames for var in frame
                if kind is None or var.kind == kind]

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
                found += [(f"{var.name}[{i}]", info, var.foreign)
                          for i, info in enumerate(var.parts)]
            elif var.kind == "dict":
                found += [(f"{var.name}['{key}']", var.info, var.foreign)
                          for key in var.keys]
        if self.has("state"):
            found += [("self.buf", Info((4, 6)), True),
                      ("self.row", Info((6,)), True),
                      ("self.weight", Info((4, 6)), True),
                      ("self.sub.mem", Info((6,)), True)]
        if write:
            found = [place for place in found if place[1].dense
                     and place[1].dtype == "f"
                     and (self.has("foreign_writes") or not place[2])]
            # What was made last has been written least.
            return found + [place for place in found
                            if BASE.match(place[0])][-3:] * 2
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
        kind = self.pick(["slice", "slice", "select", "select", "transpose",
                          "reshape", "unsqueeze", "expand", "narrow",
                          "permute", "diagonal", "step", "chunk", "same",
                          "flatten", "alias"])

        def made(suffix, shape, dense=info.dense):
            return text + suffix, Info(tuple(shape), info.dtype, dense)

        if kind == "alias":
            # These return the tensor itself when there is nothing to do.
            suffix = self.pick(
                [".contiguous()", f".reshape({shape_text(shape)})",
                 f".expand({shape_text(shape)})", f".expand_as({text})",
                 f".view_as({text})", ".detach()", f".type_as({text})"])
            return made(suffix, shape)
        if kind == "same":
            return made(self.pick(["[:]", "[..., :]"]), shape) if rank else None
        if rank == 0:
            return made(".unsqueeze(0)", (1,))
        dim = self.random.randrange(rank)
        extent = shape[dim]

        def with_extent(value):
            return shape[:dim] + (value,) + shape[dim + 1:]

        if kind == "unsqueeze":
            dim = self.random.randrange(rank + 1)
            return made(f".unsqueeze({dim})",
                        shape[:dim] + (1,) + shape[dim:])
        if kind == "select":
            if rank < 2 and self.chance(0.7):
                return None
            return made(f"[{index_text(rank, dim, self.index(extent))}]",
                        shape[:dim] + shape[dim + 1:])
        if kind in ("slice", "narrow"):
            if not isinstance(extent, int):
                cut = self.pick([(":1", 1), (":2", 2), ("1:2", 1),
                                 ("1:", f"({extent} - 1)")])
                return made(f"[{index_text(rank, dim, cut[0])}]",
                            with_extent(cut[1]))
            if extent < 2:
                return None
            start = self.random.randrange(extent)
            end = self.random.randrange(start + 1, extent + 1)
            if kind == "narrow":
                return made(f".narrow({dim}, {start}, {end - start})",
                            with_extent(end - start))
            return made(f"[{index_text(rank, dim, f'{start}:{end}')}]",
                        with_extent(end - start))
        if kind == "step":
            if not isinstance(extent, int) or extent < 2:
                return None
            return made(f"[{index_text(rank, dim, '::2')}]",
                        with_extent((extent + 1) // 2))
        if kind == "expand":
            if extent == 1:
                return made(f".expand({shape_text(with_extent(3))})",
                            with_extent(3), dense=False)
            return made(f".unsqueeze({dim}).expand("
                        f"{shape_text(shape[:dim] + (2,) + shape[dim:])})",
                        shape[:dim] + (2,) + shape[dim:], dense=False)
        if kind == "chunk":
            if not isinstance(extent, int) or extent % 2:
                return None
            part = self.random.randrange(2)
            form = self.pick([f".chunk(2, {dim})[{part}]",
                              f".split({extent // 2}, {dim})[{part}]"])
            return made(form, with_extent(extent // 2))
        if kind == "reshape":
            if not isinstance(extent, int) or extent not in (4, 6):
                return None
            parts = {4: (2, 2), 6: self.pick([(2, 3), (3, 2)])}[extent]
            new = shape[:dim] + parts + shape[dim + 1:]
            return made(f".{self.pick(['reshape', 'view'])}"
                        f"({shape_text(new)})", new)
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
            return made(f".permute({', '.join(map(str, order))})",
                        [shape[d] for d in order])
        if kind == "diagonal":
            if not (isinstance(extent, int) and isinstance(shape[other], int)):
                return None
            left = [shape[d] for d in range(rank) if d not in (dim, other)]
            return made(f".diagonal(0, {dim}, {other})",
                        left + [min(extent, shape[other])])
        if kind == "flatten":
            if dim + 1 >= rank or not all(
                    isinstance(e, int) for e in shape[dim:dim + 2]):
                return None
            return made(f".flatten({dim}, {dim + 1})",
                        shape[:dim] + (extent * shape[dim + 1],)
                        + shape[dim + 2:])
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
        return self.pick([
            "{}.relu()", "torch.relu({})", "-{}", "{}.abs()", "{} * {n}",
            "{} + {n}", "{}.clamp(-4., 4.)", "{}.clone()", "{}.contiguous()",
            "{} * {s}", "{} + {s}", "torch.add({}, {n}, alpha=2)",
            "{} - {s}", "{}.floor()", "torch.sigmoid({})", "{}.neg()",
            "torch.nn.functional.relu({})", "{n} - {}", "{}.masked_fill({} > "
            "{n}, {n2})", "{}.flip(0)", "{}.cumsum(0)"]).replace(
                "{n}", self.number()).replace("{n2}", self.number()).replace(
                    "{s}", self.scalar()).replace("{}", text)

    def binary(self, one, other):
        return self.pick([
            "{0} + {1}", "{0} - {1}", "torch.minimum({0}, {1})",
            "torch.maximum({0}, {1})", "({0} * {1}).clamp(-8., 8.)",
            "torch.where({0} > {1}, {0}, {1})", "torch.add({0}, {1}, "
            "alpha=0.5)", "torch.lerp({0}, {1}, 0.5)", "{0}.sub({1})",
            "torch.where({1} > 0., {0}, {1} + 1.)"]).format(one, other)

    def fresh_tensor(self, shape):
        made = shape_text(shape)
        return self.pick([f"torch.zeros({made})", f"torch.ones({made})",
                          f"torch.full({made}, {self.number()})",
                          f"x.new_zeros({made})", f"x.new_full({made}, 0.5)"])

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
            found = self.place(lambda info: info.dtype == "f" and broadcast(
                info.shape, shape) == shape)
            if found:
                return (f"({found[0]} + {self.fresh_tensor(shape)})",
                        Info(shape))
            found = self.place(lambda info: info.dtype == "f")
            return (f"({self.fresh_tensor(shape)} + {found[0]}.sum() * 0.25)"
                    if found else self.fresh_tensor(shape)), Info(shape)
        one = self.value(shape, depth - 1)[0]
        if roll < 0.75:
            return f"({self.unary(one)})", Info(shape)
        found = self.place(lambda info: info.dtype == "f" and broadcast(
            info.shape, shape) == shape)
        other = (found[0] if found and self.chance(0.5)
                 else self.value(shape, depth - 1)[0])
        return f"({self.binary(one, other)})", Info(shape)

    def reduction(self, shape):
        options = []
        for text, info, _ in self.places():
            for dim in range(len(info.shape)):
                if (info.dtype == "f" and info.shape[:dim]
                        + info.shape[dim + 1:] == shape):
                    options.append((text, dim))
        if not options:
            return None
        text, dim = self.pick(options)
        return self.pick(["{}.sum({})", "{}.amax({})", "{}.amin({})",
                          "torch.mean({}, {})"]).format(text, dim)

    def pick_shape(self):
        shapes = [info.shape for _, info, _ in self.places()
                  if info.dtype == "f"]
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
            options += [f"bool({found[0]}.sum() > {self.number()})",
                        f"{found[0]}.amax() > {self.number()}",
                        f"float({found[0]}.sum()) > {self.number()}"]
        one = self.pick(options)
        if self.chance(0.15):
            return f"{one} {self.pick(['and', 'or'])} {self.pick(options)}"
        return one

    # -- Statements ----------------------------------------------------------

    def assign_new(self):
        """A new tensor."""
        text, info = self.value(self.pick_shape())
        if self.chance(0.5):
            self.pure.append((text, info))
        # A bare name makes an alias.
        return [self.tensor(text, info)]

    def assign_view(self):
        place = self.place()
        view = self.viewed(place, 2)
        self.pure.append((view[0], view[1]))
        line = self.tensor(view[0], view[1], "v")
        self.frames[-1][-1].foreign = place[2]
        return [line]

    def assign_unpacked(self):
        """`a, b = t.chunk(2, 1)`, `a, b, c, d = t.unbind(1)`."""
        found = self.place(lambda info: info.dtype == "f"
                           and any(e in (2, 4, 6) for e in info.shape))
        if not found:
            return []
        text, info, foreign = found
        dim = self.pick([d for d, e in enumerate(info.shape)
                         if e in (2, 4, 6)])
        extent, shape = info.shape[dim], info.shape
        if self.chance(0.5) and extent < 6:
            parts = extent
            new = shape[:dim] + shape[dim + 1:]
            call = f"{text}.unbind({dim})"
        else:
            parts = 2
            new = shape[:dim] + (extent // 2,) + shape[dim + 1:]
            call = self.pick([f"{text}.chunk(2, {dim})",
                              f"torch.split({text}, {extent // 2}, {dim})"])
        if self.has("list") and self.chance(0.4):
            name = self.name("l")
            self.define(Var(name, "list", Info(new, "f", info.dense), parts,
                            foreign=foreign))
            return [f"{name} = list({call})" if "unbind" in call
                    and self.chance(0.3) else f"{name} = {call}"]
        names = [self.name("v") for _ in range(parts)]
        for name in names:
            self.define(Var(name, "tensor", Info(new, "f", info.dense),
                            foreign=foreign))
        return [f"{', '.join(names)} = {call}"]

    def reassign(self):
        """Another value for a variable: of a fresh tensor or an alias."""
        options = [var for var in self.vars("tensor")
                   if not var.fixed and var.info.dtype == "f"
                   and var.name != "x"]
        if not options:
            return []
        var = self.pick(options)
        text, info = self.value(var.info.shape)
        if not info.dense and var.info.dense:
            text = f"{text}.clone()"
        return [f"{var.name} = {text}"]

    def repeat(self):
        """An expression that was computed before, for CSE."""
        known = {var.name for var in self.vars()} | {"torch", "self"}

        def in_scope(text):
            return all(name in known or not BASE.fullmatch(name)
                       or name.isalpha() and len(name) > 1
                       for name in NAME.findall(text))

        options = [pair for pair in self.pure if in_scope(pair[0])]
        if not options:
            return []
        text, info = self.pick(options[-4:] if self.chance(0.5) else options)
        return [self.tensor(text, info, "r")]

    def write(self):
        """An operator that writes a tensor or a view of one."""
        found = self.place(write=True)
        if not found:
            return []
        text, info, _ = self.viewed(found, 2)
        if not info.dense:
            text, info, _ = found
        shape, rank = info.shape, len(info.shape)

        def operand():
            if self.chance(0.3):
                other = self.place(lambda i: i.dtype == "f" and broadcast(
                    i.shape, shape) == shape)
                if other:
                    return other[0]
            return self.value(shape, 1)[0]

        self.used.add("write")
        forms = ["{}.add_({v})", "{}.add_({n})", "{}.sub_({v})",
                 "{}.mul_({n})", "{}.copy_({v})", "{}.relu_()", "{}.neg_()",
                 "{}.clamp_(-4., 4.)", "{}.fill_({n})", "{}.zero_()",
                 "{}.masked_fill_({v} > {n}, {n})", "torch.relu_({})",
                 "{}.add_({v}, alpha=2)", "{}.abs_()", "{}.add_({s})",
                 "{}.add_({n}).mul_(0.5)", "{}.copy_({n2})",
                 "{}.add_({}.flip(0))" if rank else "{}.add_(1.)",
                 "torch.nn.functional.relu({}, inplace=True)",
                 "{}.minimum({v}).add_(1.)", "torch.add({}, {v}, out={})"]
        # `a += b` needs a name, an attribute or a subscript on the left.
        # Elements of tuples and lists that operators make cannot be assigned.
        part_of = any(text.startswith(f"{var.name}[") and text.count("[") == 1
                      for var in self.vars("tuple"))
        if not part_of and (BASE.match(text) or re.search(
                r"\w\[[^][()]*\]$", text)):
            forms += ["{} += {v}", "{} -= {n}", "{} *= {n}"] * 2
            if rank or text.endswith("]"):
                forms += ["{set} = {v}", "{set} = {n}"] * 2
        if rank:
            dim = self.random.randrange(rank)
            extent = shape[dim]
            at = index_text(rank, dim, self.index(extent))
            part = shape[:dim] + shape[dim + 1:]
            sub = f"{text}[{at}]"
            given = self.value(part, 1)[0]
            forms += [f"{sub} = {given}", f"{sub} += {given}",
                      f"{sub} = {self.number()}", f"{sub}.copy_({given})"] * 2
            forms += [f"{text}[{text} > {self.number()}] = {self.number()}",
                      f"{text}.cumsum_({dim})",
                      f"{text}.index_fill_({dim}, torch.tensor([0]), 2.)"]
            if dim == 0 and extent == "B":
                forms += [f"{text}.index_add_(0, p, {self.value(shape, 1)[0]})"
                          ] * 2
                forms += [f"{text}.index_copy_(0, p, "
                          f"{self.value(shape, 1)[0]})"]
            if dim == 0 and isinstance(extent, int) and extent >= 4:
                # idx has the batch as its only extent.
                source = self.value(("B",) + shape[1:], 1)[0]
                forms += [f"{text}.index_put_((idx,), {source}, True)",
                          f"{text}.index_add_(0, idx, {source})"] * 2
                forms += [f"{text}[idx] = {self.number()}"]
            if rank == 2 and extent in (4, 6) and dim == 1 and shape[0] == "B":
                forms += [f"{text}.scatter_(1, idx.unsqueeze(1), "
                          f"{self.number()})",
                          f"{text}.scatter_add_(1, idx.unsqueeze(1), "
                          f"{self.value(('B', 1), 1)[0]})",
                          f"{text}.scatter_(1, (idx % {extent}).unsqueeze(1),"
                          f" {self.value(('B', 1), 1)[0]})"] * 2
        form = self.pick(forms)
        subscript = text if text.endswith("]") else f"{text}[:]"
        for key, make in (("{set}", lambda: subscript), ("{v}", operand),
                          ("{n2}", self.number), ("{s}", self.scalar)):
            while key in form:
                form = form.replace(key, make(), 1)
        while "{n}" in form:
            form = form.replace("{n}", self.number(), 1)
        line = form.replace("{}", text)
        if line.count("=") == 0 and self.chance(0.15):
            # What the operator returns is the tensor that it wrote.
            return [self.tensor(line, info, "w")]
        return [line]

    def gather(self):
        """Operators that read by an index tensor."""
        found = self.place(lambda info: info.dtype == "f" and info.shape
                           and (info.shape[0] == 4 or info.shape[0] == 6))
        if found:
            text, info, _ = found
            new = ("B",) + info.shape[1:]
            call = self.pick([f"{text}[idx]",
                              f"{text}.index_select(0, idx)",
                              f"torch.index_select({text}, 0, idx + 0)"])
            self.pure.append((call, Info(new)))
            return [self.tensor(call, Info(new))]
        return []

    def ints(self):
        options = [var for var in self.vars("int") if not var.fixed]
        if options and self.chance(0.6):
            var = self.pick(options)
            return [self.pick([
                f"{var.name} += {self.integer()}", f"{var.name} += 1",
                f"{var.name} = ({var.name} + {self.integer()}) % 7",
                f"{var.name} = {var.name} * 2 % 5"])]
        text = self.pick(["0", "1", self.integer(),
                          f"{self.integer()} + {self.integer()}"])
        name = self.name("k")
        self.define(Var(name, "int"))
        return [f"{name} = {text}"]

    def lists(self):
        options = self.vars("list")
        if not options or self.chance(0.3):
            info = Info(self.pick_shape())
            name = self.name("l")
            values = [self.value(info.shape, 1)
                      for _ in range(self.random.randrange(3))]
            dense = all(value[1].dense for value in values)
            if values:
                line = f"{name} = [{', '.join(v[0] for v in values)}]"
            elif self.chance(0.5) and (found := self.place(
                    lambda i: i == info)):
                # The element type comes from the comprehension.
                line = f"{name} = [{found[0]} * {self.number()} " \
                       f"for _ in range({self.pick([2, 3])})]"
                values = [0, 0]
            else:
                line = f"{name}: List[Tensor] = []"
            self.define(Var(name, "list", Info(info.shape, "f", dense),
                            len(values)))
            return [line]
        var = self.pick(options)
        name, shape = var.name, var.info.shape

        def element():
            text, info = self.value(shape, 1)
            if var.info.dense and not info.dense:
                text += ".clone()"
            return text

        def more():
            if var.depth == len(self.frames):
                var.least += 1

        if var.least == 0 or self.chance(0.35):
            text = element()
            form = self.pick([f"{name}.append({text})"] * 4
                             + [f"{name}.insert(0, {text})",
                                f"{name}.extend([{text}])",
                                f"{name} += [{text}]"])
            more()
            return [form]
        forms = [f"{name}[0] = {element()}", f"{name}[-1] = {element()}",
                 f"{name}.reverse()"]
        if self.has("writes") and var.info.dense and (
                not var.foreign or self.has("foreign_writes")):
            forms += [f"{name}[0].add_({self.number()})",
                      f"{name}[-1].mul_({self.number()})",
                      f"{name}[{self.integer()} % len({name})]"
                      f".add_({element()})",
                      f"{name}[0] += {self.number()}"] * 2
        roll = self.random.random()
        if roll < 0.25:
            new = Info(shape)
            text = self.pick([f"torch.stack({name}).sum(0)",
                              f"torch.stack({name}).amax(0)",
                              f"{name}[{self.integer()} % len({name})]",
                              f"{name}[-1] + {name}[0]"])
            return [self.tensor(text, new)]
        if roll < 0.35:
            other = self.name("l")
            form = self.pick([f"{name}", f"{name}[:1]", f"{name} + {name}",
                              f"[e * 0.5 for e in {name}]",
                              f"list({name})"])
            least = 1 if form.endswith("[:1]") else var.least
            self.define(Var(other, "list", var.info, least,
                            foreign=var.foreign))
            return [f"{other} = {form}"]
        if roll < 0.45:
            taken = f"{name}.pop({self.pick(['', '0'])})"
            inner = [taken]
            if self.has("writes") and var.info.dense and not var.foreign:
                popped = self.name("v")
                inner = [f"{popped} = {taken}", f"{popped}.add_(1.)"]
            return [Block([(f"if len({name}) > {var.least + 1}:", inner)])]
        return [self.pick(forms)]

    def tuples(self):
        options = self.vars("tuple")
        if options and self.chance(0.5):
            var = self.pick(options)
            names = []
            for info in var.parts:
                names.append(self.name("v"))
                self.define(Var(names[-1], "tensor", info,
                                foreign=var.foreign))
            return [f"{', '.join(names)} = {var.name}"]
        values = [self.value(self.pick_shape(), 1)
                  for _ in range(self.pick([2, 2, 3]))]
        name = self.name("p")
        self.define(Var(name, "tuple",
                        parts=tuple(value[1] for value in values)))
        return [f"{name} = ({', '.join(value[0] for value in values)})"]

    def dicts(self):
        options = self.vars("dict")
        if not options or self.chance(0.3):
            shape = self.pick_shape()
            name = self.name("d")
            keys = self.pick([("a",), ("a", "b")])
            values = [self.value(shape, 1) for _ in keys]
            dense = all(value[1].dense for value in values)
            self.define(Var(name, "dict", Info(shape, "f", dense), 0, keys))
            pairs = ", ".join(f"'{key}': {value[0]}"
                              for key, value in zip(keys, values))
            return [f"{name} = {{{pairs}}}"]
        var = self.pick(options)
        name, key = var.name, self.pick(var.keys)
        text, info = self.value(var.info.shape, 1)
        if var.info.dense and not info.dense:
            text += ".clone()"
        forms = [f"{name}['{key}'] = {text}",
                 f"{name}['{self.pick('abc')}'] = {text}"]
        if self.has("writes") and var.info.dense:
            forms += [f"{name}['{key}'].add_({self.number()})",
                      f"{name}['{key}'] += {text}"] * 2
        if self.chance(0.3):
            return [self.tensor(f"{name}['{key}']", var.info, "v")]
        if self.chance(0.25):
            line = self.pick(["sum", "write"])
            value = self.name("e")
            body = ([f"{value}.add_(1.)"] if line == "write"
                    and self.has("writes") and var.info.dense
                    else [f"{name}['{key}'] = {name}['{key}'] + {value}"])
            return [Block([(self.pick([
                f"for {value} in {name}.values():",
                f"for {self.name('s')}, {value} in {name}.items():"]),
                body)])]
        return [self.pick(forms)]

    def states(self):
        options = [
            ["self.counter += 1"],
            [f"self.counter = (self.counter + {self.integer()}) % 9"],
            ["self.flag = not self.flag"],
            [f"self.flag = {self.condition()}"],
        ]
        value = self.value((4, 6), 1)
        text = value[0] if value[1].dense else f"{value[0]}.clone()"
        if self.has("foreign_writes"):
            options += [[f"self.buf.add_({value[0]})"],
                        [f"self.buf[{self.index(4)}] = {self.number()}"],
                        [f"self.row.add_({self.number()})"],
                        [f"self.sub.mem.mul_({self.number()})"],
                        [f"self.buf.copy_({value[0]})"],
                        [f"self.buf = {text}"],
                        [f"self.hist = {self.value((6,), 1)[0]}.clone()"],
                        ["self.items.append(self.buf.clone())"],
                        [f"self.items.append({text})"],
                        ["self.items[0].add_(1.)"],
                        [self.tensor("self.items[-1]", Info((4, 6)), "v")]]
            if not options[-1][0].startswith("v"):
                options.pop()
        options.append([self.tensor("self.hist", Info((6,)), "v")])
        chosen = self.pick(options)
        # Only what was chosen is defined.
        for lines in options:
            if lines is not chosen and lines[0].split(" = ")[0].startswith(
                    "v"):
                self.forget(lines[0].split(" = ")[0])
        for var in self.frames[-1]:
            if var.name == chosen[0].split(" = ")[0]:
                var.foreign = True
        return chosen

    def forget(self, name):
        self.frames[-1] = [var for var in self.frames[-1]
                           if var.name != name]

    def optionals(self):
        options = self.vars("optional")
        if not options or self.chance(0.2):
            info = Info(self.pick_shape())
            name = self.name("o")
            text = self.value(info.shape, 1)[0]
            self.define(Var(name, "optional", info))
            lines = [f"{name}: Optional[Tensor] = None"]
            return lines + [Block([(f"if {self.condition()}:",
                                    [f"{name} = {text}"])])]
        var = self.pick(options)
        held = self.name("v")
        self.frames.append([])
        self.define(Var(held, "tensor", var.info, foreign=var.foreign))
        inner = [f"{held} = {var.name}"] + self.block(2)
        self.frames.pop()
        test = f"if {var.name} is not None:"
        if self.chance(0.4):
            return [Block([(test, inner), ("else:", self.inner(1))])]
        return [Block([(test, inner)])]

    def calls(self):
        found = self.place(lambda info: info.dtype == "f"
                           and len(info.shape) > 0, write=True)
        if not found:
            return []
        text, info, foreign = found
        shape = info.shape
        options = [(f"self.part({text})", Info(shape[1:]), foreign)]
        if self.has("writes"):
            options += [(f"self.touch({text}, {self.number()})",
                         Info(shape), foreign)] * 2
        if self.has("state") and self.has("foreign_writes") and (
                shape[-1] == 6):
            options += [(f"self.sub({text})", Info(shape), False)] * 2
        call, new, seen = self.pick(options)
        line = self.tensor(call, new, "c")
        self.frames[-1][-1].foreign = seen
        return [line]

    # -- Control flow --------------------------------------------------------

    def inner(self, most):
        self.frames.append([])
        items = self.block(self.random.randrange(1, most + 1))
        self.frames.pop()
        return items

    def branches(self):
        parts = [(f"if {self.condition()}:", self.inner(3))]
        if self.chance(0.2):
            parts.append((f"elif {self.condition()}:", self.inner(2)))
        if self.chance(0.6):
            parts.append(("else:", self.inner(3)))
        if self.has("exits") and self.chance(0.1):
            parts.append(("else:", ["raise RuntimeError('never')"]))
            parts = [("if x.size(0) > 0:", parts[0][1]), parts[-1]]
        return [Block(parts)]

    def choose(self):
        """One of two tensors, which writes go through afterwards."""
        shape = self.pick_shape()
        one, other = self.value(shape, 0), self.value(shape, 0)
        dense = one[1].dense and other[1].dense
        info = Info(shape, "f", dense)
        if self.chance(0.4):
            return [self.tensor(
                f"{one[0]} if {self.condition()} else {other[0]}", info, "a")]
        condition = self.condition()
        name = self.name("a")
        self.define(Var(name, "tensor", info))
        return [f"{name} = {one[0]}",
                Block([(f"if {condition}:", [f"{name} = {other[0]}"])])]

    def loop_body(self, vars_, most):
        self.frames.append([])
        self.loops += 1
        for var in vars_:
            self.define(var)
        items = self.block(self.random.randrange(1, most + 1))
        if self.has("exits") and self.chance(0.25):
            items.insert(self.random.randrange(len(items) + 1), Block([
                (f"if {self.condition()}:",
                 [self.pick(["break", "continue"])])]))
        self.loops -= 1
        self.frames.pop()
        return items

    def for_loop(self):
        if self.loops > 1:
            return []
        options = ["range"] * 4
        if self.vars("list"):
            options += ["list", "enumerate", "zip"]
        kind = self.pick(options)
        index = Var(self.name("i"), "int", fixed=True)
        if kind == "range":
            bounds = ["2", "3", "x.size(0)", "x.size(1)", "1, x.size(0)",
                      "0, 4, 2"]
            bounds += [f"{var.name} % 4" for var in self.vars("int")]
            items = self.loop_body([index], 4)
            return [Block([(f"for {index.name} in range("
                            f"{self.pick(bounds)}):", items)])]
        var = self.pick(self.vars("list"))
        element = Var(self.name("e"), "tensor", var.info, fixed=True,
                      foreign=var.foreign)
        if kind == "list":
            items = self.loop_body([element], 3)
            header = f"for {element.name} in {var.name}:"
        elif kind == "enumerate":
            items = self.loop_body([index, element], 3)
            header = (f"for {index.name}, {element.name} in "
                      f"enumerate({var.name}):")
        else:
            other = self.pick(self.vars("list"))
            second = Var(self.name("e"), "tensor", other.info, fixed=True,
                         foreign=other.foreign)
            items = self.loop_body([element, second], 3)
            header = (f"for {element.name}, {second.name} in "
                      f"zip({var.name}, {other.name}):")
        return [Block([(header, items)])]

    def while_loop(self):
        if self.loops > 1:
            return []
        counter = self.define(Var(self.name("j"), "int", fixed=True))
        step = f"{counter.name} += 1"
        bound = self.pick(["2", "3", "x.size(0)"])
        condition = f"{counter.name} < {bound}"
        if self.chance(0.4):
            condition += f" and ({self.condition()})"
        items = self.loop_body([], 4)
        # Before anything that could leave the turn early.
        items.insert(0, step)
        return [f"{counter.name} = 0", Block([(f"while {condition}:",
                                               items)])]

    def statement(self):
        weights = [(self.assign_new, 4), (self.assign_view, 3),
                   (self.assign_unpacked, 1), (self.reassign, 3),
                   (self.repeat, 3), (self.gather, 1)]
        if self.has("writes"):
            weights.append((self.write, 8))
        if len(self.frames) < 4:
            for name, make in (("if", self.branches), ("for", self.for_loop),
                               ("while", self.while_loop)):
                if self.has(name):
                    weights.append((make, 2.5 if name != "while" else 1.2))
        if self.has("if"):
            weights.append((self.choose, 1))
        for name, make, weight in (
                ("list", self.lists, 3), ("tuple", self.tuples, 1),
                ("dict", self.dicts, 1.5), ("ints", self.ints, 1.5),
                ("state", self.states, 2), ("calls", self.calls, 1)):
            if self.has(name):
                weights.append((make, weight))
        if self.has("optional") and self.has("if") and len(self.frames) < 4:
            weights.append((self.optionals, 1))
        make = self.random.choices([make for make, _ in weights],
                                   [weight for _, weight in weights])[0]
        return make()

    def block(self, count):
        items = []
        for _ in range(count):
            if self.budget <= 0 and items:
                break
            made = self.statement()
            self.budget -= len(made)
            items += made
        return items or self.assign_new()

    # -- The whole -----------------------------------------------------------

    def results(self):
        """What is returned: what was made last, and some of the rest."""
        vars_ = [var for var in self.vars() if not var.fixed
                 and var.kind in ("tensor", "list", "tuple", "dict", "int")]
        self.random.shuffle(vars_)
        names = [var.name for var in vars_[:self.random.randrange(2, 7)]]
        return names or ["x"]

    def arguments(self):
        def floats(*shape):
            def make(batch, source):
                extents = [batch if e == "B" else e for e in shape]
                count = 1
                for extent in extents:
                    count *= extent
                return torch.tensor([source.randrange(-12, 13) / 4
                                     for _ in range(count)]).view(extents)
            return make

        def spec(*shape):
            return f"float32[{','.join(map(str, shape))}]"

        made = [Argument("x", "Tensor", spec("B", 4, 6), floats("B", 4, 6))]
        self.define(Var("x", "tensor", Info(("B", 4, 6)), foreign=True))
        for name, shape in (("y", ("B", 4, 6)), ("z", ("B", 6)),
                            ("u", ("B", 4, 6)), ("w", (4, 6))):
            if self.chance(0.6):
                made.append(Argument(name, "Tensor", spec(*shape),
                                     floats(*shape)))
                self.define(Var(name, "tensor", Info(shape), foreign=True))
        made.append(Argument(
            "idx", "Tensor", "int64[B]", lambda batch, source: torch.tensor(
                [source.randrange(4) for _ in range(batch)])))
        made.append(Argument(
            "p", "Tensor", "int64[B]", lambda batch, source: torch.tensor(
                source.sample(range(batch), batch))))
        if self.has("if") and self.chance(0.6):
            made.append(Argument("flag", "bool", "true",
                                 lambda batch, source: source.random() < 0.5))
            self.define(Var("flag", "bool", fixed=True))
        if self.has("ints") and self.chance(0.6):
            made.append(Argument("n", "int", "3",
                                 lambda batch, source: source.randrange(4)))
            self.define(Var("n", "int", fixed=True))
        if self.has("optional") and self.has("if") and self.chance(0.6):
            made.append(Argument(
                "o", "Optional[Tensor]", spec("B", 6), lambda batch, source:
                floats("B", 6)(batch, source) if source.random() < 0.6
                else None))
            self.define(Var("o", "optional", Info(("B", 6)), foreign=True))
        if self.has("list") and self.chance(0.4):
            made.append(Argument(
                "many", "List[Tensor]", f"[{spec('B', 6)},{spec('B', 6)}]",
                lambda batch, source: [floats("B", 6)(batch, source)
                                       for _ in range(2)]))
            # A list of the caller may not be refilled without being seen.
            self.define(Var("many", "list", Info(("B", 6)), 2, foreign=True))
        if self.has("tuple") and self.chance(0.3):
            made.append(Argument(
                "pair", "Tuple[Tensor, Tensor]",
                f"({spec('B', 6)},{spec(4, 6)})", lambda batch, source: (
                    floats("B", 6)(batch, source),
                    floats(4, 6)(batch, source))))
            self.define(Var("pair", "tuple", foreign=True,
                            parts=(Info(("B", 6)), Info((4, 6)))))
        if self.has("dict") and self.chance(0.3):
            made.append(Argument(
                "table", "Dict[str, Tensor]", f"{{'a':{spec('B', 6)}}}",
                lambda batch, source: {"a": floats("B", 6)(batch, source)}))
            self.define(Var("table", "dict", Info(("B", 6)), 0, ("a",),
                            foreign=True))
        return made

    def program(self):
        arguments = self.arguments()
        state, methods, declared = [], [], []
        if self.has("state"):
            declared = ["counter: int", "flag: bool", "items: List[Tensor]"]
            state = [
                "self.counter = 0", "self.flag = True",
                "self.weight = torch.nn.Parameter("
                "torch.arange(24.).view(4, 6) / 4 - 3)",
                "self.register_buffer('buf', "
                "torch.arange(24.).flip(0).view(4, 6) / 8)",
                # Shares its storage, which archives keep.
                "self.register_buffer('row', self.buf[1])",
                "self.register_buffer('hist', torch.ones(6))",
                "self.items = [torch.ones(4, 6)]",
                "self.sub = Sub()"]
        # Made before the body so that seeds mean the same for every reducer.
        body = self.block(self.budget)
        if self.has("exits") and self.has("if") and self.chance(0.15):
            condition = self.condition()
            inner = self.inner(2)
            names = ", ".join(self.results())
            body += [Block([(f"if {condition}:",
                             inner + [f"return ({names},)"])])]
            body += self.block(2)
            body += [f"return ({names},)"]
        else:
            body += [f"return ({', '.join(self.results())},)"]
        if self.has("calls"):
            methods = ["def part(self, t: Tensor) -> Tensor:\n    return t[0]"
                       "\n",
                       "def touch(self, t: Tensor, by: float) -> Tensor:\n"
                       "    t.add_(by)\n    return t\n"]
        return Program(arguments, state, methods, body, declared,
                       tuple(sorted(self.features)))


def generate(seed, allowed=FEATURES):
    return Generator(seed, allowed).program()
