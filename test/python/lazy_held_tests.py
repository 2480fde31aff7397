"""What the program holds after a step through koila.lazy takes no more memory than
in plain PyTorch."""

import functools
import gc
import re
import unittest
import warnings
import weakref

import torch
from torch import nn
from torch.nn import functional as F

import koila
from memory_counter import peak_of

SAMPLES = 64


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32)), nn.Linear(32, 3)
    return *model, torch.randn(SAMPLES, 16), torch.rand(SAMPLES, 3)


class Held(unittest.TestCase):
    def test_what_reads_keep_is_planned_for(self):
        """A read in front of the loss computes what else the program holds, which stays
        there while the step computes it again."""
        torch.manual_seed(0)
        low = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        high = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
        parameters = [*low.parameters(), *high.parameters()]
        given = torch.randn(1024, 32), torch.randint(5, (1024,))

        def step(budget, read):
            for parameter in parameters:
                parameter.grad.zero_()
            x, y = koila.lazy(*given, batch=0, budget=budget)
            h = low(x)
            out = high(h)
            said = []
            kept = [said.append(koila.last()) or item for item in read(h, out, y)]
            loss = F.cross_entropy(out, y)
            loss.backward()
            said.append(koila.last())
            del kept
            return loss.item(), [p.grad.clone() for p in parameters], said

        def read_one(h, out, y):
            yield out[0, 0].item()

        def read_accuracy(h, out, y):
            yield out.argmax(1).eq(y).sum().item()

        def read_labels(h, out, y):
            yield (y > 0).sum().item()

        def read_twice(h, out, y):
            yield h.mean().item()
            yield (out[:, 0] > 0).sum().item()

        def read_views(h, out, y):
            row, part = out[0, 0], h.detach()[:, :3]
            row.item()
            yield row, part

        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        wanted = step("1TiB", lambda h, out, y: ())
        for read in (read_one, read_accuracy, read_labels, read_twice, read_views):
            for budget in (560_000, 700_000, 800_000, 1_000_000):
                with self.subTest(read.__name__, budget=budget), warnings.catch_warnings():
                    warnings.simplefilter("error", koila.KoilaWarning)
                    step(budget, read)
                    measured, found = peak_of(functools.partial(step, budget, read))
                    self.assertIsNotNone(found[2][-1].tile)
                    self.assertEqual(measured, max(last.peak_bytes for last in found[2]))
                    self.assertLessEqual(measured, budget)
                    torch.testing.assert_close(found[:2], wanted[:2])
        with self.assertWarnsRegex(koila.KoilaWarning, "no tile fits"):
            step(300_000, read_one)

    def test_results_beside_the_least_tile_are_said(self):
        """Where no tile fits, the budget that would do is without results that the program
        holds; what the step takes is with them."""
        torch.manual_seed(0)
        low = nn.Parameter(torch.randn(8, 3, 3, 3))
        high = nn.Parameter(torch.randn(8, 8, 3, 3))
        images = torch.randn(32, 3, 32, 32)

        def step(holds, budget=100_000):
            x = koila.lazy(images, batch=0, budget=budget)
            h = torch.conv2d(x, low, padding=1)
            loss = torch.conv2d(h.relu(), high, padding=1).square().mean()
            held = h if holds else None
            del h
            loss.backward()
            return held

        for holds in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", koila.KoilaWarning)
                step(holds)
                text = koila.last().announced
                peak = peak_of(functools.partial(step, holds))[0]
            self.assertIn("no tile fits", text)
            self.assertNotIn("program_trace", text)
            found = re.search(r"takes ([\d.]+) MiB with the results that the program holds", text)
            self.assertEqual(found is not None, holds)
            if found:
                self.assertAlmostEqual(float(found[1]), peak / (1 << 20), delta=0.01)
            least = int(re.search(r"\(([\d,]+) bytes\)", text)[1].replace(",", ""))
            step(holds, least)
            # With the convolutions of some instruction sets two samples take no more.
            self.assertIn(koila.last().tile, (1, 2))
            self.assertNotIn("no tile fits", koila.last().announced or "")

    def test_what_was_seen_before_a_write_is_planned_for(self):
        """A read computes what the program holds, which is then written to: reads begin with a
        copy of what was there where there is room for both, steps compute it again."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        given = torch.randn(SAMPLES, 20, 16), torch.randint(20, (SAMPLES,))
        held = given[0].numel() * 4 * 4

        def step(write, end, budget):
            for parameter in model.parameters():
                parameter.grad.zero_()
            said = []
            x, lengths = koila.lazy(*given, batch=0, budget=budget)
            h = model(x)
            lengths.max().item()
            said.append(koila.last())
            write(h)
            found = torch.tensor(end(h, x))
            said.append(koila.last())
            return found, [p.grad.clone() for p in model.parameters()], said

        def scale_data(h):
            h.data.mul_(2)

        def scale_twice(h):
            h.detach().mul_(0.5)
            h.data[:, 3:].mul_(4)

        def differentiate(h, x):
            loss = h.square().mean()
            loss.backward()
            return loss.item()

        def read(h, x):
            return h.norm().item()

        def read_beside(h, x):
            return x.square().mean().item()

        for write in (scale_data, scale_twice):
            for end, budgets in (
                (differentiate, (2 * held, 3 * held, 5 * held // 2, 4 * held)),
                (read, (held // 2, held, 3 * held // 2, 2 * held, 3 * held)),
                (read_beside, (held // 2, held, 3 * held // 2, 2 * held, 3 * held)),
            ):
                wanted = step(write, end, "1TiB")
                for budget in budgets:
                    with self.subTest(write.__name__, end=end.__name__, budget=budget):
                        run = functools.partial(step, write, end, budget)
                        with warnings.catch_warnings():
                            warnings.simplefilter("error", koila.KoilaWarning)
                            run()
                            measured, found = peak_of(run)
                        self.assertLessEqual(measured, budget)
                        torch.testing.assert_close(found[:2], wanted[:2])

    def test_what_other_batches_have_left_is_no_part_of_a_step(self):
        body, head, x, y = make()

        def step(budget=20 << 10):
            given = koila.lazy(x, y, batch=0, budget=budget)
            out = head(torch.tanh(body(given[0])))
            out[0, 0].item()
            F.mse_loss(out, given[1]).backward()
            return out, koila.last()

        def look():
            out = head(torch.tanh(body(koila.lazy(x, batch=0, budget=20 << 10))))
            out[0, 0].item()
            return out

        step()
        wanted = step()[1]
        self.assertIsNotNone(wanted.tile)
        before = [look(), step()[0]]
        self.assertEqual(step()[1], wanted)
        del before

    def test_a_view_of_what_was_given_is_no_more_than_its_samples(self):
        body, head, x, _ = make()
        rows = torch.randn(100 * SAMPLES, 16)
        peaks = []
        for parameter in (*body.parameters(), *head.parameters()):
            parameter.grad = torch.zeros_like(parameter)
        for given in (x, rows[:SAMPLES]):
            part = koila.lazy(given, batch=0, budget="1TiB").detach()
            head(torch.tanh(body(part))).square().mean().backward()
            peaks.append(koila.last().peak_bytes)
        self.assertEqual(*peaks)

    def test_views_of_what_is_computed_again_share_its_memory(self):
        """A view of the name that was read, too: a step with a graph computes it anew."""
        body, head, x, y = make()
        x, y = koila.lazy(x, y, batch=0, budget="1TiB")
        h = body(x)
        drawn = torch.bernoulli(h.detach().sigmoid())
        self.assertGreater(drawn.mean().item(), 0)
        column = h.detach()[:, 0]
        F.mse_loss(head(h), y).backward()
        self.assertEqual(column.data_ptr(), h.data_ptr())
        torch.testing.assert_close(column, h.detach()[:, 0])

    def test_what_was_made_of_a_graph_that_is_gone_keeps_nothing_else(self):
        """A loss that koila cannot record leaves a graph, through which the next pass
        goes. What else was made of it has a value, and no further use for noise."""
        body, head, x, y = make()
        noise = torch.randn(SAMPLES, 32)
        gone = weakref.ref(noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = koila.lazy(x, y, batch=0, budget=24 << 10)
            h = body(x)
            logits = head(h)
            h = h + noise
            del noise
            main = F.gaussian_nll_loss(logits, y, torch.ones_like(logits))
            (main + logits.square().mean()).backward()
            self.assertIsNotNone(koila.last().tile)
        self.assertIsNone(gone())
        with self.assertRaisesRegex(RuntimeError, "second time"):
            h.sum().backward()
        self.assertGreater(h.norm().item(), 0)

    def test_what_was_made_of_another_graph_can_be_differentiated(self):
        """The control: a pass goes through a part of what one run has computed."""
        body, head, x, y = make()
        other = nn.Linear(16, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = koila.lazy(x, y, batch=0, budget=24 << 10)
            logits, side = head(body(x)), other(x)
            kept = side * 2
            F.gaussian_nll_loss(logits, y, side.exp())
            logits.square().mean().backward()
            self.assertIsNone(other.weight.grad)
            self.assertTrue(kept.isfinite().all())
            kept.sum().backward()
        self.assertGreater(other.weight.grad.norm().item(), 0)

    def test_a_graph_that_is_to_stay_after_a_read_is_announced(self):
        """The step fitted when its loss was read; nobody knew of retain_graph then."""
        body, head, x, y = make()
        parameters = [*body.parameters(), *head.parameters()]

        def differentiate(loss, **options):
            torch.autograd.grad(loss, parameters, **options)

        def step(budget, differentiate, **options):
            for parameter in parameters:
                parameter.grad = None
            given = koila.lazy(x, y, batch=0, budget=budget)
            loss = F.mse_loss(head(torch.tanh(body(given[0]))), given[1])
            loss.item()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                differentiate(loss, **options)
            return [str(entry.message) for entry in caught]

        for line, call in enumerate((torch.Tensor.backward, differentiate)):
            self.assertEqual(step("1TiB", call, retain_graph=True), [])
            budget = koila.last().peak_bytes * 3 // 2
            self.assertEqual(step(budget, call), [])
            self.assertIsNone(koila.last().tile)
            if line == 0:  # once for a program
                self.assertIn(
                    "its graph is to stay", " ".join(step(budget, call, retain_graph=True))
                )
            with self.assertRaisesRegex(koila.KoilaError, "its graph is to stay"), koila.strict():
                step(budget, call, retain_graph=True)

    def test_parts_around_a_hook_leave_one_tensor_and_no_graph(self):
        """Before the hook is a layer whose time is the batch: it runs whole, announced,
        with a graph that is of other results, too."""
        torch.manual_seed(0)
        model, x = nn.GRU(6, 12), torch.randn(96, 6, 6)

        def step(x):
            out = model(x)[0]
            out.register_hook(lambda gradient: 2 * gradient)
            most = out.max()
            out.mean().backward()
            return out, most

        def count(size):
            tensors = [item for item in gc.get_objects() if type(item) is torch.Tensor]
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
            return sum(storage.nbytes() == size for storage in storages.values())

        out, most = step(x)
        wanted, size = model.weight_hh_l0.grad, out.nbytes
        with self.assertRaisesRegex(RuntimeError, "second time"):
            most.backward()
        model.zero_grad()
        del out, most
        before = count(size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, most = step(koila.lazy(x, batch=0, budget=64 << 10))
        self.assertIsNone(koila.last().tile)
        torch.testing.assert_close(model.weight_hh_l0.grad, wanted)
        self.assertEqual(count(size) - before, 1)
        self.assertGreater(most.item(), 0)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            most.backward()

    def test_arrays_see_what_is_written_to_their_tensor(self):
        """Also where weights have changed since, and the tensor has no graph any more."""
        for changes in (False, True):
            body, head, x, y = make()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x, y = koila.lazy(x, y, batch=0, budget=24 << 10)
                logits = head(body(x))
                array = logits.detach().numpy()
                self.assertGreater(abs(array).sum(), 1)
                F.mse_loss(logits, y).backward(retain_graph=True)
                with torch.no_grad():
                    if changes:
                        head.weight.sub_(0.1 * head.weight.grad)
                    logits.zero_()
            self.assertEqual(abs(array).sum(), 0, changes)
            self.assertEqual(logits.detach().abs().sum().item(), 0)

    def test_a_write_that_an_array_sees_is_no_run_in_silence(self):
        body, head, x, y = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = koila.lazy(x, y, batch=0, budget=24 << 10)
            logits = head(body(x))
            array = logits.detach().numpy()
            before = array.copy()
            refused = self.assertRaisesRegex(koila.KoilaError, "array sees")
            with refused, koila.strict(), torch.no_grad():
                logits.zero_()
            self.assertTrue((array == before).all())
            F.mse_loss(logits, y).backward()
        self.assertGreater(head.weight.grad.norm().item(), 0)


if __name__ == "__main__":
    unittest.main()
