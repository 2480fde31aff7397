"""Calls of operators on several tensors that broadcast."""

from generator import ANY


def add(g):
    dims = g.dims(g.rng.randint(0, 4))
    x, y = g.strided(dims, g.dtype(ANY)), g.strided(g.broadcast(dims), g.dtype(ANY))
    return g.call("r = torch.ops.aten.add(%s, %s)", x, y)


GENERATORS = {"aten::add.Tensor": add}
