"""Calls of operators that join tensors."""

from koila._generators.generator import ANY, COMPLEX, Batch
from koila._generators.pointwise import callee


def operands(g, dims, joined, ranks=None):
    """Tensors that agree outside the joined dim, and now and then do not."""
    dtype = g.dtype(ANY + COMPLEX)
    found = []
    for _ in range(g.pick(1, 2, 2, 2, 3, 4)):
        mine = list(dims)
        if joined is not None and mine:
            at = joined % len(mine)
            if not isinstance(mine[at], Batch) or g.chance(0.3):
                mine[at] = g.rng.randint(0, 4)
        # Whether a batch is another extent depends on the batch.
        plain = [at for at, e in enumerate(mine) if not isinstance(e, Batch)]
        if plain and g.spoil(0.5):
            mine[g.rng.choice(plain)] += 1
        if len(plain) == len(mine) and g.spoil(0.4):
            mine = mine[1:] if g.chance(0.5) else [*mine, 2]
        kind = dtype if g.chance(0.8) else g.dtype(ANY)
        found.append(g.strided(mine, kind))
    return found


def listed(names):
    return "[" + ", ".join(names) + "]"


def cat(g):
    rank = g.pick(1, 1, 2, 2, 3, 3, 4, 4, 5) if not g.spoil(0.2) else 0
    dims, dim = g.dims(rank), g.dim(rank)
    tensors = operands(g, dims, dim if -rank <= dim < rank else 0)
    if g.chance(0.15):
        tensors.insert(g.rng.randint(0, len(tensors)), g.tensor([0], g.dtype(ANY)))
    if rank == 4 and g.chance(0.4):
        # All of one memory format.
        kind = g.chance(0.7)
        for tensor in g.inputs:
            tensor.channels_last = kind and len(tensor.dims) == 4
    return g.call(f"r = {callee(g)}({listed(tensors)}, {dim})")


def stack(g):
    rank = g.pick(0, 1, 1, 2, 2, 3, 4)
    dims, dim = g.dims(rank), g.dim(rank + 1)
    return g.call(f"r = {callee(g)}({listed(operands(g, dims, None))}, {dim})")


def joined_at(dim, low=0, high=4):
    def make(g):
        rank = g.rng.randint(low, high)
        dims = g.dims(rank)
        at = dim(rank)
        tensors = operands(g, dims, at if at is not None and at < rank else None)
        return g.call(f"r = {callee(g)}({listed(tensors)})")

    return make


def vectors(g, mixed=0.2):
    dtype = g.dtype()
    found = []
    for _ in range(g.pick(1, 2, 2, 3)):
        dims = g.dims(1) if g.chance(0.5) else [g.rng.randint(0, 4)]
        if g.chance(mixed):
            dims = []
        if g.spoil(0.3):
            dims = [2, 3]
        found.append(g.strided(dims, g.dtype() if g.spoil(0.3) else dtype))
    return found


def meshgrid(g):
    tensors = vectors(g)
    names = ", ".join(f"r{i}" for i in range(len(tensors)))
    more = ""
    if g.op.endswith("indexing"):
        order = "yx" if g.spoil(0.3) else g.pick("ij", "xy")
        more = f", indexing='{order}'"
    comma = "," if len(tensors) == 1 else ""
    return g.call(f"{names}{comma} = {callee(g)}({listed(tensors)}{more})")


def cartesian_prod(g):
    return g.call(f"r = {callee(g)}({listed(vectors(g, 0.03))})")


def block_diag(g):
    kinds = ANY + COMPLEX
    dtype = g.dtype(kinds)
    names = [
        g.strided(
            g.dims(g.pick(0, 1, 2, 2) if not g.spoil() else 3),
            dtype if g.chance(0.7) else g.dtype(kinds),
        )
        for _ in range(g.pick(1, 2, 2, 3))
    ]
    return g.call(f"r = {callee(g)}({listed(names)})")


GENERATORS = {
    "aten::cat": cat,
    "aten::concat": cat,
    "aten::concatenate": cat,
    "aten::stack": stack,
    "aten::hstack": joined_at(lambda rank: 0 if rank == 1 else 1),
    "aten::vstack": joined_at(lambda rank: 0 if rank > 1 else None),
    "aten::row_stack": joined_at(lambda rank: 0 if rank > 1 else None),
    "aten::dstack": joined_at(lambda rank: 2 if rank > 2 else None),
    "aten::column_stack": joined_at(lambda rank: 1 if rank > 1 else None),
    "aten::meshgrid": meshgrid,
    "aten::meshgrid.indexing": meshgrid,
    "aten::cartesian_prod": cartesian_prod,
    "aten::block_diag": block_diag,
}
