"""Calls of elementwise operators on one tensor."""

from generator import ANY


def relu(g):
    x = g.strided(g.dims(g.rng.randint(0, 5)), g.dtype(ANY))
    return g.call("r = torch.ops.aten.relu(%s)", x)


relu.takes_all = True

GENERATORS = {"aten::relu": relu}
