"""Calls of normalisations, softmax, dropout and distances."""

from koila._generators.generator import ANY, COMPLEX, FLOATS, Batch, masked, needs_elements

HALVES = ["float16", "bfloat16"]


def softmax(name):
    def generate(g):
        dims = g.dims(g.rng.randint(0, 5))
        kind = g.pick("float32", "float64", "float16")
        if name.startswith("_"):
            x = g.strided(dims, g.dtype(FLOATS))
            return g.call(f"r = torch.ops.aten.{name}({x}, {g.dim(len(dims))}, False)")
        if g.chance(0.4):
            x = g.strided(dims, g.dtype(ANY))
            return g.call(f"r = torch.ops.aten.{name}({x}, {g.dim(len(dims))}, torch.{kind})")
        x = g.strided(dims, "int64" if g.spoil(0.2) else g.dtype(FLOATS))
        return g.call(f"r = torch.ops.aten.{name}({x}, {g.dim(len(dims))})")

    return generate


def vectors(g, dims, kind, chances, same=True):
    """Parameters of that shape, or None; of the type that goes with `kind`."""
    common = "float32" if kind in HALVES and g.chance(0.5) else kind
    names = []
    for chance in chances:
        if not g.chance(chance):
            names.append("None")
            continue
        own, mine = common, list(dims)
        if g.spoil(0.15):
            own = g.pick("float64", "float16", "float32")
        if g.spoil(0.2):
            place = g.rng.randrange(len(mine)) if mine else None
            if place is not None and not isinstance(mine[place], Batch):
                mine[place] += 1
        names.append(g.tensor(mine, own))
    return names


def positive(g, name):
    """Variances."""
    if name == "None":
        return name
    g.prepare(f"v = torch.ops.aten.sigmoid({name})")
    return "v"


def image(g, low=2, high=5):
    rank = g.rank(low, high)
    return g.dims(rank, high=4)


def channels(g, dims):
    return [dims[1] if len(dims) > 1 else 3]


def batch_norm(g):
    dims, kind = image(g), g.dtype(FLOATS)
    if len(dims) > 1 and dims[1] == 0:
        return None  # Refused in some layouts and not in others.
    # Two rows or more: a single one may make a permuted image channels-last.
    dims = [Batch(2) if isinstance(d, Batch) else d for d in dims]
    # Strided ones have no figure.
    x = g.tensor(dims, kind) if g.chance(0.4) else g.strided(dims, kind)
    names = vectors(g, channels(g, dims), kind, (0.7, 0.7, 1, 1))
    if g.spoil(0.15):
        names[2] = "None"
    names[3] = positive(g, names[3])
    return g.call(
        f"r = torch.ops.aten.batch_norm({x}, {', '.join(names)}, "
        f"{g.pick(False, True)}, 0.1, 1e-05, True)"
    )


def batch_norm_stats(g):
    dims = image(g)
    kind = "int64" if g.spoil(0.2) else g.dtype(FLOATS)
    if g.spoil(0.3) and len(dims) > 1:
        dims[g.rng.randrange(len(dims))] = 0
    dims = [Batch(2) if isinstance(d, Batch) else d for d in dims]
    x = g.tensor(dims, kind) if g.chance(0.4) else g.strided(dims, kind)
    return g.call(f"r, s = torch.ops.aten.batch_norm_update_stats({x}, None, None, 0.1)")


@needs_elements
def batch_norm_backward(g):
    dims, kind = image(g), g.dtype(FLOATS)
    dims = [Batch(2) if isinstance(d, Batch) else d or 1 for d in dims]
    train = g.chance(0.5)
    # Without the statistics that it reads PyTorch dies, and those of other shapes
    # it reads as they are.
    chances = (0.7, *((0.3, 1) if train else (1, 0.3)))
    common = "float32" if kind in HALVES and g.chance(0.5) else kind
    other = g.pick("float64", "int64") if g.spoil(0.3) else common
    wanted = g.mask()

    def make():
        return g.tensor(dims, kind) if g.chance(0.4) else g.strided(dims, kind)

    def vectors(chance, dtype):
        has = g.chance(chance)
        return [g.tensor(channels(g, dims), dtype) if has else "None" for _ in range(2)]

    x = make()
    y = g.tensor(dims, "float64" if kind == "float32" else "float32") if g.spoil(0.3) else make()
    weight = g.tensor(channels(g, dims), other) if g.chance(chances[0]) else "None"
    mean, variance = vectors(chances[1], common)
    saved, deviation = vectors(chances[2], common)
    return g.call(
        f"{masked(wanted)} = torch.ops.aten.native_batch_norm_backward({y}, {x}, {weight}, {mean}, "
        f"{positive(g, variance)}, {saved}, {deviation}, {train}, 1e-05, {wanted})"
    )


def group_norm(g):
    dims, kind = image(g), g.dtype(FLOATS)
    groups = g.pick(1, 2, 3)
    if len(dims) > 1 and not isinstance(dims[1], Batch) and not g.spoil(0.3):
        dims[1] = groups * g.rng.randint(1, 3)
    if g.spoil(0.1):
        groups = g.pick(0, -1)
    x = g.strided(dims, kind)
    weight, bias = vectors(g, channels(g, dims), kind, (0.6, 0.6))
    return g.call(f"r = torch.ops.aten.group_norm({x}, {groups}, {weight}, {bias}, 1e-05, True)")


def instance_norm(g):
    dims, kind = image(g), g.dtype(FLOATS)
    x = g.strided(dims, kind)
    stats = g.chance(0.7)
    ones = (0, 0) if stats else (1, 1)
    names = vectors(g, channels(g, dims), kind, (0.5, 0.5, *ones))
    if not stats and g.spoil(0.2):
        names[2] = "None"
    names[3] = positive(g, names[3])
    return g.call(
        f"r = torch.ops.aten.instance_norm({x}, {', '.join(names)}, {stats}, 0.1, 1e-05, True)"
    )


def trailing(name):
    def generate(g):
        rank = g.rng.randint(1, 5)
        count = g.rng.randint(1, min(rank, 3))
        dims, kind = g.dims(rank), g.dtype(FLOATS)
        x = g.strided(dims, kind)
        shape = dims[rank - count :]
        sizes = []
        for place, extent in enumerate(shape):
            if isinstance(extent, Batch) or g.chance(0.15):
                g.prepare(f"n{place} = torch.ops.aten.size({x}, {rank - count + place})")
                sizes.append(f"n{place}")
            else:
                sizes.append(str(extent + 1 if g.spoil(0.3) else extent))
        if g.spoil(0.1):
            sizes = []
        sizes = f"[{', '.join(sizes)}]"
        if name == "rms_norm":
            (weight,) = vectors(g, shape, kind, (0.6,))
            if weight != "None" and g.chance(0.2):
                g.inputs[-1].dtype = g.pick("float32", "float64")
            text = f"{x}, {sizes}, {weight}, {g.pick(None, 1e-5)}"
        else:
            weight, bias = vectors(g, shape, kind, (0.6, 0.6))
            text = f"{x}, {sizes}, {weight}, {bias}, 1e-05"
        left = "r, s, t" if name.startswith("native") else "r"
        return g.call(f"{left} = torch.ops.aten.{name}({text})")

    return generate


def dropout(name, inplace=False):
    def generate(g):
        # Of integers and complex numbers PyTorch draws no noise.
        train = g.random = g.chance(0.5)
        channels = 2 if train and "feature" in name else 0
        dims = g.dims(g.rng.randint(channels, 5))
        x = (
            g.tensor(dims, "float32")
            if inplace
            else g.strided(dims, g.dtype(FLOATS if train else ANY + COMPLEX))
        )
        if inplace:
            g.prepare(f"y = torch.ops.aten.neg({x})")
            x = "y"
        p = g.pick(-0.5, 1.5) if g.spoil(0.8) else g.pick(0.0, 0.5, 1.0)
        return g.call(f"r = torch.ops.aten.{name}({x}, {p}, {train})")

    return generate


@needs_elements
def native_dropout(g):
    # An empty mask has the type of the input on the CPU, and no bools.
    is_wrong = g.spoil(0.8)
    train = True if is_wrong else g.pick(None, True, False)
    g.random = train is not False
    p = g.pick(-0.5, 1.5) if is_wrong else g.pick(0.0, 0.5, 1.0)
    x = g.strided(g.dims(g.rng.randint(0, 5)), g.dtype(FLOATS))
    return g.call(f"r, s = torch.ops.aten.native_dropout({x}, {p}, {train})")


def renorm(name):
    def generate(g):
        rank = g.rank(2, 4)
        dims = g.dims(rank)
        kind = "int64" if g.spoil(0.2) else g.dtype(FLOATS)
        x = g.tensor(dims, kind) if name.endswith("_") else g.strided(dims, kind)
        if name.endswith("_"):
            g.prepare(f"y = torch.ops.aten.neg({x})")
            x = "y"
        p = g.pick(0, -1) if g.spoil(0.2) else g.pick(1, 2, 3.5)
        top = -1 if g.spoil(0.2) else g.pick(1, 0.5, 0)
        return g.call(f"r = torch.ops.aten.{name}({x}, {p}, {g.dim(rank)}, {top})")

    return generate


def weight_norm(g):
    rank = g.rng.randint(1, 4)
    dims = [g.rng.randint(1, 5) for _ in range(rank)]
    dim = g.dim(rank)
    sizes = [
        extent if place == dim % rank and dim != -1 else 1 for place, extent in enumerate(dims)
    ]
    kind = g.dtype(FLOATS)
    v = g.strided(dims, kind)
    other = g.dtype(FLOATS) if g.chance(0.2) or g.spoil(0.4) else kind
    return g.call(f"r = torch.ops.aten._weight_norm({v}, {g.tensor(sizes, other)}, {dim})")


def pair(g, dims, kinds):
    """Operands that broadcast, whatever the batch."""
    other = g.broadcast(dims)
    first = len(dims) - len(other)
    other = [
        1 if isinstance(dims[first + place], Batch) and extent != dims[first + place] else extent
        for place, extent in enumerate(other)
    ]
    return g.strided(dims, g.dtype(kinds)), g.strided(other, g.dtype(kinds))


def cosine_similarity(g):
    dims = g.dims(g.rng.randint(0, 4))
    x, y = pair(g, dims, ["int64", "bool"] if g.spoil(0.2) else FLOATS)
    return g.call(f"r = torch.ops.aten.cosine_similarity({x}, {y}, {g.dim(len(dims))}, 1e-08)")


def pairwise_distance(g):
    dims = g.dims(g.rng.randint(0, 4))
    kinds = ["bool", "float32"] if g.spoil(0.3) else FLOATS + COMPLEX + ["int64", "int32"]
    x, y = pair(g, dims, kinds)
    p = g.pick(1.0, 2.0, 3.5, 0.0)
    return g.call(f"r = torch.ops.aten.pairwise_distance({x}, {y}, {p}, 1e-06, {g.chance(0.4)})")


def cdist(name):
    def generate(g):
        rank = g.rank(2, 4)
        dims, kind = g.dims(rank), g.pick("float32", "float32", "float64")
        if rank and isinstance(dims[-1], Batch):
            dims[-1] = 3
        other = list(dims)
        if rank > 1 and g.chance(0.6):
            other[-2] = g.rng.randint(1, 5)
        for place in range(rank - 2):
            if g.chance(0.2):
                other[place] = 1
        if g.chance(0.3) and rank > 2:
            other = other[1:]
        if len(other) > 1 and g.chance(0.3):
            dims, other = other, dims
        if other and g.spoil(0.3):
            other[-1] += 1
        x = g.strided(dims, kind)
        y = g.strided(other, "float16" if g.spoil(0.2) else kind)
        p = -1.0 if g.spoil(0.2) else g.pick(2.0, 1.0, 0.0, 3.0)
        mode = g.pick(3, -1) if g.spoil(0.2) else g.pick(None, 0, 1, 2)
        return g.call(f"r = torch.ops.aten.{name}({x}, {y}, {p}, {mode})")

    return generate


def pdist(g):
    x = g.strided(g.dims(g.rank(2, 2)), "int64" if g.spoil(0.2) else g.pick("float32", "float64"))
    p = -1.0 if g.spoil(0.3) else g.pick(2.0, 1.0, 0.0)
    return g.call(f"r = torch.ops.aten.pdist({x}, {p})")


GENERATORS = {
    "aten::softmax.int": softmax("softmax"),
    "aten::log_softmax.int": softmax("log_softmax"),
    "aten::_softmax": softmax("_softmax"),
    "aten::_log_softmax": softmax("_log_softmax"),
    "aten::batch_norm": batch_norm,
    "aten::batch_norm_update_stats": batch_norm_stats,
    "aten::native_batch_norm_backward": batch_norm_backward,
    "aten::layer_norm": trailing("layer_norm"),
    "aten::native_layer_norm": trailing("native_layer_norm"),
    "aten::rms_norm": trailing("rms_norm"),
    "aten::group_norm": group_norm,
    "aten::instance_norm": instance_norm,
    "aten::renorm": renorm("renorm"),
    "aten::renorm_": renorm("renorm_"),
    "aten::_weight_norm": weight_norm,
    "aten::cosine_similarity": cosine_similarity,
    "aten::pairwise_distance": pairwise_distance,
    "aten::cdist": cdist("cdist"),
    "aten::_cdist_forward": cdist("_cdist_forward"),
    "aten::pdist": pdist,
    "aten::native_dropout": native_dropout,
}
for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
    GENERATORS[f"aten::{name}"] = dropout(name)
    GENERATORS[f"aten::{name}_"] = dropout(name + "_", True)
