"""Random MLIR modules of koila's and upstream dialects, the same for the same seed.

Types are kept in mind, so that most modules are valid; attributes of koila, element
types and extents are odd ones now and then. A module may have errors.
"""

ELEMENTS = ["f32"] * 8 + ["f64", "f16", "bf16", "i64", "i64", "i32", "i1", "ui8", "complex<f32>"]
ODD_ELEMENTS = [
    "index",
    "i7",
    "i128",
    "f8E4M3FN",
    "f4E2M1FN",
    "vector<4xf32>",
    "!koila.any",
    "ui64",
]
EXTENTS = ["4"] * 4 + ["8", "1", "0", "?", "?", "3", "4611686018427387904"]
NUMBERS = ["0", "1", "2", "3", "4", "5", "-1", "64", "127", "-128", "9223372036854775807"]
EXPRESSIONS = [
    "B",
    "B",
    "B",
    "2*B",
    "B*S",
    "4",
    "-B",
    "B - 100",
    "floordiv(B, 2)",
    "mod(B, 3)",
    "min(B, S)",
    "max(B - 4, 0)",
    "floordiv(B, S - S)",
    "9223372036854775807*B",
    "B*B*B*B*B*B*B*B",
    "((((B))))",
]
FACTS = [
    "extent {value} : {type} [{number}] is #koila.expr<{expression}>",
    "rank {value} : {type} is {number}",
    "dtype {value} : {type} is {element}",
    "contiguous {value} : {type} is true",
    'device {value} : {type} is "cpu"',
    "training is false",
    "training is true",
    'attribute "a.b" is {number}',
    "value {value} : {type} is {number}",
    "value {value} : {type} is unit",
]
BINARY = [
    "addi",
    "subi",
    "muli",
    "floordivsi",
    "divui",
    "remui",
    "minsi",
    "maxsi",
    "minui",
    "andi",
    "ori",
    "xori",
    "shli",
    "shrui",
]
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


class Module:
    """One module as text. `wide`: with dialects that only mlir-opt knows."""

    def __init__(self, rng, wide):
        self.rng, self.wide = rng, wide
        self.lines, self.count, self.depth = [], 0, 0
        # Lists of (name, type), of each region around.
        self.scopes = []

    def chance(self, share):
        return self.rng.random() < share

    def pick(self, items):
        return self.rng.choice(items)

    def add(self, text):
        self.lines.append("  " * (self.depth + 1) + text)

    def new(self, kind):
        self.count += 1
        name = f"%v{self.count}"
        self.scopes[-1].append((name, kind))
        return name

    def values(self, test):
        return [value for scope in self.scopes for value in scope if test(value[1])]

    def find(self, test):
        found = self.values(test)
        # The last ones make longer chains.
        return self.pick(found[-4:] if self.chance(0.6) else found) if found else None

    def element(self):
        return self.pick(ODD_ELEMENTS) if self.chance(0.03) else self.pick(ELEMENTS)

    def tensor(self):
        rank = self.pick([0, 1, 1, 2, 2, 3])
        dims = "".join(self.pick(EXTENTS) + "x" for _ in range(rank))
        encoding = ', "odd"' if self.chance(0.01) else ""
        return f"tensor<{dims}{self.element()}{encoding}>"

    def unknown(self, kind):
        """`kind`, or a type that says less."""
        return self.pick([kind, kind, "tensor<*x!koila.any>"])

    def number(self, kind):
        found = self.find(lambda other: other == kind)
        if found and self.chance(0.7):
            return found[0]
        value = self.new(kind)
        text = self.pick(["true", "false"]) if kind == "i1" else f"{self.pick(NUMBERS)} : {kind}"
        if kind in ("i8",) and "9223372036854775807" in text:
            text = f"7 : {kind}"
        self.add(f"{value} = arith.constant {text}")
        return value

    # One operation each.

    def arithmetic(self):
        kind = self.pick(["index", "index", "i64", "i64", "i8", "i1"])
        lhs, rhs = self.number(kind), self.number(kind)
        self.add(f"{self.new(kind)} = arith.{self.pick(BINARY)} {lhs}, {rhs} : {kind}")

    def comparison(self):
        kind = self.pick(["index", "i64", "i8", "i1"])
        lhs, rhs = self.number(kind), self.number(kind)
        self.add(f"{self.new('i1')} = arith.cmpi {self.pick(PREDICATES)}, {lhs}, {rhs} : {kind}")

    def cast(self):
        source, target = self.pick([("index", "i64"), ("i64", "index"), ("index", "i8")])
        operator = self.pick(["index_cast", "index_castui"])
        value = self.number(source)
        self.add(f"{self.new(target)} = arith.{operator} {value} : {source} to {target}")

    def select(self):
        found = self.find(lambda kind: True)
        if not found:
            return
        other = self.find(lambda kind: kind == found[1])
        flag = self.number("i1")
        self.add(f"{self.new(found[1])} = arith.select {flag}, {found[0]}, {other[0]} : {found[1]}")

    def unary(self):
        found = self.find(is_tensor)
        if found:
            name = self.pick(["relu", "exp", "tanh", "sigmoid", "neg", "abs"])
            kind = self.unknown(found[1])
            tied = self.pick(["", "", "tied "])
            self.add(f"{self.new(kind)} = koila.{name} {tied}{found[0]} : ({found[1]}) -> {kind}")

    def binary(self):
        lhs, rhs = self.find(is_tensor), self.find(is_tensor)
        if lhs:
            if self.chance(0.6):
                rhs = lhs
            kind = self.unknown(lhs[1])
            self.add(
                f"{self.new(kind)} = koila.{self.pick(['add', 'sub'])}_Tensor {lhs[0]}, {rhs[0]}"
                f" {{alpha = 1 : i64}} : ({lhs[1]}, {rhs[1]}) -> {kind}"
            )

    def refine(self):
        found = self.find(is_tensor)
        if found:
            kind = self.pick([self.tensor(), "tensor<*x!koila.any>"])
            self.add(f"{self.new(kind)} = koila.refine {found[0]} : {found[1]} to {kind}")

    def opaque(self):
        found = self.find(is_tensor)
        if found:
            effects = self.pick(["none", "rng", "write", "unknown"])
            kind = self.pick(["tensor<*x!koila.any>", "i64", "i1", found[1]])
            index = self.pick(["0", "0", "0", "1", "-1"])
            self.add(
                f'{self.new(kind)} = koila.torch_op "odd::op"({found[0]}) args'
                f" [#koila.operand<{index}>] effects {effects} : ({found[1]}) -> {kind}"
            )

    def assume(self):
        found = self.find(lambda kind: True)
        if found:
            fact = self.pick(FACTS).format(
                value=found[0],
                type=found[1],
                number=self.pick(["0", "1", "2", "-1", "7"]),
                element=self.element(),
                expression=self.pick(EXPRESSIONS),
            )
            self.add(f"koila.assume {fact}")

    def empty(self):
        kind = self.tensor()
        sizes = ", ".join(self.number("index") for _ in range(kind.count("?")))
        self.add(f"{self.new(kind)} = tensor.empty({sizes}) : {kind}")

    def dim(self):
        found = self.find(lambda kind: is_tensor(kind) and "*" not in kind)
        if found:
            index = self.number("index")
            self.add(f"{self.new('index')} = tensor.dim {found[0]}, {index} : {found[1]}")

    def slice(self):
        found = self.find(lambda kind: kind.startswith("tensor<") and rank(kind) == 1)
        if not found:
            return
        element = found[1][found[1].index("x") + 1 : -1]
        sized = self.chance(0.5)
        size = self.number("index") if sized else self.pick(["2", "4", "1"])
        part = f"tensor<{'?' if sized else size}x{element}>"
        offset = self.pick(["0", "1", self.number("index")])
        step = self.pick(["1", "1", "2", "-1"])
        place = f"[{offset}] [{size}] [{step}]"
        value = self.new(part)
        self.add(f"{value} = tensor.extract_slice {found[0]}{place} : {found[1]} to {part}")
        if self.chance(0.5):
            self.add(
                f"{self.new(found[1])} = tensor.insert_slice {value} into {found[0]}{place}"
                f" : {part} into {found[1]}"
            )

    def tensor_cast(self):
        found = self.find(lambda kind: is_tensor(kind) and "koila" not in kind and "*" not in kind)
        if found:
            element = found[1][7:-1].split("x")[-1]
            kind = "tensor<" + "?x" * rank(found[1]) + element + ">"
            kind = self.pick([kind, f"tensor<*x{element}>"])
            self.add(f"{self.new(kind)} = tensor.cast {found[0]} : {found[1]} to {kind}")

    def foreign(self):
        found = self.find(lambda kind: True)
        operands = [found] if found and self.chance(0.7) else []
        kinds = self.pick([[], ["i64"], ["index"], [self.tensor()], ["tensor<*x!koila.any>"]])
        names = ", ".join(value for value, _ in operands)
        takes = ", ".join(kind for _, kind in operands)
        results = ", ".join(self.new(kind) for kind in kinds)
        start = f"{results} = " if results else ""
        self.add(f'{start}"odd.op"({names}) : ({takes}) -> ({", ".join(kinds)})')

    def call(self):
        found = self.find(lambda kind: kind == "tensor<?xf32>")
        kind = self.pick(["tensor<?xf32>", "tensor<*x!koila.any>"])
        if found:
            self.add(
                f"{self.new(kind)} = func.call @{'known' if kind[7] == '?' else 'other'}"
                f"({found[0]}) : (tensor<?xf32>) -> {kind}"
            )

    def buffer(self):
        if not self.wide:
            return self.foreign()
        kind = self.pick(["memref<4xf32>", "memref<?xf32>"])
        size = self.number("index") if "?" in kind else ""
        value = self.new(kind)
        self.add(f"{value} = memref.{self.pick(['alloc', 'alloca'])}({size}) : {kind}")
        if self.chance(0.5):
            made = self.new(kind.replace("memref", "tensor"))
            self.add(f"{made} = bufferization.to_tensor {value} : {kind} to {made_kind(kind)}")

    def linalg(self):
        found = self.find(
            lambda kind: kind.startswith("tensor<") and kind.endswith("xf32>") and "*" not in kind
        )
        if not self.wide or not found:
            return self.binary()
        other = self.find(lambda kind: kind == found[1])
        self.add(
            f"{self.new(found[1])} = linalg.exp ins({found[0]} : {found[1]})"
            f" outs({other[0]} : {found[1]}) -> {found[1]}"
        )

    # Regions.

    def body(self, most):
        self.depth += 1
        self.scopes.append([])
        for _ in range(self.rng.randint(0, most)):
            self.statement()

    def leave(self, text):
        self.add(text)
        self.scopes.pop()
        self.depth -= 1

    def given(self, kind):
        """A value of this type; none if there is no way to have one."""
        found = self.find(lambda other: other == kind)
        return found[0] if found else None

    def branch(self):
        flag = self.number("i1")
        found = self.find(is_tensor) if self.chance(0.6) else None
        result = f"%r{self.count}" if found else ""
        self.count += 1
        self.add(
            f"{result + ' = ' if found else ''}scf.if {flag}{' -> ' + found[1] if found else ''} {{"
        )
        for last in (False, True):
            self.body(3)
            value = self.given(found[1]) if found else None
            self.leave(f"scf.yield {value} : {found[1]}" if found else "scf.yield")
            self.add("}" if last else "} else {")
        if found:
            self.scopes[-1].append((result, found[1]))

    def loop(self):
        bounds = [self.number("index") for _ in range(3)]
        found = self.find(lambda kind: is_tensor(kind) or kind == "index")
        carried = found if self.chance(0.7) else None
        self.count += 1
        result, variable, counter = f"%r{self.count}", f"%a{self.count}", f"%i{self.count}"
        unsigned = self.pick(["", "", "", "unsigned "])
        start = f"{result} = " if carried else ""
        inits = f" iter_args({variable} = {carried[0]}) -> ({carried[1]})" if carried else ""
        self.add(
            f"{start}scf.for {unsigned}{counter} = {bounds[0]} to {bounds[1]} step"
            f" {bounds[2]}{inits} {{"
        )
        self.scopes.append([(counter, "index")] + ([(variable, carried[1])] if carried else []))
        self.body(3)
        value = self.given(carried[1]) if carried else None
        self.leave(f"scf.yield {value} : {carried[1]}" if carried else "scf.yield")
        self.scopes.pop()
        self.add("}")
        if carried:
            self.scopes[-1].append((result, carried[1]))

    def parallel(self):
        self.count += 1
        if self.chance(0.5):
            bounds = [self.number("index") for _ in range(3)]
            self.add(
                f"scf.parallel (%i{self.count}) = ({bounds[0]}) to ({bounds[1]}) step"
                f" ({bounds[2]}) {{"
            )
            self.body(3)
            self.leave("scf.reduce")
        else:
            self.add(f"scf.forall (%i{self.count}) in ({self.pick(['4', '0', '3'])}) {{")
            self.body(3)
            self.leave("")
        self.add("}")

    def region(self):
        blocks = self.chance(0.2)
        kind = self.pick(["scf", "scf", "odd"])
        self.add("scf.execute_region {" if kind == "scf" else '"odd.region"() ({')
        self.body(3)
        if blocks and self.wide:
            self.add(f"cf.br ^b{self.count}")
            self.add(f"^b{self.count}:")
        self.leave("scf.yield" if kind == "scf" else '"odd.end"() : () -> ()')
        self.add("}" if kind == "scf" else "}) : () -> ()")

    def statement(self):
        simple = [
            self.arithmetic,
            self.arithmetic,
            self.comparison,
            self.cast,
            self.select,
            self.unary,
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.refine,
            self.opaque,
            self.assume,
            self.empty,
            self.empty,
            self.dim,
            self.slice,
            self.tensor_cast,
            self.foreign,
            self.call,
            self.buffer,
            self.linalg,
        ]
        nested = [self.branch, self.loop, self.parallel, self.region]
        self.pick(nested if self.depth < 3 and self.chance(0.2) else simple)()

    def argument(self, index):
        kind = self.pick([self.tensor(), self.tensor(), "tensor<?xf32>", "i64", "i1", "index"])
        name = f"%x{index}"
        self.scopes[-1].append((name, kind))
        attributes = [f'koila.name = "{self.pick(["x", "y", f"x{index}", f"x{index}"])}"']
        if kind.startswith("tensor") and self.chance(0.8):
            extents = kind[7:].split("x")[: rank(kind)]
            dims = [self.pick(EXPRESSIONS) if extent == "?" else extent for extent in extents]
            attributes.append(f"koila.dims = #koila.dims<[{', '.join(dims)}]>")
        if not kind.startswith("tensor") and self.chance(0.5):
            value = self.pick(["true", "unit", "3 : i64", '"text"'])
            attributes.append(f"koila.value = {value}")
        if self.chance(0.05):
            attributes.append(f"koila.range = #koila.range<{self.pick(EXPRESSIONS)}:4>")
        if self.chance(0.05):
            attributes.append('koila.memory_format = "channels_last"')
        return f"{name}: {kind} {{{', '.join(attributes)}}}"

    def function(self, name):
        self.scopes.append([])
        arguments = ", ".join(self.argument(i) for i in range(self.rng.randint(0, 3)))
        place = len(self.lines)
        for _ in range(self.rng.randint(1, 12)):
            self.statement()
        if self.wide and self.chance(0.05):
            self.add("cf.br ^last")
            self.add("^last:")
        results = [found for found in [self.find(is_tensor)] if found and self.chance(0.8)]
        kinds = ", ".join(kind for _, kind in results)
        names = ", ".join(value for value, _ in results)
        self.lines.insert(place, f"func.func @{name}({arguments}) -> ({kinds}) {{")
        self.lines.append(f"  return {names}{' : ' if names else ''}{kinds}")
        self.lines.append("}")
        self.scopes.pop()

    def make(self):
        symbols = self.pick(
            [
                '[#koila.symbol<name = "B", value = 16, batch = true>]',
                '[#koila.symbol<name = "B", value = 6, batch = true>]',
                '[#koila.symbol<name = "B", value = 16, batch = true>, #koila.symbol<name = "S">]',
                '[#koila.symbol<name = "B", value = 8, batch = true>,'
                ' #koila.symbol<name = "S", value = 5>]',
                '[#koila.symbol<name = "B", value = 0, batch = true>]',
                "[]",
            ]
        )
        if self.chance(0.3):
            self.lines.append(
                f'koila.param @w : tensor<4x{self.element()}> keys ["w"'
                f"{self.pick(['', '', self.pick([', ' + chr(34) + 'w' + chr(34), ''])])}]"
                f" strides [{self.pick(['1', '1', '0', '-1'])}]"
            )
        self.lines.append("func.func private @known(tensor<?xf32>) -> tensor<?xf32>")
        self.lines.append("func.func private @other(tensor<?xf32>) -> tensor<*x!koila.any>")
        nested = self.chance(0.1)
        if nested:
            self.lines.append(
                "gpu.module @inner {" if self.wide and self.chance(0.3) else "module @inner {"
            )
        self.function("forward")
        if nested:
            self.lines.append("}")
        if self.chance(0.2):
            self.function("second")
        body = "\n".join("  " + line for line in self.lines)
        return f"module attributes {{koila.symbols = {symbols}}} {{\n{body}\n}}"


def is_tensor(kind):
    return kind.startswith("tensor<")


def rank(kind):
    """Of a ranked tensor type."""
    return (
        0
        if "*" in kind
        else kind.split("vector")[0].split("complex")[0].count("x")
        - ("index" in kind.split("vector")[0])
    )


def made_kind(kind):
    return kind.replace("memref", "tensor")


def make(rng, wide):
    return Module(rng, wide).make()
