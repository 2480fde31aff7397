"""Calls of elementwise operators on one tensor."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, INTEGERS, Batch, takes_all

ALL = ANY * 2 + INTEGERS + COMPLEX
#: Element types by the categories that an operator refuses.
CATEGORIES = {"b": ["bool"], "i": INTEGERS, "f": FLOATS, "c": COMPLEX}


def types(refused):
    return [name for name in ALL if not any(name in CATEGORIES[letter] for letter in refused)]


def refused_types(refused):
    return [name for letter in refused for name in CATEGORIES[letter]]


def callee(g):
    """`torch.ops.aten.add_` for `aten::add_.Tensor`."""
    return "torch.ops.aten." + g.op.split("::")[1].split(".")[0]


def is_in_place(g):
    name = g.op.split("::")[1].split(".")[0]
    return name.endswith("_") and (not name.endswith("__") or name.startswith("__i"))


def dtype(g, refused, wanted=None):
    """Most often one that the operator takes."""
    if refused and g.spoil(0.8):
        return g.dtype(refused_types(refused))
    return g.dtype(wanted or types(refused))


def fresh(g, dims, kind="float32"):
    """A tensor that may be written: no argument of the program."""
    name = f"q{len(g.prepared)}"
    plain = dims and not isinstance(dims[-1], Batch) and dims[-1] > 0
    if plain and g.spoil(0.3):
        x = g.tensor([*dims[:-1], 1], kind, channels_last=False)
        g.prepare(f"{name} = torch.ops.aten.clone({x})")
        g.prepare(f"{name}e = torch.ops.aten.expand({name}, {[-1] * (len(dims) - 1) + [dims[-1]]})")
        return name + "e"
    if plain and g.chance(0.2):
        x = g.tensor([*dims[:-1], 2 * dims[-1]], kind, channels_last=False)
        g.prepare(f"{name} = torch.ops.aten.clone({x})")
        g.prepare(f"{name}s = torch.ops.aten.slice({name}, -1, 0, {2 * dims[-1]}, 2)")
        return name + "s"
    x = g.strided(dims, kind)
    g.prepare(f"{name} = torch.ops.aten.clone({x})")
    return name


def tensor(g, dims, kind="float32"):
    """The first operand, which an in-place operator writes."""
    return fresh(g, dims, kind) if is_in_place(g) else g.strided(dims, kind)


def broadcast(g, dims):
    """A literal extent in the batch dim would be legal at one batch only."""
    other = g.broadcast(dims)
    for place in range(-len(other), 0):
        if isinstance(dims[place], Batch) and isinstance(other[place], int):
            other[place] = 1
    return other


def number(g, *values):
    """A literal number, or a computed one. TorchScript makes ints of bools."""
    if g.inputs and g.inputs[0].dims and g.chance(0.1):
        name = f"n{len(g.prepared)}"
        g.prepare(f"{name} = torch.ops.aten.size(x0, 0)")
        return name
    return g.pick(*(values or (2, 3, 0, 1, 0.5, 1.5, 2.0, -1)))


def unary(refused="", arguments="", *choices, wanted=None, wrong=()):
    """`choices` has the values of each argument; `wrong` bad tuples of them."""

    def make(g):
        kind = dtype(g, refused, wanted)
        if is_in_place(g) and g.chance(0.6):
            kind = g.dtype(FLOATS)
        x = tensor(g, g.dims(g.rng.randint(0, 5)), kind)
        values = [repr(g.pick(*values)) for values in choices]
        if wrong and g.spoil(0.7):
            values = [repr(value) for value in g.pick(*wrong)]
        return g.call(f"r = {callee(g)}({x}{arguments})" % tuple(values))

    return takes_all(make, not refused and not wrong)


def glu(g):
    dims = g.dims(g.rng.randint(0 if g.spoil(0.2) else 1, 5))
    dim = g.dim(len(dims))
    if -len(dims) <= dim < len(dims) and not g.spoil(0.6):
        size = dims[dim]
        dims[dim] = Batch(2 * size.factor) if isinstance(size, Batch) else 2 * size
    x = g.strided(dims, dtype(g, "bic"))
    return g.call("r = torch.ops.aten.glu(%s, %s)", x, dim)


def prelu(g):
    dims = g.dims(g.rng.randint(0, 5))
    kind = dtype(g, "bic")
    channels = dims[1] if len(dims) > 1 else 1
    count = g.pick(1, 1, channels, channels, channels)
    shape = [] if count == 1 and g.chance(0.3) else [count]
    if g.spoil():
        shape = g.pick([7], [1, 1], [2])
    x = g.strided(dims, kind)
    weight = g.tensor(shape, "float16" if g.spoil(0.2) else kind)
    return g.call("r = torch.ops.aten.prelu(%s, %s)", x, weight)


def clamp(g):
    kind = dtype(g, "c")
    x = tensor(g, g.dims(g.rng.randint(0, 5)), kind)
    low, high = number(g, 0, -1, 0.5, None), number(g, 2, 5, 2.5)
    if low == 0 and g.chance(0.3):
        high = None
    if g.spoil(0.5):
        low = high = None
    return g.call(f"r = {callee(g)}(%s, %s, %s)", x, low, high)


def limit(g):
    x = tensor(g, g.dims(g.rng.randint(0, 5)), dtype(g, "c"))
    return g.call(f"r = {callee(g)}(%s, %s)", x, number(g, 0, 1, 0.5, -2))


def clamp_tensors(g):
    dims = g.dims(g.rng.randint(0, 4))
    x = tensor(g, dims, dtype(g, "c"))
    limits = [g.strided(broadcast(g, dims), dtype(g, "c")) for _ in range(2)]
    if g.chance(0.3):
        limits[g.pick(0, 1)] = None
    if g.spoil(0.2):
        limits = [None, None]
        return g.call("r = torch.ops.aten.clamp(%s)", x)
    return g.call(f"r = {callee(g)}(%s, %s, %s)", x, *limits)


def limit_tensor(g):
    dims = g.dims(g.rng.randint(0, 4))
    x = tensor(g, dims, dtype(g, "c"))
    return g.call(f"r = {callee(g)}(%s, %s)", x, g.strided(broadcast(g, dims), dtype(g, "c")))


def rrelu(g):
    x = tensor(g, g.dims(g.rng.randint(0, 5)), dtype(g, "bic"))
    low, high = g.pick((0.1, 0.3), (0.2, 0.2), (0, 1))
    if g.spoil(0.5):
        low, high = 0.5, 0.1
    return g.call(f"r = {callee(g)}(%s, %s, %s)", x, low, high)


GENERATORS = {}


def add(names, make, twins=True):
    for name in names.split():
        base, _, overload = name.partition(".")
        end = "." + overload if overload else ""
        GENERATORS[f"aten::{base}{end}"] = make
        if twins:

            def in_place(g, make=make):
                return make(g)

            GENERATORS[f"aten::{base}_{end}"] = in_place


# Element types that are refused, as PyTorch does by category.
add(
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan "
    "sinh cosh asinh acosh atanh sinc reciprocal sigmoid tanh square sgn",
    unary(),
)
add("erf erfc erfinv lgamma digamma deg2rad rad2deg sign", unary("c"))
add("special_entr", unary("c"), twins=False)
add("neg", unary("b"))
add("abs", unary("b"))
add("floor ceil trunc round relu relu6", unary("bc"))
add("frac mish selu hardswish hardsigmoid", unary("bic"))
add("silu", unary("bi"))
add("bitwise_not", unary("fc"))
add("logical_not", unary())
add("angle isnan isinf isfinite", unary(), twins=False)
add("signbit", unary("c"), twins=False)
add("log_sigmoid", unary("bic"), twins=False)
add("softplus", unary("bic", ", %s, %s", (1, 2, 0.5), (20, 10.0)), twins=False)
add("hardshrink", unary("bic", ", %s", (0.5, 1)), twins=False)
add("softshrink", unary("bic", ", %s", (0.5, 1), wrong=((-1,), (-0.5,))), twins=False)
add("round.decimals", unary("bic", ", decimals=%s", (0, 1, 2, -1)))
add("nan_to_num", unary("", ", %s, %s", (None, 0.0, 1.5), (None, 2.0)))
add("logit", unary("c", ", %s", (None, 0.1)))
add("gelu", unary("bic", ", approximate=%s", ("none", "tanh"), wrong=(("foo",),)))
add("celu", unary("bic", ", %s", (1, 0.5), wrong=((0,), (0.0,))))
add("elu", unary("bic", ", %s, %s, %s", (1, 0.5), (1, 1.5), (1, 2)))
add("leaky_relu", unary("bic", ", %s", (0.01, 2)))
add("hardtanh", unary("bc", ", %s, %s", (0, 0.5), (1, 6.0)))
add("threshold", unary("bc", ", %s, %s", (0, 0.5), (1, 2.0)))
add("glu", glu, twins=False)
add("prelu", prelu, twins=False)
add("rrelu", rrelu)
add("clamp clip", clamp)
add("clamp_min clamp_max", limit)
add("clamp.Tensor clip.Tensor", clamp_tensors)
add("clamp_min.Tensor clamp_max.Tensor", limit_tensor)
