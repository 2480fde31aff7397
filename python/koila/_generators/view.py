"""Calls of views: other dims, parts of dims and shapes of the same elements."""

import functools
import math

from koila._generators.generator import ANY, COMPLEX, FLOATS, Batch, takes_all


def source(g, low=0, high=5, dtypes=ANY):
    """A tensor and its dims."""
    dims = g.dims(g.rng.randint(low, high))
    return g.strided(dims, g.dtype(dtypes)), dims


def call(g, op, *arguments):
    """A call of an operator with one result."""
    places = ", ".join("%s" for _ in arguments)
    return g.call(f"r = torch.ops.aten.{op}({places})", *arguments)


# Dims in another order, more or fewer of them --------------------------------


def permute(g):
    x, dims = source(g)
    order = list(range(len(dims)))
    g.rng.shuffle(order)
    order = [d - len(dims) if g.chance(0.3) else d for d in order]
    if g.spoil(0.8):
        order = [*order, 0] if not order or g.chance(0.4) else [g.pick(order[-1], 9), *order[1:]]
    return call(g, "permute", x, order)


def two_dims(g, op):
    x, dims = source(g)
    return call(g, op, x, g.dim(len(dims)), g.dim(len(dims)))


def matrix_transpose(g):
    x, _ = source(g, 0, 2) if not g.spoil(0.9) else source(g, 3, 5)
    return call(g, "t", x)


def matrices_transposed(g, op):
    kinds = COMPLEX + FLOATS if op == "mH" else ANY
    x, _ = source(g, 2, 5, kinds) if not g.spoil(0.9) else source(g, 1, 1, kinds)
    if op == "mH" and g.chance(0.1):
        x = g.tensor([], g.dtype(kinds))
    return call(g, op, x)


def lazy_conj(g):
    x, _ = source(g, 0, 5, COMPLEX if not g.spoil(0.9) else ANY)
    return call(g, "_conj", x)


def at_least(g, op):
    x, _ = source(g, 0, 4, ANY + COMPLEX)
    return call(g, op, x)


def at_least_sequence(g, op):
    names = [source(g, 0, 4)[0] for _ in range(g.pick(1, 2, 3))]
    left = ", ".join(f"r{i}" for i in range(len(names)))
    comma = "," * (len(names) == 1)
    return g.call(f"{left}{comma} = torch.ops.aten.{op}([{', '.join(names)}])")


def plain(g, op):
    x, _ = source(g)
    return call(g, op, x)


def move_lists(g, op):
    x, dims = source(g)
    count = g.rng.randint(0, len(dims))
    lists = [g.rng.sample(range(len(dims)), count) for _ in range(2)]
    lists = [[d - len(dims) if g.chance(0.3) else d for d in dims_] for dims_ in lists]
    if g.spoil(0.8):
        which = g.pick(0, 1)
        lists[which] = lists[which] + [0] if g.chance(0.5) else [g.pick(9, -8), *lists[which][1:]]
    return call(g, op, x, *lists)


def unsqueeze(g):
    x, dims = source(g, 0, 4)
    return call(g, "unsqueeze", x, g.dim(len(dims) + 1))


def with_ones(g, low=0, high=5, keep=()):
    """A tensor of which many extents are one. The batch has two rows: one that
    may be squeezed is not there at a batch of one."""
    dims = [
        1 if g.chance(0.4) and not isinstance(d, Batch) else d
        for d in g.dims(g.rng.randint(low, high))
    ]
    dims = [Batch(2) if isinstance(d, Batch) else d for d in dims]
    return g.strided(dims, g.dtype()), dims


@takes_all
def squeeze(g):
    x, _ = with_ones(g)
    # At a batch of none PyTorch keeps the dim, as koila does.
    return call(g, "squeeze", x)


def squeeze_dim(g):
    x, dims = with_ones(g)
    return call(g, "squeeze", x, g.dim(len(dims)))


def squeeze_dims(g):
    x, dims = with_ones(g, 0 if not g.wrong else 1)
    some = g.rng.sample(range(len(dims)), g.rng.randint(0, len(dims)))
    some = [d - len(dims) if g.chance(0.3) else d for d in some]
    if g.spoil(0.9):
        some = [*some, g.pick(len(dims), *(some or [7]))]
    return call(g, "squeeze", x, some)


# Parts of a dim --------------------------------------------------------------


def position(g):
    """Where a slice begins or ends."""
    return g.pick(None, 0, 1, 2, 3, 5, 9, -1, -2, -4, -9, 2**63 - 1)


def computed(g, name, x, dims):
    """An integer that the program computes from a tensor."""
    place = g.rng.randrange(len(dims))
    g.prepare(f"{name} = torch.ops.aten.size({x}, {place})")
    return name, dims[place]


def slice_tensor(g):
    x, dims = source(g)
    dim = g.dim(len(dims))
    step = g.pick(1, 1, 1, 2, 3) if not g.spoil() else g.pick(0, -1)
    end = position(g)
    if dims and g.chance(0.15):
        end, _ = computed(g, "n", x, dims)
    return call(g, "slice", x, dim, position(g), end, step)


def constant_dim(g, dims):
    """A dim whose extent is no multiple of the batch; at times any other."""
    known = [d for d, e in enumerate(dims) if not isinstance(e, Batch)]
    return g.rng.choice(known) if known else 0


def select(g):
    x, dims = source(g, 1, 5) if not g.spoil(0.2) else source(g, 0, 0)
    if not dims:
        return call(g, "select", x, 0, 0)
    dim = g.rng.randrange(len(dims))
    if isinstance(dims[dim], Batch):
        index = g.pick(0, -1)
    else:
        size = dims[dim]
        index = g.rng.randint(-size, max(size - 1, -size))
        if g.spoil(0.8):
            index = g.pick(size, -size - 1, size + 4)
    if g.spoil(0.2):
        dim = len(dims) + 1
    return call(g, "select", x, dim - len(dims) if g.chance(0.3) else dim, index)


def narrow(g):
    x, dims = source(g, 1, 5)
    dim = g.rng.randrange(len(dims))
    if isinstance(dims[dim], Batch):
        if g.chance(0.5):
            g.prepare(f"n = torch.ops.aten.size({x}, {dim})")
            return call(g, "narrow", x, dim, 0, "n")
        return call(g, "narrow", x, dim, g.pick(0, 1, -1), g.pick(0, 1))
    size = dims[dim]
    start = g.rng.randint(0, size)
    length = g.rng.randint(0, size - start)
    if g.spoil(0.9):
        start, length = g.pick((size + 1, 0), (0, size + 1), (start, -1), (-size - 1, 0))
    elif g.chance(0.2) and start < size:
        start -= size
    return call(g, "narrow", x, dim, start, length)


def listed(g, op, count, *arguments):
    """A call with `count` results."""
    count = min(max(count + (g.pick(-1, 1) if g.spoil(0.3) else 0), 1), 9)
    names = ", ".join(f"r{i}" for i in range(count)) + ("," * (count == 1))
    places = ", ".join("%s" for _ in arguments)
    return g.call(f"{names} = torch.ops.aten.{op}({places})", *arguments)


def unbind(g):
    x, dims = source(g, 1, 4)
    dim = constant_dim(g, dims)
    size = 2 if isinstance(dims[dim], Batch) else dims[dim]
    if g.spoil(0.2):
        dim = 9
    return listed(g, "unbind", size, x, dim)


def split(g, op):
    x, dims = source(g, 1, 4)
    dim = constant_dim(g, dims)
    if isinstance(dims[dim], Batch):
        # How many pieces there are depends on the batch: nothing to refuse.
        g.wrong = False
        return listed(g, op, 1, x, g.pick(20, 30), dim)
    part = g.rng.randint(1, 4) if not g.spoil() else g.pick(0, -1)
    count = max(-(-dims[dim] // max(part, 1)), 1)
    return listed(g, op, count, x, part, dim - len(dims) * g.pick(0, 1) if not g.spoil(0.1) else 7)


def split_sizes(g, op):
    x, dims = source(g, 1, 4)
    dim = constant_dim(g, dims)
    if isinstance(dims[dim], Batch):
        g.prepare(f"n = torch.ops.aten.size({x}, {dim})")
        return listed(g, op, 1, x, "[n]", dim)
    rest, sizes = dims[dim], []
    while rest and len(sizes) < 6:
        sizes.append(g.rng.randint(0, rest))
        rest -= sizes[-1]
    sizes.append(rest)
    if g.spoil(0.8):
        sizes[0] += g.pick(1, -1, 3)
    return listed(g, op, len(sizes), x, sizes, dim)


def chunk(g, op):
    x, dims = source(g, 1, 4)
    dim = g.rng.randrange(len(dims))
    count = g.rng.randint(1, 4)
    if isinstance(dims[dim], Batch):
        count = g.pick(1, 2)
        return listed(g, op, count, x, count, dim)
    size = max(-(-dims[dim] // count), 1)
    found = -(-dims[dim] // size) if dims[dim] else count
    if g.spoil(0.5):
        count = g.pick(0, -1)
    return listed(g, op, found, x, count, dim)


def tensor_split(g):
    x, dims = source(g, 1, 4)
    dim = g.rng.randrange(len(dims))
    count = g.rng.randint(1, 5)
    return listed(
        g,
        "tensor_split",
        count,
        x,
        g.pick(0, -1) if g.spoil() else count,
        dim - len(dims) * g.pick(0, 1) if not g.spoil() else 8,
    )


# Views with strides of their own ---------------------------------------------


def unfold(g):
    x, dims = source(g, 0, 4)
    dim = g.rng.randrange(len(dims)) if dims else 0
    size = dims[dim] if dims else 1
    if isinstance(size, Batch):
        size = 1
    window = g.rng.randint(0, size)
    step = g.rng.randint(1, 3)
    if g.spoil(0.9):
        # Some batch has 99 samples.
        far = (99, step, dim) if not dims or dims[dim] == size else (-2, 1, dim)
        window, step, dim = g.pick((window, 0, dim), (-1, step, dim), far, (window, step, 6))
    return call(g, "unfold", x, dim, window, step)


def diagonal(g):
    x, dims = source(g, 2, 4) if not g.spoil(0.2) else source(g, 0, 1)
    one, two = g.rng.sample(range(len(dims)), 2) if len(dims) > 1 else (0, 1)
    if g.spoil(0.5):
        two = g.pick(one, one - len(dims), 9)
    return call(g, "diagonal", x, g.rng.randint(-4, 4), one, two)


def as_strided(g):
    dims = [g.rng.randint(2, 4) for _ in range(g.rng.randint(1, 3))]
    if g.symbolic:
        dims = g.dims(len(dims), 2, 4)
    x = g.tensor(dims, g.dtype(), channels_last=False)
    room = math.prod(1 if isinstance(d, Batch) else d for d in dims)
    sizes, strides = [], []
    for _ in range(g.rng.randint(0, 3)):
        size, stride = g.rng.randint(1, 3), g.rng.randint(0, 3)
        if (size - 1) * stride < room:
            room -= (size - 1) * stride
            sizes.append(size)
            strides.append(stride)
    if g.spoil(0.9):
        g.pick(sizes, strides).append(1)
        if g.chance(0.4) and len(sizes) == len(strides):
            sizes[0] = -1
    offset = g.pick(None, None, 0)
    if offset is None and g.chance(0.5):
        return call(g, "as_strided", x, sizes, strides)
    return call(g, "as_strided", x, sizes, strides, offset)


def reshape_alias(g):
    dims = g.dims(g.rng.randint(0, 3))
    x = g.tensor(dims, g.dtype(), channels_last=False)
    flat = math.prod(d for d in dims if not isinstance(d, Batch))
    if any(isinstance(d, Batch) for d in dims) and dims:
        g.prepare(f"n = torch.ops.aten.numel({x})")
        if flat == 0:
            return None
        g.prepare(f"m = n // {flat}")
        return call(g, "_reshape_alias", x, f"[m, {flat}]", f"[{flat}, 1]")
    sizes = [1, flat] if g.chance(0.5) else [flat]
    strides = [flat, 1][-len(sizes) :]
    if g.spoil(0.9):
        strides = [*strides, 1]
    return call(g, "_reshape_alias", x, sizes, strides)


# Repetition ------------------------------------------------------------------


def expandable(g):
    dims = [1 if g.chance(0.4) else d for d in g.dims(g.rng.randint(0, 4))]
    x = g.strided(dims, g.dtype())
    sizes = [g.rng.randint(1, 3) for _ in range(g.rng.randint(0, 2))]
    for d in dims:
        if d == 1 and g.chance(0.7):
            sizes.append(g.pick(1, 2, 4, 0))
        else:
            sizes.append(-1 if isinstance(d, Batch) or g.chance(0.4) else d)
    return x, dims, sizes


def expand(g, op):
    x, dims, sizes = expandable(g)
    if g.chance(0.2) and not any(isinstance(d, Batch) for d in dims):
        # As for a learnt token: once per sample.
        y = g.tensor([g.batch(), 2])
        g.prepare(f"n = torch.ops.aten.size({y}, 0)")
        shown = ", ".join(map(str, sizes))
        return call(g, op, x, f"[n, {shown}]")
    if g.spoil(0.9):
        if sizes and g.chance(0.7):
            sizes[g.rng.randrange(len(sizes))] = g.pick(7, -2, 9)
        elif dims:
            sizes = sizes[: len(dims) - 1]
        else:
            sizes = [-1, *sizes]
    return call(g, op, x, sizes)


def expand_as(g):
    dims = g.dims(g.rng.randint(0, 4))
    x = g.strided(g.broadcast(dims), g.dtype())
    y = g.tensor(dims[1:] if dims and g.spoil() else dims)
    return call(g, "expand_as", x, y)


def broadcast_tensors(g):
    dims = g.dims(g.rng.randint(0, 4))
    tensors = [g.strided(g.broadcast(dims), g.dtype()) for _ in range(g.rng.randint(1, 3))]
    return listed(g, "broadcast_tensors", len(tensors), "[" + ", ".join(tensors) + "]")


# Other extents ---------------------------------------------------------------


def factors(g, number):
    """A few numbers whose product is `number`."""
    found = []
    while g.chance(0.6) and number > 1:
        part = g.rng.choice([d for d in range(1, number + 1) if number % d == 0])
        found.append(part)
        number //= part
    found.append(number)
    return found


def reshaped(g):
    """A tensor and sizes of as many elements; some -1, some computed."""
    dims = g.dims(g.rng.randint(0, 4))
    x = g.strided(dims, g.dtype())
    batch = [d for d, e in enumerate(dims) if isinstance(e, Batch)]
    if not batch:
        sizes = factors(g, math.prod(dims)) if g.chance(0.7) else list(dims)
        if not dims and g.chance(0.3):
            sizes = []
        if sizes and math.prod(sizes) and g.chance(0.4):
            sizes[g.rng.randrange(len(sizes))] = -1
        if sizes and g.spoil(0.9):
            place = g.rng.randrange(len(sizes))
            sizes[place] = g.pick(sizes[place] + 1, -2, sizes[place] * 2 + 1)
            if g.chance(0.2):
                sizes = [-1, -1, *sizes]
        return x, sizes
    place = batch[0]
    before, after = dims[:place], dims[place + 1 :]
    if g.chance(0.3):
        # Merged with what is before or after.
        sizes = factors(g, math.prod(before)) if g.chance(0.5) else []
        sizes += [-1, *factors(g, max(math.prod(after), 1))]
        if g.chance(0.5):
            sizes = sizes[:-1]
        if math.prod(before) * math.prod(after) == 0:
            sizes = [math.prod(before), "n", math.prod(after)]
            g.prepare(f"n = torch.ops.aten.size({x}, {place})")
    else:
        factor = dims[place].factor
        g.prepare(f"n = torch.ops.aten.size({x}, {place})")
        middle = ["n"]
        if factor == 2 and g.chance(0.7):
            g.prepare("m = n // 2")
            middle = ["m", 2]
        if g.chance(0.15):
            # Turned round: rows of one sample go to others.
            middle = middle[::-1]
        tail = factors(g, math.prod(after)) if g.chance(0.6) else after
        head = factors(g, math.prod(before)) if g.chance(0.3) else before
        sizes = list(head) + middle + list(tail)
        known = math.prod(s for s in sizes if isinstance(s, int))
        if known and g.chance(0.4):
            sizes[g.rng.randrange(len(sizes))] = -1
    if g.spoil(0.8):
        sizes = [s if isinstance(s, str) else s + g.pick(0, 7) for s in sizes]
        if g.chance(0.3):
            sizes += [-1, -1]
    return x, "[" + ", ".join(map(str, sizes)) + "]"


def reshape(g, op):
    x, sizes = reshaped(g)
    return call(g, op, x, sizes)


def reshape_as(g, op):
    dims = g.dims(g.rng.randint(0, 4))
    x = g.strided(dims, g.dtype())
    others = (
        [Batch(2), *dims[1:]]
        if dims[:1] == [Batch()] and g.spoil()
        else [*dims] + [1] * g.pick(0, 1)
    )
    if g.chance(0.5) and len(dims) > 2 and not any(isinstance(d, Batch) for d in dims[1:]):
        others = [dims[0], math.prod(dims[1:])]
    if others and g.spoil() and not isinstance(others[-1], Batch):
        others[-1] += 1
    return call(g, op, x, g.tensor(others))


def flatten(g):
    x, dims = source(g)
    if g.chance(0.4) and not g.wrong:
        return call(g, "flatten", x, g.pick(0, 1) if len(dims) > 1 else 0)
    return call(g, "flatten", x, g.dim(len(dims)), g.dim(len(dims)))


def unflatten(g):
    x, dims = source(g, 1, 4)
    dim = g.rng.randrange(len(dims))
    if isinstance(dims[dim], Batch):
        sizes = g.pick([-1], [-1, 1], [1, -1])
        if dims[dim].factor == 2:
            sizes = g.pick(sizes, [-1, 2], [2, -1])
    else:
        sizes = factors(g, dims[dim]) if dims[dim] else [0]
        if math.prod(sizes) and g.chance(0.4):
            sizes[g.rng.randrange(len(sizes))] = -1
    if g.spoil(0.9):
        sizes = g.pick([], [7, 9], [-1, -1], [-3, 2])
    return call(g, "unflatten", x, dim, sizes)


# Other element types ---------------------------------------------------------

# aten::view.dtype cannot be called from TorchScript, which knows no overload of
# aten::view but that with sizes.


def view_as_real(g):
    x, _ = source(g, 0, 4, COMPLEX if not g.spoil(0.9) else FLOATS)
    return call(g, "view_as_real", x)


def view_as_complex(g):
    dims = [*g.dims(g.rng.randint(0, 3)), 2]
    if g.spoil(0.7):
        dims[-1] = 3
    dtype = g.pick("float32", "float64") if not g.spoil(0.3) else "int64"
    return call(g, "view_as_complex", g.tensor(dims, dtype, channels_last=False))


@takes_all
def real(g):
    x, _ = source(g, 0, 4, COMPLEX + COMPLEX + ["float32", "int64"])
    return call(g, "real", x)


def imag(g):
    x, _ = source(g, 0, 4, COMPLEX if not g.spoil(0.9) else ANY)
    return call(g, "imag", x)


# Integers: what they say is seen in the sizes of a view ---------------------


@takes_all
def size_list(g):
    x, dims = source(g, 0, 4)
    g.prepare(f"n = torch.ops.aten.size({x})")
    y = g.tensor(dims, channels_last=False)
    return call(g, "view", y, "n")


@takes_all
def size_int(g):
    x, dims = source(g, 1, 4)
    dim = g.rng.randrange(len(dims))
    g.prepare(f"n = torch.ops.aten.size({x}, {dim})")
    y = g.tensor([dims[dim], 3])
    return call(g, "view", y, "[n, 3]")


@takes_all
def numel(g):
    x, dims = source(g, 0, 4)
    g.prepare(f"n = torch.ops.aten.numel({x})")
    y = g.tensor(dims, channels_last=False)
    return call(g, "view", y, "[n]")


@takes_all
def rank(g):
    x, dims = source(g, 1, 4)
    g.prepare(f"n = torch.ops.aten.dim({x})")
    y = g.tensor([g.batch(), len(dims)])
    return call(g, "view", y, "[-1, n]")


def each(make, names, **options):
    """The generator of several schemas; `torch.ops.aten` chooses the overload
    from the arguments."""
    found = {}
    for name in names:
        op = name.removeprefix("aten::").split(".")[0]
        found[name] = functools.partial(make, op=op)
        for key, value in options.items():
            setattr(found[name], key, value)
    return found


GENERATORS = {
    "aten::permute": permute,
    **each(
        two_dims,
        [
            "aten::transpose.int",
            "aten::swapdims",
            "aten::swapaxes",
            "aten::movedim.int",
            "aten::moveaxis.int",
        ],
    ),
    "aten::t": matrix_transpose,
    **each(matrices_transposed, ["aten::mT", "aten::mH"]),
    "aten::_conj": lazy_conj,
    **each(at_least, [f"aten::atleast_{n}d" for n in (1, 2, 3)], takes_all=True),
    **each(at_least_sequence, [f"aten::atleast_{n}d.Sequence" for n in (1, 2, 3)], takes_all=True),
    **each(plain, ["aten::numpy_T", "aten::detach", "aten::alias", "aten::ravel"], takes_all=True),
    **each(move_lists, ["aten::movedim.intlist", "aten::moveaxis.intlist"]),
    "aten::unsqueeze": unsqueeze,
    "aten::squeeze": squeeze,
    "aten::squeeze.dim": squeeze_dim,
    "aten::squeeze.dims": squeeze_dims,
    "aten::slice.Tensor": slice_tensor,
    "aten::select.int": select,
    "aten::narrow": narrow,
    "aten::unbind.int": unbind,
    **each(split, ["aten::split.Tensor", "aten::unsafe_split.Tensor"]),
    **each(
        split_sizes,
        [
            "aten::split",
            "aten::split.sizes",
            "aten::split_with_sizes",
            "aten::unsafe_split_with_sizes",
        ],
    ),
    **each(chunk, ["aten::chunk", "aten::unsafe_chunk"]),
    "aten::tensor_split.sections": tensor_split,
    "aten::unfold": unfold,
    "aten::diagonal": diagonal,
    "aten::as_strided": as_strided,
    "aten::_reshape_alias": reshape_alias,
    **each(expand, ["aten::expand", "aten::broadcast_to"]),
    "aten::expand_as": expand_as,
    "aten::broadcast_tensors": broadcast_tensors,
    **each(reshape, ["aten::view", "aten::_unsafe_view", "aten::reshape"]),
    **each(reshape_as, ["aten::view_as", "aten::reshape_as"]),
    "aten::flatten.using_ints": flatten,
    "aten::unflatten.int": unflatten,
    "aten::view_as_real": view_as_real,
    "aten::view_as_complex": view_as_complex,
    "aten::real": real,
    "aten::imag": imag,
    "aten::size": size_list,
    "aten::size.int": size_int,
    "aten::numel": numel,
    "aten::dim": rank,
}
