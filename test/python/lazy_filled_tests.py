"""Tensors that a script makes and fills step by step, as sequence models do."""

import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila
from memory_counter import peak_of

SAMPLES, STEPS, WIDTH, WORDS, SOUNDS = 64, 6, 16, 7, 10
BUDGET = 150_000


class Decoder(nn.Module):
    """A cell whose words go into `outputs[t]`, which the loss reads from the second on."""

    def __init__(self, first, loss):
        super().__init__()
        self.cell, self.out = nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)
        # Whether the batch is the first dim.
        self.first, self.loss = first, loss

    def forward(self, x, y):
        steps, samples = (STEPS, x.shape[0]) if self.first else x.shape[:2]
        hidden = torch.zeros(samples, WIDTH, dtype=x.dtype)
        shape = (samples, steps, WORDS) if self.first else (steps, samples, WORDS)
        outputs = torch.zeros(*shape, dtype=x.dtype)
        for t in range(steps):
            hidden = self.cell(x[:, t] if self.first else x[t], hidden)
            if self.first:
                outputs[:, t] = self.out(hidden)
            else:
                outputs[t] = self.out(hidden)
        # As people ask for the width.
        words = outputs.shape[-1]
        rows = outputs[:, 1:] if self.first else outputs[1:]
        y = y[:, 1:] if self.first else y[1:]
        return self.loss(rows.reshape(-1, words), y.reshape(-1))


def skip_words(rows, y):
    return F.cross_entropy(rows, y, ignore_index=1)


def make(first, loss):
    torch.manual_seed(0)
    model = Decoder(first, loss).double()
    scale = torch.linspace(0.5, 2, SAMPLES)[:, None, None]
    x = torch.randn(SAMPLES, STEPS, WIDTH).double() * scale
    y = torch.randint(WORDS, (SAMPLES, STEPS))
    return (model, x, y) if first else (model, x.transpose(0, 1).contiguous(), y.t().contiguous())


def run(first, loss, budget=None):
    model, x, y = make(first, loss)
    if budget is not None:
        x, y = koila.lazy(x, y, batch=0 if first else 1, budget=budget)
    found = model(x, y)
    found.backward()
    return [float(found), *(weight.grad for weight in model.parameters())]


class Filled(unittest.TestCase):
    def test_losses_of_what_was_filled_are_split(self):
        for first in (True, False):
            for loss in (F.cross_entropy, skip_words):
                with self.subTest(first=first, loss=loss.__name__):
                    wanted = run(first, loss)
                    with warnings.catch_warnings():
                        warnings.simplefilter("error", koila.KoilaWarning)
                        found = run(first, loss, BUDGET)
                    self.assertLess(koila.last().tile, SAMPLES)
                    self.assertLessEqual(koila.last().peak_bytes, BUDGET)
                    for left, right in zip(found, wanted, strict=True):
                        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)

    def test_a_sum_that_is_read_before_it_is_written_to(self):
        """As the weights of an attention that add up over the steps of a decoder."""

        def step(budget):
            torch.manual_seed(0)
            cell, out = nn.LSTMCell(WIDTH, WIDTH).double(), nn.Linear(WIDTH, STEPS).double()
            weights = [*cell.parameters(), *out.parameters()]
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            _, x, _ = make(True, None)
            x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
            hidden = cells = torch.zeros(x.shape[0], WIDTH, dtype=x.dtype)
            total = torch.ones(x.shape[0], STEPS, dtype=x.dtype)
            before = total * 2 + x[:, 0, :STEPS] * 0
            context = x[:, 0]
            for _ in range(STEPS):
                hidden, cells = cell(context, (hidden, cells))
                attention = (out(hidden) - total).softmax(-1)
                total += attention
                context = (attention[:, None] @ x)[:, 0]
            loss = (hidden * context).sum(-1).square().mean() + before.mean()
            loss.backward()
            found = loss, total.detach() * 1, before * 1, *(weight.grad for weight in weights)
            return [koila.run(value).detach() for value in found]

        wanted = step(None)
        for budget in (1 << 40, 200_000):
            with warnings.catch_warnings():
                warnings.simplefilter("error", koila.KoilaWarning)
                for left, right in zip(step(budget), wanted, strict=True):
                    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)

    def test_what_others_have_kept_is_written_to_at_once(self):
        for budget in (None, 1 << 40):
            weight = nn.Parameter(torch.ones(WIDTH).double())
            total = torch.ones(SAMPLES, WIDTH).double()
            kept = (weight * total).sum()
            x = torch.ones(SAMPLES, WIDTH).double()
            total += x if budget is None else koila.lazy(x, batch=0, budget=budget)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                kept.backward()
            self.assertEqual(koila.run(total).sum().item(), 2 * SAMPLES * WIDTH)

    def test_what_is_there_is_written_at_once(self):
        """A store of the observations of a rollout is not made a second time."""
        observed = torch.randn(3, 16, 5)
        store = torch.zeros(3, 16, 5)
        for step, each in enumerate(observed):
            x = koila.lazy(each, batch=0, budget="1GiB")
            store[step] = x
            self.assertIs(type(store), torch.Tensor)
            self.assertTrue(torch.equal(store[step], each))
            # What is computed is a part of the program, as before.
            results = torch.zeros(16, 5)
            results[:, 1:] = (x * 2)[:, 1:]
            self.assertIs(type(results), koila.LazyTensor)

    def test_buffers_stay_what_they_are(self):
        """What a model reads in each step, and then writes."""
        center = torch.zeros(WIDTH).double()
        x = koila.lazy(torch.ones(SAMPLES, WIDTH).double(), batch=0, budget=1 << 40)
        left = x - center
        center.add_(x.mean(0))
        self.assertIs(type(center), torch.Tensor)
        self.assertEqual((center.sum().item(), left.sum().item()), (WIDTH, SAMPLES * WIDTH))

    def test_the_comparison_can_fail(self):
        """Without the steps before the last one."""

        def last(rows, y):
            return F.cross_entropy(rows[-SAMPLES:], y[-SAMPLES:])

        wanted, found = run(False, F.cross_entropy), run(False, last)
        with self.assertRaises(AssertionError):
            torch.testing.assert_close(found[1], wanted[1], rtol=1e-3, atol=1e-3)

    def test_results_of_an_evaluation_are_split(self):
        model, x, _ = make(False, F.cross_entropy)

        def fill(x):
            outputs = torch.ones(STEPS, x.shape[1], WORDS, dtype=x.dtype)
            hidden = x[0]
            for t in range(1, STEPS):
                hidden = model.cell(x[t], hidden)
                outputs[t, :, 2:] = model.out(hidden)[:, 2:]
                outputs[t] += outputs[t - 1]
            return outputs

        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = fill(koila.lazy(x, batch=1, budget=60_000)).run()
            torch.testing.assert_close(found, fill(x), rtol=1e-12, atol=1e-12)
        self.assertLess(koila.last().tile, SAMPLES)

    def test_what_all_samples_have_made_may_be_written(self):
        """The mean over the batch goes into what the next step fills."""

        def step(model, x, y):
            outputs = torch.zeros(STEPS, x.shape[1], WORDS, dtype=x.dtype)
            hidden = x[0]
            for t in range(STEPS):
                hidden = model.cell(x[t], hidden)
                outputs[t] = model.out(hidden)
                if t == 2:
                    outputs[t] -= outputs[:t].detach().mean((0, 1))
            loss = F.cross_entropy(outputs.reshape(-1, WORDS), y.reshape(-1))
            loss.backward()
            return [weight.grad for weight in model.parameters()]

        wanted = step(*make(False, None))
        model, x, y = make(False, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            found = step(model, *koila.lazy(x, y, batch=1, budget=BUDGET))
        for left, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)


def make_words(budget):
    """A network, and a batch with its words, lazy if there is a budget."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, WORDS)).double()
    batch = torch.randn(SAMPLES, STEPS, WIDTH).double(), torch.randint(WORDS, (SAMPLES, STEPS))
    return net, *(batch if budget is None else koila.lazy(*batch, batch=0, budget=budget))


class Held(unittest.TestCase):
    """What the program has filled, and a view of it, are there when the step has run."""

    def train(self, budget):
        net, x, y = make_words(budget)
        outputs = torch.zeros(x.shape[0], STEPS, WORDS, dtype=x.dtype)
        for t in range(STEPS):
            outputs[:, t] = net(x[:, t])
        rows = outputs.view(-1, WORDS)
        F.cross_entropy(rows, y.reshape(-1)).backward()
        how = koila.last()
        right = (rows.argmax(-1) == y.reshape(-1)).sum().item()
        with torch.no_grad():
            outputs[0] = 7
        found = [torch.tensor(right), rows[0, 0], rows[-1, 0], outputs.sum(), net[0].weight.grad]
        return [koila.run(value).detach().clone() for value in found], how

    def test_are_read_afterwards(self):
        wanted, _ = self.train(None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*without a promise", koila.KoilaWarning)
            found, how = self.train(BUDGET // 3)
        self.assertLess(how.tile, SAMPLES)
        for value, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, right)

    def write(self, budget):
        """To rows that were read before the step, and run again with it."""
        net, x, y = make_words(budget)
        words = torch.stack([net(x[:, t]) for t in range(STEPS)], 1)
        rows = words.transpose(0, 1).reshape(-1, WORDS)
        rows.mul_(1.5)
        tail = rows[-3:]
        F.cross_entropy(rows, y.t().reshape(-1)).backward()
        with torch.no_grad():
            rows.add_(1)
        return [koila.run(value).detach().clone() for value in (rows, tail, net[0].weight.grad)]

    def test_views_see_writes_after_the_step(self):
        wanted = self.write(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            for budget in (1 << 40, BUDGET, BUDGET // 2):
                for value, right in zip(self.write(budget), wanted, strict=True):
                    torch.testing.assert_close(value, right)

    def reorder(self, budget):
        """As a separation of two sources, which puts them in the order of the better loss for
        a log; the most bytes that a step takes, and the numbers."""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv1d(1, 4, 9, padding=4), nn.ReLU(), nn.Conv1d(4, 2, 9, padding=4))
        wave, sources = torch.randn(SOUNDS, 1, 900), torch.randn(SOUNDS, 2, 900)

        def step():
            x, y = wave, sources
            if budget is not None:
                x, y = koila.lazy(x, y, batch=0, budget=budget)
            out = net(x)
            scores = torch.stack([(out * y).sum((1, 2)), (out * y.flip(1)).sum((1, 2))], 1)
            best = scores.argmax(1)
            loss = -scores.amax(1).mean()
            orders = torch.index_select(y.new_tensor([[0, 1], [1, 0]], dtype=torch.long), 0, best)
            turned = torch.zeros_like(out)
            for sample in range(SOUNDS):
                for place in range(2):
                    turned[sample, place] = out[sample, orders[sample][place]]
            loss.backward()
            return loss.item(), turned

        peak, (loss, turned) = peak_of(step)
        gradient = next(net.parameters()).grad
        assert gradient is not None
        return peak, [loss, koila.run(turned).norm().item(), gradient.norm().item()]

    def test_what_was_read_between_writes_is_not_kept(self):
        plain, wanted = self.reorder(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            whole, found = self.reorder(plain // 2)
        for value, right in zip(found, wanted, strict=True):
            self.assertAlmostEqual(value, right, delta=1e-4 * abs(right))
        # Each of the writes would keep what was there before it.
        self.assertLess(whole, 1.05 * plain)


if __name__ == "__main__":
    unittest.main()
