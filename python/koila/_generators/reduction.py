"""Calls of reductions."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, Batch, takes_all

ALL = ANY + COMPLEX
PARTS = FLOATS + COMPLEX
ORDERED = [t for t in ANY if t != "bool"]


def dims_list(g, rank):
    """Distinct dims, sometimes none."""
    count = g.rng.randint(0 if g.chance(0.2) else min(rank, 1), min(rank, 3))
    dims = [d - rank if g.chance(0.4) else d for d in g.rng.sample(range(rank), count)]
    if not rank and g.chance(0.3):
        dims = [g.pick(0, -1)]
    if g.spoil():
        dims += [dims[0]] if dims else [g.pick(rank + 1, -rank - 2)]
    if dims and g.spoil():
        dims[-1] = g.pick(rank + 1, -rank - 2)
    return dims


def empty_some(g, dims, among):
    """Where no elements have no value, an illegal call has none."""
    plain = [d for d in among if not isinstance(dims[d], Batch)]
    if plain and g.spoil(0.6):
        dims[g.pick(*plain)] = 0


def make(
    name,
    kind,
    dtypes=ALL,
    bad=(),
    results=1,
    dtype=(),
    nonempty=False,
    before="",
    keywords=None,
    keepdim=True,
    rank=(0, 5),
    easy=False,
):
    """A function for one schema. `kind` is what `dim` is: full, dim, dims, or
    with `?` None as well; `before` stands before it."""

    def generate(g):
        r = g.rank(*rank) if rank[0] == rank[1] else g.rng.randint(*rank)
        dims = g.dims(r)
        arguments = [before(g) if callable(before) else before]
        arguments = [a for a in arguments if a]
        named = []
        reduced = range(r)
        if kind.startswith("dims"):
            value = None if kind.endswith("?") and g.chance(0.2) else dims_list(g, r)
            if value:
                reduced = [d % r for d in value if r and -r <= d < r]
            arguments.append(repr(value))
        elif kind.startswith("dim"):
            value = None if kind.endswith("?") and g.chance(0.3) else g.dim(r)
            if value is not None and r and -r <= value < r:
                reduced = [value % r]
            arguments.append(("dim=" if name == "aminmax" else "") + repr(value))
        if keepdim and kind != "full":
            where = named if name == "aminmax" else arguments
            where.append(("keepdim=" if name == "aminmax" else "") + repr(g.chance(0.4)))
        if nonempty and (callable(nonempty) is False or nonempty(arguments)):
            empty_some(g, dims, list(reduced))
        if dtype and (dtype[0] == "!" or g.chance(0.4)):
            named.append(f"dtype=torch.{g.pick(*[t for t in dtype if t != '!'])}")
        if keywords:
            named += keywords(g)
        among = bad if bad and g.spoil(0.5) else dtypes
        x = g.strided(dims, g.dtype(list(among)))
        if "median" in name and g.prepared and "expand" in g.prepared[-1]:
            # PyTorch's kernel swaps elements that are one in memory.
            g.prepare(f"c = torch.ops.aten.neg({x})")
            x = "c"
        left = "r" if results == 1 else "r, s"
        text = ", ".join([x, *arguments, *named])
        return g.call(f"{left} = torch.ops.aten.{name}({text})")

    return takes_all(generate, easy)


def p(g):
    return repr(g.pick(2, 1, 0, 3.0, -1, float("inf"), 2.0, 0.5)).replace("inf", "float('inf')")


def correction(g):
    return [f"correction={g.pick(0, 1, 2, 1.0, None)}"]


def unbiased(g):
    return repr(g.chance(0.5))


def moment(name, results=1):
    def after(g):
        return [f"unbiased={g.chance(0.5)}", f"keepdim={g.chance(0.4)}"]

    common = dict(dtypes=PARTS, bad=ANY[-4:], results=results)
    return {
        f"aten::{name}": make(name, "full", before=unbiased, **common),
        f"aten::{name}.dim": make(name, "dims?", keywords=after, keepdim=False, **common),
        f"aten::{name}.correction": make(
            name,
            "dims?",
            keepdim=False,
            **common,
            keywords=lambda g: [*correction(g), f"keepdim={g.chance(0.4)}"],
        ),
    }


def quantile(name, scalar):
    def generate(g):
        r = g.rng.randint(0, 4)
        dims = g.dims(r)
        if r and g.spoil(0.3):
            empty_some(g, dims, list(range(r)))
        kind = g.pick("float32", "float32", "float64")
        x = g.strided(dims, g.pick("float16", "int64") if g.spoil(0.3) else kind)
        if scalar:
            q = repr(g.pick(1.5, -0.1) if g.spoil(0.4) else g.pick(0.0, 0.25, 0.5, 0.9, 1.0))
        else:
            q = g.tensor([g.rng.randint(1, 4)] if g.chance(0.7) else [], kind)
            g.prepare(f"q = torch.ops.aten.sigmoid({q})")
            q = "q"
        dim = None if g.chance(0.3) else g.dim(r)
        how = "bad" if g.spoil(0.2) else g.pick("linear", "lower", "higher", "midpoint", "nearest")
        return g.call(
            f"r = torch.ops.aten.{name}({x}, {q}, {dim}, {g.chance(0.4)}, interpolation='{how}')"
        )

    return generate


def logsumexp(g):
    case = make("logsumexp", "dims", dtypes=ANY, bad=["complex64"])(g)
    return case


def norm_empty(arguments):
    return arguments[0].startswith(("-", "float"))


def vector_dtype(g):
    return [f"dtype=torch.{g.pick('float64', 'float32', 'complex128')}"] if g.chance(0.3) else []


SUMS = ("float32", "float64", "int64", "int32", "float16", "complex64")
GENERATORS = {
    "aten::sum": make("sum", "full", dtype=SUMS, easy=True),
    "aten::sum.dim_IntList": make("sum", "dims?", dtype=SUMS),
    "aten::nansum": make("nansum", "dims?", dtypes=ANY, bad=COMPLEX, dtype=SUMS[:5]),
    "aten::mean": make(
        "mean", "full", dtypes=PARTS, bad=ANY[-4:], dtype=("float32", "float64", "int64")
    ),
    "aten::mean.dim": make(
        "mean", "dims?", dtypes=PARTS, bad=ANY[-4:], dtype=("float32", "float64", "int64")
    ),
    "aten::nanmean": make(
        "nanmean", "dims?", dtypes=FLOATS, bad=ANY[-4:], dtype=("float32", "float64")
    ),
    "aten::prod": make("prod", "full", dtype=SUMS, easy=True),
    "aten::prod.dim_int": make("prod", "dim", dtype=SUMS),
    "aten::count_nonzero": make("count_nonzero", "dim?", keepdim=False),
    "aten::count_nonzero.dim_IntList": make("count_nonzero", "dims", keepdim=False),
    "aten::logsumexp": logsumexp,
    "aten::trace": make("trace", "full", rank=(2, 2), dtypes=ORDERED + COMPLEX),
    "aten::aminmax": make("aminmax", "dim?", dtypes=ANY, bad=COMPLEX, results=2, nonempty=True),
    "aten::norm.Scalar": make(
        "norm", "full", dtypes=PARTS, bad=ANY[-4:], before=p, nonempty=norm_empty
    ),
    "aten::norm.ScalarOpt_dim": make(
        "norm", "dims", dtypes=PARTS, bad=ANY[-4:], before=p, nonempty=norm_empty
    ),
    "aten::norm.ScalarOpt_dim_dtype": make(
        "norm",
        "dims",
        dtypes=["float32", "float16", "float64"],
        bad=ANY[-4:] + COMPLEX,
        before=p,
        nonempty=norm_empty,
        dtype=("!", "float32", "float64"),
    ),
    "aten::linalg_vector_norm": make(
        "linalg_vector_norm",
        "dims?",
        dtypes=PARTS,
        bad=ANY[-4:],
        before=p,
        nonempty=norm_empty,
        keywords=vector_dtype,
    ),
    "aten::mode": make("mode", "dim", dtypes=ANY, bad=COMPLEX, results=2, nonempty=True),
    "aten::quantile": quantile("quantile", False),
    "aten::quantile.scalar": quantile("quantile", True),
    "aten::nanquantile": quantile("nanquantile", False),
    "aten::nanquantile.scalar": quantile("nanquantile", True),
    **moment("std"),
    **moment("var"),
    **moment("std_mean", 2),
    **moment("var_mean", 2),
}
for name in ("max", "min"):
    common = dict(dtypes=ANY, bad=COMPLEX, nonempty=True)
    GENERATORS |= {
        f"aten::{name}": make(name, "full", **common),
        f"aten::{name}.dim": make(name, "dim", results=2, **common),
        f"aten::a{name}": make("a" + name, "dims", **common),
        f"aten::arg{name}": make("arg" + name, "dim?", **common | dict(dtypes=ORDERED)),
    }
for name in ("all", "any"):
    GENERATORS |= {
        f"aten::{name}": make(name, "full", easy=True),
        f"aten::{name}.dim": make(name, "dim"),
        f"aten::{name}.dims": make(name, "dims?"),
    }
for name in ("median", "nanmedian"):
    GENERATORS |= {
        f"aten::{name}": make(name, "full", dtypes=ORDERED, bad=COMPLEX),
        f"aten::{name}.dim": make(
            name, "dim", dtypes=ORDERED, bad=COMPLEX, results=2, nonempty=True
        ),
    }
