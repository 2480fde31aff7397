"""Random TorchScript programs: control flow, and the program as a whole.

Start here; expressions.py, statements.py and containers.py hold the pieces.
"""

import torch

from containers import Containers
from expressions import FEATURES, Info, Var
from program import Argument, Block, Program


class Generator(Containers):
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
            return [self.tensor(f"{one[0]} if {self.condition()} else {other[0]}", info, "a")]
        condition = self.condition()
        name = self.name("a")
        self.define(Var(name, "tensor", info))
        return [f"{name} = {one[0]}", Block([(f"if {condition}:", [f"{name} = {other[0]}"])])]

    def loop_body(self, vars_, most):
        self.frames.append([])
        self.loops += 1
        for var in vars_:
            self.define(var)
        items = self.block(self.random.randrange(1, most + 1))
        if self.has("exits") and self.chance(0.25):
            items.insert(
                self.random.randrange(len(items) + 1),
                Block([(f"if {self.condition()}:", [self.pick(["break", "continue"])])]),
            )
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
            bounds = ["2", "3", "x.size(0)", "x.size(1)", "1, x.size(0)", "0, 4, 2"]
            bounds += [f"{var.name} % 4" for var in self.vars("int")]
            items = self.loop_body([index], 4)
            return [Block([(f"for {index.name} in range({self.pick(bounds)}):", items)])]
        var = self.pick(self.vars("list"))
        element = Var(self.name("e"), "tensor", var.info, fixed=True, foreign=var.foreign)
        if kind == "list":
            items = self.loop_body([element], 3)
            header = f"for {element.name} in {var.name}:"
        elif kind == "enumerate":
            items = self.loop_body([index, element], 3)
            header = f"for {index.name}, {element.name} in enumerate({var.name}):"
        else:
            other = self.pick(self.vars("list"))
            second = Var(self.name("e"), "tensor", other.info, fixed=True, foreign=other.foreign)
            items = self.loop_body([element, second], 3)
            header = f"for {element.name}, {second.name} in zip({var.name}, {other.name}):"
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
        return [f"{counter.name} = 0", Block([(f"while {condition}:", items)])]

    def statement(self):
        weights: list = [
            (self.assign_new, 4),
            (self.assign_view, 3),
            (self.assign_unpacked, 1),
            (self.reassign, 3),
            (self.repeat, 3),
            (self.gather, 1),
        ]
        if self.has("writes"):
            weights.append((self.write, 8))
        if len(self.frames) < 4:
            for name, make in (
                ("if", self.branches),
                ("for", self.for_loop),
                ("while", self.while_loop),
            ):
                if self.has(name):
                    weights.append((make, 2.5 if name != "while" else 1.2))
        if self.has("if"):
            weights.append((self.choose, 1))
        for name, make, weight in (
            ("list", self.lists, 3),
            ("tuple", self.tuples, 1),
            ("dict", self.dicts, 1.5),
            ("ints", self.ints, 1.5),
            ("state", self.states, 2),
            ("calls", self.calls, 1),
        ):
            if self.has(name):
                weights.append((make, weight))
        if self.has("optional") and self.has("if") and len(self.frames) < 4:
            weights.append((self.optionals, 1))
        make = self.random.choices(
            [make for make, _ in weights], [weight for _, weight in weights]
        )[0]
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
        vars_ = [
            var
            for var in self.vars()
            if not var.fixed and var.kind in ("tensor", "list", "tuple", "dict", "int")
        ]
        self.random.shuffle(vars_)
        names = [var.name for var in vars_[: self.random.randrange(2, 7)]]
        return names or ["x"]

    def arguments(self):
        def floats(*shape):
            def make(batch, source):
                extents = [batch if e == "B" else e for e in shape]
                count = 1
                for extent in extents:
                    count *= extent
                return torch.tensor([source.randrange(-12, 13) / 4 for _ in range(count)]).view(
                    extents
                )

            return make

        def spec(*shape):
            return f"float32[{','.join(map(str, shape))}]"

        made = [Argument("x", "Tensor", spec("B", 4, 6), floats("B", 4, 6))]
        self.define(Var("x", "tensor", Info(("B", 4, 6)), foreign=True))
        for name, shape in (("y", ("B", 4, 6)), ("z", ("B", 6)), ("u", ("B", 4, 6)), ("w", (4, 6))):
            if self.chance(0.6):
                made.append(Argument(name, "Tensor", spec(*shape), floats(*shape)))
                self.define(Var(name, "tensor", Info(shape), foreign=True))
        made.append(
            Argument(
                "idx",
                "Tensor",
                "int64[B]",
                lambda batch, source: torch.tensor([source.randrange(4) for _ in range(batch)]),
            )
        )
        made.append(
            Argument(
                "p",
                "Tensor",
                "int64[B]",
                lambda batch, source: torch.tensor(source.sample(range(batch), batch)),
            )
        )
        if self.has("if") and self.chance(0.6):
            made.append(
                Argument("flag", "bool", "true", lambda batch, source: source.random() < 0.5)
            )
            self.define(Var("flag", "bool", fixed=True))
        if self.has("ints") and self.chance(0.6):
            made.append(Argument("n", "int", "3", lambda batch, source: source.randrange(4)))
            self.define(Var("n", "int", fixed=True))
        if self.has("optional") and self.has("if") and self.chance(0.6):
            made.append(
                Argument(
                    "o",
                    "Optional[Tensor]",
                    spec("B", 6),
                    lambda batch, source: (
                        floats("B", 6)(batch, source) if source.random() < 0.6 else None
                    ),
                )
            )
            self.define(Var("o", "optional", Info(("B", 6)), foreign=True))
        if self.has("list") and self.chance(0.4):
            made.append(
                Argument(
                    "many",
                    "List[Tensor]",
                    f"[{spec('B', 6)},{spec('B', 6)}]",
                    lambda batch, source: [floats("B", 6)(batch, source) for _ in range(2)],
                )
            )
            # A list of the caller may not be refilled without being seen.
            self.define(Var("many", "list", Info(("B", 6)), 2, foreign=True))
        if self.has("tuple") and self.chance(0.3):
            made.append(
                Argument(
                    "pair",
                    "Tuple[Tensor, Tensor]",
                    f"({spec('B', 6)},{spec(4, 6)})",
                    lambda batch, source: (
                        floats("B", 6)(batch, source),
                        floats(4, 6)(batch, source),
                    ),
                )
            )
            self.define(Var("pair", "tuple", foreign=True, parts=(Info(("B", 6)), Info((4, 6)))))
        if self.has("dict") and self.chance(0.3):
            made.append(
                Argument(
                    "table",
                    "Dict[str, Tensor]",
                    f"{{'a':{spec('B', 6)}}}",
                    lambda batch, source: {"a": floats("B", 6)(batch, source)},
                )
            )
            self.define(Var("table", "dict", Info(("B", 6)), 0, ("a",), foreign=True))
        return made

    def program(self):
        arguments = self.arguments()
        state, methods, declared = [], [], []
        if self.has("state"):
            declared = ["counter: int", "flag: bool", "items: List[Tensor]"]
            state = [
                "self.counter = 0",
                "self.flag = True",
                "self.weight = torch.nn.Parameter(torch.arange(24.).view(4, 6) / 4 - 3)",
                "self.register_buffer('buf', torch.arange(24.).flip(0).view(4, 6) / 8)",
                # Shares its storage, which archives keep.
                "self.register_buffer('row', self.buf[1])",
                "self.register_buffer('hist', torch.ones(6))",
                "self.items = [torch.ones(4, 6)]",
                "self.sub = Sub()",
            ]
        # Made before the body so that seeds mean the same for every reducer.
        body = self.block(self.budget)
        if self.has("exits") and self.has("if") and self.chance(0.15):
            condition = self.condition()
            inner = self.inner(2)
            names = ", ".join(self.results())
            body += [Block([(f"if {condition}:", [*inner, f"return ({names},)"])])]
            body += self.block(2)
            body += [f"return ({names},)"]
        else:
            body += [f"return ({', '.join(self.results())},)"]
        if self.has("calls"):
            methods = [
                "def part(self, t: Tensor) -> Tensor:\n    return t[0]\n",
                "def touch(self, t: Tensor, by: float) -> Tensor:\n    t.add_(by)\n    return t\n",
            ]
        return Program(arguments, state, methods, body, declared, tuple(sorted(self.features)))


def generate(seed, allowed=FEATURES):
    return Generator(seed, allowed).program()
