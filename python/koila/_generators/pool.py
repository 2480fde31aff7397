"""Calls of pools."""

import re

from koila._generators.generator import FLOATS, Batch

WINDOWS = FLOATS * 3 + ["int64", "uint8"]


def image(g, rank, low=3, high=9):
    """(N, C, ...) or (C, ...), sometimes of a wrong rank."""
    lead = g.pick(1, 2, 2, 2)
    if g.spoil(0.2):
        lead = g.pick(0, 3)
    dims = [0 if g.chance(0.02) else g.rng.randint(1, 4) for _ in range(lead)]
    dims += [0 if g.chance(0.01) else g.rng.randint(low, high) for _ in range(rank)]
    if dims:
        place = 0 if g.chance(0.75) else g.rng.randrange(len(dims))
        dims[place] = g.batch()
    return dims


def rank_of(g):
    return int(re.search(r"(\d)d", g.op)[1])


def entries(g, rank, values, wrong):
    many = 1 if g.chance(0.2) else rank
    found = [g.pick(*values) for _ in range(many)]
    if g.spoil(0.1):
        found[g.rng.randrange(many)] = wrong
    if g.spoil(0.04):
        found = found + [1] * rank
    return found


def window(g):
    name, rank = g.op.split("::")[1], rank_of(g)
    dims = image(g, rank)
    x = g.strided(dims, g.dtype(WINDOWS))
    kernel = entries(g, rank, (1, 2, 2, 3, 3, 4), 0)
    stride = [] if g.chance(0.3) else entries(g, rank, (1, 2, 2, 3), 0)
    padding = entries(g, rank, (0,), -1)
    if g.chance(0.5):
        padding = [g.rng.randint(0, k // 2) for k in kernel]
        if g.spoil(0.2):
            padding[0] = kernel[0] // 2 + 1
    last = len(dims) - 1
    if g.chance(0.15) and len(dims) > rank and not isinstance(dims[last], Batch) and dims[last]:
        # Global pooling as it is written with sizes.
        g.prepare(f"n = torch.ops.aten.size({x}, {last})")
        kernel = f"[{', '.join(['2'] * (rank - 1) + ['n'])}]"
        padding, stride = [0] * rank, []
    ceil = g.chance(0.4)
    call = f"r = torch.ops.aten.{name}(%s, %s, %s, %s, "
    if name.startswith("max"):
        if "indices" in name:
            call = "r, s" + call[1:]
        return g.call(
            call + "%s, %s)", x, kernel, stride, padding, entries(g, rank, (1, 1, 1, 2), 0), ceil
        )
    count = g.chance(0.5)
    if rank == 1:
        return g.call(call + "%s, %s)", x, kernel, stride, padding, ceil, count)
    divisor = 0 if g.spoil(0.1) else g.pick("None", "None", 3)
    return g.call(call + "%s, %s, %s)", x, kernel, stride, padding, ceil, count, divisor)


def adaptive(g):
    name, rank = g.op.split("::")[1], rank_of(g)
    dims = image(g, rank, 1)
    if g.chance(0.05):
        dims = g.dims(g.rng.randint(rank, 5))
    x = g.strided(dims, g.dtype(FLOATS))
    size = [g.pick(1, 2, 3, 5, 0) if g.chance(0.9) else 0 for _ in range(rank)]
    if g.chance(0.3):
        size = [1] * rank
    if g.spoil(0.3):
        size = g.pick([*size, 1], [2] * (rank - 1) + [-1], [])
    last = len(dims) - 1
    if g.chance(0.2) and len(dims) > rank:
        g.prepare(f"n = torch.ops.aten.size({x}, {last})")
        size = f"[{', '.join(['2'] * (rank - 1) + ['n'])}]"
    results = "r, s" if "max" in name else "r"
    return g.call(f"{results} = torch.ops.aten.{name}(%s, %s)", x, size)


def unpool(g):
    rank = rank_of(g)
    dims = image(g, rank, 2, 6)
    x = g.strided(dims, g.dtype(FLOATS))
    kernel = [2] * rank
    g.prepare(f"v, i = torch.ops.aten.max_pool{rank}d_with_indices({x}, {kernel})")
    indices, size = "i", [g.rng.randint(6, 9) for _ in range(rank)]
    if g.spoil(0.2):
        size = g.pick(size[1:], [*size[1:], -1])
    if g.spoil(0.3):
        indices = g.tensor([2, *dims[1:]], "int64", 0, 2)
    if g.spoil(0.2):
        indices = "v"
    if rank == 2:
        return g.call("r = torch.ops.aten.max_unpool2d(v, %s, %s)", indices, size)
    stride = [0 if g.spoil(0.2) else 2] * 3
    return g.call(
        "r = torch.ops.aten.max_unpool3d(v, %s, %s, %s, %s)", indices, size, stride, [0, 0, 0]
    )


GENERATORS = {}
for dim in (1, 2, 3):
    for kind in ("max_pool%dd", "max_pool%dd_with_indices", "avg_pool%dd"):
        GENERATORS["aten::" + kind % dim] = window
    for kind in ("adaptive_avg_pool%dd", "adaptive_max_pool%dd"):
        GENERATORS["aten::" + kind % dim] = adaptive
GENERATORS["aten::_adaptive_avg_pool2d"] = adaptive
GENERATORS["aten::_adaptive_avg_pool3d"] = adaptive
GENERATORS["aten::max_unpool2d"] = unpool
GENERATORS["aten::max_unpool3d"] = unpool
