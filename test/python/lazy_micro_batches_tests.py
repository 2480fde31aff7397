"""Parts of a batch that was given to ``koila.lazy`` are batches themselves: micro-batches whose
gradients add up, minibatches by positions, halves that are mixed."""

import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila

SAMPLES, CLASSES = 64, 5
WHOLE, SMALL = "1GiB", 200_000


def make():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, CLASSES)
    )
    return model.double(), torch.randn(SAMPLES, 16).double(), torch.randint(0, CLASSES, (SAMPLES,))


def differentiate(loss):
    loss.backward()
    return loss.item()


def micro_batches(model, x, y):
    """Whole batches would take three times as much."""
    parts = zip(x.chunk(4), y.chunk(4), strict=True)
    return sum(differentiate(F.cross_entropy(model(a), b) / 4) for a, b in parts)


def slices(model, x, y):
    """The last is shorter."""
    return sum(
        differentiate(
            F.cross_entropy(model(x[at : at + 24]), y[at : at + 24], reduction="sum") / SAMPLES
        )
        for at in range(0, len(x), 24)
    )


def positions(model, x, y):
    """As an update of PPO, with advantages of the whole batch."""
    advantages = (x.mean(1) - x.mean()) / (x.std() + 1e-5)
    total = 0
    for chosen in torch.randperm(SAMPLES).split(32):
        logs = F.log_softmax(model(x[chosen]), 1).gather(1, y.index_select(0, chosen)[:, None])
        total += differentiate(-(logs.squeeze(1) * advantages[chosen]).mean())
    return total


def halves(model, x, y):
    """Two samples are mixed into one."""
    half = x.size(0) // 2
    target = 0.3 * F.one_hot(y[:half], CLASSES) + 0.7 * F.one_hot(y[half:], CLASSES)
    return differentiate(F.mse_loss(model(0.3 * x[:half] + 0.7 * x[half:]), target))


def middle(model, x, y):
    return differentiate(F.cross_entropy(model(x.narrow(0, 8, 40)), y.narrow(0, 8, 40)))


def neighbours(model, x, _):
    return differentiate((model(x[1:]) - model(x[:-1])).square().mean())


def sections(model, x, y):
    """Two batches of one step."""
    (a, b), (c, d) = torch.split(x, [40, 24]), y.split([40, 24])
    return differentiate(F.cross_entropy(model(a), c) + 0.5 * F.cross_entropy(model(b), d))


def evaluation(model, x, _):
    with torch.no_grad():
        return sum(model(part).sum().item() for part in x.split(48))


CASES = (micro_batches, slices, positions, halves, middle, neighbours, sections, evaluation)
# Parts of these fit the budget whole.
SMALLER = (micro_batches, slices, evaluation)


def run(case, budget):
    model, x, y = make()
    if budget is not None:
        x, y = koila.lazy(x, y, batch=0, budget=budget)
    return [case(model, x, y), *(weight.grad for weight in model.parameters())]


class Parts(unittest.TestCase):
    def test_cases(self):
        for case in CASES:
            wanted = run(case, None)
            for budget in (WHOLE, SMALL):
                with self.subTest(case=case.__name__, budget=budget):
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        found = run(case, budget)
                    for one, other in zip(found, wanted, strict=True):
                        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
                    if budget == SMALL:
                        self.assertEqual(koila.last().tile is None, case in SMALLER)
                    if case is not sections:  # of two batches one is in tiles
                        self.assertEqual([str(warning.message) for warning in caught], [])

    def test_the_whole_batch_does_not_fit(self):
        model, x, y = make()
        x, y = koila.lazy(x, y, batch=0, budget=SMALL)
        F.cross_entropy(model(x), y).backward()
        self.assertIsNotNone(koila.last().tile)

    def test_what_is_written_to_a_part(self):
        def write(budget):
            model, x, _ = make()
            given = x if budget is None else koila.lazy(x, batch=0, budget=budget)
            part, other = given[:20], given.chunk(2)[1]
            before = given.sum().item()
            part.mul_(2)
            other[:4] = 0.5
            loss = model(given).square().mean()
            loss.backward()
            return before, loss.item(), part.sum().item(), given.sum().item(), x.sum().item()

        for budget in (WHOLE, SMALL):
            for found, wanted in zip(write(budget), write(None), strict=True):
                self.assertAlmostEqual(found, wanted, 9)


if __name__ == "__main__":
    unittest.main()
