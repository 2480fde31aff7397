"""Calls of operators that pad, repeat, and move elements."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, Batch, reads_data
from koila._generators.pointwise import callee, tensor

TYPES = ANY + COMPLEX


def some(g, dims):
    """Distinct dims, counted from either end."""
    rank = len(dims)
    found = g.rng.sample(range(rank), g.rng.randint(0, rank))
    if found and g.spoil(0.5):
        found.append(g.pick(found[0], rank))
    elif g.spoil(0.3):
        found.append(rank + 1)
    return [d - rank if g.chance(0.3) else d for d in found]


def flip(g):
    dims = g.dims(g.rng.randint(0, 5))
    x = g.strided(dims, g.dtype(TYPES))
    return g.call(f"r = {callee(g)}({x}, {some(g, dims)})")


def unary(low, dtypes=TYPES):
    def make(g):
        dims = g.dims(g.rank(low, 5))
        if not dims and g.chance(0.6):
            # There are few tensors without dims that are no part of another.
            row = g.tensor([g.rng.randint(1, 6)], g.dtype(dtypes))
            g.prepare(f"p0 = torch.ops.aten.select({row}, 0, 0)")
            return g.call(f"r = {callee(g)}(p0)")
        return g.call(f"r = {callee(g)}(%s)", g.strided(dims, g.dtype(dtypes)))

    return make


def roll(g):
    dims = g.dims(g.rng.randint(0, 5))
    x = g.strided(dims, g.dtype(TYPES))
    if g.chance(0.15):
        return g.call(f"r = {callee(g)}({x}, [{'1, 2' if g.spoil() else g.rng.randint(-4, 4)}])")
    found = some(g, dims)
    shifts = [g.rng.randint(-7, 7) for _ in found]
    if not found and not g.wrong:
        shifts = [1]
    if g.spoil(0.3):
        shifts.append(1)
    return g.call(f"r = {callee(g)}({x}, {shifts}, {found})")


def rot90(g):
    dims = g.dims(g.rank(2, 5))
    rank = len(dims)
    found = g.rng.sample(range(rank), 2) if rank > 1 else [0, 1]
    if g.spoil(0.5):
        found = g.pick([0, 0], [0], [0, 1, 2], [0, rank], [0, -rank])
    elif g.chance(0.3):
        found = [d - rank for d in found]
    return g.call(
        f"r = {callee(g)}(%s, {g.rng.randint(-5, 5)}, {found})", g.strided(dims, g.dtype(TYPES))
    )


def repeat(short):
    def make(g):
        rank = g.rng.randint(0, 4)
        dims = g.dims(rank)
        if g.chance(0.25):
            dims = [g.rng.randint(1, 3) for _ in dims]
        x = g.strided(dims, g.dtype(TYPES))
        low = max(rank - 2, 0) if short or g.spoil(0.4) else rank
        repeats = [g.pick(1, 1, 1, 2, 3, 0) for _ in range(g.rng.randint(low, rank + 2))]
        if repeats and g.spoil(0.4):
            repeats[g.rng.randrange(len(repeats))] = -2
        words = [str(times) for times in repeats]
        if words and g.chance(0.3):
            sized = g.tensor([g.batch(), 2])
            g.prepare(f"n = torch.ops.aten.size({sized}, 0)")
            words[0 if g.chance(0.7) else g.rng.randrange(len(words))] = "n"
        return g.call(f"r = {callee(g)}({x}, [{', '.join(words)}])")

    return make


def repeat_interleave(g):
    rank = g.rng.randint(0, 4)
    dims, dim = g.dims(rank), g.dim(rank)
    if g.chance(0.2):
        dims = [g.pick(1, 1, 2) for _ in dims]
    x = g.strided(dims, g.dtype(TYPES))
    along = "None" if (rank == 0 and not g.spoil()) or g.chance(0.2) else dim
    times = str(g.rng.randint(0, 4)) if not g.spoil(0.3) else "-1"
    if g.chance(0.2):
        sized = g.tensor([g.batch(), 2])
        g.prepare(f"n = torch.ops.aten.size({sized}, 0)")
        times = "n"
    more = ""
    if (
        g.chance(0.1)
        and along != "None"
        and times.isdigit()
        and dims
        and -rank <= dim < rank
        and isinstance(dims[dim], int)
    ):
        size = dims[dim] * int(times) + (1 if g.spoil(0.6) else 0)
        more = f", output_size={size}"
    return g.call(f"r = {callee(g)}({x}, {times}, {along}{more})")


@reads_data
def repeat_rows(g):
    """Each row as often as a tensor says."""
    rank = g.rng.randint(1, 3)
    dims, dim = g.dims(rank), g.dim(rank)
    in_range = -rank <= dim < rank
    rows = dims[dim] if in_range else 1
    along = dim
    if g.chance(0.1):
        along, rows = "None", None
    x = g.strided(dims, g.dtype(TYPES))
    where = [1] if rows is None else g.pick([rows], [rows], [1], [])
    if g.spoil(0.4):
        where = g.pick([13] if isinstance(rows, int) else [2, 2], [2, 2])
    fixed = isinstance(rows, int) and g.chance(0.3)
    times = g.tensor(
        where, "float32" if g.spoil(0.2) else g.pick("int64", "int32"), 2 if fixed else 0, 3
    )
    more = f", output_size={2 * rows}" if fixed else ""
    return g.call(f"r = {callee(g)}({x}, {times}, {along}{more})")


@reads_data
def repeat_positions(g):
    dims = g.dims(2 if g.spoil() else 1)
    if g.chance(0.5):
        dims[0] = g.rng.randint(0, 30)
    kind = "uint8" if g.spoil(0.3) else g.pick("int64", "int32")
    x = g.strided(dims, kind, 0, 4)
    return g.call(f"r = {callee(g)}({x})")


# Padding --------------------------------------------------------------------


def amounts(g, dims, count, low, high):
    """Begin and end of the last `count` dims; those of the batch stay 0 most
    often."""
    found = []
    for extent in reversed(dims[len(dims) - count :] if count else []):
        size = 2 if isinstance(extent, Batch) else extent
        if isinstance(extent, Batch) and g.chance(0.8):
            found += [0, 0]
            continue
        top = min(high, max(size - 1, 0)) if high < 9 else 3
        found += [g.rng.randint(-min(low, size // 2), top) for _ in range(2)]
    if found and g.spoil(0.6):
        found[g.rng.randrange(len(found))] = g.pick(-9, 9)
    if g.spoil(0.3):
        found.append(1)
    if g.spoil(0.2):
        found += [1, 1]
    return found


def constant_pad(g):
    dims = g.dims(g.rng.randint(0, 5))
    x = g.strided(dims, g.dtype(TYPES))
    count = g.rng.randint(0, len(dims))
    return g.call(f"r = {callee(g)}({x}, {amounts(g, dims, count, 2, 9)}, {g.pick('0', '1')})")


def spatial(g, count):
    dims = g.dims(count + g.pick(1, 2, 2))
    if g.spoil(0.2):
        dims = dims[1:]
    return dims


def pad(g):
    mode = g.pick("constant", "constant", "reflect", "replicate", "circular")
    if g.spoil(0.1):
        mode = "edge"
    if mode == "constant":
        dims = g.dims(g.rng.randint(0, 5))
        count = g.rng.randint(0, len(dims))
        low, value = 2, g.pick("None", "0.0", "1.0")
    else:
        count = g.rng.randint(1, 3)
        dims, low = spatial(g, count), g.pick(0, 0, 1)
        value = "2.0" if g.spoil(0.2) else g.pick("None", "0.0")
    x = g.strided(dims, g.dtype(FLOATS))
    found = amounts(
        g,
        dims,
        min(count, len(dims)),
        low,
        9 if count > len(dims) or mode in ("constant", "replicate") else 3,
    )
    return g.call(f"r = {callee(g)}({x}, {found}, '{mode}', {value})")


def window_pad(count, high):
    def make(g):
        dims = spatial(g, count)
        x = g.strided(dims, g.dtype([*FLOATS, "complex64", "int64"]))
        found = amounts(g, dims, min(count, len(dims)), g.pick(0, 0, 1), high)
        found = found[: 2 * count + (1 if g.spoil(0.1) else 0)]
        return g.call(f"r = {callee(g)}({x}, {found})")

    return make


def circular_pad(g):
    return window_pad(g.rng.randint(1, 3), 3)(g)


# Blocks and bands -----------------------------------------------------------


def pixel_shuffle(g):
    factor = g.rng.randint(1, 3)
    dims = g.dims(g.rank(3, 5))
    if len(dims) > 2 and not isinstance(dims[-3], Batch):
        dims[-3] = g.rng.randint(0, 3) * factor * factor
    if len(dims) > 2 and isinstance(dims[-3], Batch):
        factor = 1
    elif len(dims) > 2 and g.spoil(0.5):
        dims[-3], factor = dims[-3] + 1, g.pick(factor, 0, -1, 2)
    return g.call(f"r = {callee(g)}(%s, {factor})", g.strided(dims, g.dtype(ANY)))


def pixel_unshuffle(g):
    factor = g.rng.randint(1, 3)
    dims = g.dims(g.rank(3, 5))
    for at in range(max(len(dims) - 2, 0), len(dims)):
        if not isinstance(dims[at], Batch):
            dims[at] *= factor
    if len(dims) > 2 and not isinstance(dims[-1], Batch) and g.spoil(0.5):
        dims[-1], factor = dims[-1] + 1, g.pick(factor, 0, -1, 2)
    if any(isinstance(e, Batch) for e in dims[-2:]):
        factor = 1
    x = g.strided(dims, g.dtype(ANY))
    if any(isinstance(e, Batch) for e in dims) and 0 not in dims:
        # An empty tensor is only copied: not for a batch of none.
        g.prepare(f"n = torch.ops.aten.max({x})")
    return g.call(f"r = {callee(g)}({x}, {factor})")


def channel_shuffle(g):
    groups = g.rng.randint(1, 3)
    dims = g.dims(g.rank(3, 5))
    if len(dims) > 1 and isinstance(dims[1], Batch):
        groups = 1
    elif len(dims) > 1:
        dims[1] = groups * g.rng.randint(1, 3)
        if g.spoil(0.5):
            dims[1], groups = dims[1] + 1, g.pick(0, -1, 2, 3)
    return g.call(f"r = {callee(g)}(%s, {groups})", g.strided(dims, g.dtype(FLOATS)))


def block_lists(g):
    kernel = [g.rng.randint(1, 3) for _ in range(2)]
    lists = [
        kernel,
        [g.rng.randint(1, 2) for _ in range(2)],
        [g.rng.randint(0, 2) for _ in range(2)],
        [g.rng.randint(1, 3) for _ in range(2)],
    ]
    if g.spoil(0.4):
        wrong = g.pick(*lists)
        wrong[g.rng.randrange(2)] = -1
    elif g.spoil(0.2):
        g.pick(*lists).append(1)
    return lists


def im2col(g):
    lists = block_lists(g)
    dims = g.dims(g.pick(3, 4, 4), high=8)
    if g.spoil(0.2):
        dims = dims[1:]
    return g.call(
        f"r = {callee(g)}(%s, {', '.join(map(str, lists))})", g.strided(dims, g.dtype(FLOATS))
    )


def col2im(g):
    lists = block_lists(g)
    size = [g.rng.randint(1, 7) for _ in range(2)]
    kernel, dilation, padding, stride = lists
    count = 1
    for at in range(2):
        span = dilation[at] * (kernel[at] - 1) + 1
        count *= max((size[at] + 2 * padding[at] - span) // max(stride[at], 1) + 1, 0)
    rows = g.rng.randint(1, 3) * max(kernel[0] * kernel[1], 1)
    dims = [rows, count]
    if g.chance(0.7):
        dims = [g.batch(), *dims]
    if g.spoil(0.4):
        dims[-1 if g.chance(0.5) else -2] += 1
    if g.spoil(0.2):
        size.append(2)
    return g.call(
        f"r = {callee(g)}(%s, {size}, {', '.join(map(str, lists))})",
        g.strided(dims, g.dtype(FLOATS)),
    )


def triangle(g):
    rank = g.rank(2, 5)
    x = tensor(g, g.dims(rank), g.dtype(TYPES))
    return g.call(f"r = {callee(g)}({x}, {g.rng.randint(-4, 4)})")


def diag_embed(g):
    dims = g.dims(g.rank(1, 4))
    rank = len(dims) + 1
    first, second = g.rng.sample(range(rank), 2) if rank > 1 else (0, 1)
    if g.spoil(0.4):
        second = g.pick(first, rank, rank + 1)
    if g.chance(0.3):
        first -= rank
    return g.call(
        f"r = {callee(g)}(%s, {g.rng.randint(-3, 3)}, {first}, {second})",
        g.strided(dims, g.dtype(TYPES)),
    )


def diag(g):
    dims = g.dims(g.rank(1, 2))
    if g.spoil(0.4):
        dims = g.dims(g.pick(0, 3))
    return g.call(f"r = {callee(g)}(%s, {g.rng.randint(-4, 4)})", g.strided(dims, g.dtype(TYPES)))


GENERATORS = {
    "aten::flip": flip,
    "aten::fliplr": unary(2),
    "aten::flipud": unary(1),
    "aten::roll": roll,
    "aten::rot90": rot90,
    "aten::repeat": repeat(False),
    "aten::tile": repeat(True),
    "aten::repeat_interleave.self_int": repeat_interleave,
    "aten::repeat_interleave.self_Tensor": repeat_rows,
    "aten::repeat_interleave.Tensor": repeat_positions,
    "aten::pad": pad,
    "aten::constant_pad_nd": constant_pad,
    "aten::_pad_circular": circular_pad,
    "aten::reflection_pad1d": window_pad(1, 4),
    "aten::reflection_pad2d": window_pad(2, 4),
    "aten::reflection_pad3d": window_pad(3, 4),
    "aten::replication_pad1d": window_pad(1, 9),
    "aten::replication_pad2d": window_pad(2, 9),
    "aten::replication_pad3d": window_pad(3, 9),
    "aten::pixel_shuffle": pixel_shuffle,
    "aten::pixel_unshuffle": pixel_unshuffle,
    "aten::channel_shuffle": channel_shuffle,
    "aten::native_channel_shuffle": channel_shuffle,
    "aten::im2col": im2col,
    "aten::col2im": col2im,
    "aten::tril": triangle,
    "aten::triu": triangle,
    "aten::tril_": triangle,
    "aten::triu_": triangle,
    "aten::diag_embed": diag_embed,
    "aten::diag": diag,
}
