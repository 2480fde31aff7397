"""Calls of resizing and of sampling at a grid."""

import re

from koila._generators.generator import FLOATS, Batch

PIXELS = FLOATS * 2 + ["uint8"]


def image(g, rank):
    dims = [g.batch(), g.rng.randint(1, 4)]
    dims += [g.rng.randint(2, 7) for _ in range(rank)]
    if g.spoil(0.3):
        place = g.rng.randrange(1, len(dims))
        dims = g.pick([*dims[:place], 0, *dims[place + 1 :]], dims[1:], [*dims, 2])
    elif g.symbolic and g.chance(0.15):
        dims[0] = 2
        dims[g.rng.randrange(1, len(dims))] = g.batch()
    return dims


def sizes(g, x, dims, rank):
    """An output_size, sometimes of computed extents."""
    size = [g.rng.randint(1, 9) for _ in range(rank)]
    if g.spoil(0.3):
        size = g.pick([*size, 2], size[1:], [*size[1:], 0], [*size[1:], -2])
    if g.chance(0.25) and len(dims) == rank + 2:
        g.prepare(f"n = torch.ops.aten.size({x}, {len(dims) - 1})")
        return f"[{', '.join(map(str, [*size[: rank - 1], 'n']))}]"
    return size


def resize(g):
    name = g.op.split("::")[1].split(".")[0]
    rank = int(re.search(r"(\d)d", name)[1])
    dims = image(g, rank)
    # Bicubic and antialiased filters are computed for few types.
    x = g.strided(dims, g.dtype(PIXELS if g.chance(0.6) else FLOATS))
    align = "" if "nearest" in name else f", {g.chance(0.5)}"
    if not g.op.endswith(".vec"):
        size = sizes(g, x, dims, rank)
        scales = ", ".join(
            str(g.pick("None", 2.0, 0.5)) if g.chance(0.3) else "None" for _ in range(rank)
        )
        if "_aa" in name:
            # Beside a size that says otherwise it reads past the tensor: zero
            # times what is there, NaN now and then.
            scales = ", ".join(["None"] * rank)
        return g.call(f"r = torch.ops.aten.{name}(%s, %s{align}, {scales})", x, size)
    align = align and ", align_corners=" + align[2:]
    size = scales = "None"
    if g.chance(0.4):
        size = sizes(g, x, dims, rank)
    else:
        # Of a batch only exact multiples are known.
        exact = any(isinstance(dim, Batch) for dim in dims[2:])
        scales = [
            g.pick(1.0, 2.0, 3.0, 1.5)
            if exact
            else g.pick(2.0, 2.0, 0.5, 1.5, 1 / 3, 0.7, 2.2, 0.5)
            for _ in range(rank)
        ]
        if g.spoil(0.3):
            scales = g.pick([*scales, 2.0], scales[1:], [-1.0] * rank, [0.01] * rank)
    if g.spoil(0.15):
        size, scales = g.pick(("None", "None"), ([3] * rank, [2.0] * rank))
    return g.call(
        f"r = torch.ops.aten.{name}(input=%s, output_size=%s{align}, scale_factors=%s)",
        x,
        size,
        scales,
    )


def grid_sampler(g):
    name = g.op.split("::")[1]
    digit = re.search(r"(\d)d", name)
    rank = int(digit[1]) if digit else g.pick(2, 3)
    if g.spoil(0.1):
        rank = 5 - rank
    batch = g.batch()
    dims = [batch, g.rng.randint(0, 3)]
    dims += [0 if g.spoil(0.1) else g.rng.randint(1, 5) for _ in range(rank)]
    out = [batch] + [g.rng.randint(0, 5) for _ in range(rank)] + [rank]
    if g.symbolic and g.chance(0.1):
        dims[0] = out[0] = 2
        out[1] = batch
    if g.spoil(0.4):
        # Whether a batch is 5 cannot be known.
        place = len(out) - 1 if g.symbolic else g.pick(0, len(out) - 1)
        out = [*out[:place], 5, *out[place + 1 :]]
    if g.spoil(0.1):
        out = out[1:]
    dtype = g.dtype(FLOATS)
    x = g.strided(dims, dtype)
    y = g.strided(out, "float64" if g.spoil(0.2) else dtype)
    mode = g.pick(0, 1, 2 if rank == 2 or g.wrong else 0)
    return g.call(
        f"r = torch.ops.aten.{name}(%s, %s, %s, %s, %s)", x, y, mode, g.pick(0, 1, 2), g.chance(0.5)
    )


def affine_grid(g):
    rank, batch = g.pick(2, 3), g.batch()
    theta = [batch, rank, rank + 1]
    if g.spoil(0.4):
        theta[g.pick(1, 2)] += 1
    if g.spoil(0.2):
        theta = theta[1:]
    x = g.strided(theta, g.dtype(FLOATS))
    size = [batch] + [g.rng.randint(1, 5) for _ in range(rank + 1)]
    if isinstance(batch, Batch):
        g.prepare(f"n = torch.ops.aten.size({x}, 0)")
        size[0] = "n"
    elif g.spoil(0.3):
        size[0] = 5
    if g.spoil(0.2):
        size = g.pick([*size, 2, 3], size[1:3], [*size[:-1], -1])
    return g.call(
        f"r = torch.ops.aten.affine_grid_generator(%s, [{', '.join(map(str, size))}], %s)",
        x,
        g.chance(0.5),
    )


GENERATORS = {}
for kind in (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
):
    GENERATORS["aten::" + kind] = resize
    GENERATORS[f"aten::{kind}.vec"] = resize
for kind in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"):
    GENERATORS["aten::" + kind] = grid_sampler
GENERATORS["aten::affine_grid_generator"] = affine_grid
