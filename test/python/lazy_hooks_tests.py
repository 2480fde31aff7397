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
from koila._plan import plan_cache

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
        self.hidden, self.sees, self.again = None, None, False

    def forward(self, x):
        self.hidden = torch.tanh(self.low(x))
        if self.sees is not None:
            self.hidden.register_hook(self.sees)
        if self.again:
            return self.high(torch.tanh(self.hidden @ self.low.weight) @ self.low.weight.t())
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


def all_weights_and_a_hidden_tensor(model, log):
    model.sees = lambda gradient: log(gradient.sum())
    return all_weights(model, log)


def a_weight_on_both_sides_of_a_hidden_tensor(model, log):
    model.sees = lambda gradient: log(gradient.sum())
    model.again = True
    model.low.weight.register_hook(lambda given: log(given) or given / given.norm())


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
# Nothing is seen where tiles are: these run whole, and it is said.
WHOLE_STEPS = [all_weights_and_a_hidden_tensor, a_weight_on_both_sides_of_a_hidden_tensor]


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
    plan_cache.forget()
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
    # The program holds `out`, which is more than the small budgets.
    said = [
        entry
        for entry in caught
        if entry.category is koila.KoilaWarning and "results that" not in str(entry.message)
    ]
    return seen, [weight.grad for weight in model.parameters()], said


class Hooks(unittest.TestCase):
    def assert_same(self, found, wanted, where):
        self.assertGreater(len(wanted[0]), 0, where)
        self.assertEqual([len(row) for row in found[0]], [len(row) for row in wanted[0]], where)
        for row, expected in zip(found[0] + [found[1]], wanted[0] + [wanted[1]], strict=True):
            for value, right in zip(row, expected, strict=True):
                torch.testing.assert_close(value, right, rtol=1e-10, atol=1e-12, msg=where)

    def test_hooks_on_weights(self):
        for case in BEFORE + WHOLE_STEPS:
            wanted = run(case, None, None)
            for budget in (WHOLE, TILED, TINY):
                with self.subTest(case=case.__name__, budget=budget):
                    found = run(case, None, budget)
                    self.assert_same(found, wanted, f"{case.__name__} {budget}")
                    if budget == TILED and case in WHOLE_STEPS:
                        self.assertRegex(str(found[2][0].message), "it runs whole: hooks see")
                    elif budget == TILED:
                        self.assertEqual(found[2], [])
                        self.assertIsNotNone(koila.last().tile)

    def test_another_loss_of_a_hidden_tensor(self):
        """The first pass frees the graph before the hook; the second finds none, and not that
        of a part."""
        for budget in (None, WHOLE, TILED):
            plan_cache.forget()
            model = Model().double()
            x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
            out = model(x)
            out.register_hook(lambda given: given * 2)
            first, second = F.cross_entropy(out, y), out.square().mean()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                first.backward()
                self.assertGreater(second.item(), 0)
                with self.assertRaisesRegex(RuntimeError, "second time"):
                    second.backward()

    def test_of_what_inputs_names(self):
        """`backward(inputs=...)` calls them, too."""
        results = []
        for budget in (None, WHOLE, TILED, TINY):
            model = Model().double()
            torch.manual_seed(0)
            model.load_state_dict(Model().double().state_dict())
            seen = []
            model.low.weight.register_hook(lambda given, seen=seen: seen.append(1) or given * 2)
            x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
            F.cross_entropy(model(x), y).backward(inputs=[model.low.weight])
            results.append((seen, model.low.weight.grad))
        for seen, gradient in results:
            self.assertEqual(seen, [1])
            torch.testing.assert_close(gradient, results[0][1], rtol=1e-10, atol=1e-12)

    def test_of_an_expanded_weight(self):
        results = []
        for budget in (None, WHOLE, TILED):
            torch.manual_seed(0)
            model, scale, seen = Model().double(), nn.Parameter(torch.ones(1, CLASSES).double()), []
            x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
            rows = scale.expand(SAMPLES, CLASSES)
            rows.register_hook(lambda given, seen=seen: seen.append(given) or given / given.norm())
            F.cross_entropy(model(x) * rows, y).backward()
            self.assertEqual(seen[0].shape, (SAMPLES, CLASSES))
            results.append(scale.grad)
        for gradient in results:
            torch.testing.assert_close(gradient, results[0], rtol=1e-10, atol=1e-12)

    def test_nodes_are_told_apart(self):
        """Whoever walks two graphs visits each node once, and a graph that is gone is said."""
        counts = []
        for budget in (None, TILED):
            torch.manual_seed(0)
            model = Model().double()
            x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
            first, second = F.cross_entropy(model(x), y), model(x).square().mean()
            self.assertEqual(first.grad_fn, first.grad_fn)
            self.assertEqual(len({first.grad_fn, second.grad_fn, model.hidden.grad_fn}), 3)
            self.assertIsInstance(first.grad_fn, torch.autograd.graph.Node)
            visited, nodes = set(), [first.grad_fn, second.grad_fn]
            while nodes:
                node = nodes.pop()
                if node is not None and node not in visited:
                    visited.add(node)
                    nodes += [following for following, _ in node.next_functions]
            counts.append(len(visited))
        self.assertEqual(counts[0], counts[1])
        x, y = koila.lazy(X, Y, batch=0, budget=TILED)
        loss = F.cross_entropy(Model().double()(x), y)
        node = loss.grad_fn
        loss.backward()
        with self.assertRaisesRegex(koila.KoilaError, "graph of a recorded tensor is gone"):
            node.name()

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
