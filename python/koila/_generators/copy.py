"""Calls of casts, copies, fills and of what reads numbers from tensors."""

from koila._generators.factory import layout, number, value
from koila._generators.generator import ANY, COMPLEX, reads_data, takes_all

DTYPES = ANY + COMPLEX


def of_any(g, among=DTYPES):
    rank = g.rng.randint(0, 5)
    return g.strided(g.dims(rank, high=4), g.dtype(among)), rank


# Casts ----------------------------------------------------------------------


def flags(g):
    text = g.pick("", "", ", copy=True", ", copy=False")
    return text + g.pick("", "", ", non_blocking=True")


def same_often(g, x):
    """The element type of `x`, or another."""
    return g.dtype(DTYPES) if g.chance(0.5) else g.inputs[-1].dtype


def to(*leading, formats=True, keywords=False):
    """`leading`: which arguments stand before the flags."""

    def make(g):
        x, rank = of_any(g)
        arguments = [x]
        for kind in leading:
            if kind == "dtype":
                arguments.append(f"torch.{same_often(g, x)}")
            elif kind == "device":
                arguments.append('torch.device("cpu")')
            elif kind == "other":
                dims = g.dims(g.rng.randint(0, 3))
                arguments.append(g.tensor(dims, same_often(g, x)))
        text = flags(g)
        if keywords:
            # Else the overload with a `dtype` would be called.
            text += ", pin_memory=None"
            if g.chance(0.7):
                text = f", dtype=torch.{same_often(g, x)}" + text
        if formats:
            text += layout(g, rank, 0.9 if g.wrong else 0.4)
        if "other" in leading:
            # Python would take a number in a tensor for a `dtype`.
            return g.call(f"r = {x}.to({arguments[1]}{text})")
        return g.call(f"r = torch.ops.aten.to({', '.join(arguments)}{text})")

    return takes_all(make, not formats)


@takes_all
def type_as(g):
    x, _ = of_any(g)
    other = g.tensor(g.dims(g.rng.randint(0, 3)), same_often(g, x))
    return g.call("r = torch.ops.aten.type_as(%s, %s)", x, other)


@takes_all
def as_tensor(g):
    x, _ = of_any(g)
    text = f", dtype=torch.{same_often(g, x)}" if g.chance(0.6) else ""
    return g.call(f"r = torch.as_tensor({x}{text})")


def copied(name, keywords=False):
    def make(g):
        x, rank = of_any(g)
        text = ""
        if keywords and g.chance(0.6):
            text = f", dtype=torch.{same_often(g, x)}"
        text += layout(g, rank, 0.9 if g.wrong else 0.5)
        return g.call(f"r = torch.ops.aten.{name}({x}{text})")

    return make


def plain(name):
    @takes_all
    def make(g):
        x, _ = of_any(g)
        return g.call(f"r = torch.ops.aten.{name}({x})")

    return make


# Overwritten tensors --------------------------------------------------------


def overwritten(g, dims, dtype):
    """A tensor of the program's own, which may be written."""
    x = g.strided(dims, dtype)
    if g.chance(0.5):
        return x, ""
    fresh = f"f{len(g.prepared)}"
    g.prepare(f"{fresh} = torch.ops.aten.clone({x})")
    return fresh, "_"


def copy(g):
    dims = g.dims(g.rng.randint(0, 4))
    x, twin = overwritten(g, dims, g.dtype(DTYPES))
    source = g.strided(g.broadcast(dims), g.dtype(ANY))
    if g.spoil(0.3):
        source = g.tensor([2, *dims])
    return g.call(f"r = torch.ops.aten.copy{twin}({x}, {source})")


@takes_all
def fill_scalar(g):
    x, twin = overwritten(
        g,
        g.dims(g.rng.randint(0, 5), high=4),
        g.dtype(["float32", "float64", "float16", "int64", "int32", "complex64"]),
    )
    number_ = number(g) if g.chance(0.3) else value(g)
    return g.call(f"r = torch.ops.aten.fill{twin}({x}, {number_})")


def fill_tensor(g):
    x, twin = overwritten(g, g.dims(g.rng.randint(0, 5), high=4), g.dtype(ANY))
    y = g.tensor([g.rng.randint(1, 3)] * g.spoil(0.9), g.dtype(ANY))
    return g.call(f"r = torch.ops.aten.fill{twin}({x}, {y})")


@takes_all
def zero(g):
    x, twin = overwritten(g, g.dims(g.rng.randint(0, 5), high=4), g.dtype(DTYPES))
    return g.call(f"r = torch.ops.aten.zero{twin}({x})")


@takes_all
def conj_physical(g):
    x, twin = overwritten(g, g.dims(g.rng.randint(0, 5), high=4), g.dtype(DTYPES + COMPLEX * 3))
    return g.call(f"r = torch.ops.aten.conj_physical{twin}({x})")


def conjugate(name):
    @takes_all
    def make(g):
        x, _ = of_any(g, DTYPES + COMPLEX * 3)
        if name == "resolve_conj" and g.chance(0.5):
            g.prepare(f"c = torch.ops.aten.conj({x})")
            x = "c"
        return g.call(f"r = torch.ops.aten.{name}({x})")

    return make


# Numbers and flags ----------------------------------------------------------
# Only tensors are compared, so the case is what is made of the number.


def flag(name):
    @takes_all
    def make(g):
        x, _ = of_any(g)
        g.prepare(f"b = torch.ops.aten.{name}({x})")
        return g.call(f"r = torch.ops.aten.full([{g.rng.randint(0, 9)}], b, dtype=torch.bool)")

    return make


def read(text, use, types=ANY, dims_too=True):
    def make(g):
        dims = [1] * g.rng.randint(0, 2 * dims_too)
        if g.wrong:
            dims = [g.rng.randint(2, 30)] * g.pick(1, 1, 2)
        x = g.tensor(dims, g.dtype(types), low=1, high=4)
        g.prepare(f"n = {text}({x})")
        return g.call(f"r = torch.ops.aten.{use % g.rng.randint(0, 9)}")

    return reads_data(make)


FULL = "full([%d], n, dtype=torch.float64)"
GENERATORS = {
    "aten::to.dtype": to("dtype"),
    "aten::to.device": to("device", "dtype"),
    "aten::to.other": to("other"),
    "aten::to.dtype_layout": to(keywords=True),
    "aten::type_as": type_as,
    "aten::as_tensor": as_tensor,
    "aten::_to_copy": copied("_to_copy", keywords=True),
    "aten::clone": copied("clone"),
    "aten::contiguous": copied("contiguous"),
    "aten::cpu": plain("cpu"),
    "aten::lift_fresh": plain("lift_fresh"),
    "aten::lift_fresh_copy": plain("lift_fresh_copy"),
    "aten::copy": copy,
    "aten::fill.Scalar": fill_scalar,
    "aten::fill.Tensor": fill_tensor,
    "aten::zero": zero,
    "aten::conj": conjugate("conj"),
    "aten::resolve_conj": conjugate("resolve_conj"),
    "aten::resolve_neg": conjugate("resolve_neg"),
    "aten::conj_physical": conj_physical,
    "aten::is_floating_point": flag("is_floating_point"),
    "aten::is_complex": flag("is_complex"),
    "aten::is_signed": flag("is_signed"),
    "aten::Int.Tensor": read("int", "zeros([n, %d])"),
    "aten::Float.Tensor": read("float", FULL),
    "aten::Bool.Tensor": read("bool", FULL),
    "aten::is_nonzero": read("torch.ops.aten.is_nonzero", FULL),
}
