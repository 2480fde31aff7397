"""Hooks that PyTorch lists nowhere, and what people ask `grad_fn` for, beside steps in
tiles: on several gradients, on nodes that add to `.grad`, and walks through the graph.

Each runs in plain PyTorch, with memory for the whole batch, and in budgets that split the
step, or let some of it run whole; a hook is called as often, with the same.
"""

import unittest
import warnings

import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn import functional as F

import koila
from koila._plan import planner

SAMPLES, FEATURES, CLASSES = 512, 40, 6
WHOLE = "1TiB"
TILED, TINY = "60KiB", "1KiB"

torch.manual_seed(0)
X = torch.randn(SAMPLES, FEATURES, dtype=torch.float64)
X *= torch.linspace(0.5, 3, SAMPLES)[:, None]
Y = torch.randint(CLASSES, (SAMPLES,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(FEATURES, 20), nn.Linear(20, CLASSES)
        self.hidden = None

    def forward(self, x):
        self.hidden = torch.tanh(self.low(x))
        return self.high(self.hidden)


def accumulation_of(weight):
    return weight.expand_as(weight).grad_fn.next_functions[0][0]


# Cases: called with the model before its step, and with what it has computed; they append
# what a user would see, and return what is to be kept alive.


def all_weights(model, log):
    return register_multi_grad_hook(list(model.parameters()), lambda given: log(*given))


def some_of_which_one_is_not_there(model, log):
    unused = nn.Parameter(torch.ones(3))
    weights = [model.high.weight, unused, model.low.bias]
    return register_multi_grad_hook(
        weights, lambda given: log(*(g for g in given if g is not None))
    )


def any_weight(model, log):
    return register_multi_grad_hook(list(model.parameters()), log, mode="any")


def after_accumulation(model, log):
    node = accumulation_of(model.low.weight)
    node.register_hook(lambda *_: log(model.low.weight.grad))
    return node


def before_accumulation(model, log):
    node = accumulation_of(model.low.weight)
    node.register_prehook(lambda given: (log(given[0]) or given[0] * 2,))
    return node


def in_the_order_of_the_graph(model, log):
    for number, weight in enumerate(model.parameters()):
        weight.register_hook(lambda gradient, n=number: log(torch.tensor(n), gradient))


BEFORE = [
    all_weights,
    some_of_which_one_is_not_there,
    any_weight,
    after_accumulation,
    before_accumulation,
    in_the_order_of_the_graph,
]


def hidden_and_result(model, out, loss, log):
    return register_multi_grad_hook([model.hidden, out], lambda given: log(*given))


def names_of_nodes(model, out, loss, log):
    names, nodes = [], [loss.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            names.append(node.name())
            nodes += [following for following, _ in node.next_functions]
    log(torch.tensor([sum(name.encode()) for name in names]))


def prehook_of_a_node(model, out, loss, log):
    out.grad_fn.register_prehook(lambda given: (log(given[0]) or given[0] * 3,))


AFTER = [hidden_and_result, names_of_nodes, prehook_of_a_node]


def run(before, after, budget):
    """What was seen, the gradients, and what koila said."""
    planner.forget()
    torch.manual_seed(0)
    model = Model().double()
    seen = []

    def log(*values):
        seen.append([torch.as_tensor(value).detach().clone() for value in values])

    x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = [before(model, log) if before else None]
        out = model(x)
        loss = F.cross_entropy(out, y)
        kept.append(after(model, out, loss, log) if after else None)
        loss.backward()
    del kept
    said = [entry for entry in caught if entry.category is koila.KoilaWarning]
    return seen, [weight.grad for weight in model.parameters()], said


class Hooks(unittest.TestCase):
    def assert_same(self, found, wanted, where):
        self.assertGreater(len(wanted[0]), 0, where)
        self.assertEqual([len(row) for row in found[0]], [len(row) for row in wanted[0]], where)
        for row, expected in zip(found[0] + [found[1]], wanted[0] + [wanted[1]], strict=True):
            for value, right in zip(row, expected, strict=True):
                torch.testing.assert_close(value, right, rtol=1e-10, atol=1e-12, msg=where)

    def test_hooks_on_weights(self):
        for case in BEFORE:
            wanted = run(case, None, None)
            for budget in (WHOLE, TILED, TINY):
                with self.subTest(case=case.__name__, budget=budget):
                    found = run(case, None, budget)
                    self.assert_same(found, wanted, f"{case.__name__} {budget}")
                    if budget == TILED:
                        self.assertEqual(found[2], [])
                        self.assertIsNotNone(koila.last().tile)

    def test_what_needs_the_graph(self):
        for case in AFTER:
            wanted = run(None, case, None)
            for budget in (WHOLE, TILED, TINY):
                with self.subTest(case=case.__name__, budget=budget):
                    found = run(None, case, budget)
                    self.assert_same(found, wanted, f"{case.__name__} {budget}")
                    if budget == TINY:
                        self.assertNotEqual(found[2], [])

    def test_without_being_asked(self):
        """A look at it makes no graph."""
        model = Model().double()
        out = model(koila.lazy(X, batch=0, budget=TINY))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIsNotNone(out.grad_fn)
            self.assertEqual(str(out.grad_fn), "<recorded linear>")
            self.assertFalse(hasattr(out.grad_fn, "__array__"))


if __name__ == "__main__":
    unittest.main()
