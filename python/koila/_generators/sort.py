"""Calls of sorting, searching and cumulative operators."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, Batch, reads_data

ALL = ANY + COMPLEX
ORDERED = [t for t in ANY if t != "bool"]


def tensor(g, dtypes=ANY, bad=COMPLEX, rank=(0, 5)):
    """A tensor and its extents."""
    dims = g.dims(g.rng.randint(*rank))
    return g.strided(dims, g.dtype(bad if bad and g.spoil(0.4) else dtypes)), dims


def along(name, results=1, dtypes=ANY, bad=COMPLEX, form="%s, %d", inplace=False):
    def generate(g):
        if inplace:
            dims = g.dims(g.rng.randint(0, 4))
            kind = g.dtype([t for t in dtypes if t != "bool"])
            x = g.tensor(dims, kind)
            g.prepare(f"y = torch.ops.aten.neg({x})")
            x = "y"
        else:
            x, dims = tensor(g, dtypes, bad)
        text = form(g, x, g.dim(len(dims))) if callable(form) else form % (x, g.dim(len(dims)))
        left = "r" if results == 1 else "r, s"
        return g.call(f"{left} = torch.ops.aten.{name}({text})")

    return generate


def scan(g, x, dim):
    kind = g.pick("float32", "int64", "int32", "float64")
    return f"{x}, {dim}" + (f", dtype=torch.{kind}" if g.chance(0.3) else "")


def sorting(g, x, dim):
    return f"{x}, {dim}, {g.chance(0.5)}"


def stable(g, x, dim):
    return f"{x}, stable={g.chance(0.5)}, dim={dim}, descending={g.chance(0.5)}"


def msort(g):
    x, _ = tensor(g)
    return g.call("r = torch.ops.aten.msort(%s)", x)


def selection(name, least):
    def generate(g):
        x, dims = tensor(g, ORDERED)
        rank = len(dims)
        dim = g.dim(rank)
        extent = 1
        if rank and -rank <= dim < rank:
            extent = dims[dim % rank]
        many = isinstance(extent, Batch)
        if many:
            extent = 1
        k = (
            g.pick(-1 if many else extent + 1, -1, least - 1)
            if g.spoil(0.5)
            else g.rng.randint(least, max(extent, least))
        )
        rest = f"{g.chance(0.7)}, {g.chance(0.8)}" if name == "topk" else f"{g.chance(0.4)}"
        if rank and g.chance(0.15) and not g.wrong:
            # A computed k: an extent.
            g.prepare(f"k = torch.ops.aten.size({x}, {dim})")
            k = "k"
        return g.call(f"r, s = torch.ops.aten.{name}({x}, {k}, {dim}, {rest})")

    return generate


def diff(g):
    rank = g.rank(1, 4)
    dims = g.dims(rank)
    x = g.strided(dims, g.dtype(ALL))
    dim = g.dim(rank)
    parts = []
    for _ in range(2):
        if not rank or not -rank <= dim < rank or g.chance(0.6):
            parts.append("None")
            continue
        other = list(dims)
        if not isinstance(other[dim], Batch):
            other[dim] = g.rng.randint(1, 2)
        if g.spoil(0.3):
            other = other[:-1] if g.chance(0.5) else [*other, 1]
        if len(other) == rank and rank > 1 and g.spoil(0.3):
            place = (dim + 1) % rank
            if not isinstance(other[place], Batch):
                other[place] += 1
        parts.append(g.strided(other, g.inputs[0].dtype if g.chance(0.7) else g.dtype(ANY)))
    n = -1 if g.spoil(0.3) else g.pick(1, 1, 1, 2, 0, 3, 7)
    return g.call(f"r = torch.ops.aten.diff({x}, {n}, {dim}, {parts[0]}, {parts[1]})")


def search(g):
    dims = g.dims(g.rng.randint(0, 4))
    kind = g.dtype(ORDERED)
    if g.chance(0.5) or not dims:
        rows = [g.rng.randint(0, 5)]
    else:
        rows = [*dims[:-1], dims[-1] if isinstance(dims[-1], Batch) else g.rng.randint(1, 5)]
        if g.spoil(0.5) and len(rows) > 1:
            if isinstance(rows[-2], Batch):
                rows = rows[1:] if len(rows) > 2 else [*rows, 2]
            else:
                rows[-2] += 1
    if g.spoil(0.1):
        rows = []
    sequence, x = g.strided(rows, kind), g.strided(dims, kind)
    extra = ""
    if rows and g.chance(0.3):
        g.prepare(f"o = torch.ops.aten.argsort({sequence})")
        extra += ", sorter=o"
        if g.spoil(0.5):
            g.prepare("o2 = torch.ops.aten.unsqueeze(o, 0)")
            extra = ", sorter=o2"
    if g.chance(0.4):
        side = "middle" if g.spoil(0.5) else g.pick("left", "right")
        extra += f", side='{side}'"
        if side == "left" and g.spoil(0.4):
            extra += ", right=True"
    elif g.chance(0.3):
        extra += ", right=True"
    return g.call(
        f"r = torch.ops.aten.searchsorted({sequence}, {x}, out_int32={g.chance(0.3)}{extra})"
    )


def search_number(g):
    rank = 2 if g.spoil(0.7) else 1
    sequence = g.strided(g.dims(rank), g.dtype(ORDERED))
    side = "middle" if g.spoil(0.5) else g.pick("left", "right")
    return g.call(
        f"r = torch.ops.aten.searchsorted({sequence}, "
        f"{g.pick(1, 2.5)}, out_int32={g.chance(0.3)}, "
        f"side='{side}')"
    )


def bucketize(g):
    kind = g.dtype(ORDERED)
    x = g.strided(g.dims(g.rng.randint(0, 4)), kind)
    edges = g.strided(
        [2, 3] if g.spoil(0.5) else [] if g.spoil(0.4) else [g.rng.randint(0, 5)], kind
    )
    return g.call(
        f"r = torch.ops.aten.bucketize({x}, {edges}, "
        f"out_int32={g.chance(0.3)}, right={g.chance(0.3)})"
    )


def bucketize_number(g):
    edges = g.strided(
        [2, g.rng.randint(1, 4)] if g.spoil(0.5) else [] if g.spoil(0.4) else g.dims(1),
        g.dtype(ORDERED),
    )
    return g.call(
        f"r = torch.ops.aten.bucketize({g.pick(1, 2.5)}, {edges}, "
        f"out_int32={g.chance(0.3)}, right={g.chance(0.3)})"
    )


def unique_dim(g):
    rank = g.rank(1, 4)
    dims = g.dims(rank)
    x = g.strided(dims, g.dtype(ANY))
    return g.call(
        f"r, s, t = torch.ops.aten.unique_dim({x}, {g.dim(rank)}, "
        f"True, {g.chance(0.5)}, {g.chance(0.5)})"
    )


def unique2(g):
    x, _ = tensor(g, ANY, bad=COMPLEX)
    return g.call(
        f"r, s, t = torch.ops.aten._unique2({x}, {g.chance(0.5)}, {g.chance(0.5)}, {g.chance(0.5)})"
    )


def unique_consecutive(g):
    x, dims = tensor(g, ANY, bad=COMPLEX)
    dim = g.dim(len(dims)) if dims and g.chance(0.4) else None
    return g.call(
        f"r, s, t = torch.ops.aten.unique_consecutive({x}, {g.chance(0.5)}, {g.chance(0.5)}, {dim})"
    )


def histc(g):
    x, _ = tensor(g, FLOATS, bad=["int64", "complex64"])
    bins = g.pick(0, -1) if g.spoil(0.4) else g.rng.randint(1, 7)
    low, high = (3, 1) if g.spoil(0.4) else g.pick((0, 0), (-1, 1), (0.5, 2))
    return g.call(f"r = torch.ops.aten.histc({x}, {bins}, {low}, {high})")


for function in (unique_dim, unique2, unique_consecutive):
    reads_data(function)
topk, kthvalue = selection("topk", 0), selection("kthvalue", 1)

GENERATORS = {
    "aten::sort": along("sort", 2, form=sorting),
    "aten::sort.stable": along("sort", 2, form=stable),
    "aten::argsort": along("argsort", form=sorting),
    "aten::argsort.stable": along("argsort", form=stable),
    "aten::msort": msort,
    "aten::topk": topk,
    "aten::kthvalue": kthvalue,
    "aten::cumsum": along("cumsum", dtypes=ALL, bad=(), form=scan),
    "aten::cumprod": along("cumprod", dtypes=ALL, bad=(), form=scan),
    "aten::cumsum_": along("cumsum_", dtypes=ALL, form=scan, inplace=True),
    "aten::cumprod_": along("cumprod_", dtypes=ALL, form=scan, inplace=True),
    "aten::cummax": along("cummax", 2),
    "aten::cummin": along("cummin", 2),
    "aten::logcumsumexp": along("logcumsumexp", dtypes=FLOATS + COMPLEX, bad=["int64", "bool"]),
    "aten::diff": diff,
    "aten::searchsorted.Tensor": search,
    "aten::searchsorted.Scalar": search_number,
    "aten::bucketize.Tensor": bucketize,
    "aten::bucketize.Scalar": bucketize_number,
    "aten::unique_dim": unique_dim,
    "aten::_unique2": unique2,
    "aten::unique_consecutive": unique_consecutive,
    "aten::histc": histc,
}
