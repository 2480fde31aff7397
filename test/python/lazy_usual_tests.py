"""Steps as tutorials and libraries write them, in tiles; what is said of others; and what a
program saves."""

import copy
import inspect
import io
import unittest
import warnings

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
