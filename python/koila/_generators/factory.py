"""Calls of operators that make tensors of extents and numbers."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, takes_all

DTYPES = ANY + COMPLEX


def random(make):
    """Values cannot be compared: they are drawn, or not set at all."""

    def made(g):
        g.random = True
        return make(g)

    vars(made).update(vars(make))
    return made


# Pieces ---------------------------------------------------------------------


def option(g, among=DTYPES, probability=0.5):
    """`, dtype=...` or nothing."""
    if not g.chance(probability):
        return ""
    return f", dtype=torch.{g.dtype(among)}"


def layout(g, rank, probability=0.3):
    """`, memory_format=...` or nothing."""
    if not g.chance(probability):
        return ""
    formats = ["contiguous_format", "preserve_format"]
    formats += ["channels_last"] * (2 * (rank == 4)) * (not g.wrong)
    formats += ["channels_last_3d"] * (2 * (rank == 5)) * (not g.wrong)
    if g.spoil():
        formats = ["channels_last" if rank != 4 else "channels_last_3d"]
    return f", memory_format=torch.{g.rng.choice(formats)}"


def number(g, dims=None):
    """The extent of a tensor, as a name, and how often it counts the batch."""
    name = f"n{len(g.prepared)}"
    x = g.tensor(dims or [g.batch(), g.rng.randint(1, 4)], channels_last=False)
    g.prepare(f"{name} = {x}.size(0)")
    return name


def extents(g, rank=None, low=0, high=5):
    """The text of a list of sizes; some are those of a tensor."""
    rank = g.rng.randint(0, 4) if rank is None else rank
    sizes = [str(g.rng.randint(low, high)) for _ in range(rank)]
    if rank and g.chance(0.7):
        place = 0 if g.chance(0.7) else g.rng.randrange(rank)
        name = number(g)
        sizes[place] = name
        if g.chance(0.25):
            sizes[place] = f"{name} * {g.rng.randint(1, 3)}"
        elif g.chance(0.1):
            sizes[place] = f"{name} + 1"
        if rank > 1 and g.chance(0.1):
            sizes[place - 1] = name
    if rank and g.spoil(0.7):
        sizes[g.rng.randrange(rank)] = str(-g.rng.randint(1, 3))
    return f"[{', '.join(sizes)}]"


def value(g):
    # Flags are numbers in TorchScript: full([2], True) is of int64 there.
    return g.pick("0", "1", "2.5", "-1", "0.0")


def of_any(g):
    return g.strided(g.dims(g.rng.randint(0, 5), high=4), g.dtype(DTYPES))


# Of given extents -----------------------------------------------------------


def sized(name, random_values=False, own=None, after=lambda g: "", among=DTYPES):
    def make(g):
        g.random = random_values
        first = of_any(g) + ", " if own else ""
        return g.call(f"r = torch.ops.aten.{name}({first}{extents(g)}{after(g)}{option(g, among)})")

    return make


def filled(g):
    if g.chance(0.1):
        return ", " + number(g)
    return ", " + value(g)


def empty(g):
    g.random = True
    rank = g.rng.randint(0, 5)
    text = layout(g, rank).replace("preserve", "contiguous")
    if g.spoil(0.2):
        text = ", memory_format=torch.preserve_format"
    return g.call(f"r = torch.ops.aten.empty({extents(g, rank)}{option(g)}{text})")


def empty_strided(own):
    def make(g):
        g.random = True
        rank = g.rng.randint(0, 3)
        strides = [g.rng.randint(0, 9) for _ in range(rank)]
        if g.spoil(0.5):
            strides.append(1)
        elif strides and g.spoil(0.5):
            strides[0] = -1
        first = of_any(g) + ", " if own else ""
        name = "new_empty_strided" if own else "empty_strided"
        return g.call(
            f"r = torch.ops.aten.{name}({first}{extents(g, rank, low=1)}, {strides}{option(g)})"
        )

    return make


def empty_permuted(g):
    g.random = True
    rank = g.rng.randint(0, 4)
    order = list(range(rank))
    g.rng.shuffle(order)
    if g.spoil(0.5):
        order.append(rank)
    elif rank > 1 and g.spoil(0.5):
        order[0] = order[1]
    elif rank and g.spoil(0.5):
        order[0] = rank
    return g.call(
        f"r = torch.ops.aten.empty_permuted({extents(g, rank, low=1)}, {order}{option(g)})"
    )


def like(name, after=lambda g: "", random_values=False, among=DTYPES):
    def make(g):
        g.random = random_values
        rank = g.rng.randint(0, 5)
        x = g.strided(g.dims(rank, high=4), g.dtype(among))
        return g.call(
            f"r = torch.ops.aten.{name}({x}{after(g)}{option(g, among)}{layout(g, rank, 0.5)})"
        )

    return make


# Of given numbers -----------------------------------------------------------


def bound(g, low=-3, high=9):
    if g.chance(0.35):
        name = number(g)
        return g.pick(name, name, name, f"{name} * 2", f"{name} + 3")
    if g.chance(0.3):
        return str(g.pick(0.5, 2.0, 3.7, -1.25, 7.5, 0.1))
    return str(g.rng.randint(low, high))


def arange(count):
    def make(g):
        end = bound(g, 0)
        if count == 1:
            if g.spoil():
                end = "-2"
            arguments = end
        else:
            start = g.pick("0", "0", "1", "-2", "0.5", "-1.5")
            step = ""
            if count == 3:
                step = g.pick("1", "2", "3", "0.5", "0.25", "1.0", "2.5")
                if g.spoil(0.5):
                    step = "0"
                elif g.chance(0.3):
                    start, end, step = end, start, "-" + step
                step = ", " + step
            if g.spoil():
                start, end = end, start
            arguments = f"{start}, {end}{step}"
        return g.call(f"r = torch.ops.aten.arange({arguments}{option(g, ANY[:-1], 0.3)})")

    return make


def spaced(name):
    def make(g):
        steps = g.pick("0", "1", "5", number(g))
        if g.spoil(0.7):
            steps = "-1"
        base = ", 3.0" if name == "logspace" and g.chance(0.5) else ""
        bounds = ", ".join(g.pick("0", "1", "2.5", "-0.5") for _ in range(2))
        return g.call(
            f"r = torch.ops.aten.{name}({bounds}, {steps}{base}{option(g, [*FLOATS, 'int64'])})"
        )

    return make


def window(name, more=()):
    def make(g):
        length = g.pick("0", "1", "5", "8", number(g))
        if g.spoil(0.7):
            length = "-1"
        among = [*FLOATS, "int64"] if g.wrong else FLOATS
        if g.wrong and length != "-1":
            among = ["int64", "int32"]
        arguments = ", ".join([length, *(g.pick(*choices) for choices in more)])
        arguments += option(g, among, 1.0 if g.wrong else 0.5)
        return g.call(f"r = torch.ops.aten.{name}_window({arguments})")

    return make


def eye(count):
    def make(g):
        sizes = [g.pick("0", "3", "4", number(g)) for _ in range(count)]
        if g.spoil(0.7):
            sizes[g.rng.randrange(count)] = "-1"
        return g.call(f"r = torch.ops.aten.eye({', '.join(sizes)}{option(g)})")

    return make


def triangle(name):
    def make(g):
        if g.chance(0.4):
            rows = columns = number(g)
            offset = g.pick(0, -1 if name == "tril_indices" else 1)
        else:
            rows, columns = (g.rng.randint(0, 6) for _ in range(2))
            offset = g.rng.randint(-7, 7)
        if g.spoil(0.7):
            rows = "-1"
        return g.call(
            f"r = torch.ops.aten.{name}({rows}, {columns}, {offset}"
            f"{option(g, ['int64', 'int32'], 0.3)})"
        )

    return make


# Numbers and lists ----------------------------------------------------------


@takes_all
def scalar_tensor(g):
    s = number(g) if g.chance(0.3) else value(g)
    return g.call(f"r = torch.ops.aten.scalar_tensor({s}{option(g)})")


def number_tensor(name, kind):
    @takes_all
    def make(g):
        t = {
            "int": str(g.rng.randint(-3, 9)),
            "bool": g.pick("True", "False"),
            "float": g.pick("0.5", "2.0"),
        }[kind]
        if kind != "int":
            number(g)  # Beside it, so that there are enough different cases.
        elif g.chance(0.5):
            t = number(g)
        return g.call(f"r = torch.{name}({t}{option(g)})")

    return make


def list_tensor(name):
    @takes_all
    def make(g):
        # A literal list has no operation of its own: see importOperator.
        elements = [str(g.rng.randint(-3, 9)) for _ in range(g.rng.randint(0, 3))]
        elements.insert(g.rng.randint(0, len(elements)), number(g))
        return g.call(f"r = torch.{name}([{', '.join(elements)}]{option(g)})")

    return make


# Random tensors -------------------------------------------------------------


def ordered(g, count):
    """`, low, high` in front of the sizes."""
    high = g.rng.randint(2, 9)
    low = g.rng.randint(-5, 1) if count == 2 else 0
    if g.spoil():
        high = low - g.rng.randint(0, 2)
    return [low, high][2 - count :]


def randint(count):
    @random
    def make(g):
        bounds = ", ".join(map(str, ordered(g, count)))
        among = ["int64", "int32", "int16", "float32", "float64"]
        return g.call(f"r = torch.ops.aten.randint({bounds}, {extents(g)}{option(g, among)})")

    return make


def randint_like(count):
    @random
    def make(g):
        rank = g.rng.randint(0, 5)
        x = g.strided(g.dims(rank, high=4), g.dtype(["float32", "int64"]))
        bounds = ", ".join(map(str, ordered(g, count)))
        among = ["int64", "int32", "int16", "float32", "float64"]
        return g.call(
            f"r = torch.ops.aten.randint_like({x}, {bounds}"
            f"{option(g, among)}{layout(g, rank, 0.5)})"
        )

    return make


@random
def randperm(g):
    n = g.pick("0", "1", "5", "8", number(g), number(g))
    if g.spoil(0.8):
        n = str(-g.rng.randint(1, 40))
    return g.call(
        f"r = torch.ops.aten.randperm({n}{option(g, ['int64', 'int32', 'float32'], 0.3)})"
    )


def draw(name, *choices, among=FLOATS, illegal=None):
    """`name(self, ...)`, also in place; `illegal` are wrong arguments."""

    def make(g):
        g.random = True
        types = ["int64", "int32", "bool"] if g.spoil(0.4) else among
        if name == "random" and g.wrong:
            types = ["bool", "int8", "uint8"]
        x = g.strided(g.dims(g.rng.randint(0, 5), high=4), g.dtype(types))
        values = [g.pick(*values) for values in choices]
        if illegal and g.spoil(0.7):
            values = list(g.pick(*illegal))
        arguments = ", ".join([x, *map(str, values)])
        if g.chance(0.3) and name != "poisson" and (choices or name != "bernoulli"):
            # In place, on a tensor of the program's own.
            inside = name.replace("normal_functional", "normal")
            fresh = f"f{len(g.prepared)}"
            g.prepare(f"{fresh} = torch.ops.aten.empty_like({x})")
            arguments = ", ".join([fresh, *map(str, values)])
            return g.call(f"r = torch.ops.aten.{inside}_({arguments})")
        return g.call(f"r = torch.ops.aten.{name}({arguments})")

    return make


INTEGRAL = ["float32", "float64", "int64", "int32", "uint8", "int8"]


def bernoulli_tensor(g):
    g.random = True
    dims = g.dims(g.rng.randint(1, 4))
    x = g.strided(dims, g.dtype(ANY))
    # Python would take one element for a number, as bernoulli.p does.
    chances = g.broadcast(dims)
    if all(dim == 1 for dim in chances):
        chances = dims
    p = g.tensor(chances, g.dtype(FLOATS))
    if g.spoil():
        p = g.tensor([*dims, 2])
    # Chances from 0 to 1.
    g.prepare(f"q = torch.ops.aten.sigmoid({p})")
    return g.call(f"r = torch.ops.aten.bernoulli({x}, q)")


def bernoulli(g):
    g.random = True
    types = ["int64", "bool"] if g.wrong else FLOATS
    x = g.strided(g.dims(g.rng.randint(0, 5), high=4), g.dtype(types))
    if types is FLOATS:
        g.prepare(f"q = torch.ops.aten.sigmoid({x})")
        x = "q"
    return g.call(f"r = torch.ops.aten.bernoulli({x})")


def poisson(g):
    g.random = True
    types = ["int64", "bool"] if g.wrong else FLOATS
    x = g.strided(g.dims(g.rng.randint(0, 5), high=4), g.dtype(types))
    if types is FLOATS:
        g.prepare(f"q = torch.ops.aten.abs({x})")
        x = "q"
    return g.call(f"r = torch.ops.aten.poisson({x})")


def normal(mean, std):
    def make(g):
        g.random = True
        dims = g.dims(g.rng.randint(0, 4))
        types = ["int64"] if g.spoil(0.4) else FLOATS
        arguments = []
        if mean:
            arguments.append(g.strided(dims, g.dtype(types)))
        else:
            arguments.append(g.pick("0.0", "1.5"))
        if std:
            x = g.tensor(g.broadcast(dims) if mean else dims, g.dtype(types))
            g.prepare(f"q = torch.ops.aten.abs({x})")
            arguments.append("q")
        else:
            arguments.append("-1.0" if g.spoil(0.7) else g.pick("0.5", "2.0"))
        if not mean and not std:
            arguments.append(extents(g))
        return g.call(f"r = torch.ops.aten.normal({', '.join(arguments)})")

    return make


def multinomial(g):
    g.random = True
    rank = g.rank(1, 2)
    dims = [
        g.batch() if dim == 0 and (rank == 2 or g.chance(0.2)) else g.rng.randint(2, 6)
        for dim in range(rank)
    ]
    types = ["int64"] if g.spoil(0.2) else FLOATS
    x = g.strided(dims, g.dtype(types))
    g.prepare(f"q = torch.ops.aten.abs({x})")
    count = g.pick(1, 2, 2, 3)
    if g.spoil():
        count = g.pick(0, -1, 9)
    return g.call(f"r = torch.ops.aten.multinomial(q, {count}, {g.pick(True, False)})")


PERIODIC = ["True", "False"]
NUMBERS = ["0.25", "0.5", "2.0"]
WINDOWS = {
    f"aten::{name}_window{overload}": window(name, more)
    for name, overload, more in [
        *((n, "", []) for n in ("hann", "hamming", "blackman", "bartlett", "kaiser")),
        *(
            (n, ".periodic", [PERIODIC])
            for n in ("hann", "hamming", "blackman", "bartlett", "kaiser")
        ),
        ("hamming", ".periodic_alpha", [PERIODIC, NUMBERS]),
        ("hamming", ".periodic_alpha_beta", [PERIODIC, NUMBERS, NUMBERS]),
        ("kaiser", ".beta", [PERIODIC, NUMBERS]),
    ]
}

GENERATORS = {
    "aten::zeros": sized("zeros"),
    "aten::ones": sized("ones"),
    "aten::empty.memory_format": empty,
    "aten::full": sized("full", after=filled),
    "aten::new_zeros": sized("new_zeros", own=True),
    "aten::new_ones": sized("new_ones", own=True),
    "aten::new_empty": sized("new_empty", random_values=True, own=True),
    "aten::new_full": sized("new_full", own=True, after=filled),
    "aten::empty_strided": empty_strided(False),
    "aten::new_empty_strided": empty_strided(True),
    "aten::empty_permuted": empty_permuted,
    "aten::zeros_like": like("zeros_like"),
    "aten::ones_like": like("ones_like"),
    "aten::empty_like": like("empty_like", random_values=True),
    "aten::full_like": like("full_like", after=filled),
    "aten::arange": arange(1),
    "aten::arange.start": arange(2),
    "aten::arange.start_step": arange(3),
    "aten::linspace": spaced("linspace"),
    "aten::logspace": spaced("logspace"),
    **WINDOWS,
    "aten::eye": eye(1),
    "aten::eye.m": eye(2),
    "aten::tril_indices": triangle("tril_indices"),
    "aten::triu_indices": triangle("triu_indices"),
    "aten::scalar_tensor": scalar_tensor,
    "aten::tensor.int": number_tensor("tensor", "int"),
    "aten::tensor.float": number_tensor("tensor", "float"),
    "aten::tensor.bool": number_tensor("tensor", "bool"),
    "aten::as_tensor.int": number_tensor("as_tensor", "int"),
    "aten::as_tensor.float": number_tensor("as_tensor", "float"),
    "aten::as_tensor.bool": number_tensor("as_tensor", "bool"),
    "aten::tensor": list_tensor("tensor"),
    "aten::as_tensor.list": list_tensor("as_tensor"),
    "aten::rand": sized("rand", random_values=True, among=FLOATS + COMPLEX),
    "aten::randn": sized("randn", random_values=True, among=FLOATS + COMPLEX),
    "aten::randint": randint(1),
    "aten::randint.low": randint(2),
    "aten::randperm": randperm,
    "aten::rand_like": like("rand_like", random_values=True, among=FLOATS),
    "aten::randn_like": like("randn_like", random_values=True, among=FLOATS),
    "aten::randint_like": randint_like(1),
    "aten::randint_like.low_dtype": randint_like(2),
    "aten::uniform": draw("uniform", [-1.0, 0.0], [0.0, 2.0], illegal=[(1.0, 0.0)]),
    "aten::normal_functional": draw(
        "normal_functional", [0.0, 1.0], [0.0, 2.0], illegal=[(0.0, -1.0)]
    ),
    "aten::exponential": draw("exponential", [0.5, 2.0], illegal=[(-1.0,), (0.0,)]),
    "aten::cauchy": draw("cauchy", [0.5, 2.0], [0.5, 2.0], illegal=[(0.0, -1.0), (0.0, 0.0)]),
    "aten::log_normal": draw(
        "log_normal", [0.5, 2.0], [0.5, 2.0], illegal=[(0.0, -1.0), (0.0, 0.0)]
    ),
    "aten::geometric": draw(
        "geometric", [0.25, 0.5], among=INTEGRAL, illegal=[(0.0,), (1.5,), (1.0,)]
    ),
    "aten::random": takes_all(draw("random", among=[*INTEGRAL, "bool"])),
    "aten::random.to": draw("random", [2, 5, 100], among=INTEGRAL, illegal=[(0,), (-2,), (300,)]),
    "aten::random.from": draw(
        "random", [1, 0], [2, 5, 100], among=INTEGRAL, illegal=[(3, 3), (4, 1), (-300, 5), (2, 300)]
    ),
    "aten::bernoulli": bernoulli,
    "aten::bernoulli.p": draw(
        "bernoulli", [0.0, 0.25, 1.0], among=[*INTEGRAL, "bool"], illegal=[(-0.5,), (1.5,)]
    ),
    "aten::bernoulli.Tensor": bernoulli_tensor,
    "aten::poisson": poisson,
    "aten::normal.Tensor_float": normal(True, False),
    "aten::normal.float_Tensor": normal(False, True),
    "aten::normal.Tensor_Tensor": normal(True, True),
    "aten::normal.float_float": normal(False, False),
    "aten::multinomial": multinomial,
}
