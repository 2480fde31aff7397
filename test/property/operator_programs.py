"""Random programs of several operators, for tiled_operators.py.

The calls are legal ones that the generators of the package make. A call may read
what an earlier one made: a number per sample, or one for all samples, is added
to an argument, and an elementwise operator may come before. All results are
returned. Whether a program makes sense nobody asks: what PyTorch makes of it
is the truth.
"""

import itertools
import random
import re

import torch

from koila._generators.draw import (
    ERRORS,
    compile_case,
    get_results,
    make_input,
    make_inputs,
    run,
)
from koila._generators.generator import Case, Generator, Input

# A pair tells where the batch is: no other extent fits both.
PROBES = (5, 7)
ATTEMPTS = 6
# Of one schema, to find a call that is legal at both probes.
DRAWS = 20
# How often a program computes in float64 what it would in float32.
DOUBLE = 0.35
FLOATS = ("float32", "float64", "float16", "bfloat16")
COUNTER = itertools.count()

ELEMENTWISE = [
    "torch.sin({})",
    "{} * 1.5 + 0.1",
    "torch.tanh({})",
    "torch.clone({})",
    "torch.abs({}) + 0.25",
    "{} - 0.5",
]
LITERAL = re.compile(r"torch\.(float32|float16|bfloat16|complex64)\b")


class Broken(Exception):
    """The program does not compile or run: PyTorch's sentence."""


class Part:
    """One call with what stands before it."""

    def __init__(self, op, lines, results):
        self.op, self.lines, self.results = op, lines, results


class Program:
    def __init__(self, arguments, parts, double):
        # Names with their Inputs.
        self.arguments, self.parts, self.double = arguments, parts, double

    def without(self, index):
        """The program without a call, and without what only that one read."""
        parts = self.parts[:index] + self.parts[index + 1 :]
        text = "\n".join(line for part in parts for line in part.lines)
        used = [
            (name, tensor) for name, tensor in self.arguments if re.search(rf"\b{name}\b", text)
        ]
        return Program(used, parts, self.double)

    def source(self):
        arguments = "".join(f", {name}: Tensor" for name, _ in self.arguments)
        lines = [line for part in self.parts for line in part.lines]
        returned = ", ".join(name for part in self.parts for name in part.results)
        return "".join(
            [
                f"def forward(self{arguments}):\n",
                *(f"    {line}\n" for line in lines),
                f"    return ({returned},)\n",
            ]
        )

    def ops(self):
        return [part.op for part in self.parts]

    def spread(self, op):
        """Names whose values may follow from what calls of `op` give."""
        reached = set()
        for part in self.parts:
            read = set(re.findall(r"\w+", "\n".join(part.lines)))
            if part.op == op:
                reached.update(part.results)
            elif reached & read:
                reached.update(part.results)
                if any(is_in_place(line) for line in part.lines):
                    reached |= read
        return reached

    def specs(self):
        return [tensor.spec() for _, tensor in self.arguments]

    def follows_batch(self):
        return any("B" in spec for spec in self.specs())

    def writes(self):
        return any(is_in_place(line) for part in self.parts for line in part.lines)

    def inputs(self, batch, seed):
        generator = torch.Generator().manual_seed(seed)
        return [make_input(tensor, batch, generator) for _, tensor in self.arguments]

    def compile(self):
        return compile_source(self.source())

    def compile_reference(self):
        """The same with float64 for every smaller type."""
        return compile_source(widen_text(self.source()))


def widen_text(text):
    return LITERAL.sub(
        lambda match: "torch.complex128" if match[1] == "complex64" else "torch.float64", text
    )


def compile_source(source):
    # A class of its own: methods of a class cannot be defined again.
    kind = type(f"Program{next(COUNTER)}", (torch.jit.ScriptModule,), {})
    module = kind()
    try:
        module.define(source)
    except RuntimeError as error:
        raise Broken(f"does not compile: {error}") from None
    return module.eval()


def is_in_place(line):
    name = line.split(" = ", 1)[-1].split("(")[0]
    return name.endswith("_")


# -- One call -----------------------------------------------------------------


def run_case(case):
    """What the call makes at both probes; None if it is not legal there."""
    found = []
    compile_case(case)
    for batch in PROBES:
        scope = run(case, make_inputs(case, batch))
        if isinstance(scope, Exception):
            return None
        tensors = get_results(case, scope)
        if tensors is None:
            return None
        found.append(tensors)
    return found


WIDE = {"float32": "float64", "complex64": "complex128"}


def to_double(case):
    """The case with float64 for float32, if that is legal; else as it is."""
    wide = Case(
        case.op,
        [
            re.sub(r"torch\.(float32|complex64)\b", lambda match: f"torch.{WIDE[match[1]]}", line)
            for line in case.body
        ],
        [
            Input(
                x.dims,
                WIDE.get(x.dtype, x.dtype),
                x.channels_last,
                x.low,
                x.high,
            )
            for x in case.inputs
        ],
        case.results,
    )
    made = run_case(wide)
    return (wide, made) if made else None


def draw(op, make, rng, double):
    """A legal call and what it makes at the probes; one that has the batch
    if that can be found. None if all draw random numbers, or are illegal."""
    without = None
    for _ in range(DRAWS):
        generator = Generator(op, rng, wrong=0)
        generator.symbolic = True
        case = make(generator)
        if case is None or case.random or not case.results:
            continue
        # koila tiles no program with an argument that is always empty.
        if any(0 in tensor.dims for tensor in case.inputs) and rng.random() < 0.95:
            continue
        made = run_case(case)
        if made is None:
            continue
        found = (double and to_double(case)) or (case, made)
        if case.follows_batch():
            return found
        without = without or found
    return without


def batch_dim(left, right):
    """(dim, rows per sample) of what has the batch in one dim; else None."""
    small, large = PROBES
    found = [
        (dim, size // small)
        for dim, size in enumerate(left.shape)
        if size and size % small == 0 and size // small * large == right.shape[dim]
    ]
    same = sum(a == b for a, b in zip(left.shape, right.shape, strict=False))
    return found[0] if len(found) == 1 and same == left.dim() - 1 else None


# -- Glue ---------------------------------------------------------------------


class Glue:
    """Makes one program of calls."""

    def __init__(self, rng, double, linked):
        self.rng, self.linked, self.double = rng, linked, double
        self.arguments, self.parts = [], []
        # (name, dtype, rank, batch dim or None)
        self.made = []

    def chance(self, probability):
        return self.rng.random() < probability

    def argument(self, tensor):
        same = [name for name, other in self.arguments if other.spec() == tensor.spec()]
        if same and self.chance(0.2):
            return self.rng.choice(same)
        self.arguments.append((f"a{len(self.arguments)}", tensor))
        return self.arguments[-1][0]

    def from_sample(self, tensor):
        """A number per sample of an earlier result, shaped for the tensor; or
        None."""
        symbolic = [
            (dim, size.factor) for dim, size in enumerate(tensor.dims) if not isinstance(size, int)
        ]
        if len(symbolic) != 1:
            return None
        ((place, factor),) = symbolic
        fitting = [made for made in self.made if made[3] and made[3][1] == factor]
        if not fitting:
            return None
        name, dtype, rank, (dim, _) = self.rng.choice(fitting)
        text = name if dtype == tensor.dtype else f"{name}.to(torch.{tensor.dtype})"
        others = [d for d in range(rank) if d != dim]
        if others:
            text += f".mean({others})"
        after = len(tensor.dims) - 1 - place
        if self.chance(0.5):
            return text + ".unsqueeze(0)" * place + ".unsqueeze(-1)" * after
        return text + f".reshape({[1] * place + [-1] + [1] * after})"

    def from_all(self, tensor):
        """One number of an earlier result."""
        if not self.made:
            return None
        name, dtype, _, _ = self.rng.choice(self.made)
        text = name if dtype == tensor.dtype else f"{name}.to(torch.{tensor.dtype})"
        return text + ".mean()"

    def prepare(self, name, tensor, lines, fresh):
        """The name that the call reads; lines that make it, if any."""
        given = text = self.argument(tensor)
        if tensor.dtype not in FLOATS:
            if fresh:
                lines.append(f"{name} = torch.clone({given})")
                return name
            return given
        if self.chance(0.5) or fresh:
            text = self.rng.choice(ELEMENTWISE).format(given)
        kind, more = self.rng.random(), None
        if self.linked and kind < 0.5:
            more = self.from_sample(tensor)
        elif self.linked and kind < 0.58:
            more = self.from_all(tensor)
        if text == given and more is None:
            return given
        lines.append(f"{name} = {text}")
        if more:
            lines.append(f"{name} = {name} + 0.1 * torch.tanh(torch.nan_to_num({more}))")
        return name

    def add(self, case, made):
        number, lines, names = len(self.parts), [], {}
        fresh = is_in_place(case.body[-1]) and self.chance(0.85)
        for index, tensor in enumerate(case.inputs):
            names[f"x{index}"] = self.prepare(f"x{index}_{number}", tensor, lines, fresh)
        for line in case.body:
            for name in line.split(" = ")[0].split(","):
                if name.strip():
                    names[name.strip()] = f"{name.strip()}_{number}"
        pattern = re.compile(rf"\b({'|'.join(sorted(names))})\b")
        lines += [pattern.sub(lambda match: names[match[1]], line) for line in case.body]
        results = [names[name] for name in case.results]
        self.parts.append(Part(case.op, lines, results))
        for name, left, right in zip(results, *made, strict=True):
            if not left.is_complex():
                self.made.append((name, str(left.dtype)[6:], left.dim(), batch_dim(left, right)))


def is_legal(program):
    """PyTorch's objection at the probes, or None."""
    if not program.follows_batch():
        return "no batch"
    try:
        module = program.compile()
        for batch in PROBES:
            module(*program.inputs(batch, 1))
    except (Broken, *ERRORS) as error:
        return str(error)
    return None


# -- All ----------------------------------------------------------------------


class Dealer:
    """Deals the schemas out, so that all have been before one comes again."""

    def __init__(self, seed, generators):
        self.seed, self.generators = seed, generators

    def length(self, number):
        return random.Random(f"{self.seed}:{number}:length").randint(2, 6)

    def deck(self, round):
        ops = sorted(self.generators)
        random.Random(f"{self.seed}:{round}:deck").shuffle(ops)
        return ops

    def ops(self, number):
        first = sum(map(self.length, range(number)))
        size, found = len(self.generators), []
        for place in range(first, first + self.length(number)):
            found.append(self.deck(place // size)[place % size])
        return found

    def make(self, number):
        """The program of that number, and why earlier attempts are none."""
        ops, objections = self.ops(number), []
        double = random.Random(f"{self.seed}:{number}").random() < DOUBLE
        for attempt in range(ATTEMPTS):
            rng = random.Random(f"{self.seed}:{number}:{attempt}")
            glue = Glue(rng, double, linked=attempt < ATTEMPTS // 2)
            for op in ops:
                if found := draw(op, self.generators[op], rng, double):
                    glue.add(*found)
            if not glue.parts:
                continue
            # Only what is drawn wide is compared as closely.
            small = {"float16", "bfloat16", *WIDE}
            wide = double and all(tensor.dtype not in small for _, tensor in glue.arguments)
            program = Program(glue.arguments, glue.parts, wide)
            objection = is_legal(program)
            if objection is None:
                return program, objections
            objections.append(objection)
        return None, objections or ["no calls"]


def usable(generators):
    """Schemas that have calls without random numbers."""
    rng = random.Random(0)
    # Programs run without samples, too.
    return {
        op: make
        for op, make in generators.items()
        if not getattr(make, "needs_elements", False) and draw(op, make, rng, False)
    }
