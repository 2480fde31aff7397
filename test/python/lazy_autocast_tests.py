"""Steps under autocast through koila.lazy: what PyTorch casts, and as often."""

import typing
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila

SAMPLES, STEPS, HIDDEN, CLASSES = 128, 12, 32, 5
# A step of bfloat16, which rounds what tiles add up.
ROUNDING = 2.0**-7


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(8, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def make(kind):
    torch.manual_seed(0)
    scale = torch.linspace(0.5, 3, SAMPLES)[:, None, None]
    x = torch.randn(SAMPLES, STEPS, 8) * scale
    return Tagger(kind), x, torch.arange(SAMPLES * STEPS).reshape(SAMPLES, STEPS) % CLASSES


def step(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
    loss.backward(retain_graph=True)
    return loss


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def run_plain(kind):
    model, x, y = make(kind)
    loss = step(model, x, y)
    return loss, gradients(model)


def run_lazy(kind, budget):
    model, x, y = make(kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = step(model, *koila.lazy(x, y, batch=0, budget=budget))
    return loss, gradients(model), [str(entry.message) for entry in caught]


def saved_bytes(loss):
    """Of all that a graph keeps."""
    storages, stack, seen = {}, [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                saved = getattr(node, name)
                for item in saved if isinstance(saved, (tuple, list)) else (saved,):
                    if isinstance(item, torch.Tensor):
                        storage = item.untyped_storage()
                        storages[storage.data_ptr()] = storage.nbytes()
        stack.extend(edge for edge, _ in node.next_functions)
    return sum(storages.values())


class Autocast(unittest.TestCase):
    plain: typing.ClassVar[dict]
    refused: typing.ClassVar[dict]

    @classmethod
    def setUpClass(cls):
        # Before there are batches of koila's: samples beside one are recorded, too.
        cls.plain, cls.refused = {}, {}
        for kind in (nn.LSTM, nn.RNN, nn.GRU):
            try:
                cls.plain[kind] = run_plain(kind)
            except RuntimeError as error:
                # oneDNN has no LSTM of bfloat16 for processors without its instructions.
                cls.refused[kind] = str(error)

    def list_kinds(self, *kinds):
        """Those that PyTorch runs here; the others raise what they raise without koila."""
        for kind in kinds:
            if kind in self.plain:
                yield kind
                continue
            with self.assertRaises(RuntimeError) as caught:
                run_lazy(kind, 256 << 10)
            self.assertEqual(str(caught.exception), self.refused[kind])

    def assert_close(self, found, wanted):
        for left, right in zip(found, wanted, strict=True):
            self.assertGreater(right.norm(), 1e-4)
            self.assertLess((left - right).norm(), ROUNDING * right.norm())

    def test_recurrent_layers_are_split_in_the_type_of_autocast(self):
        """A trace has the operator, and not what it casts inside."""
        for kind in self.list_kinds(nn.LSTM, nn.RNN):
            loss, wanted = self.plain[kind]
            found_loss, found, said = run_lazy(kind, 256 << 10)
            self.assertLess(koila.last().tile, SAMPLES, said)
            self.assertLess(abs(found_loss.item() - loss.item()), 1e-3)
            self.assert_close(found, wanted)
            # In float32 the figure would be known, and the gradients would be others.
            self.assertIn("of another type than float32", " ".join(said))

    def test_what_is_cast_where_no_trace_sees_it_runs_whole_and_says_so(self):
        """GRU casts its products, and adds them up in float32."""
        loss, wanted = self.plain[nn.GRU]
        found_loss, found, said = run_lazy(nn.GRU, 128 << 10)
        self.assertIsNone(koila.last().tile)
        self.assertIn("autocast casts inside of an operator", " ".join(said))
        self.assertEqual(found_loss.item(), loss.item())
        for left, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=0)

    def test_a_weight_is_cast_once(self):
        """As PyTorch does for all calls of a block: a GRU reads its weights at each
        step of a sequence."""
        for kind in self.list_kinds(nn.GRU, nn.RNN, nn.LSTM):
            loss, wanted = self.plain[kind]
            found_loss, found, _ = run_lazy(kind, "1TiB")
            self.assertEqual(saved_bytes(found_loss), saved_bytes(loss), kind)
            for left, right in zip(found, wanted, strict=True):
                torch.testing.assert_close(left, right, rtol=0, atol=0)

    def test_each_block_has_its_own_type(self):
        """What was cast in one block is of no use in the next, though both run at once."""

        def run(model, x, y):
            loss: typing.Any = 0.0
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype=dtype):
                    out = model(x)
                self.assertEqual(out.dtype, dtype)
                loss = loss + F.cross_entropy(out.float().flatten(0, 1), y.flatten())
            loss.backward()
            return gradients(model)

        model, x, y = make(nn.GRU)
        wanted = run(model, x, y)
        model, x, y = make(nn.GRU)
        found = run(model, *koila.lazy(x, y, batch=0, budget="1TiB"))
        for left, right in zip(found, wanted, strict=True):
            self.assertGreater(right.norm(), 1e-4)
            torch.testing.assert_close(left, right, rtol=0, atol=0)

    def test_what_was_cast_without_a_graph_has_no_gradient_and_is_cast_again(self):
        model, x, y = make(nn.RNN)
        x, y = koila.lazy(x, y, batch=0, budget="1TiB")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                goal = model(x)
            loss = (model(x) - goal * 0.5).float().square().mean()
        loss.backward()
        for gradient in gradients(model):
            self.assertGreater(gradient.norm(), 1e-4)

    def test_batch_normalisation_is_split(self):
        """With the statistics of all samples, as near to float64 as plain PyTorch is."""
        batch, width = 2048, 64

        def run(dtype, enabled, budget=None):
            torch.manual_seed(0)
            layers = [
                (nn.Linear(24 if i == 0 else width, width), nn.BatchNorm1d(width), nn.ReLU())
                for i in range(3)
            ]
            model = nn.Sequential(*sum(layers, ()), nn.Linear(width, CLASSES)).to(dtype)
            y = torch.arange(batch) % CLASSES
            x = (torch.randn(batch, 24) + torch.randn(CLASSES, 24)[y]).to(dtype)
            if budget is not None:
                x, y = koila.lazy(x, y, batch=0, budget=budget)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
            return [
                torch.cat([tensor.double().flatten() for tensor in tensors])
                for tensors in (gradients(model), floats)
            ]

        exact = run(torch.float64, False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            found = run(torch.float32, True, "1200KiB")
        self.assertLess(koila.last().tile, batch)
        for tiled, plain, right in zip(found, run(torch.float32, True), exact, strict=True):
            error = (plain - right).norm()
            self.assertLess((tiled - right).norm(), 1.5 * error)
            # The statistics of tiles are further off.
            self.assertGreater(right.norm(), 20 * error)


if __name__ == "__main__":
    unittest.main()
