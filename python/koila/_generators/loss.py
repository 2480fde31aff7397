"""Calls of losses."""

from koila._generators.generator import COMPLEX, FLOATS, Batch

INTS = ["int64", "int32", "uint8"]


def fitting(g, dims):
    """Extents that broadcast with `dims`; what could go wrong with some batch
    only is left out."""
    other = g.broadcast(dims)
    first = len(dims) - len(other)
    return [
        1 if isinstance(dims[first + place], Batch) and extent != dims[first + place] else extent
        for place, extent in enumerate(other)
    ]


def reduction(g):
    """Not reduced, mean, sum."""
    return g.pick(0, 0, 0, 1, 2)


def unit(g, name, index):
    """Numbers between 0 and 1."""
    g.prepare(f"u{index} = torch.ops.aten.sigmoid({name})")
    return f"u{index}"


def elementwise(name, dtypes=FLOATS, other=None, bad=(), into=None, options=lambda g: ("", "")):
    """`into` is the operand that the loss is computed in, whose shape the
    other must not exceed. `options` stand before and after `reduction`."""

    def generate(g):
        dims = g.dims(g.rng.randint(0, 4))
        small = fitting(g, dims)
        shapes = [dims, small]
        if into == 1 or (into is None and g.chance(0.3)):
            shapes.reverse()
        if into is not None and g.spoil(0.3):
            shapes.reverse()
        wrong = list(bad) if bad and g.spoil(0.4) else None
        x = g.strided(shapes[0], g.dtype(wrong or dtypes))
        y = g.strided(shapes[1], g.dtype(wrong or other or dtypes))
        before, after = options(g)
        return g.call(f"r = torch.ops.aten.{name}({x}, {y}, {before}{reduction(g)}{after})")

    return generate


def signed(low):
    """A number that must be more than, or at least, zero."""
    return lambda g: ("", f", {-1.0 if g.spoil(0.5) else g.pick(low, 0.7, 2.0)}")


def binary(g):
    dims = g.dims(g.rng.randint(0, 4))
    kind = g.dtype(FLOATS)
    target = list(dims)
    if target and g.spoil(0.5) and not isinstance(target[-1], Batch):
        target[-1] += 2
        if dims[-1] == 1:
            dims[-1] = 2
    x, y = (
        g.strided(dims, kind),
        g.strided(target, "float64" if kind == "float32" and g.spoil(0.4) else kind),
    )
    weight = g.strided(fitting(g, dims), kind) if g.chance(0.4) else "None"
    x, y = unit(g, x, 0), unit(g, y, 1)
    return g.call(f"r = torch.ops.aten.binary_cross_entropy({x}, {y}, {weight}, {reduction(g)})")


def binary_logits(g):
    dims = g.dims(g.rng.randint(0, 4))
    kind = g.dtype(FLOATS)
    shapes = [dims if g.chance(0.7) else fitting(g, dims), dims]
    if g.spoil(0.4):
        shapes.reverse()
    x = g.strided(shapes[0], kind)
    y = g.strided(shapes[1], "bool" if g.spoil(0.2) else g.dtype(FLOATS) if g.chance(0.3) else kind)
    weight, positive = (
        g.strided(fitting(g, dims), kind) if g.chance(0.3) else "None" for _ in range(2)
    )
    return g.call(
        "r = torch.ops.aten.binary_cross_entropy_with_logits("
        f"{x}, {y}, {weight}, {positive}, {reduction(g)})"
    )


def margin_ranking(g):
    dims = g.dims(g.rng.randint(0, 4))
    kinds = FLOATS + INTS if g.chance(0.3) else FLOATS
    x, y, z = (
        g.strided(shape, g.dtype(kinds)) for shape in (dims, fitting(g, dims), fitting(g, dims))
    )
    return g.call(f"r = torch.ops.aten.margin_ranking_loss({x}, {y}, {z}, 0.5, {reduction(g)})")


def poisson(g):
    dims = g.dims(g.rng.randint(0, 4))
    kinds = FLOATS + INTS if g.chance(0.4) else FLOATS
    x = g.strided(dims, g.dtype(kinds))
    y = g.strided(fitting(g, dims), g.dtype(kinds))
    return g.call(
        f"r = torch.ops.aten.poisson_nll_loss({x}, {y}, "
        f"{g.chance(0.5)}, {g.chance(0.4)}, 1e-08, {reduction(g)})"
    )


def classes(name, ranks):
    """Targets are classes."""

    def generate(g):
        rank = g.rank(*ranks) if g.wrong else g.pick(*range(ranks[0], ranks[1] + 1))
        dims = g.dims(rank)
        count = 4
        if rank:
            place = min(rank - 1, 1)
            if isinstance(dims[place], Batch):
                dims[place] = 5
                if place != 0 and g.symbolic:
                    dims[0] = Batch()
            dims[place] = count = max(dims[place], 1)
        kind = g.dtype(FLOATS)
        labels = dims[:1] + dims[2:] if rank > 1 else []
        if rank == 1 and g.chance(0.2):
            labels = [1]
        plain = [d for d, e in enumerate(labels) if not isinstance(e, Batch)]
        if g.spoil(0.3):
            if plain and g.chance(0.6):
                labels[g.pick(*plain)] += 1
            else:
                labels = [*labels, 2, 3]
        x = g.strided(dims, kind)
        probabilities = name == "cross_entropy_loss" and rank and g.chance(0.4)
        if probabilities:
            y = g.strided(
                dims, "int64" if g.spoil(0.5) else g.dtype(FLOATS) if g.chance(0.3) else kind
            )
        else:
            y = g.strided(labels, "float32" if g.spoil(0.2) else "int64", 0, count)
        weight = "None"
        if g.chance(0.3):
            weight = g.tensor(
                [count + 1 if g.spoil(0.5) else count],
                "float64" if kind == "float32" and g.spoil(0.3) else kind,
            )
        rest = ""
        if name == "cross_entropy_loss":
            rest = f", {1.5 if g.spoil(0.2) else g.pick(0.0, 0.0, 0.1)}"
        return g.call(
            f"r = torch.ops.aten.{name}({x}, {y}, {weight}, "
            f"{reduction(g)}, {g.pick(-100, -100, 1)}{rest})"
        )

    return generate


def multi_margin(g):
    rank = g.rank(1, 2)
    dims = g.dims(rank)
    count = 3
    if rank:
        dims[-1] = count = 4
    kind = g.pick("float32", "float32", "float64")
    labels = dims[:1] if rank > 1 else g.pick([], [1])
    if g.spoil(0.3):
        labels = [*labels, 2]
    x = g.strided(dims, kind)
    y = g.strided(labels, "int32" if g.spoil(0.2) else "int64", 0, count)
    weight = g.tensor([count + 1 if g.spoil(0.4) else count], kind) if g.chance(0.4) else "None"
    p = 3 if g.spoil(0.2) else g.pick(1, 2)
    return g.call(
        f"r = torch.ops.aten.multi_margin_loss({x}, {y}, {p}, "
        f"{g.pick(1, 0.5)}, {weight}, {reduction(g)})"
    )


def multilabel_margin(g):
    rank = g.rank(1, 2)
    dims = g.dims(rank)
    if rank:
        dims[-1] = 4
    labels = list(dims)
    if labels and g.spoil(0.5):
        labels[-1] = 3
    x = g.strided(dims, g.pick("float32", "float32", "float64"))
    y = g.strided(labels, "int32" if g.spoil(0.2) else "int64", 0, 4 if rank else 1)
    return g.call(f"r = torch.ops.aten.multilabel_margin_loss({x}, {y}, {reduction(g)})")


def cosine_embedding(g):
    rank = g.pick(1, 2, 2, 2)
    dims = g.dims(rank)
    if isinstance(dims[-1], Batch):
        dims[-1] = 3
    other = [1 if g.chance(0.1) else dims[0], *dims[1:]]
    labels = dims[:-1]
    if g.spoil(0.6):
        labels = [*labels, dims[-1]] if g.chance(0.5) or rank == 2 else [2]
    kinds = FLOATS if g.chance(0.7) else [*FLOATS, "int64"]
    x, y = g.strided(dims, g.dtype(kinds)), g.strided(other, g.dtype(kinds))
    z = g.tensor(labels, g.pick("float32", "int64"))
    return g.call(f"r = torch.ops.aten.cosine_embedding_loss({x}, {y}, {z}, 0.1, {reduction(g)})")


def triplet(g):
    dims = g.dims(g.rng.randint(0, 4))
    kinds = ["bool"] if g.spoil(0.2) else FLOATS + (["int64"] if g.chance(0.2) else [])
    shapes = [dims] + [[1 if g.chance(0.1) else d for d in dims] for _ in range(2)]
    if dims and g.spoil(0.5):
        shapes[2] = dims[1:]
    x, y, z = (g.strided(shape, g.dtype(kinds)) for shape in shapes)
    return g.call(
        f"r = torch.ops.aten.triplet_margin_loss({x}, {y}, {z}, 1.0, "
        f"2.0, 1e-06, {g.chance(0.4)}, {reduction(g)})"
    )


def ctc(g):
    batch = g.batch()
    steps, labels, count = g.rng.randint(4, 7), g.rng.randint(1, 2), 5
    single = g.chance(0.15)
    x = g.strided([steps, count] if single else [steps, batch, count], g.pick("float32", "float64"))
    g.prepare(f"x = torch.ops.aten.log_softmax({x}, -1)")
    rows = [] if single else [batch]
    y = g.tensor([*rows, labels], "int64", 1, count)
    # Lengths that are wrong whatever the batch.
    plain = not isinstance(batch, Batch)
    lengths = g.tensor([2, *rows] if plain and g.spoil(0.4) else rows, "int64", steps, steps + 1)
    targets = g.tensor([3, 4] if plain and g.spoil(0.3) else rows, "int64", labels, labels + 1)
    blank = g.pick(-1, 5) if g.spoil(0.5) else 0
    return g.call(
        f"r = torch.ops.aten.ctc_loss(x, {y}, {lengths}, {targets}, "
        f"{blank}, {reduction(g)}, {g.chance(0.3)})"
    )


MIXED = FLOATS * 3 + INTS
GENERATORS = {
    "aten::mse_loss": elementwise("mse_loss", other=MIXED),
    "aten::l1_loss": elementwise("l1_loss", MIXED + COMPLEX, bad=["bool"]),
    "aten::smooth_l1_loss": elementwise("smooth_l1_loss", other=MIXED, options=signed(0.0)),
    "aten::huber_loss": elementwise("huber_loss", other=MIXED, options=signed(0.1)),
    "aten::binary_cross_entropy": binary,
    "aten::binary_cross_entropy_with_logits": binary_logits,
    "aten::kl_div": elementwise(
        "kl_div",
        bad=["int64", "bool", "complex64"],
        options=lambda g: ("", f", log_target={g.chance(0.5)}"),
    ),
    "aten::soft_margin_loss": elementwise("soft_margin_loss", other=MIXED, bad=INTS, into=0),
    "aten::hinge_embedding_loss": elementwise(
        "hinge_embedding_loss", MIXED, bad=["bool"], options=lambda g: ("0.7, ", "")
    ),
    "aten::margin_ranking_loss": margin_ranking,
    "aten::poisson_nll_loss": poisson,
    "aten::nll_loss": classes("nll_loss", (1, 2)),
    "aten::nll_loss2d": classes("nll_loss2d", (4, 4)),
    "aten::nll_loss_nd": classes("nll_loss_nd", (1, 5)),
    "aten::cross_entropy_loss": classes("cross_entropy_loss", (1, 5)),
    "aten::multi_margin_loss": multi_margin,
    "aten::multilabel_margin_loss": multilabel_margin,
    "aten::cosine_embedding_loss": cosine_embedding,
    "aten::triplet_margin_loss": triplet,
    "aten::ctc_loss.Tensor": ctc,
}
