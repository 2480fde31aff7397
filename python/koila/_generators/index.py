"""Calls of operators that read and write by indices, masks and tables."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, INTEGERS, Batch, reads_data, takes_all
from koila._generators.pointwise import callee, is_in_place, tensor

TYPES = ANY + COMPLEX


def least(extent):
    """The extent at the smallest batch that draws look at."""
    return 2 * extent.factor if isinstance(extent, Batch) else extent


def indices(g, dims, extent, wide=True):
    """Positions in a dim of that extent."""
    dtype = g.pick("int64", "int64", "int32") if wide else "int64"
    if g.spoil(0.3):
        dtype = g.pick("int16", "float32", "uint8")
    return g.strided(dims, dtype, 0, max(least(extent), 1))


def at(dims, dim):
    return dims[dim] if dims and -len(dims) <= dim < len(dims) else 1


def smaller(g, dims, dim):
    """The dims of an index for gather and scatter."""
    found = []
    for place, extent in enumerate(dims):
        if dims and dim % len(dims) == place:
            found.append(g.pick(1, 2, 3, 5, 0, extent))
        elif isinstance(extent, Batch) or g.chance(0.6):
            found.append(extent)
        else:
            found.append(g.rng.randint(min(extent, 1), extent))
    plain = [p for p, e in enumerate(found) if not isinstance(e, Batch)]
    if plain and g.spoil(0.7):
        found[g.rng.choice(plain)] += 8
    if g.spoil(0.3):
        found = found[1:] if g.chance(0.5) else [*found, 1]
    return found


def index_select(g):
    rank = g.rng.randint(0, 5)
    dims, dim = g.dims(rank), g.dim(rank)
    if g.chance(0.3):
        dims = [g.rng.randint(1, 5) for _ in range(rank)]
    where = [] if g.chance(0.1) else g.dims(1)
    if rank == 0 and not g.spoil(0.3):
        where = g.pick([], [1])
    if g.spoil(0.3):
        where = g.dims(2)
    x = g.strided(dims, g.dtype(TYPES))
    return g.call(f"r = {callee(g)}(%s, %s, %s)", x, dim, indices(g, where, at(dims, dim)))


def gather(g):
    rank = g.rng.randint(0, 4)
    dims, dim = g.dims(rank), g.dim(rank)
    if rank and g.chance(0.25):
        # Only the index has the batch, along the dim.
        dims = [g.rng.randint(1, 4) for _ in range(rank)]
        mine = list(dims)
        mine[dim % rank] = g.batch()
    else:
        mine = smaller(g, dims, dim)
    return g.call(
        f"r = {callee(g)}(%s, %s, %s)",
        g.strided(dims, g.dtype(TYPES)),
        dim,
        indices(g, mine, at(dims, dim)),
    )


def take_along_dim(g):
    rank = g.rng.randint(0, 4)
    dims, dim = g.dims(rank), g.dim(rank)
    where = g.broadcast(dims)
    where = where + [1] * (rank - len(where))
    if rank and not isinstance(where[dim % rank], Batch):
        where[dim % rank] = g.rng.randint(0, 4)
    x = g.strided(dims, g.dtype(TYPES))
    if g.chance(0.15):
        return g.call(f"r = {callee(g)}(%s, %s)", x, indices(g, where, 1, wide=False))
    return g.call(
        f"r = {callee(g)}(%s, %s, %s)", x, indices(g, where, at(dims, dim), wide=False), dim
    )


def take(g):
    dims = g.dims(g.rng.randint(0, 3))
    if g.chance(0.5):
        dims = [g.rng.randint(0 if g.spoil() else 1, 4) for _ in dims]
    return g.call(
        f"r = {callee(g)}(%s, %s)",
        g.strided(dims, g.dtype(TYPES)),
        indices(g, g.dims(g.rng.randint(0, 3)), 1, wide=False),
    )


def number(g, dtype):
    return {"b": "True", "f": "1.5"}.get(dtype[0], "2")


def scatter(source, modes=None, more=""):
    def make(g):
        rank = g.rng.randint(0, 4)
        dims, dim = g.dims(rank), g.dim(rank)
        mine = smaller(g, dims, dim)
        dtype = g.dtype(FLOATS + INTEGERS if modes else TYPES)
        x = tensor(g, dims, dtype)
        where = indices(g, mine, at(dims, dim))
        if source:
            theirs = [
                extent
                if isinstance(extent, Batch) or g.chance(0.7)
                else extent + g.rng.randint(-1 if g.wrong else 0, 2)
                for extent in mine
            ]
            value = g.strided(
                [max(e, 0) if isinstance(e, int) else e for e in theirs],
                g.dtype() if g.spoil(0.3) else dtype,
            )
        else:
            value = number(g, dtype)
        keywords = more
        if modes:
            mode = "most" if g.spoil(0.3) else g.pick(*modes)
            keywords = (f", '{mode}'" if "scatter_reduce" in g.op else f", reduce='{mode}'") + more
        return g.call(f"r = {callee(g)}({x}, {dim}, {where}, {value}{keywords})")

    return make


def index_write(value, wide=True):
    """index_add, index_copy, index_fill."""

    def make(g):
        rank = g.rng.randint(0, 4)
        dims, dim = g.dims(rank), g.dim(rank)
        place = dim % rank if rank else 0
        count = g.rng.randint(0, 4) if rank else 1
        if rank and isinstance(dims[place], Batch):
            count = g.pick(1, dims[place])
        theirs = list(dims)
        if rank:
            theirs[place] = count
        if theirs and g.spoil(0.4):
            theirs[g.rng.randrange(rank)] = 7
        if g.spoil(0.2):
            theirs = theirs[1:]
        where = [count]
        if count == 1 and g.chance(0.2):
            where = []
        if g.spoil(0.3):
            where = g.pick([count, 2], [5])
        dtype = g.dtype(TYPES)
        x = tensor(g, dims, dtype)
        index = indices(g, where, at(dims, dim), wide)
        kind = g.dtype() if g.spoil(0.3) else dtype
        if value == "tensor":
            last = g.strided(theirs, kind)
        elif value == "zero":
            last = g.tensor(
                [] if not g.spoil(0.3) else [1], g.dtype() if dtype[0] != "c" else dtype
            )
        else:
            last = number(g, dtype)
        return g.call(f"r = {callee(g)}({x}, {dim}, {index}, {last})")

    return make


# Several indices ------------------------------------------------------------


def advanced(g, dims, optional):
    """Indices for a tensor of these dims, and the dims of what they read; no
    dims if data decides them. Beside a mask stand indices that broadcast with
    whatever it selects."""
    rank, masked = len(dims), g.chance(0.25)
    common = g.pick([], [1]) if masked else g.dims(g.pick(0, 1, 1, 1, 2))
    read: list = []  # dims and masks
    names, place = [], 0
    while place < rank + (1 if g.spoil(0.3) else 0):
        if optional and g.chance(0.4):
            names.append("None")
            place += 1
            continue
        if read and g.chance(0.3):
            break
        wide = g.rng.randint(1, 2)
        if masked and place + wide <= rank and "mask" not in read:
            mask = list(dims[place : place + wide])
            plain = [d for d, e in enumerate(mask) if not isinstance(e, Batch)]
            if plain and g.spoil(0.4):
                mask[g.rng.choice(plain)] += 9
            names.append(g.tensor(mask, "bool"))
            read.append("mask")
            place += wide
            continue
        mine = list(common)
        if mine and not masked and g.chance(0.3):
            mine = g.broadcast(mine)
        extent = dims[place] if place < rank else 2
        dtype = "int16" if g.spoil(0.2) else g.pick("int64", "int64", "int32")
        names.append(g.strided(mine, dtype, 0, max(least(extent), 1)))
        read.append(place)
        place += 1
    if not read:
        return None, None
    if "mask" in read:
        return names, None
    rest = [e for d, e in enumerate(dims) if d not in read]
    adjacent = read == list(range(read[0], read[0] + len(read)))
    first = read[0] if adjacent else 0
    return names, rest[:first] + common + rest[first:]


@reads_data
def index(g):
    optional = not g.op.endswith("twin")
    rank = g.rng.randint(1, 5)
    dims = g.dims(rank)
    if g.chance(0.3):
        dims = [g.rng.randint(1, 4) for _ in range(rank)]
    x = g.strided(dims, g.dtype(TYPES))
    names, _ = advanced(g, dims, optional)
    if names is None:
        return None
    return g.call(f"r = torch.ops.aten.index({x}, [{', '.join(names)}])")


def index_put(g):
    optional = not g.op.endswith("twin")
    rank = g.rng.randint(1, 4)
    dims = g.dims(rank)
    dtype = g.dtype(TYPES)
    x = tensor(g, dims, dtype)
    if g.chance(0.2):
        # One number where a mask of some leading dims is true.
        mask = g.tensor(dims[: g.rng.randint(1, rank)], "bool")
        names, read = [mask], None
    else:
        names, read = advanced(g, dims, optional)
    if names is None:
        return None
    values = g.pick([], [], [1]) if read is None else g.broadcast(read)
    value = g.strided(values, g.dtype() if g.spoil(0.3) else dtype)
    more = "" if dtype == "bool" else g.pick("", "", ", True")
    twin = "_" * is_in_place(g)
    return g.call(f"r = torch.ops.aten.index_put{twin}({x}, [{', '.join(names)}], {value}{more})")


# Masks ----------------------------------------------------------------------


def masked_select(g):
    dims = g.dims(g.rng.randint(0, 4))
    x = g.strided(dims, g.dtype(TYPES))
    mask = g.strided(g.broadcast(dims), "uint8" if g.spoil(0.3) else "bool")
    return g.call(f"r = {callee(g)}({x}, {mask})")


def masked_scatter(g):
    dims = g.dims(g.rng.randint(0, 3))
    dtype = g.dtype(ANY)
    x = tensor(g, dims, dtype)
    mask = g.strided(g.broadcast(dims), "uint8" if g.spoil(0.3) else "bool")
    source = g.strided([*dims, 1], g.dtype() if g.spoil(0.5) else dtype)
    return g.call(f"r = {callee(g)}({x}, {mask}, {source})")


def nonzero(g):
    return g.call(f"r = {callee(g)}(%s)", g.strided(g.dims(g.rng.randint(0, 4)), g.dtype(TYPES)))


def nonzero_numpy(g):
    """Also where() of a condition only."""
    rank = g.rng.randint(0, 4)
    count = max(rank, 1)
    names = ", ".join(f"r{i}" for i in range(count)) + "," * (count == 1)
    return g.call(f"{names} = {callee(g)}(%s)", g.strided(g.dims(rank), g.dtype()))


def bincount(g):
    dims = g.dims(2 if g.spoil(0.3) else 1)
    x = g.strided(
        dims, "float32" if g.spoil(0.3) else g.dtype(["int64", "int32", "uint8", "int16"]), 0, 6
    )
    weights = "None"
    if g.chance(0.4):
        # Of an empty vector the weights do not matter, not even their type.
        g.prepare(f"n = torch.ops.aten.max({x})")
        weights = g.strided(
            [3, 2] if g.spoil(0.3) else dims, g.dtype(["float32", "float64", "int64"])
        )
    least_count = -1 if g.spoil(0.3) else g.rng.randint(0, 9)
    return g.call(f"r = {callee(g)}({x}, {weights}, {least_count})")


for function in (masked_select, nonzero, nonzero_numpy, bincount):
    reads_data(function)
for function in (nonzero, nonzero_numpy):
    takes_all(function)


# Tables ---------------------------------------------------------------------


def embedding(g):
    rows = 0 if g.spoil(0.2) else g.rng.randint(1, 6)
    table = [rows, g.rng.randint(0, 5)]
    if g.spoil(0.4):
        table = g.pick([rows], [rows, 2, 2])
    weight = g.strided(table, g.dtype(FLOATS))
    where = indices(g, g.dims(g.rng.randint(0, 3)), rows)
    return g.call(f"r = {callee(g)}({weight}, {where}{g.pick('', ', 0', ', -1, False, False')})")


@reads_data
def one_hot(g):
    classes = g.pick(-1, 6, 8)
    if g.spoil():
        classes = g.pick(0, -2)
    x = g.strided(g.dims(g.rng.randint(0, 3)), "int32" if g.spoil(0.3) else "int64", 0, 6)
    return g.call(f"r = {callee(g)}({x}, {classes})")


@reads_data
def embedding_bag(g):
    rows = g.rng.randint(1, 6)
    dtype = g.dtype(["float32"] * 4 + ["float64", "float16"])
    table = [rows] if g.spoil(0.3) else [rows, g.rng.randint(1, 5)]
    weight = g.strided(table, dtype)
    # All offsets are zero: where the last one ends the last bag, PyTorch
    # would write indices out of bounds.
    last = g.chance(0.3)
    count = [0] if last else g.dims(1)
    where = indices(g, count, rows)
    offsets = g.tensor(
        [] if g.spoil(0.3) else [g.rng.randint(2, 4)] if g.chance(0.7) else g.dims(1),
        g.pick("int64", "int64", "int32"),
        0,
        1,
    )
    mode, scale = g.rng.randint(0, 2), "None"
    if (mode == 0 and g.chance(0.3)) or g.spoil(0.3):
        scale = g.tensor([13] if g.spoil(0.3) else count, dtype)
    more = ""
    if g.op.endswith("padding_idx"):
        more = ", " + str(rows + 2 if g.spoil(0.3) else g.pick(None, 0, rows - 1, -1))
    return g.call(
        f"r, s, t, u = {callee(g)}({weight}, {where}, {offsets}, "
        f"False, {mode}, False, {scale}, {last}{more})"
    )


SUM = ["sum", "prod", "mean", "amax", "amin", "max", "min"]
WRITES = {
    "scatter.src": scatter(True),
    "scatter.value": scatter(False),
    "scatter.reduce": scatter(True, ["add", "multiply"]),
    "scatter.value_reduce": scatter(False, ["add", "multiply"]),
    "scatter_add": scatter(True),
    "scatter_reduce.two": scatter(True, SUM),
    "index_add": index_write("tensor"),
    "index_copy": index_write("tensor", wide=False),
    "index_fill.int_Scalar": index_write("number", wide=False),
    "index_fill.int_Tensor": index_write("zero", wide=False),
    "index_put": index_put,
    "index_put.hacked_twin": index_put,
    "masked_scatter": masked_scatter,
}

GENERATORS = {
    "aten::index_select": index_select,
    "aten::gather": gather,
    "aten::take_along_dim": take_along_dim,
    "aten::take": take,
    "aten::index.Tensor": index,
    "aten::index.Tensor_hacked_twin": index,
    "aten::masked_select": masked_select,
    "aten::nonzero": nonzero,
    "aten::argwhere": nonzero,
    "aten::nonzero_numpy": nonzero_numpy,
    "aten::where": nonzero_numpy,
    "aten::bincount": bincount,
    "aten::embedding": embedding,
    "aten::one_hot": one_hot,
    "aten::embedding_bag": embedding_bag,
    "aten::embedding_bag.padding_idx": embedding_bag,
}
for name, make in WRITES.items():
    base, dot, overload = name.partition(".")
    GENERATORS[f"aten::{name}"] = make
    GENERATORS[f"aten::{base}_{dot}{overload}"] = make
