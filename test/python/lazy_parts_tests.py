"""Steps through koila.lazy of which one sample takes more than the budget.

Their backward pass runs in parts. Gradients are those of plain PyTorch, within the budget,
without a warning, from the first step on.
"""

import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila
from memory_counter import peak_of

WIDTH, PATCHES, CLASSES, DEPTH = 32, 24, 7, 6
ALLOWED = 1e-12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.projection, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        heads = self.projection(self.norms[0](x)).view(batch, tokens, 3, 2, WIDTH // 2)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, tokens, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Transformer(nn.Module):
    """Rows of one: a class token, places, and a size that is written as a number."""

    mask: torch.Tensor

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, PATCHES + 1, WIDTH))
        self.register_buffer("mask", torch.rand(1, PATCHES + 1, 1) + 0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        count = len(x)
        x = torch.cat([self.token.expand(count, -1, -1), x.view(count, PATCHES, WIDTH)], 1)
        x = (x + self.places) * self.mask
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def make_model():
    torch.manual_seed(0)
    model = Transformer().double()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return model


def make_batch(count):
    torch.manual_seed(1)
    images = torch.randn(count, PATCHES * WIDTH, dtype=torch.float64)
    return images, torch.randint(CLASSES, (count,))


def step(model, images, labels):
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss


def gradients(model):
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


class Parts(unittest.TestCase):
    def setUp(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)

    def prepare(self, count):
        """A batch, the gradients of a plain step and what it takes, in bytes."""
        batch = make_batch(count)
        plain = make_model()
        peak = peak_of(lambda: step(plain, *batch))[0]
        return batch, gradients(plain), peak

    def check(self, model, wanted, times=1):
        off = (gradients(model) - times * wanted).norm() / wanted.norm()
        self.assertLess(float(off), ALLOWED)

    def run_lazily(self, batch, wanted, budget, run=step):
        """A model after two steps, of which each keeps the budget, and what koila says."""
        model = make_model()
        for _ in range(2):
            model.zero_grad(set_to_none=False)

            def lazily():
                run(model, *koila.lazy(*batch, batch=0, budget=budget))

            with warnings.catch_warnings():
                warnings.simplefilter("error", koila.KoilaWarning)
                measured = peak_of(lazily)[0]
            self.check(model, wanted)
            self.assertLessEqual(measured, budget)
        last = koila.last()
        # Rows of a weight that is made longer are counted once more.
        rows = len(batch[0]) * model.token.nbytes
        self.assertLessEqual(measured, last.peak_bytes)
        self.assertGreaterEqual(measured + rows, last.peak_bytes)
        return model, last

    def test_one_sample_takes_less_than_half(self):
        batch, wanted, peak = self.prepare(1)
        _, last = self.run_lazily(batch, wanted, peak * 45 // 100)
        self.assertEqual(last.tile, 1)

    def test_samples_take_less_than_one_of_them(self):
        batch, wanted, peak = self.prepare(4)
        _, last = self.run_lazily(batch, wanted, peak // 4 * 45 // 100)
        self.assertEqual(last.tile, 1)

    def test_a_loss_is_read_first(self):
        batch, wanted, peak = self.prepare(1)

        def read_first(model, images, labels):
            loss = F.cross_entropy(model(images), labels)
            self.assertGreater(loss.item(), 0)
            loss.backward()

        # Gradients of its own would be too much beside what is saved: it is read without any.
        self.run_lazily(batch, wanted, peak // 2, read_first)

    def test_gradients_add_up(self):
        batch, wanted, peak = self.prepare(1)
        model = make_model()
        for _ in range(3):
            step(model, *koila.lazy(*batch, batch=0, budget=peak // 2))
        self.check(model, wanted, times=3)

    def test_weights_that_change(self):
        batch, _, peak = self.prepare(1)
        model, plain = make_model(), make_model()
        for each, lazily in ((plain, False), (model, True)):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                given = koila.lazy(*batch, batch=0, budget=peak // 2) if lazily else batch
                step(each, *given)
                optimizer.step()
        self.check(model, gradients(plain))

    def test_less_than_the_least_is_announced_and_right(self):
        batch, wanted, _ = self.prepare(1)
        model = make_model()
        with self.assertWarnsRegex(koila.KoilaWarning, "no tile fits 1.00 KiB"):
            step(model, *koila.lazy(*batch, batch=0, budget="1KiB"))
        self.check(model, wanted)
        with koila.strict(), self.assertRaises(koila.BudgetError) as caught:
            step(make_model(), *koila.lazy(*batch, batch=0, budget="1KiB"))
        self.run_lazily(batch, wanted, caught.exception.smallest_budget)

    def test_nothing_to_differentiate_runs_whole(self):
        images, _ = make_batch(1)
        model = make_model().eval()
        with torch.no_grad():
            lent = koila.lazy(images, batch=0, budget="1KiB")
            with self.assertWarnsRegex(koila.KoilaWarning, "the batch is one sample"):
                self.assertTrue(torch.equal(model(lent), model(images)))

    def test_gradients_on_the_way_to_the_loss(self):
        # A trace keeps nothing for a backward pass; this one has one inside of it.
        torch.manual_seed(2)
        scale, weight = torch.full((1,), 1.5).double(), torch.randn(64, 64).double() / 8
        for count in (1, 256):
            x, z = torch.randn(count, 1).double() + 2, torch.randn(count, 1, 64).double()
            found = []
            for budget in (None, 20 * z.nbytes):
                weights = [nn.Parameter(scale.clone()), nn.Parameter(weight.clone())]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", koila.KoilaWarning)
                    a, h = (x, z) if budget is None else koila.lazy(x, z, batch=0, budget=budget)
                    first = (a * weights[0]).mean()
                    (slope,) = torch.autograd.grad(first, [weights[0]], create_graph=True)
                    for _ in range(12):
                        h = F.linear(h, weights[1]).tanh()
                    loss = first + (weights[0] * slope).square().sum() + h.square().mean()
                    loss.backward()
                found.append(torch.cat([w.grad.flatten() for w in weights]))
            self.assertLess(float((found[1] - found[0]).norm() / found[0].norm()), ALLOWED)

    def test_a_step_that_loses_its_first_layers_is_seen(self):
        # The control: what a cut without its gradient would leave.
        batch, wanted, _ = self.prepare(1)
        model = make_model()
        cut = DEPTH // 2

        def detach(block, args):
            return (args[0].detach(),)

        model.blocks[cut].register_forward_pre_hook(detach)
        step(model, *batch)
        with self.assertRaises(AssertionError):
            self.check(model, wanted)


if __name__ == "__main__":
    unittest.main()
