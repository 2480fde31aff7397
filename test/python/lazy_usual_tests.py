"""Steps as tutorials and libraries write them, in tiles; what is said of others; and what a
program saves."""

import copy
import inspect
import io
import unittest
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import koila

SAMPLES, PATCHES, WIDTH, WORDS = 48, 5, 16, 9


class Normal(nn.Module):
    """A mean and a variance, which some samples have below what it is clamped to."""

    def __init__(self, loss):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, 2))
        self.loss = loss

    def forward(self, x, y):
        mean, variance = self.net(x).unbind(-1)
        return self.loss(mean, y, F.relu(variance + 0.3))


def clamp(mean, y, variance):
    """As gaussian_nll_loss does it: the gradient is that of before. By hand it runs whole."""
    variance = variance.clone()
    with torch.no_grad():
        variance.clamp_(min=0.2)
    return (variance.log() + (mean - y).square() / variance).mean()


def cut(mean, y, variance):
    """The control: where it is clamped there is no gradient."""
    variance = variance.clamp(min=0.2)
    return (variance.log() + (mean - y).square() / variance).mean()


class Patches(nn.Module):
    """Attention without weights over the patches of each channel, of which many are a sample."""

    def __init__(self, _=None):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, dropout=0.3, batch_first=True)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, y):
        samples, channels, patches, width = x.shape
        rows = x.reshape(samples * channels, patches, -1)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        rows = rows + self.narrow(F.gelu(self.wide(rows)))
        return F.mse_loss(rows.reshape(samples, channels, patches, width).mean((1, 2, 3)), y)


class Filled(nn.Module):
    """Words go into ``outputs[t]``, of which rows of all samples, step by step, stay held."""

    def __init__(self, _=None):
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 64), nn.Linear(64, WORDS)

    def forward(self, x, y):
        outputs = torch.zeros(PATCHES, len(x), WORDS, dtype=x.dtype)
        for t in range(PATCHES):
            outputs[t] = self.narrow(torch.tanh(self.wide(x[:, t])))
        self.rows = outputs[1:].view(-1, WORDS)
        self.words = y.t()[1:].reshape(-1)
        return F.cross_entropy(self.rows, self.words)


class Token(nn.Module):
    """A class token in front of patches."""

    def __init__(self, _=None):
        super().__init__()
        self.token = nn.Parameter(torch.linspace(-1, 1, WIDTH).view(1, 1, -1))
        self.wide, self.narrow = nn.Linear(WIDTH, 64), nn.Linear(64, WORDS)

    def forward(self, x, y):
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1)
        return F.cross_entropy(self.narrow(F.gelu(self.wide(x))).mean(1), y[:, 0])


class TwoViews(Token):
    """Tokens for the rows of two views of the batch, as a predictor of masked patches."""

    def forward(self, x, y):
        x = torch.cat((x, torch.tanh(x)))
        x = torch.cat((self.token.expand(x.shape[0], 4, -1), x), 1)
        first, second = self.narrow(F.gelu(self.wide(x))).chunk(2)
        return (first[:, :4] - second[:, -1:].detach()).square().mean() + second.var()


def make_samples(shape):
    torch.manual_seed(1)
    scale = torch.linspace(0.2, 3, SAMPLES, dtype=torch.float64)
    x = torch.randn(SAMPLES, *shape, dtype=torch.float64)
    x = x * scale.view(-1, *[1] * len(shape))
    if shape == CASES["filled"][2]:
        return x, torch.randint(WORDS, (SAMPLES, PATCHES))
    return x, 2 * torch.randn(SAMPLES, dtype=torch.float64)


CASES = {
    "gaussian_nll_loss": (Normal, nn.GaussianNLLLoss(eps=0.2), (WIDTH,)),
    "attention": (Patches, None, (PATCHES, 4, WIDTH)),
    "two views": (TwoViews, None, (PATCHES, WIDTH)),
    "filled": (Filled, None, (PATCHES, WIDTH)),
}


def make_model(kind, loss):
    torch.manual_seed(0)
    model = kind(loss).double()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return model


def run(kind, loss, shape, budget=None):
    """The loss, the gradients, and what the model holds by a name."""
    model, values = make_model(kind, loss), make_samples(shape)
    if budget is not None:
        values = koila.lazy(*values, batch=0, budget=budget)
    torch.manual_seed(2)
    found = model(*values)
    found.backward()
    how = koila.last()
    held = getattr(model, "rows", torch.zeros(()))
    found = {"loss": found, "held": held} | {n: p.grad for n, p in model.named_parameters()}
    return {name: torch.as_tensor(koila.run(value)).detach() for name, value in found.items()}, how


class Usual(unittest.TestCase):
    def test_steps(self):
        for name, (kind, loss, shape) in CASES.items():
            with self.subTest(name), warnings.catch_warnings():
                # Without a promise, where storage is written.
                warnings.filterwarnings("ignore", ".*without a promise", koila.KoilaWarning)
                warnings.filterwarnings("error", ".*runs whole", koila.KoilaWarning)
                wanted, _ = run(kind, loss, shape)
                peak = run(kind, loss, shape, 1 << 40)[1].peak_bytes
                found, how = run(kind, loss, shape, peak // 2)
                self.assertLess(how.tile, SAMPLES)
                for key, value in wanted.items():
                    torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-12)

    def read_first(self, budget):
        """Two steps of samples that are mixed, and the most bytes of them; each loss is read
        before its backward pass."""
        torch.manual_seed(0)
        model = Token().double()
        left, peaks = [], []
        for _ in range(2):
            x, y = make_samples(CASES["filled"][2])
            if budget is not None:
                x, y = koila.lazy(x, y, batch=0, budget=budget)
            flipped = x.flip(0).mul_(0.3)
            x = x.mul(0.7).add_(flipped)
            loss = model(x, y)
            left.append(torch.tensor(loss.item(), dtype=torch.float64))
            peaks.append(koila.last().peak_bytes if budget is not None else 0)
            loss.backward()
            peaks.append(koila.last().peak_bytes if budget is not None else 0)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(weight.grad, alpha=-0.1)
        return [*left, *(weight.grad for weight in model.parameters())], max(peaks)

    def test_a_token_is_of_the_batch_where_nothing_is_differentiated(self):
        wanted, _ = self.read_first(None)
        _, peak = self.read_first(1 << 40)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            warnings.filterwarnings("ignore", "to plan it", koila.KoilaWarning)
            found, most = self.read_first(int(0.6 * peak))
        self.assertLessEqual(most, int(0.6 * peak))
        for value, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, right, rtol=1e-9, atol=1e-12)

    def test_gradients_go_past_what_is_clamped(self):
        wanted, _ = run(Normal, clamp, (WIDTH,))
        lost, _ = run(Normal, cut, (WIDTH,))
        torch.testing.assert_close(lost["loss"], wanted["loss"])
        off = lost["net.0.weight"] - wanted["net.0.weight"]
        self.assertGreater(off.norm(), 1e-2 * wanted["net.0.weight"].norm())

    def test_negative_variances(self):
        model, (x, y) = make_model(Normal, nn.GaussianNLLLoss()), make_samples((WIDTH,))
        x, y = koila.lazy(x, y, batch=0, budget="1MiB")
        mean, variance = model.net(x).unbind(-1)
        with self.assertRaisesRegex(ValueError, "var has negative entry/entries"):
            model.loss(mean, y, variance - 10)

    def test_sizes_that_are_numbers(self):
        """As many channels as samples, and sizes that went through int()."""

        def step(budget, samples):
            torch.manual_seed(0)
            first, last = nn.Conv2d(3, 16, 3, padding=1).double(), nn.Linear(16, 8).double()
            x = torch.randn(samples, 3, 12, 12).double()
            x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
            out = torch.relu(first(x)).permute(0, 2, 3, 1)
            n, height, width, channels = [int(size) for size in out.size()]
            rows = last(out.contiguous().view(n * height * width, channels))
            rows = rows.view(n, height, width, 8).reshape(height * width * n // height, -1)
            loss = torch.tanh(rows).pow(2).sum(1).mean()
            loss.backward()
            return [loss.detach(), first.weight.grad, last.weight.grad]

        for samples in (16, 12, 8):
            with self.subTest(samples=samples), warnings.catch_warnings():
                warnings.simplefilter("ignore", koila.KoilaWarning)
                step(1 << 40, samples)
                found = step(koila.last().peak_bytes // 2, samples)
                self.assertIsNotNone(koila.last().tile)
                for value, right in zip(found, step(None, samples), strict=True):
                    torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(right))

    def test_many_sizes_of_one_call(self):
        """More than any shape has dims."""

        def step(x):
            weight = torch.linspace(-1, 1, 64).view(8, 8).requires_grad_()
            parts = (x @ weight).split([x.shape[0] // 32] * 32)
            loss = torch.stack([part.square().mean() for part in parts]).sum()
            loss.backward()
            return loss.detach(), weight.grad

        x = torch.randn(64, 8)
        with self.assertWarnsRegex(koila.KoilaWarning, "it runs whole: it cannot be traced"):
            loss, gradient = step(koila.lazy(x, batch=0, budget=4000))
        torch.testing.assert_close((loss.run(), gradient), step(x))

    def check_states(self, make):
        """That a cell whose states are made of the batch is split."""

        def step(budget):
            torch.manual_seed(0)
            cell = nn.LSTMCell(WIDTH, WIDTH).double()
            x = make_samples((PATCHES, WIDTH))[0]
            x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
            h, c = make(x), make(x)
            for patch in range(PATCHES):
                h, c = cell(x[:, patch], (h, c))
            loss = h.square().mean()
            loss.backward()
            return [loss.detach(), *(weight.grad for weight in cell.parameters())]

        wanted = step(None)
        step(1 << 40)
        peak = koila.last().peak_bytes
        self.assertIsNotNone(peak)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = step(peak // 2)
        self.assertIsNotNone(koila.last().tile)
        for value, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(right))

    def test_sizes_of_what_is_gone(self):
        """Nobody has the tensor any more of which a program has asked the size."""
        for make in (
            lambda x: x.new_zeros(x[:, 0].size()),
            lambda x: x.new_ones(x[:, 1:].size(0), WIDTH),
        ):
            self.check_states(make)

    def test_sizes_of_tensors_to_be_filled(self):
        """States of a cell as programs make them, also from before PyTorch 0.4."""

        def by_sizes(x):
            return x.data.new(x.size(0), WIDTH).zero_()

        def by_size(x):
            return x.new(x[:, 0].size()).fill_(0.5)

        def by_number(x):
            return x.new(SAMPLES, WIDTH).fill_(0.5)

        def of_another_type(x):
            return (x > 0).new(x.size(0), WIDTH).fill_(True).double()

        def by_new_empty(x):
            return x.new_empty(SAMPLES, WIDTH).fill_(0.5)

        def of_data(x):
            return x.new((0.5,) * WIDTH).expand(x.size(0), -1)

        for make in (by_sizes, by_size, by_number, of_another_type, by_new_empty, of_data):
            with self.subTest(make.__name__):
                self.check_states(make)
        x = koila.lazy(torch.randn(SAMPLES, 3), batch=0)
        for args in ((x.size(),), (x.size(0), 3), ([0.5, 2],), ((4, 5),), ()):
            plain = torch.empty(0).new(*args)
            self.assertEqual((x.new(*args).shape, x.new(*args).dtype), (plain.shape, plain.dtype))


def use_booleans(x):
    """Forms in which programs write True and False where there are numbers."""
    mask = x[:, :4] > 0
    marks = [
        mask & True,
        False | mask,
        mask == False,  # noqa: E712
        torch.where(x[:, 4:8] > 0, mask, True),
        mask.masked_fill(x[:, 4:8] > 1, False),
        torch.ones_like(mask).fill_(True) ^ mask,
        mask & torch.full_like(mask, True),
        mask | mask.new_full(mask.shape, False),
    ]
    weights = [mark.to(x.dtype) * (x.shape[1] > 3) * value for value, mark in enumerate(marks, 1)]
    return torch.stack([*weights, x[:, :4] * True, True + x[:, :4]]).sum(0), {
        mark.dtype for mark in marks
    }


class Booleans(unittest.TestCase):
    def train(self, budget):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, 4)).double()
        for weight in net.parameters():
            weight.grad = torch.zeros_like(weight)
        x, _ = make_samples((WIDTH,))
        if budget is not None:
            x = koila.lazy(x, batch=0, budget=budget)
        weights, kinds = use_booleans(x)
        self.assertEqual(kinds, {torch.bool})
        (net(x) * weights).square().mean().backward()
        return [weight.grad for weight in net.parameters()]

    def test_they_are_numbers(self):
        wanted = self.train(None)
        self.train(1 << 40)
        peak = koila.last().peak_bytes
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*(whole|protects)", koila.KoilaWarning)
            found = self.train(peak // 2)
        self.assertLess(koila.last().tile, SAMPLES)
        for value, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, right, rtol=1e-9, atol=1e-12)


class Written(unittest.TestCase):
    """Tensors of the program, written again after they were read."""

    def fill(self, store, index, budget):
        sums = []
        for step in range(3):
            x = torch.arange(32.0).view(8, 4) + step
            if budget is not None:
                x = koila.lazy(x, batch=0, budget=budget)
            store[index(step)] = x.sum(1) if len(store) == 3 else 2 * x
            sums.append(store.sum().item())
        return sums, koila.run(store).tolist()

    def test_each_write_is_there(self):
        cases = (
            (lambda: torch.zeros(2, 8, 4), lambda step: (0, slice(8))),
            (lambda: torch.zeros(8, 4), lambda step: slice(None)),
            (lambda: torch.zeros(3, 8), lambda step: step),
        )
        for make, index in cases:
            for budget in ("1GiB", 200):
                with self.subTest(tuple(make().shape), budget=budget), warnings.catch_warnings():
                    warnings.simplefilter("ignore", koila.KoilaWarning)
                    wanted = self.fill(make(), index, None)
                    self.assertEqual(self.fill(make(), index, budget), wanted)

    def test_a_copy_that_was_read(self):
        x = koila.lazy(torch.ones(8, 4), batch=0, budget="1GiB")
        y = x.clone()
        for step in range(3):
            y[step] = 5.0
            self.assertEqual(y.sum().item(), 32 + 16 * (step + 1))

    def test_arrays_of_what_has_a_graph(self):
        y = koila.lazy(torch.ones(4, 3), batch=0, budget="1GiB") @ nn.Parameter(torch.ones(3, 2))
        for convert in (torch.Tensor.numpy, np.asarray):
            with self.assertRaisesRegex(RuntimeError, "Can't call numpy"):
                convert(y)
            with torch.no_grad():
                self.assertEqual(convert(y).sum(), 24)


class Announcements(unittest.TestCase):
    """One for each line and each budget that is named, and no more."""

    def read(self, x, budget):
        """All pairs of samples: 8 KiB, which are in no tiles."""
        x = koila.lazy(x, batch=0, budget=budget)
        return (x[:, None] - x[None]).square().sum().item()

    def read_elsewhere(self, x, budget):
        x = koila.lazy(x, batch=0, budget=budget)
        return (x[:, None] - x[None]).square().sum().item()

    def count(self, *calls):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            for call, budget in calls:
                call(torch.linspace(0, 1, 32).repeat(2, 1).t().contiguous(), budget)
        return [entry.lineno for entry in caught if entry.category is koila.KoilaWarning]

    def test_lines_and_budgets(self):
        here = inspect.getsourcelines(Announcements.read)[1] + 3
        there = inspect.getsourcelines(Announcements.read_elsewhere)[1] + 2
        self.assertEqual(self.count((self.read, 4000), (self.read, 4000)), [here])
        self.assertEqual(self.count((self.read, 3000), (self.read, 4000)), [here])  # of 3000 bytes
        self.assertEqual(self.count((self.read_elsewhere, 3000), (self.read, 3000)), [there])


class Saving(unittest.TestCase):
    def test_counts_of_samples(self):
        model, (x, y) = make_model(Normal, clamp), make_samples((WIDTH,))
        x, y = koila.lazy(x, y, batch=0, budget="1MiB")
        seen = 0
        seen += x.size(0)
        state = {"seen": seen, "halves": [seen // 2], "model": copy.deepcopy(model.state_dict())}
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            file = io.BytesIO()
            torch.save(state, file, **options)
            file.seek(0)
            found = torch.load(file)
            self.assertEqual((found["seen"], found["halves"]), (SAMPLES, [SAMPLES // 2]))
            self.assertIs(type(found["seen"]), int)
            torch.testing.assert_close(found["model"], state["model"])


if __name__ == "__main__":
    unittest.main()
