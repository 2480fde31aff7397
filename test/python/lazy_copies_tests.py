"""Steps through koila.lazy in which tensors have each sample more than once in one dim: masks
and labels over x.view(B * T, C), or over two crops that are joined."""

import unittest

import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._capture.copies import Copies
from koila._capture.values import Meta
from lazy_steps import Steps

COUNT, TIME, WIDTH = 24, 5, 12


def make_model():
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "low": nn.Sequential(nn.Linear(WIDTH, 96), nn.Tanh(), nn.Linear(96, WIDTH)),
            "attention": nn.MultiheadAttention(WIDTH, 3, dropout=0.2, batch_first=True),
            "high": nn.Linear(WIDTH, 4),
            "wide": nn.Linear(WIDTH, COUNT, bias=False),
        }
    ).double()


def make_sequences():
    torch.manual_seed(1)
    scale = torch.linspace(0.3, 2, COUNT, dtype=torch.float64)[:, None, None]
    x = torch.randn(COUNT, TIME, WIDTH, dtype=torch.float64) * scale
    return x, torch.randint(4, (COUNT, TIME))


def make_rows():
    x, t = make_sequences()
    return x[:, 0].contiguous(), t[:, 0].contiguous()


def rows_of_sequences(m, x, t):
    rows = F.dropout(m["low"](x.view(-1, WIDTH)), 0.3)
    return F.cross_entropy(m["high"](rows), t.view(-1))


def two_crops(m, x, t):
    """Each sample is there twice, all of them before the second time."""
    both = F.dropout(m["low"](torch.cat([x, 2 * x])), 0.3)
    one, two = m["high"](both).chunk(2)
    return F.cross_entropy(one, t) + F.mse_loss(two, one.detach())


def in_turns(m, x, t):
    both = F.dropout(m["low"](x.repeat_interleave(2, dim=0)), 0.3)
    return F.cross_entropy(m["high"](both), t.repeat_interleave(2))


def domains(m, x, t):
    """Labels that a plain call makes."""
    both = torch.cat([x, x.square()])
    labels = torch.cat([torch.ones(len(x)), torch.zeros(len(x))]).double()
    scores = m["high"](m["low"](both))[:, 0]
    return F.binary_cross_entropy_with_logits(scores, labels)


def as_many_classes(m, x, t):
    """Weights of classes are no samples, though there are as many, and labels are."""
    low = m["high"](m["low"](x))
    scores = torch.cat([low * factor for factor in range(1, COUNT // 4 + 1)], 1)
    weight = torch.linspace(0.5, 2, COUNT, dtype=torch.float64)
    # Labels that were not given.
    return F.cross_entropy(scores, 5 * (torch.arange(COUNT) % 4), weight=weight)


def as_many_outputs(m, x, t):
    """Of a layer with weights that are computed, around a centre that is given."""
    weight = F.normalize(m["wide"].weight)
    scores = F.linear(m["low"](x), weight) - weight.detach().mean(1)
    return F.mse_loss(scores.softmax(1)[:, :4], F.one_hot(t, 4).double())


def as_many_classes_and_outputs(m, x, t):
    """Labels that were not given are samples, and neither the layer nor the classes are."""
    scores = F.linear(m["low"](x), F.normalize(m["wide"].weight))
    weight = torch.linspace(0.5, 2, COUNT, dtype=torch.float64)
    return F.cross_entropy(scores, 5 * (torch.arange(COUNT) % 4), weight=weight)


def as_many_outputs_twice(m, x, t):
    """As DINO's head, with the scores of a teacher beside those of two crops."""
    weight = F.normalize(m["wide"].weight)
    one, two = F.linear(m["low"](torch.cat([x, 2 * x])), weight).chunk(2)
    with torch.no_grad():
        teacher = (F.linear(m["low"](x), weight) - weight.mean(1)[None]).softmax(1)
    return -(teacher * (one + two).log_softmax(1)).sum(1).mean()


def split_by_number(m, x, t):
    """As MixMatch's batches: of as many rows as the batch, by a number."""
    one, two, three = torch.split(torch.cat([x, 2 * x, 3 * x]), len(x))
    low, high, last = m["low"](torch.cat([one + two, three, x])).split(x.size(0), dim=0)
    parts = m["high"](low * high + last).split(COUNT)
    return F.cross_entropy(parts[0], t)


def tokens_of_two_crops(m, x, t):
    """As DINO's teacher: one row of a frozen weight for each sample of both crops, and a mask
    for each behind it."""
    both = torch.cat([x, 2 * x])

    def run(token):
        rows = torch.cat([token.expand(len(both), 1, WIDTH), both[:, None]], 1)
        rows = rows + m["low"](rows) * torch.rand(len(rows), 1, 1).double().round()
        return m["high"](rows[:, 0] + rows[:, 1]).softmax(1)

    token = m["high"].weight[:1, None]
    with torch.no_grad():
        teacher = run(token.detach())
    one, two = run(token).chunk(2)
    return F.cross_entropy(one, t) + F.mse_loss(two, teacher.chunk(2)[0])


def as_many_features(m, x, t):
    """Each layer is scaled by plain tensors of as many features; labels were not given."""
    hidden = m["wide"](m["low"](x))
    for layer in range(8):
        mean, scale = torch.linspace(-1, 1, 2 * COUNT).double().roll(layer).chunk(2)
        hidden = torch.tanh((hidden - mean) * (scale + 2))
    return F.cross_entropy(hidden, 5 * (torch.arange(COUNT) % 4))


def attention(m, x, t):
    """Its weights are there for each head of each sample."""
    out, weights = m["attention"](x, x, x, need_weights=True)
    return F.cross_entropy(m["high"](out).flatten(0, 1), t.flatten()) + weights.square().mean()


def transposed(m, x, t):
    """A mask lies in memory as what it is drawn for."""
    rows = m["low"](x.view(-1, WIDTH)).view(COUNT * TIME, 3, 4).transpose(1, 2)
    rows = F.dropout(rows, 0.3).transpose(1, 2).reshape(-1, WIDTH)
    return F.cross_entropy(m["high"](rows), t.view(-1))


def quantised(m, x, t):
    """What is made of codes has the form of what they are of, by a view."""
    z = m["low"](x)
    codes = torch.zeros(COUNT * TIME, 6, dtype=torch.float64)
    codes.scatter_(1, t.reshape(-1, 1), 1)
    near = (codes @ m["high"].weight.new_ones(6, WIDTH).cumsum(0)).view(z.shape)
    return F.mse_loss(m["high"](z + near), F.one_hot(t, 4).double())


def shuffled(m, x, t):
    """Rows of two crops, in an order of their own."""
    order = torch.randperm(2 * COUNT)
    both, labels = torch.cat([x, 2 * x])[order], torch.cat([t, t])[order]
    return F.cross_entropy(m["high"](m["low"](both)), labels)


def by_range(m, x, t):
    """As in x[range(n), y]: the positions are no part of the program."""
    scores = m["high"](m["low"](x)).log_softmax(1)
    return -scores[range(COUNT), t].mean() + scores[list(range(COUNT)), 0].square().mean()


def memory(m, x, t):
    """Rows that are as many as three batches, and no samples."""
    bank = torch.linspace(-1, 1, 3 * COUNT * WIDTH, dtype=torch.float64).view(-1, WIDTH)
    return torch.logsumexp(m["low"](x) @ bank.t(), 1).mean()


def edges(m, x, t):
    """Between the nodes that each sample has, of which there are as many as two batches."""
    nodes = torch.arange(2 * COUNT)
    starts, ends = nodes.repeat(3), torch.cat([nodes, (nodes + 1) % len(nodes), nodes.flip(0)])
    h = m["low"](x)[:, None] * torch.linspace(-1, 1, len(nodes)).double()[:, None]
    found = torch.zeros(h.shape, dtype=h.dtype).index_add(1, ends, h[:, starts])
    return F.cross_entropy(m["high"](found.amax(1)), t)


def with_decay(loss):
    """So that all weights have a gradient, of which nothing is kept."""
    return lambda m, x, t: loss(m, x, t) + 0.01 * sum(p.sum() for p in m.parameters())


class MoreThanOnce(Steps):
    def test_steps(self):
        cases = {
            make_sequences: (rows_of_sequences, attention, quantised, transposed),
            make_rows: (
                two_crops,
                in_turns,
                domains,
                shuffled,
                by_range,
                memory,
                edges,
                as_many_classes,
                as_many_outputs,
                as_many_outputs_twice,
                as_many_classes_and_outputs,
                as_many_features,
                tokens_of_two_crops,
                split_by_number,
            ),
        }
        for make, losses in cases.items():
            for loss in losses:
                with self.subTest(loss.__name__):
                    # In tiles of many samples, and of few.
                    for fraction in (0.8, 0.55):
                        self.check(make_model(), with_decay(loss), make(), fraction)

    def test_a_centre_of_several_steps(self):
        """It has as many columns as there are rows, and none of them is a sample."""
        model, (x, _) = make_model(), make_rows()
        wide = nn.Linear(WIDTH, 4 * COUNT).double()
        centres, last = [], []
        for budget in (None, 60_000):
            torch.manual_seed(2)
            centre = torch.zeros(1, 4 * COUNT, dtype=torch.float64)
            for _ in range(3):
                y = x.clone() if budget is None else koila.lazy(x.clone(), batch=0, budget=budget)
                both = torch.cat([y, 2 * y])
                both = wide(model["low"](both) * torch.rand(len(both), 1).double().round())
                with torch.no_grad():
                    teacher = (wide(torch.cat([y, 2 * y])) - centre).softmax(1)
                (teacher * both.log_softmax(1)).sum(1).mean().backward()
                last.append(koila.last())
                with torch.no_grad():
                    mean = teacher.sum(0, keepdim=True) / len(teacher)
                    centre = centre * 0.9 + mean * 0.1
            centres.append(koila.run(centre))
        torch.testing.assert_close(*reversed(centres), rtol=1e-12, atol=1e-15)
        self.assertTrue(all(each.tile for each in last[3:]), last[3:])

    def test_a_dim_in_two(self):
        tensor = torch.arange(24).view(2, 12)
        meta = Meta((2, 12), (12, 1), torch.int64, torch.device("cpu"), False)
        for is_outer, wanted in ((True, (2, 3, 4)), (False, (2, 4, 3))):
            copies = Copies(1, 3, is_outer)
            found = copies.split(tensor)
            self.assertEqual(found.shape, wanted)
            self.assertEqual(found.shape[copies.batch_dim], 4)
            self.assertEqual(copies.split_meta(meta).shape, wanted)
            self.assertEqual(copies.split_meta(meta).stride, found.stride())
            self.assertTrue(torch.equal(copies.join(found), tensor))


if __name__ == "__main__":
    unittest.main()
