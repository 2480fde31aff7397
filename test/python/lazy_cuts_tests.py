"""Steps through koila.lazy of which only the first part can be in tiles: what follows runs
whole on what that hands on, as people write losses over a batch.

Each is within half of what the untiled step takes (where its layers leave so little), without
a warning, and its loss, its gradients, and the buffers of its layers are those of plain PyTorch.
"""

import unittest
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._plan import plan_cache
from memory_counter import peak_of

COUNT = 32


def make_net(out=8):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, out),
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = make_net(), nn.Linear(8, 5)


def make_batch():
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(8).repeat_interleave(4)
    scale = torch.linspace(0.5, 2, COUNT, dtype=torch.float64)[:, None, None, None]
    noise = torch.randn(COUNT, 3, 24, 24, generator=generator, dtype=torch.float64)
    classes = torch.randn(8, 3, 24, 24, generator=generator, dtype=torch.float64)
    return noise * scale + classes[labels], labels


def off_diagonal(x):
    return x.flatten()[:-1].view(len(x) - 1, len(x) + 1)[:, 1:].flatten()


def barlow_twins(model, x, y):
    """As it was published: written in place behind the normalisation."""
    norm = nn.BatchNorm1d(8, affine=False).double()
    z = model.net(x)
    c = norm(z).t() @ norm(z.tanh())
    c.div_(len(x))
    on = torch.diagonal(c).add_(-1).pow_(2).sum()
    return on + 0.1 * off_diagonal(c).pow_(2).sum()


def vicreg(model, x, y):
    z = model.net(x)
    z = z - z.mean(0)
    covariance = z.t() @ z / (x.size(0) - 1)
    spread = F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean()
    return spread + off_diagonal(covariance).pow_(2).sum() / 8 + z.square().mean()


def batch_hard(model, x, y):
    """The hardest of each anchor, of what masks of labels select."""
    z, n = model.net(x), x.size(0)
    square = z.pow(2).sum(1, keepdim=True).expand(n, n)
    apart = (square + square.t() - 2 * z @ z.t()).clamp(min=1e-12).sqrt()
    same = y.expand(n, n).eq(y.expand(n, n).t())
    furthest = apart[same].contiguous().view(n, -1).max(1).values
    nearest = apart[~same].contiguous().view(n, -1).min(1).values
    return F.margin_ranking_loss(nearest, furthest, torch.ones_like(nearest), 0.3)


def batch_hard_in_a_loop(model, x, y):
    z, n = model.net(x), x.size(0)
    apart = torch.cdist(z, z)
    same = y[:, None] == y[None]
    furthest, nearest = [], []
    for i in range(n):
        furthest.append(apart[i][same[i]].max().unsqueeze(0))
        nearest.append(apart[i][~same[i]].min().unsqueeze(0))
    return F.relu(torch.cat(furthest) - torch.cat(nearest) + 0.3).mean()


def smoothed_by_hand(model, x, y):
    """Rows by numbers that are looked for, of a target that is written in place."""
    scores = F.log_softmax(model.head(model.net(x)), 1)
    target = scores.data.clone()
    target.fill_(0.1 / 3)
    target.scatter_(1, (y % 5).unsqueeze(1), 0.9)
    target[:, 0] = 0
    target.index_fill_(0, torch.nonzero(y % 5 == 0).squeeze(), 0.0)
    return F.kl_div(scores, target.detach(), reduction="sum") / len(x)


def worst_by_numpy(model, x, y):
    losses = F.cross_entropy(model.head(model.net(x)), y % 5, reduction="none")
    order = np.argsort(-losses.detach().numpy())
    return losses[order[:20]].mean()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def reversed_gradient(model, x, y):
    """A function of the user's own, which no file can carry."""
    z = model.net(x)
    return F.cross_entropy(model.head(Reversed.apply(z)), y % 5) + z.square().mean()


def two_crops(model, x, y):
    """Views that are joined before the network, and parted by numbers behind it."""
    n = y.shape[0]
    z = F.normalize(model.net(torch.cat([x, x + 0.1 * x.abs()])), dim=1)
    one, two = torch.split(z, [n, n], dim=0)
    both = torch.cat([one.unsqueeze(1), two.unsqueeze(1)], 1)
    rows = torch.cat(torch.unbind(both, dim=1))
    same = (y[:, None] == y[None]).double().repeat(2, 2)
    others = torch.scatter(torch.ones_like(same), 1, torch.arange(2 * n).view(-1, 1), 0)
    scores = rows @ rows.t() / 0.1
    scores = scores - (scores.exp() * others).sum(1, keepdim=True).log()
    return -((same * others * scores).sum(1) / (same * others).sum(1)).mean()


def some_have_targets(model, x, y):
    """PyTorch warns of fewer rows than targets; there are as many here."""
    z = model.head(model.net(x))
    chosen = torch.arange(COUNT) % 3 == 0
    return F.mse_loss(z[chosen], torch.ones(int(chosen.sum()), 5).double()) + F.cross_entropy(
        z, y % 5
    )


LOSSES = (
    barlow_twins,
    vicreg,
    batch_hard,
    batch_hard_in_a_loop,
    smoothed_by_hand,
    worst_by_numpy,
    reversed_gradient,
    two_crops,
    some_have_targets,
)


# One forward pass of so small a network, with all that is kept between its layers.
SHARES = {barlow_twins: 0.65}


def differentiate(model, loss, x, y):
    value = loss(model, x, y)
    value.backward()
    return value.item()


def look_first(model, loss, x, y):
    value = loss(model, x, y)
    first = value.item()
    value.backward()
    return first


class Cuts(unittest.TestCase):
    def run_steps(self, loss, budget, way=differentiate, steps=2):
        """The most bytes, what the steps leave, and what was said."""
        plan_cache.forget()
        torch.manual_seed(0)
        model = Model().double()
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        peaks, values = [], []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(steps):
                x, y = make_batch()

                def step(x=x, y=y):
                    if budget is not None:
                        x, y = koila.lazy(x, y, batch=0, budget=budget)
                    return way(model, loss, x, y)

                peak, value = peak_of(step)
                peaks.append(peak)
                values.append(torch.tensor(value, dtype=torch.float64))
        said = [str(e.message) for e in caught if e.category in (koila.KoilaWarning, UserWarning)]
        left = [*values, *(p.grad for p in model.parameters()), *model.buffers()]
        return max(peaks), left, said

    def assert_same(self, found, wanted):
        for value, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, right, rtol=1e-8, atol=1e-11)

    def check(self, loss, way=differentiate):
        plain, wanted, _ = self.run_steps(loss, None, way)
        self.assertGreater(torch.cat([v.flatten() for v in wanted[2:]]).norm(), 1e-3)
        budget = int(plain * SHARES.get(loss, 0.5))
        peak, found, said = self.run_steps(loss, budget, way)
        self.assertEqual(said, [])
        self.assertLessEqual(peak, budget)
        self.assert_same(found, wanted)

    def test_losses(self):
        for loss in LOSSES:
            for way in (differentiate, look_first):
                with self.subTest(loss.__name__, way=way.__name__):
                    self.check(loss, way)

    def test_what_follows_is_sensitive(self):
        """Had a part no gradient, or another one, this would show."""
        _, wanted, _ = self.run_steps(batch_hard, None)
        _, other, _ = self.run_steps(lambda *given: 1.001 * batch_hard(*given), None)
        with self.assertRaises(AssertionError):
            self.assert_same(other, wanted)

    def test_another_loss_begins_where_a_part_begins(self):
        """Two losses of the same network: the second is differentiated later, and had no more
        than the graph behind the cut if the first pass made it."""

        def both(model, _, x, y):
            one = F.cross_entropy(model.head(model.net(x)), y % 5, reduction="none")
            two = (model.net(x.flip(3)).square().sum(1) + 1).log()
            order = np.argsort(one.detach().numpy())[:20], np.argsort(two.detach().numpy())[:20]
            first, second = one[order[1]].mean(), two[order[0]].mean()
            first.backward()
            second.backward()
            return first.item() + second.item()

        self.check(None, both)

    def test_a_graph_that_stays(self):
        """It runs whole, and says so; the second pass adds as much again."""

        def twice(model, loss, x, y):
            value = loss(model, x, y)
            value.backward(retain_graph=True)
            value.backward()
            return value.item()

        plain, wanted, _ = self.run_steps(batch_hard, None, twice)
        _, found, said = self.run_steps(batch_hard, plain // 2, twice)
        self.assert_same(found, wanted)
        self.assertTrue(any("nothing protects it" in text or "whole" in text for text in said))

    def test_a_graph_that_is_gone(self):
        """As PyTorch raises it."""

        def twice(model, loss, x, y):
            value = loss(model, x, y)
            value.backward()
            with self.assertRaisesRegex(RuntimeError, "second time"):
                value.backward()
            return value.item()

        self.check(batch_hard, twice)

    def test_hooks_see_one_gradient(self):
        """A weight on both sides of the cut."""
        seen = []

        def hooked(model, loss, x, y):
            handle = model.net[8].weight.register_hook(lambda g: seen.append(g.clone()))
            value = loss(model, x, y) + (worst_by_numpy(model, x, y))
            value.backward()
            handle.remove()
            return value.item()

        def penalised(model, x, y):
            return batch_hard(model, x, y) + model.net[8].weight.square().sum()

        plain, wanted, _ = self.run_steps(penalised, None, hooked, steps=1)
        seen.clear()
        _, found, _ = self.run_steps(penalised, plain // 2, hooked, steps=1)
        self.assertEqual(len(seen), 1)
        self.assert_same(found, wanted)

    def run_whole(self, way):
        """What begins in one graph, or is to be seen at once, on both sides of a cut."""
        plain, wanted, _ = self.run_steps(None, None, way)
        _, found, said = self.run_steps(None, plain // 2, way)
        self.assert_same(found, wanted)
        self.assertTrue(any("runs whole" in x or "nothing protects" in x for x in said), said)

    def test_writes_that_the_graph_does_not_see(self):
        """As gaussian_nll_loss clamps its variance: the gradient is that of before."""

        def way(model, _, x, y):
            mean, spread = model.head(model.net(x))[:, :2].unbind(1)
            variance = F.softplus(spread).clone()
            with torch.no_grad():
                variance.clamp_(min=0.7)
            loss = (variance.log() + (mean - y).square() / variance).mean()
            loss.backward()
            return loss.item() + (mean / spread).sum().item()

        self.run_whole(way)

    def test_weights_that_are_computed_before(self):
        """One graph, which the first of two backward passes would free."""

        def way(model, _, x, y):
            weight = model.head.weight.tanh()
            losses = F.cross_entropy(F.linear(model.net(x), weight), y % 5, reduction="none")
            order = np.argsort(-losses.detach().numpy())
            loss = losses[order[:20]].mean() * weight.sum()
            loss.backward()
            return loss.item()

        self.run_whole(way)

    def test_hooks_on_computed_weights(self):
        """They see one gradient, and make one of it."""

        def way(model, _, x, y):
            weight = model.head.weight.t().t()
            weight.register_hook(lambda given: given * given)
            z = F.linear(model.net(x), weight)
            loss = F.cross_entropy(Reversed.apply(z) @ weight, y % 5) + z.square().mean()
            loss.backward()
            return loss.item()

        self.run_whole(way)

    def test_layers_behind_a_cut_whose_statistics_wait(self):
        """A read of the labels in between looks for what was seen before each write."""

        def way(model, _, x, y):
            z = Reversed.apply(model.net(x))
            u = nn.BatchNorm1d(5).double()(model.head(z))
            count = (y > 3).sum().item()
            loss = F.cross_entropy(u, y % 5) * count
            loss.backward()
            return loss.item()

        self.check(None, way)

    def test_kinds_of_positions(self):
        x = torch.arange(60.0).view(5, 12).requires_grad_()
        lazy = koila.lazy(x, batch=0, budget="1GiB")
        cases: tuple[Any, ...] = (
            *(np.array([2, 0, -1], dtype=kind) for kind in ("int8", "int16", "int32", "int64")),
            np.array([True, False, True, True, False]),
            (slice(None), np.array([[1, 2], [0, 3]])),
            (slice(None), (np.array([1, 2]), np.array([0, 1]))),
            (np.array([1, 2]), range(2)),
            [3, 1],
            np.int64(3),
        )
        for index in cases:
            with self.subTest(str(index)):
                self.assertTrue(torch.equal(koila.run(lazy[index]), x[index]))

    def test_positions_are_no_part_of_the_program(self):
        """Others in each step: it is planned once."""
        plan_cache.forget()
        torch.manual_seed(0)
        model = Model().double()
        sizes = []
        for step in range(4):
            x, y = koila.lazy(*make_batch(), batch=0, budget=1 << 20)
            order = np.random.default_rng(step).permutation(COUNT)
            mixed = 0.3 * model.net(x) + 0.7 * model.net(x)[order]
            F.cross_entropy(model.head(mixed), y % 5).backward()
            sizes.append(len(plan_cache._plans))
        self.assertEqual(sizes[1:], sizes[1:2] * 3)


if __name__ == "__main__":
    unittest.main()
