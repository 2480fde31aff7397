"""Calls of elementwise operators on several operands that broadcast."""

from koila._generators.generator import takes_all
from koila._generators.pointwise import (
    ALL,
    FLOATS,
    INTEGERS,
    broadcast,
    callee,
    dtype,
    is_in_place,
    number,
    tensor,
)


def kinds(g, count, refused, same=False):
    """Element types of operands; an in-place result must hold the others."""
    found = [dtype(g, refused) for _ in range(count)]
    if is_in_place(g) and "f" not in refused and g.chance(0.6):
        found[0] = g.dtype(FLOATS)
    if (same and not g.spoil(0.3)) or g.chance(0.4):
        found = found[:1] * count
    # complex32 is no type of koila.
    if "complex" in g.op or any("complex" in kind for kind in found):
        found = ["float32" if kind == "float16" else kind for kind in found]
    return found


def pair(refused="", text="(%s, %s)", same=False):
    def make(g):
        dims = g.dims(g.rng.randint(0, 4))
        first, second = kinds(g, 2, refused, same)
        if g.chance(0.2) and not is_in_place(g):
            y, x = g.strided(dims, second), g.strided(broadcast(g, dims), first)
        else:
            x = tensor(g, dims, first)
            y = g.strided(broadcast(g, dims), second)
        return g.call(f"r = {callee(g)}{text}", x, y)

    return make


def with_number(refused="", text="(%s, %s)", values=()):
    """A tensor and a number."""

    def make(g):
        x = tensor(g, g.dims(g.rng.randint(0, 4)), kinds(g, 1, refused)[0])
        return g.call(f"r = {callee(g)}{text}", x, number(g, *values))

    return takes_all(make, not refused)


def number_first(refused="", values=(2, 0.5, 3.0)):
    def make(g):
        x = g.strided(g.dims(g.rng.randint(0, 4)), kinds(g, 1, refused)[0])
        return g.call(f"r = {callee(g)}(%s, %s)", number(g, *values), x)

    return takes_all(make, not refused)


def scaled(refused=""):
    def make(g):
        text = "(%s, %s)"
        if g.chance(0.4):
            text = "(%s, %s, alpha=" + repr(g.pick(1, 2, 1.0, 0.5)) + ")"
        if g.spoil(0.3):
            text = "(%s, %s, alpha=0.5)"
        return pair(refused, text)(g)

    return make


def scaled_number(refused=""):
    def make(g):
        text = "(%s, %s)"
        if g.chance(0.4):
            text = "(%s, %s, " + repr(g.pick(1, 2, 1.0, 0.5)) + ")"
        return with_number(refused, text)(g)

    return make


def mode(make_with):
    def make(g):
        name = g.pick(None, "trunc", "floor")
        if g.spoil(0.5):
            name = "round"
        return make_with("bc" if name else "", f"(%s, %s, rounding_mode={name!r})")(g)

    return make


def power(g):
    make = with_number("", values=(2, 3, 0.5, 2.0, 0, 1, -0.5))
    if g.spoil(0.7):
        x = tensor(g, g.dims(g.rng.randint(0, 4)), g.dtype(INTEGERS))
        return g.call(f"r = {callee(g)}(%s, %s)", x, g.pick(-1, -2))
    return make(g)


def three(refused, text, same=False):
    def make(g):
        dims = g.dims(g.rng.randint(0, 4))
        first, *others = kinds(g, 3, refused, same)
        x = tensor(g, dims, first)
        others = [g.strided(broadcast(g, dims), kind) for kind in others]
        return g.call(f"r = {callee(g)}{text}", x, *others)

    return make


def lerp_number(g):
    dims = g.dims(g.rng.randint(0, 4))
    first, second = kinds(g, 2, "bi", True)
    x, y = tensor(g, dims, first), g.strided(broadcast(g, dims), second)
    return g.call(f"r = {callee(g)}(%s, %s, %s)", x, y, number(g, 0.5, 0.25, 1))


def condition(g, dims):
    kind = g.pick("float32", "int64") if g.spoil(0.3) else "bool"
    return g.strided(broadcast(g, dims), kind)


def where(g):
    dims = g.dims(g.rng.randint(0, 4))
    first, second = kinds(g, 2, "")
    c = condition(g, dims)
    x, y = g.strided(dims, first), g.strided(broadcast(g, dims), second)
    return g.call("r = torch.ops.aten.where(%s, %s, %s)", c, x, y)


def where_number(left, right):
    def make(g):
        dims = g.dims(g.rng.randint(0, 4))
        c = condition(g, dims)
        operands = [
            number(g, 0, 1.5, 2, -1) if is_number else g.strided(dims, kinds(g, 1, "")[0])
            for is_number in (left, right)
        ]
        return g.call("r = torch.ops.aten.where(%s, %s, %s)", c, *operands)

    return make


def masked_fill(by_number):
    def make(g):
        dims = g.dims(g.rng.randint(0, 4))
        kind = g.dtype(ALL)
        x = tensor(g, dims, kind)
        mask = condition(g, dims)
        if by_number:
            value = number(g, 0, 1, 0.5)
        else:
            value = g.tensor(
                [1] if g.spoil(0.3) else [],
                g.pick(kind, "int64", "float32"),
                low=0,
                high=1,
            )
        return g.call(f"r = {callee(g)}(%s, %s, %s)", x, mask, value)

    return make


GENERATORS = {}


def add(names, make, twins=True):
    for name in names.split():
        base, _, overload = name.partition(".")
        end = "." + overload if overload else ""
        GENERATORS[f"aten::{base}{end}"] = make
        if twins:
            twin = "__i" + base[2:] if base.startswith("__") else base + "_"

            def in_place(g, make=make):
                return make(g)

            GENERATORS[f"aten::{twin}{end}"] = in_place


add("add.Tensor", scaled())
add("add.Scalar", scaled_number())
add("sub.Tensor", scaled("b"))
add("sub.Scalar", scaled_number("b"))
add("rsub.Tensor", scaled("b"), twins=False)
add("rsub.Scalar", scaled_number("b"), twins=False)
add("mul.Tensor div.Tensor true_divide.Tensor", pair())
add("mul.Scalar div.Scalar true_divide.Scalar", with_number())
add("div.Tensor_mode", mode(pair))
add("div.Scalar_mode", mode(lambda refused, text: with_number(refused, text, (2, 3, 0.5, 2.0))))
add("remainder.Tensor fmod.Tensor", pair("bc"))
add("remainder.Scalar fmod.Scalar", with_number("bc", values=(2, 3, 0.5, 2.0)))
GENERATORS["aten::floor_divide"] = pair("bc")
GENERATORS["aten::floor_divide_.Tensor"] = pair("bc")
add("floor_divide.Scalar", with_number("bc", values=(2, 3, 0.5, 2.0)))
GENERATORS["aten::pow.Tensor_Tensor"] = pair("")
GENERATORS["aten::pow_.Tensor"] = pair("")
GENERATORS["aten::pow.Tensor_Scalar"] = power
GENERATORS["aten::pow_.Scalar"] = power
add("pow.Scalar", number_first(), twins=False)
add("atan2", pair("c"))
add("hypot", pair("bic"))
add("logaddexp", pair("bi"), twins=False)
add("logaddexp2", pair("bic"), twins=False)
add("copysign.Tensor xlogy.Tensor", pair("c"))
add("copysign.Scalar xlogy.Scalar_Other", with_number("c"))
add("xlogy.Scalar_Self", number_first("c"), twins=False)
add("heaviside", pair("c", same=True))
add("complex polar", pair("bic", same=True), twins=False)
add("maximum minimum fmax fmin max.other min.other", pair("c"), twins=False)
add("eq.Tensor ne.Tensor", pair())
add("eq.Scalar ne.Scalar", with_number())
add("lt.Tensor le.Tensor gt.Tensor ge.Tensor", pair("c"))
add("lt.Scalar le.Scalar gt.Scalar ge.Scalar", with_number("c"))
add("isclose", pair("", same=True), twins=False)
add("logical_and logical_or logical_xor", pair())
add(
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor "
    "__or__.Tensor __xor__.Tensor",
    pair("fc"),
)
add(
    "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar "
    "__or__.Scalar __xor__.Scalar",
    with_number("fc", values=(1, 2, 6)),
)
add("__lshift__.Tensor __rshift__.Tensor", pair("bfc"))
add("__lshift__.Scalar __rshift__.Scalar", with_number("bfc", values=(1, 2)))
add("lerp.Scalar", lerp_number)
add("lerp.Tensor", three("bi", "(%s, %s, %s)", same=True))
add("addcmul", three("b", "(%s, %s, %s, value=2)"))
add("addcdiv", three("b", "(%s, %s, %s)"))
GENERATORS["aten::where.self"] = where
GENERATORS["aten::where.ScalarOther"] = where_number(False, True)
GENERATORS["aten::where.ScalarSelf"] = where_number(True, False)
GENERATORS["aten::where.Scalar"] = where_number(True, True)
add("masked_fill.Scalar", masked_fill(True))
add("masked_fill.Tensor", masked_fill(False))
