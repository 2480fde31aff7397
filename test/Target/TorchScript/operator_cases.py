"""Random calls of every operator that koila has rules for.

A case is a few statements of TorchScript and the tensors they read. Nothing
here says which cases are legal, what they return or whether samples are mixed in
them: operator_oracle.py asks PyTorch.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Batch:
    """An extent of `factor` times the batch."""

    factor: int = 1

    def __str__(self):
        return "B" if self.factor == 1 else f"{self.factor}*B"


@dataclasses.dataclass
class Input:
    dims: list
    dtype: str = "float32"
    channels_last: bool = False

    def spec(self, batch=None):
        dims = ",".join(str(dim) if batch is None else str(extent(dim, batch)) for dim in self.dims)
        return f"{self.dtype}[{dims}]" + "@channels_last" * self.channels_last

    def shape(self, batch):
        return [extent(dim, batch) for dim in self.dims]


def extent(dim, batch):
    return dim.factor * batch if isinstance(dim, Batch) else dim


@dataclasses.dataclass
class Case:
    """`body` reads x0, x1, ... and assigns t, u (temporaries) and r."""

    op: str
    body: list
    inputs: list

    def follows_batch(self):
        return any(isinstance(dim, Batch) for tensor in self.inputs for dim in tensor.dims)

    def __str__(self):
        specs = " ".join(tensor.spec() for tensor in self.inputs)
        body = "; ".join(self.body).replace("torch.ops.aten.", "")
        return f"{body} for {specs}"


FLOATS = ["float32"] * 7 + ["float64", "float64", "float16", "bfloat16"]
ANY = ["float32"] * 6 + ["float64", "float16", "int64", "bool"]
PAIRS = [*ANY, "int32", "uint8", "int64", "bool", "bfloat16"]


class Generator:
    """Makes cases of one operator from one seeded source of numbers."""

    def __init__(self, op, rng, mean=0.25):
        self.op, self.rng, self.inputs, self.mean = op, rng, [], mean
        # What is not meant to be legal most often is wrong in one place.
        self.wrong = rng.random() < mean

    def chance(self, probability):
        return self.rng.random() < probability

    def spoil(self, probability=0.4):
        return self.wrong and self.chance(probability)

    def tensor(self, dims, dtype="float32", channels_last=None):
        if channels_last is None:
            channels_last = len(dims) == 4 and self.chance(0.3)
        self.inputs.append(Input(list(dims), dtype, channels_last and len(dims) == 4))
        return f"x{len(self.inputs) - 1}"

    def batch(self):
        pick = self.rng.random()
        if pick < 0.7:
            return Batch()
        return Batch(2) if pick < 0.85 else self.rng.choice((1, 2, 3))

    def dims(self, rank, low=1, high=7):
        """Extents of which few are zero; the batch leads, if there is one."""
        dims = [0 if self.chance(0.03) else self.rng.randint(low, high) for _ in range(rank)]
        if dims:
            dims[0] = self.batch()
        if len(dims) > 1 and isinstance(dims[0], Batch) and self.chance(0.07):
            place = self.rng.randrange(len(dims))
            dims[0], dims[place] = dims[place], dims[0]
        return dims

    def rank(self, low, high):
        return (
            self.rng.randint(low, high)
            if not self.spoil(0.2)
            else (self.rng.choice((max(low - 1, 0), high + 1)))
        )

    def dim(self, rank):
        if self.spoil():
            return self.rng.choice((rank, rank + 1, -rank - 1))
        return self.rng.randint(-rank, rank - 1) if rank else (self.rng.choice((0, -1)))

    def call(self, name, *arguments):
        text = ", ".join(
            repr(a) if isinstance(a, (list, float, int, type(None))) else a for a in arguments
        )
        return f"torch.ops.aten.{name}({text})"

    def case(self, *body):
        return Case(self.op, list(body), self.inputs)


# ----------------------------------------------------------------------------
# Pointwise
# ----------------------------------------------------------------------------

UNARY = [
    "relu",
    "relu6",
    "hardtanh",
    "leaky_relu",
    "elu",
    "silu",
    "hardswish",
    "hardsigmoid",
    "gelu",
    "neg",
    "abs",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
]
BINARY = ["add", "sub", "mul", "div"]


def unary(g, name):
    integers = g.wrong or name in ("sigmoid", "tanh", "exp", "sqrt")
    dtype = g.rng.choice(ANY + ["bool", "int64"] * integers)
    x = g.tensor(g.dims(g.rng.randint(0, 5)), dtype)
    extra = {
        "hardtanh": [g.rng.choice((-1.0, -2, 0)), g.rng.choice((1.0, 2, 6))],
        "leaky_relu": [g.rng.choice((0.01, 0.2, 1))],
        "elu": [g.rng.choice((1.0, 0.5, 2)), 1, 1],
    }.get(name, [])
    if name == "gelu" and g.chance(0.4):
        mode = "tanh" if not g.spoil() else "sine"
        extra = [f"approximate='{mode}'"]
    if g.chance(0.3):
        return g.case(f"t = {g.call('abs', x)}", f"r = {g.call(name + '_', 't', *extra)}")
    return g.case(f"r = {g.call(name, x, *extra)}")


def broadcast(g, dims):
    """Extents that broadcast with `dims`, most often."""
    pick = g.rng.random()
    other = list(dims)
    if pick < 0.35:
        pass
    elif pick < 0.6:
        other = [1 if g.chance(0.5) else dim for dim in other]
    elif pick < 0.85:
        other = other[g.rng.randint(0, len(other)) :]
    else:
        other = [1 if g.chance(0.3) else dim for dim in other[g.rng.randint(0, len(other)) :]]
    if other and g.spoil(0.7):
        place = g.rng.randrange(len(other))
        if not isinstance(other[place], Batch):
            other[place] = g.rng.choice((2, 3, 5, 8, 0))
    return other


def binary(g, name):
    dims = g.dims(g.rng.randint(0, 4))
    other = broadcast(g, dims)
    if g.chance(0.3):
        dims, other = other, dims
    same = g.chance(0.5)
    first = g.rng.choice(FLOATS if same else PAIRS)
    layout = len(dims) == 4 and g.chance(0.3)
    x = g.tensor(dims, first, layout)
    if g.chance(0.05):
        y = x
    else:
        y = g.tensor(
            other, first if same else g.rng.choice(PAIRS), layout if g.chance(0.7) else None
        )
    extra = []
    if name in ("add", "sub") and g.chance(0.3):
        extra = [f"alpha={g.rng.choice((2, -1, 0.5))}"]
    if g.chance(0.25):
        return g.case(f"t = {g.call('abs', x)}", f"r = {g.call(name + '_', 't', y, *extra)}")
    return g.case(f"r = {g.call(name, x, y, *extra)}")


# ----------------------------------------------------------------------------
# Matrices
# ----------------------------------------------------------------------------


def linear(g, name):
    inner, outer = g.rng.randint(1, 9), g.rng.randint(1, 9)
    if g.chance(0.04):
        inner = 0
    dtype = g.rng.choice(FLOATS + ["int64"] * g.wrong)
    dims = g.dims(g.rank(1, 4))
    if dims and (len(dims) > 1 or g.chance(0.8)):
        dims[-1] = inner
    weight = [outer, inner]
    if g.chance(0.05):
        weight = [inner]
    bias = [outer]
    if g.spoil():
        weight[-1] += 1
    elif g.spoil():
        bias = g.rng.choice(([outer + 1], [2, outer], [outer, 1]))
    elif g.spoil():
        weight = [2, outer, inner]
    x = g.tensor(dims, dtype)
    w = g.tensor(weight, dtype if not g.spoil() else "float64", False)
    b = g.tensor(bias, dtype) if g.chance(0.5) or g.wrong else "None"
    return g.case(f"r = {g.call(name, x, w, b)}")


def addmm(g, name):
    n, k, m = g.batch(), g.rng.randint(1, 8), g.rng.randint(1, 8)
    if g.chance(0.05):
        k = 0
    dtype = g.rng.choice([*FLOATS, "int64"])
    added = g.rng.choice(([m], [m], [1, m], [n, m], [n, 1], [], [1], [1, 1]))
    first, second = [n, k], [k, m]
    if g.spoil():
        second[0] += 1
    elif g.spoil():
        added = g.rng.choice(([m + 1], [1, n, m], [3, m + 2]))
    elif g.spoil():
        first = first[1:] if g.chance(0.5) else [2, *first]
    a = g.tensor(added, dtype if not g.spoil() else "float64")
    x = g.tensor(first, dtype)
    y = g.tensor(second, dtype if not g.spoil() else "float64")
    extra = []
    if g.chance(0.3):
        extra = [f"beta={g.rng.choice((0, 1, 2))}", f"alpha={g.rng.choice((1, 2))}"]
    return g.case(f"r = {g.call(name, a, x, y, *extra)}")


# ----------------------------------------------------------------------------
# Normalisations, softmax, dropout
# ----------------------------------------------------------------------------


def batch_norm(g, name):
    dims = g.dims(g.rank(2, 5))
    # PyTorch has no code for no channels in most layouts, and checks little
    # of empty inputs.
    dims[1:] = [dim or 3 for dim in dims[1:]]
    channels = dims[1] if len(dims) > 1 else 3
    if isinstance(channels, Batch):
        channels = dims[1] = 4
    dtype = g.rng.choice(FLOATS)
    x = g.tensor(dims, dtype)
    kind = "float32" if dtype in ("float16", "bfloat16") and g.chance(0.5) else dtype
    vectors = []
    for index in range(4):
        count = channels + 1 if g.spoil(0.3) else channels
        absent = g.chance(0.2) if index < 2 else g.spoil(0.2)
        vectors.append("None" if absent else g.tensor([count], kind))
    variance = vectors[3]
    body = []
    if variance != "None":
        body.append(f"t = {g.call('abs', variance)}")
        vectors[3] = "t"
    body.append("r = " + g.call(name, x, *vectors, False, 0.1, 1e-5, True))
    return g.case(*body)


def layer_norm(g, name):
    dims = g.dims(g.rank(1, 4), 1, 9)
    count = g.rng.randint(1, max(len(dims) - 1, 1))
    shape = [dim if not isinstance(dim, Batch) else 3 for dim in dims[-count:]]
    if g.spoil():
        shape[-1:] = [shape[-1] + 1] if shape else []
    elif g.spoil():
        shape = g.rng.choice(([], [1] * (len(dims) + 1)))
    dtype = g.rng.choice(FLOATS)
    kind = "float32" if dtype in ("float16", "bfloat16") and g.chance(0.5) else dtype
    x = g.tensor(dims, dtype)
    parts = []
    for _ in range(2):
        parts.append(g.tensor(shape + [2] * g.spoil(0.2), kind, False) if g.chance(0.6) else "None")
    return g.case(f"r = {g.call(name, x, shape, *parts, 1e-5, True)}")


def softmax(g, name):
    dims = g.dims(g.rng.choice((0, 1, 2, 2, 3, 3, 4, 4)))
    dtype = g.rng.choice([*FLOATS, "int64", "bool"])
    x = g.tensor(dims, dtype)
    code = g.rng.choice(("None", "None", "None", 6, 7))
    dim = g.dim(len(dims))
    if dim in (0, -len(dims)) and g.chance(0.7):
        dim = -1
    return g.case(f"r = {g.call(name, x, dim, code)}")


def dropout(g, name):
    x = g.tensor(g.dims(g.rng.randint(0, 4)), g.rng.choice(ANY))
    rate = g.rng.choice((0.0, 0.1, 0.5, 1.0))
    if g.spoil(0.8):
        rate = g.rng.choice((-0.1, 1.5))
    train = "True" if rate == 0 and g.chance(0.3) else "False"
    if g.wrong:
        train = "True"
    return g.case(f"t = {g.call(name, x, rate, train)}", f"r = {g.call('add', 't', x)}")


# ----------------------------------------------------------------------------
# Convolutions, pools
# ----------------------------------------------------------------------------


def convolution_dims(g, rank, big):
    """Of the input and the weight, and groups, stride, padding, dilation."""
    groups = 1 if g.chance(0.65) else g.rng.choice((2, 3, 4, 8))
    inputs = groups * g.rng.choice((1, 2, 3, 4, 8) + (16, 20) * big)
    outputs = groups * g.rng.choice((1, 2, 3, 4, 8) + (16, 32) * big)
    if g.chance(0.12):
        groups = inputs
        outputs = inputs * g.rng.choice((1, 1, 2))
    kernel = [g.rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(rank)]
    dilation = [1 if g.chance(0.8) else g.rng.choice((2, 3))] * rank
    if g.chance(0.7):
        kernel = kernel[:1] * rank
    stride = [g.rng.choice((1, 1, 2, 3)) for _ in range(rank)]
    padding = [g.rng.choice((0, 0, 1, 2)) for _ in range(rank)]
    if g.chance(0.5):
        stride, padding = stride[:1], padding[:1]
    image = [g.rng.choice((1, 4, 5, 7, 8, 9, 13) if rank < 3 else (4, 5, 7)) for _ in range(rank)]
    if g.chance(0.02):
        image[-1] = 0
    lead = [g.batch()] if g.chance(0.88) else []
    per_group = inputs // groups
    if g.spoil():
        pick = g.rng.randrange(7)
        if pick == 0:
            per_group += 1
        elif pick == 1:
            groups += g.rng.choice((-1, 1))
        elif pick == 2:
            kernel[-1] = 20
        elif pick == 3:
            stride = [g.rng.choice((0, -1))] * rank
        elif pick == 4:
            padding = [-1] * rank
        elif pick == 5:
            dilation = [0] * rank
        else:
            stride = [1] * (rank + 1)
    image_dims = [*lead, inputs, *image]
    if g.spoil(0.15):
        image_dims = image_dims[1:] if g.chance(0.5) else [2, *image_dims]
    return (image_dims, [outputs, per_group, *kernel], groups, stride, padding, dilation)


def convolution(g, name):
    rank = {"conv1d": 1, "conv2d": 2, "conv3d": 3}.get(name, g.rng.choice((1, 2, 2, 2, 3)))
    image, weight, groups, stride, padding, dilation = convolution_dims(g, rank, g.chance(0.5))
    dtype = g.rng.choice(FLOATS[:-2] + ["float32"] * 8 + ["float16"] * g.wrong)
    x = g.tensor(image, dtype)
    w = g.tensor(weight, dtype if not g.spoil(0.2) else "float64", g.chance(0.15))
    b = "None"
    if g.chance(0.5):
        b = g.tensor([weight[0] + g.spoil(0.3)], dtype)
    if name != "_convolution":
        return g.case("r = " + g.call(name, x, w, b, stride, padding, dilation, groups))
    stride = stride * rank if len(stride) == 1 else stride
    padding = padding * rank if len(padding) == 1 else padding
    return g.case(
        "r = "
        + g.call(
            name,
            x,
            w,
            b,
            stride,
            padding,
            dilation,
            False,
            [0] * rank,
            groups,
            False,
            False,
            True,
            True,
        )
    )


def window(g):
    kernel = [g.rng.choice((1, 2, 3, 3, 5)) for _ in range(2)]
    stride = [g.rng.choice((1, 2, 2, 3)) for _ in range(2)]
    padding = [g.rng.randint(0, size // 2) for size in kernel]
    if g.chance(0.3):
        stride = []
    if g.chance(0.3):
        kernel, stride, padding = kernel[:1], stride[:1], [0]
    if g.spoil():
        pick = g.rng.randrange(5)
        if pick == 0:
            padding = [max(kernel)] * 2
        elif pick == 1:
            kernel = [30, 30]
        elif pick == 2:
            stride = [0, 1]
        elif pick == 3:
            kernel = [2, 2, 2]
        else:
            padding = [-1, 0]
    return kernel, stride, padding


def image(g):
    dims = [
        g.batch(),
        g.rng.choice((1, 3, 4, 8)),
        g.rng.choice((1, 5, 6, 7, 8, 11)),
        g.rng.choice((1, 5, 6, 8, 10)),
    ]
    if g.chance(0.03):
        dims[1] = 0
    if g.chance(0.12):
        dims = dims[1:] if g.chance(0.6) else [g.batch(), *dims[2:]]
    if g.spoil(0.25):
        dims = dims[-2:] if g.chance(0.5) else [2, 2, *dims]
    return dims


def max_pool2d(g, name):
    x = g.tensor(image(g), g.rng.choice([*FLOATS, "int64"]))
    kernel, stride, padding = window(g)
    dilation = [1 if g.chance(0.7) else 2] * 2
    if g.spoil(0.15):
        dilation = [0, 1]
    ceil = g.rng.choice(("True", "False"))
    return g.case("r = " + g.call(name, x, kernel, stride, padding, dilation, ceil))


def avg_pool2d(g, name):
    x = g.tensor(image(g), g.rng.choice(FLOATS + ["int64"] * g.wrong))
    kernel, stride, padding = window(g)
    ceil, count = (g.rng.choice(("True", "False")) for _ in range(2))
    divisor = "None" if g.chance(0.8) else 3
    if g.spoil(0.15):
        divisor = 0
    return g.case("r = " + g.call(name, x, kernel, stride, padding, ceil, count, divisor))


def adaptive_avg_pool2d(g, name):
    x = g.tensor(image(g), g.rng.choice(FLOATS + ["int64"] * g.wrong))
    size = g.rng.choice(([1, 1], [1, 1], [2, 2], [3, 1], [7, 7], [4, 12], [0, 2]))
    if g.spoil():
        size = g.rng.choice(([-1, 2], [2], [1, 1, 1]))
    return g.case("r = " + g.call(name, x, size))


# ----------------------------------------------------------------------------
# Views: what follows them makes a tensor of its own
# ----------------------------------------------------------------------------


def flatten(g, name):
    dims = g.dims(g.rng.randint(0, 5))
    x = g.tensor(dims, g.rng.choice(FLOATS))
    start, end = sorted(g.rng.randrange(max(len(dims), 1)) for _ in range(2))
    if g.chance(0.5) and dims:
        start = 1 if len(dims) > 1 else 0
        end = len(dims) - 1
    if g.spoil():
        start, end = g.rng.choice(((end + 1, start), (start, len(dims) + 1), (-len(dims) - 2, end)))
    elif g.chance(0.3):
        end -= max(len(dims), 1)
    return g.case(f"t = {g.call(name, x, start, end)}", f"r = {g.call('neg', 't')}")


def regroup(g, dims):
    """Sizes over the same elements, and how TorchScript says them."""
    literal = [dim for dim in dims[1:] if not isinstance(dim, Batch)]
    count = 1
    for dim in literal:
        count *= dim
    pick = g.rng.random()
    lead = "torch.ops.aten.size(x0, 0)"
    if pick < 0.3:
        sizes = [lead, "-1"]
    elif pick < 0.4:
        sizes = ["-1"]
    elif pick < 0.55:
        sizes = ["-1", str(count)]
    elif pick < 0.65 and literal:
        sizes = ["-1"] + [str(dim) for dim in literal[1:]]
    elif pick < 0.8:
        divisor = next((d for d in (2, 3, 5, 7) if count % d == 0), 1)
        sizes = [lead, str(divisor), str(count // divisor)]
    elif pick < 0.9:
        sizes = [lead] + [str(dim) for dim in reversed(literal)]
    elif pick < 0.95:
        sizes = [lead + " * 1", "1", str(count)]
    else:
        sizes = [str(count), "-1"]
    if g.spoil():
        sizes = g.rng.choice(
            (["-1", "-1"], ["-2"], ["-1", str(count + 1)], [str(count + 1)], ["13", "17"])
        )
    return f"[{', '.join(sizes)}]"


def view(g, name):
    dims = g.dims(g.rng.randint(1, 5))
    x = g.tensor(dims, g.rng.choice(FLOATS))
    sizes = regroup(g, dims)
    return g.case(f"t = {g.call(name, x, sizes)}", f"r = {g.call('neg', 't')}")


def size(g, name):
    dims = g.dims(g.rng.randint(1, 4))
    x = g.tensor(dims, g.rng.choice(FLOATS))
    place = g.dim(len(dims))
    count = [f"torch.ops.aten.size(x0, {index})" for index in range(len(dims))]
    if -len(dims) <= place < len(dims):
        count[place] = "t"
    else:
        count[0] = "t"
    form = g.rng.choice(("view", "reshape"))
    return g.case(
        f"t = {g.call(name, x, place)}",
        f"u = {g.call(form, x, '[' + ', '.join(count) + ', 1]')}",
        f"r = {g.call('neg', 'u')}",
    )


# ----------------------------------------------------------------------------
# Several operators in a row: layouts travel
# ----------------------------------------------------------------------------


def chain(g, name):
    channels, side = g.rng.choice((2, 4, 8, 16)), g.rng.choice((6, 8, 9))
    x = g.tensor([g.batch(), channels, side, side])
    body, last = [], x
    flat = False
    steps = [
        *g.rng.sample(("conv", "norm", "relu", "pool", "average", "softmax", "add"), 3),
        "flatten",
    ]
    for number, step in enumerate(steps, 1):
        if step == "conv":
            w = g.tensor([channels, channels, 3, 3], "float32", g.chance(0.2))
            text = g.call("conv2d", last, w, "None", [1], [1], [1], 1)
        elif step == "norm":
            vectors = [g.tensor([channels]) for _ in range(3)]
            body.append(f"v = {g.call('abs', vectors[0])}")
            text = g.call("batch_norm", last, *vectors, "v", False, 0.1, 1e-5, True)
        elif step == "relu":
            text = g.call(g.rng.choice(("relu", "silu", "gelu")), last)
        elif step == "pool":
            text = g.call("max_pool2d", last, [2], [], [0], [1], False)
        elif step == "average":
            text = g.call("avg_pool2d", last, [3], [1], [1], False, True, "None")
        elif step == "softmax":
            text = g.call("softmax", last, g.rng.choice((1, -1)), "None")
        elif step == "add":
            text = g.call("mul", last, last)
        else:
            flat = True
            text = g.call("flatten", last, 1, -1)
        last = f"t{number}" if step != "flatten" else "u"
        body.append(f"{last} = {text}")
    assert flat
    return g.case(*body, f"r = {g.call('tanh', 'u')}")


GENERATORS = (
    {name: unary for name in UNARY}
    | {name: binary for name in BINARY}
    | {
        "linear": linear,
        "addmm": addmm,
        "batch_norm": batch_norm,
        "layer_norm": layer_norm,
        "softmax": softmax,
        "log_softmax": softmax,
        "dropout": dropout,
        "conv1d": convolution,
        "conv2d": convolution,
        "conv3d": convolution,
        "_convolution": convolution,
        "max_pool2d": max_pool2d,
        "avg_pool2d": avg_pool2d,
        "adaptive_avg_pool2d": adaptive_avg_pool2d,
        "flatten": flatten,
        "view": view,
        "reshape": view,
        "size": size,
        "chain": chain,
    }
)

# Few arguments, so that few calls tell them apart.
SMALL = set(UNARY) | {"dropout", "size"}


def generate(op, rng, mean=0.25):
    return GENERATORS[op](Generator(op, rng, mean), op)
