"""Calls of views: other dims, parts of dims and shapes of the same elements."""

from generator import ANY, COMPLEX, Batch


def source(g, low=0, high=5, dtypes=ANY):
    """A tensor and its dims."""
    dims = g.dims(g.rng.randint(low, high))
    return g.strided(dims, g.dtype(dtypes)), dims


def permute(g):
    x, dims = source(g)
    order = list(range(len(dims)))
    g.rng.shuffle(order)
    order = [d - len(dims) if g.chance(0.3) else d for d in order]
    if g.spoil(0.8):
        order = (order + [0] if not order or g.chance(0.4)
                 else [g.pick(order[-1], 9)] + order[1:])
    return g.call("r = torch.ops.aten.permute(%s, %s)", x, order)


def position(g):
    """Where a slice begins or ends."""
    return g.pick(None, 0, 1, 2, 3, 5, 9, -1, -2, -4, -9, 2**63 - 1)


def slice_tensor(g):
    x, dims = source(g)
    dim = g.dim(len(dims))
    step = g.pick(1, 1, 1, 2, 3) if not g.spoil() else g.pick(0, -1)
    return g.call("r = torch.ops.aten.slice(%s, %s, %s, %s, %s)", x, dim,
                  position(g), position(g), step)


def expand(g):
    dims = g.dims(g.rng.randint(0, 4))
    dims = [1 if g.chance(0.4) else d for d in dims]
    x = g.strided(dims, g.dtype())
    sizes = [g.rng.randint(1, 3) for _ in range(g.rng.randint(0, 2))]
    for d in dims:
        if d == 1 and g.chance(0.7):
            sizes.append(g.pick(1, 2, 4, 0))
        else:
            sizes.append(-1 if isinstance(d, Batch) or g.chance(0.4) else d)
    if g.spoil(0.9):
        if sizes and g.chance(0.7):
            sizes[g.rng.randrange(len(sizes))] = g.pick(7, -2, 9)
        elif dims:
            sizes = sizes[:len(dims) - 1]
        else:
            sizes = [-1] + sizes
    return g.call("r = torch.ops.aten.expand(%s, %s)", x, sizes)


GENERATORS = {
    "aten::permute": permute,
    "aten::slice.Tensor": slice_tensor,
    "aten::expand": expand,
}
