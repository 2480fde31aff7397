"""Losses over pairs through koila.lazy, which make tensors of the number of samples.

Masks and positions are made by plain calls, torch.eye(n) and torch.arange(n), as people
write them. Gradients are those of plain PyTorch, in tiles.
"""

import copy
import functools
import typing
import unittest
import unittest.mock
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._capture.made_of_sizes import Diagonal, Positions, find_made, is_permutation

COUNT = 24


def make_model():
    torch.manual_seed(0)
    layers = nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
    return nn.Sequential(*layers).double()


def make_views():
    torch.manual_seed(1)
    scale = torch.linspace(0.2, 2, COUNT, dtype=torch.float64)[:, None]
    view = torch.randn(COUNT, 12, dtype=torch.float64) * scale
    return view, view + 0.1 * torch.randn(COUNT, 12, dtype=torch.float64)


def nt_xent(model, one, two):
    count = one.shape[0]
    z = F.normalize(torch.cat([model(one), model(two)]), dim=1)
    likeness = (z @ z.t() / 0.5).masked_fill(torch.eye(2 * count, dtype=torch.bool), -torch.inf)
    partners = torch.cat([torch.arange(count) + count, torch.arange(count)])
    return F.cross_entropy(likeness, partners)


def info_nce(model, one, two):
    likeness = F.normalize(model(one)) @ F.normalize(model(two)).t() * 5
    target = torch.arange(len(one))
    return (F.cross_entropy(likeness, target) + F.cross_entropy(likeness.t(), target)) / 2


def simclr(model, one, two):
    count = one.shape[0]
    z = F.normalize(torch.cat([model(one), model(two)]), dim=1)
    ids = torch.cat([torch.arange(count) for _ in range(2)])
    same = (ids.unsqueeze(0) == ids.unsqueeze(1)).double()
    own = torch.eye(2 * count).bool()
    likeness = (z @ z.t() / 0.5).exp()
    return -((likeness * (same - own.double())).sum(1) / (likeness * ~own).sum(1)).log().mean()


def triplets(model, one, two):
    z = model(one)
    apart = torch.cdist(z, z)
    same = torch.eye(len(one), dtype=torch.bool)
    furthest = (apart * same.double()).max(1).values
    return F.relu(furthest - apart.masked_fill(same, 1e9).min(1).values + 1).mean()


def selected(model, one, two):
    """The mask of pairs is made of what it selects from, and looked at."""
    count = len(one)
    first, second = F.normalize(model(one)), F.normalize(model(two))
    z = torch.cat([first, second])
    likeness = torch.exp(torch.mm(z, z.t().contiguous()) / 0.5)
    mask = (torch.ones_like(likeness) - torch.eye(2 * count)).bool()
    others = likeness.masked_select(mask).view(2 * count, -1)
    own = torch.exp((first * second).sum(-1) / 0.5)
    return -torch.log(torch.cat([own, own]) / others.sum(-1)).mean()


def supervised(model, one, two):
    """Positions are a column, and index what is scattered."""
    count = one.shape[0]
    labels = (one[:, 0] > 0).long().view(-1, 1)
    z = torch.cat([F.normalize(model(one)), F.normalize(model(two))])
    likeness = z @ z.t() / 0.1
    likeness = likeness - likeness.max(1, keepdim=True).values.detach()
    same = torch.eq(labels, labels.t()).double().repeat(2, 2)
    others = torch.scatter(torch.ones_like(same), 1, torch.arange(2 * count).view(-1, 1), 0)
    same = same * others
    scores = likeness - (likeness.exp() * others).sum(1, keepdim=True).log()
    return -((same * scores).sum(1) / same.sum(1)).mean()


def mixed_up(model, one, two):
    order = torch.randperm(one.shape[0])
    return F.mse_loss(model(0.3 * one + 0.7 * one[order]), two[:, :8])


LOSSES = nt_xent, info_nce, simclr, triplets, selected, supervised, mixed_up


def step(model, loss, views, budget=None):
    model.zero_grad()
    torch.manual_seed(2)
    if budget is not None:
        views = koila.lazy(*views, batch=0, budget=budget)
    value = loss(model, *views)
    value.backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    return value.item(), gradients


class Losses(unittest.TestCase):
    def check(self, model, loss, views, budget):
        wanted = step(copy.deepcopy(model), loss, views)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = step(copy.deepcopy(model), loss, views, budget)
        last = koila.last()
        self.assertIsNotNone(last.tile)
        self.assertLess(last.tile, COUNT)
        self.assertLessEqual(last.peak_bytes, budget)
        self.assertGreater(wanted[1].norm(), 1e-6)
        self.assertAlmostEqual(found[0], wanted[0], places=10)
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-9, atol=1e-12)

    def test_losses(self):
        for loss in LOSSES:
            with self.subTest(loss.__name__):
                model, views = make_model(), make_views()
                step(copy.deepcopy(model), loss, views, "1GiB")
                self.check(model, loss, views, int(koila.last().peak_bytes * 0.96))

    def test_places_of_samples(self):
        """x[arange(len(x)), y]: a token of each text, and the likelihood of each label."""
        torch.manual_seed(0)
        tower = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 9)).double()
        scale = torch.linspace(0.2, 2, COUNT, dtype=torch.float64)
        views = torch.randn(COUNT, 20, 6, dtype=torch.float64) * scale[:, None, None]
        ids = torch.randint(50, (COUNT, 20))

        def pooled(model, x, ids):
            found = model(x)[torch.arange(x.shape[0]), ids.argmax(dim=-1)]
            rows = torch.arange(found.shape[0], device=found.device)
            return -F.log_softmax(found, 1)[rows, ids[:, 0] % 9].mean()

        for budget in (0.5, 0.2):
            step(copy.deepcopy(tower), pooled, (views, ids), "1GiB")
            self.check(tower, pooled, (views, ids), int(koila.last().peak_bytes * budget))

    def test_contents_tell(self):
        """A mask of the same shape that is another: not that of the step before."""
        masks = [torch.eye(COUNT, dtype=torch.bool)]
        masks.append(masks[0].roll(1, 0))
        masks.append(~masks[0])

        def loss(model, one, two, mask):
            likeness = F.normalize(model(one)) @ F.normalize(model(two)).t()
            return likeness.masked_fill(mask, 0.0).logsumexp(1).mean()

        model, views = make_model(), make_views()
        step(copy.deepcopy(model), functools.partial(loss, mask=masks[0]), views, "1GiB")
        budget = int(koila.last().peak_bytes * 0.9)
        found = []
        for mask in (masks[0], masks[2], masks[0]):
            masked = functools.partial(loss, mask=mask)
            self.check(model, masked, views, budget)
            found.append(step(copy.deepcopy(model), masked, views)[0])
        self.assertNotAlmostEqual(found[0], found[1], places=3)
        # One that no number of samples makes is not traced: what comes before is in tiles.
        self.check(model, functools.partial(loss, mask=masks[1]), views, budget)

    def test_other_tensors_cost_no_matrix(self):
        """Noise as wide as a few batches is told by its first row."""
        noise = torch.rand(3, 6)
        with unittest.mock.patch.object(Diagonal, "make", side_effect=AssertionError):
            self.assertIsNone(find_made(noise, 3))
            with self.assertRaises(AssertionError):
                find_made(torch.eye(3), 3)

    def test_what_contents_are(self):
        eye = torch.eye(6)
        one: typing.Any = (((True, False),),)
        for tensor, wanted in (
            (torch.eye(3).bool(), Diagonal(1, one)),
            (torch.eye(6).bool(), Diagonal(2, one)),
            (eye.bool().logical_not(), Diagonal(2, (((False, True),),))),
            (torch.eye(3).repeat(1, 2), Diagonal(1, (((1.0, 0.0), (1.0, 0.0)),))),
            (torch.arange(3), None),
            (torch.cat([torch.arange(3) + 3, torch.arange(3)]), Positions((1, 0))),
            (torch.zeros(3, 3), None),
            (torch.rand(3, 3), None),
            (torch.eye(4), None),
            (eye.index_fill(0, torch.tensor([1]), 2.0), None),
            (torch.eye(3, requires_grad=True), None),
        ):
            with self.subTest(str(tensor)):
                found = find_made(tensor, 3)
                self.assertEqual(found, wanted)
                if found is not None:
                    made = found.make(3, tensor)
                    self.assertTrue(torch.equal(made, tensor) and made.dtype == tensor.dtype)
        self.assertTrue(is_permutation(torch.tensor([2, 0, 1])))
        self.assertFalse(is_permutation(torch.tensor([2, 2, 1])))
        self.assertFalse(is_permutation(torch.tensor([3, 0, 1])))


if __name__ == "__main__":
    unittest.main()
