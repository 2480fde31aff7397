"""Steps of small models through koila.lazy and plainly, for the tests of training."""

import inspect
import unittest
import warnings

import torch
from torch import nn

import koila

FEATURES, CLASSES = 16, 5
WHOLE = "1TiB"


def make_mlp(*last):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(FEATURES, 12), nn.Tanh(), nn.Linear(12, CLASSES), *last
    ).double()


def make_batch(count):
    torch.manual_seed(count)
    scale = torch.linspace(0.5, 3, count, dtype=torch.float64)[:, None, None]
    return torch.randn(count, 4, 4, dtype=torch.float64) * scale, torch.arange(count) % CLASSES


def gradients(model):
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
    }


def run_plain(model, compute, values):
    model.zero_grad(set_to_none=False)
    torch.manual_seed(1)
    loss = compute(model, *values)
    loss.backward()
    return loss.item(), gradients(model)


def run_lazy(model, compute, values, budget, **options):
    model.zero_grad(set_to_none=False)
    torch.manual_seed(1)
    loss = compute(model, *koila.lazy(*values, batch=0, budget=budget), **options)
    loss.backward()
    how = koila.last()
    return loss.item(), gradients(model), how


def whole_peak(model, compute, values):
    """Bytes of the whole batch, as koila predicts them."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return run_lazy(model, compute, values, WHOLE)[2].peak_bytes


class Steps(unittest.TestCase):
    """Whether steps through koila.lazy are those of plain PyTorch."""

    def assert_same(self, found, wanted):
        self.assertAlmostEqual(found[0], wanted[0], places=10)
        for name, gradient in wanted[1].items():
            self.assertGreater(gradient.norm(), 1e-9, name)
            torch.testing.assert_close(found[1][name], gradient, rtol=1e-9, atol=1e-11)

    def check(self, model, compute, values, fraction=0.5, doubtful=False):
        """The same in tiles as plainly, and whole; at least two tiles. If
        ``doubtful``, a warning says that the bytes are not known exactly."""
        wanted = run_plain(model, compute, values)
        peak = whole_peak(model, compute, values)
        whole = run_lazy(model, compute, values, peak)
        if not doubtful:
            self.assertIsNone(whole[2].tile)
        self.assert_same(whole, wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if doubtful else "error", koila.KoilaWarning)
            found = run_lazy(model, compute, values, int(peak * fraction))
        self.assertLess(found[2].tile, len(values[0]))
        self.assertLessEqual(found[2].peak_bytes, int(peak * fraction))
        self.assert_same(found, wanted)
        return found

    def refuse(self, model, compute, values, words, line_of):
        """Announced with the line, run whole, and exact; an error if strict."""
        wanted = run_plain(model, compute, values)
        peak = whole_peak(model, compute, values)
        state = {key: value.clone() for key, value in model.state_dict().items()}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = run_lazy(model, compute, values, peak - 1)
        self.assertIsNone(found[2].tile)
        self.assert_same(found, wanted)
        said = [entry for entry in caught if entry.category is koila.KoilaWarning]
        self.assertTrue(said)
        self.assertIn(words, str(said[0].message))
        lines, start = inspect.getsourcelines(line_of)
        self.assertEqual(said[0].filename, inspect.getsourcefile(line_of))
        self.assertIn(said[0].lineno, range(start, start + len(lines)))
        model.load_state_dict(state)
        with self.assertRaisesRegex(koila.KoilaError, words), koila.strict():
            run_lazy(model, compute, values, peak - 1)
