"""What koila.lazy answers without running, and reads, without gradients.

The public names of koila 0.1.1, and what it got wrong outside of training.
"""

import collections
import inspect
import itertools
import os
import subprocess
import sys
import unittest
import unittest.mock
import warnings

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._lazy import limits
from koila._plan import plan_cache


def make():
    return torch.arange(1.0, 37).view(9, 4) / 7


class Values(unittest.TestCase):
    def same(self, found, wanted):
        found = koila.run(found)
        torch.testing.assert_close(found, wanted)

    def test_answers_at_once(self):
        x = koila.lazy(make(), batch=0)
        with NothingRuns(self):
            y = (x @ torch.ones(4, 3, dtype=torch.float32)).transpose(0, 1)
            self.assertEqual(y.shape, (3, 9))
            self.assertEqual((y.size(-1), y.ndim, y.dim(), y.numel(), len(y)), (9, 2, 2, 27, 3))
            self.assertEqual(
                (y.dtype, y.device.type, y.requires_grad), (torch.float32, "cpu", False)
            )
            self.assertEqual(y.double().dtype, torch.float64)
            self.assertEqual((x > 1).dtype, torch.bool)
            self.assertEqual(x.argmax(1).dtype, torch.int64)
            self.assertEqual(x.mean(-1).shape, (9,))
            self.assertIsNone(y.grad_fn)
            w = nn.Parameter(torch.ones(4))
            self.assertTrue((x * w).requires_grad)
            self.assertIsNotNone((x * w).grad_fn)
            self.assertFalse((x * w).detach().requires_grad)
            with torch.no_grad():
                self.assertFalse((x * w).requires_grad)

    def test_mark_of_the_batch(self):
        # Each of these lost or misplaced the mark, or raised.
        x = koila.lazy(torch.randn(9, 4, 6), batch=0)  # noqa: F841  expressions name it
        for expression, index in {
            "x.view(9, -1)": None,  # a number that the user wrote is one
            "x.view(x.shape[0], -1)": 0,
            "x.reshape(len(x), 24)": None,
            "x.flatten(1)": 0,
            "x * nn.Parameter(torch.ones(6))": 0,
            "x * 2 + 1.0": 0,
            "1 - x / 255": 0,
            "x @ torch.ones(6, 2)": 0,
            "x.transpose(1, 2)": 0,
            "x.transpose(-1, -2)": 0,
            "x.permute(2, 0, 1)": 1,
            "x.mean(-1)": 0,
            "x.sum(0)": None,
            "torch.cat([x, x], 1)": 0,
            "torch.stack([x, x])": 1,
            "x.unsqueeze(0)": 1,
            "F.softmax(x, -1)": 0,
            "x.chunk(2, 1)[1]": 0,
            "torch.where(x > 0, x, 0)": 0,
            "F.conv1d(x, torch.ones(4, 1, 3), groups=4)": 0,
            "F.max_pool1d(x, 2)": 0,
            "F.conv1d(x, torch.ones(2, 4, 3), padding='same')": 0,
        }.items():
            with self.subTest(expression):
                found = eval(expression).batch()
                if index is None:
                    self.assertTrue(found is None or found.value == 9)
                else:
                    self.assertEqual(found, koila.BatchInfo(index, 9))

    def test_values(self):
        plain, x = make(), koila.lazy(make(), batch=0)
        for expression in (
            "x * 2",
            "x + 1.0",
            "x / 255",
            "1 - x",
            "0.5 * x.mean()",
            "sum([x.mean(), x.sum()])",
            "x // 2",
            "x % 2",
            "x ** 2",
            "-x",
            "+x",
            "abs(x)",
            "x == x",
            "x < 1",
            "2 > x",
            "x @ x.T",
            "x[2]",
            "x[1:3, 0]",
            "x[[0, 2]]",
            "x[x > 2]",
            "torch.nonzero(x > 2)",
            "x.max()",
            "x.max(1).values",
            "torch.min(x, 0).indices",
            "x.std()",
            "x.sort(1)[1]",
            "torch.einsum('bi,bj->bij', x, x)",
            "torch.cat([x, x * 2])",
            "x.view(3, -1)",
            "x.view(x.shape[0] // 3, -1)",
            "x.expand(2, 9, 4)",
            "x.double()",
            "x.unbind(0)[3]",
            "torch.stack([row.sum() for row in x])",
            "torch.linalg.norm(x, dim=1)",
            "x.new_full((2,), 3.0)",
            "torch.zeros_like(x)",
            "x.repeat(2, 1)",
            "x.T",
            "x.mT",
            "torch.ones(9, 4) + x",
            "torch.ones(9, 4).mul(x)",
            "x.clamp(0, 1).sqrt()",
            "F.layer_norm(x, (4,))",
            "x.topk(2, 1)[0]",
            "x.cumsum(0)",
            "x.detach()",
            "x.data",
            "torch.fft.rfft(x, dim=1).abs()",
            "x.squeeze()",
            "x.to(torch.float16)",
        ):
            with self.subTest(expression):
                wanted = eval(expression, globals(), {"x": plain})
                found = eval(expression, globals(), {"x": x})
                self.assertIsInstance(found, torch.Tensor)
                self.assertEqual(found.shape, wanted.shape)
                self.same(found, wanted)

    def test_reads(self):
        plain, x = make(), koila.lazy(make(), batch=0)
        self.assertEqual(x.sum().item(), plain.sum().item())
        self.assertEqual(float(x.sum()), float(plain.sum()))
        self.assertEqual(int(x.sum()), int(plain.sum()))
        self.assertTrue(bool(x.sum() > 3))
        if x.sum() > 1e6:
            self.fail("a comparison")
        self.assertEqual(f"{x.mean():.3f}", f"{plain.mean():.3f}")
        self.assertEqual(repr(x), repr(plain))
        self.assertEqual(str(x * 2), str(plain * 2))
        self.assertEqual(x.tolist(), plain.tolist())
        numpy.testing.assert_array_equal(x.numpy(), plain.numpy())
        numpy.testing.assert_array_equal(numpy.asarray(x * 2), (plain * 2).numpy())
        self.assertTrue(torch.equal(x, plain))
        w = nn.Parameter(torch.ones(4))
        with self.assertRaisesRegex(RuntimeError, "detach"):
            (x * w).numpy()
        self.assertIn("grad", repr(x * w))
        self.assertEqual(list(map(int, range(x.shape[0])))[-1], 8)

    def test_writes(self):
        for count in (1, 2):
            plain, lazy = make(), koila.lazy(make().clone(), batch=0)

            def compute(x, turn=count == 2):
                y = x * 2
                view = y.view(-1)
                before = y + 1
                view.add_(10)
                y[1] = 0
                after = y * 1
                y += before
                y.t_() if turn else y.neg_()
                return before, after, y, view

            # What was written last first: it must wait for those that read before.
            for found, wanted in reversed(list(zip(compute(lazy), compute(plain), strict=True))):
                self.assertEqual(found.shape, wanted.shape)
                self.same(found, wanted)
        # A tensor of the user is written to at once, after what reads it.
        plain = make()
        x = koila.lazy(plain, batch=0)
        double = x * 2
        x.add_(1)
        torch.testing.assert_close(plain, make() + 1)
        self.same(double, make() * 2)
        self.same(x + 0, make() + 1)
        total = torch.zeros(4)
        total += koila.lazy(make(), batch=0).sum(0)
        self.same(total, make().sum(0))

    def test_constructors_of_tensors(self):
        # They come past `__torch_function__`; each of these raised.
        x = koila.lazy(make(), batch=0)
        for compute in (
            lambda y: torch.tensor(y),
            lambda y: torch.tensor(y, dtype=torch.float64),
            lambda y: torch.tensor(y.long()),
            lambda y: torch.LongTensor(y.long()),
            lambda y: torch.Tensor(y),
            lambda y: torch.full((2, 3), y.sum()),
            lambda y: torch.arange(y.sum()),
            lambda y: torch.tensor([y.sum(), y.max()]),
        ):
            found, wanted = compute(x * 2), compute(make() * 2)
            self.assertIs(type(found), torch.Tensor)
            torch.testing.assert_close(found, wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weight = nn.Parameter(torch.ones(4))
            loss = (x * weight).pow(2).mean()
            found = torch.tensor(loss)
            self.assertEqual((found.item(), found.requires_grad), (loss.item(), False))
            loss.backward()
        wanted = nn.Parameter(torch.ones(4))
        (make() * wanted).pow(2).mean().backward()
        torch.testing.assert_close(weight.grad, wanted.grad)
        with self.assertRaisesRegex(koila.KoilaError, "keeps the graph"):
            torch.Tensor(x * weight)
        # Of the types of numbers that NumPy has none of, too.
        torch.testing.assert_close(torch.tensor(x.bfloat16()), make().bfloat16())

    def test_slices_that_take_all(self):
        # Of any number of samples they are the whole, and in tiles.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for take in (
                lambda x, n: x[:n],
                lambda x, n: x[: len(x)],
                lambda x, n: x[0 : x.size(0), :4],
                lambda x, n: x[:300][:, 0:4:1],
            ):
                plain = torch.randn(256, 4)
                weight = nn.Parameter(torch.ones(4, 64))
                x = koila.lazy(plain.clone(), batch=0, budget=30_000)
                (take(x, 256) @ weight).tanh().square().mean().backward()
                self.assertTrue(koila.last().tile)
                found, weight.grad = weight.grad, None
                (take(plain, 256) @ weight).tanh().square().mean().backward()
                torch.testing.assert_close(found, weight.grad)
        x = koila.lazy(make(), batch=0)
        for index in (
            (slice(0, 8),),
            (slice(1, 9),),
            (slice(None, 9, 2),),
            (0, slice(0, 4)),
            (slice(None, -1),),
            (None, slice(0, 4)),
            (slice(0, 9), torch.tensor([1, 2])),
        ):
            self.same(x[index] * 1, make()[index])

    def test_constructors_that_share_memory(self):
        for kind in (torch.float32, torch.bfloat16):
            plain = make().to(kind)
            torch.Tensor(koila.lazy(plain, batch=0).detach()).add_(1)
            torch.testing.assert_close(plain, make().to(kind) + 1)
            # What is computed is memory, too.
            y = koila.lazy(make().to(kind), batch=0) * 2
            torch.Tensor(y)[0] = 7
            wanted = make().to(kind) * 2
            wanted[0] = 7
            self.same(y + 0, wanted)

    def test_memory_that_is_written_to_before_it_is_read(self):
        # What was recorded before the write would see it.
        for share in (lambda y: y.numpy(), torch.Tensor, lambda y: y[:2].numpy()):
            for start in (lambda x: x * 2, lambda x: x):
                y = start(koila.lazy(make(), batch=0))
                memory = share(y)
                before = y + 1
                memory[0] = 7
                with self.assertRaisesRegex(koila.KoilaError, "written to after"):
                    before.tolist()
                after = start(make())
                after[0] = 7
                self.same(y + 1, after + 1)
        weight = nn.Parameter(torch.ones(4))
        lazy = koila.lazy(make(), batch=0)
        with self.assertRaisesRegex(TypeError, "a number is taken here"):
            torch.full((2,), (lazy * weight).sum())

    def test_batches_in_containers(self):
        # As loaders give them; none is silently left out.
        Pair = collections.namedtuple("Pair", "input label")
        plain, pair = make(), Pair(make(), 3)
        given = {"a": plain, "b": [plain, "text"], "c": pair, "d": collections.UserDict(e=plain)}
        made = koila.lazy(given, batch=0)
        for found in (made["a"], made["b"][0], made["c"].input, made["d"]["e"]):
            self.assertIsInstance(found, koila.LazyTensor)
            self.assertEqual(found.batch(), koila.BatchInfo(0, 9))
        self.assertIs(given["a"], plain)
        self.assertEqual(
            (made["b"][1], made["c"].label, type(made["d"])), ("text", 3, collections.UserDict)
        )
        computed = koila.run(made)
        self.assertEqual((type(computed["c"]), type(computed["d"])), (Pair, collections.UserDict))
        for found in (computed["a"], computed["b"][0], computed["c"].input, computed["d"]["e"]):
            self.assertIs(type(found), torch.Tensor)
        shape = torch.Size([3])
        self.assertIs(koila.lazy(shape), shape)
        with self.assertRaisesRegex(koila.KoilaError, "packs"):
            koila.lazy(nn.utils.rnn.pack_sequence([plain]), batch=0)
        with self.assertWarnsRegex(koila.KoilaWarning, "this ndarray stays as it is"):
            koila.lazy(plain, numpy.ones(9), batch=0)
        with koila.strict(), self.assertRaisesRegex(koila.KoilaError, "this object stays"):
            koila.lazy(object(), batch=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            koila.lazy(plain, 3, "text", None, [1], {"a": 2}, batch=0)

    def test_traces_leave_other_devices_alone(self):
        # torch.manual_seed would set the draws of every GPU, also of those to come.
        before = torch.get_rng_state()
        with unittest.mock.patch("torch.cuda.manual_seed_all") as seeded, torch.no_grad():
            x = koila.lazy(torch.ones(64, 100), batch=0, budget="30KiB")
            (x.sin() * 2).cos().sum(1).run()
        self.assertIsNotNone(koila.last().tile)
        seeded.assert_not_called()
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_reused_tensors_remember_no_step(self):
        x = koila.lazy(make(), batch=0)
        for _ in range(200):
            x.view(-1).sum().item()
        self.assertLess(len(x._value.group.readers), 100)
        self.assertLess(len(x._value.views), 100)

    def test_data_and_memory(self):
        x = koila.lazy(make(), batch=0)
        y = x * 2
        before = y + 0
        y.data = y.data + 1
        y.data *= 3
        self.same(y, (make() * 2 + 1) * 3)
        self.same(before, make() * 2)
        y.data = torch.zeros(2)
        self.assertEqual(y.shape, (2,))
        self.assertEqual((x * 2).untyped_storage().device.type, "cpu")
        self.same(torch.from_dlpack(x * 2), make() * 2)
        self.assertIsNone((x * 2)._base)
        plain = make()[1:]
        self.assertEqual(koila.lazy(plain).storage_offset(), 4)

    def test_views_that_were_read_and_then_written_to(self):
        # In tiles, where what was read is kept apart.
        w = nn.Parameter(torch.ones(4, 64))
        x = koila.lazy(make().repeat(20, 1), batch=0, budget="60KiB")
        y = (x @ w).tanh() @ w.T
        view = y.view(-1)
        before = view.tolist()
        self.assertIsNotNone(koila.last().tile)
        y += 1
        torch.testing.assert_close(torch.tensor(view.tolist()), torch.tensor(before) + 1)

    def test_written_to_in_between(self):
        plain = make()
        x = koila.lazy(plain, batch=0)
        y = x * 2
        plain.zero_()
        with self.assertRaisesRegex(koila.KoilaError, "written to after"):
            y.sum().item()
        x = koila.lazy(plain, batch=0)
        plain.fill_(3)
        self.same(x * 2, torch.full((9, 4), 6.0))

    def test_arrays_that_are_filled_again(self):
        # Of memory that is NumPy's PyTorch knows no versions.
        array = make().numpy()
        read = koila.lazy(torch.from_numpy(array), batch=0)
        self.same(read * 2, make() * 2)
        x = koila.lazy(torch.from_numpy(array), batch=0)
        unread = x * 2
        array[:] = array[::-1].copy()  # the same numbers in another order
        with self.assertRaisesRegex(koila.KoilaError, "written to after"):
            unread.tolist()
        column = torch.from_numpy(make().numpy())[:, 1]  # with gaps
        self.same(koila.lazy(column, batch=0) * 2, make()[:, 1] * 2)

    def test_long_chains(self):
        x = y = koila.lazy(make(), batch=0)
        for _ in range(10_000):
            y = y + 0.5
        self.same(y, make() + 5_000)
        y = x
        for _ in range(10_000):
            y = y + 0.5
        del y  # nor when they are dropped

    def test_each_node_once(self):
        x = koila.lazy(make(), batch=0)
        calls = []
        h = koila.LazyFunction(lambda t: calls.append((type(t), t.shape[0])) or t * 1, None)(x)
        for _ in range(50):
            h = h + h * 0.1
        h.sum().item()
        h.sum().item()
        self.assertEqual(
            len([kind for kind, rows in calls if kind is torch.Tensor and rows == 9]), 1
        )

    def test_no_grad_in_tiles(self):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
        )
        plain, labels = torch.randn(100, 4), torch.arange(100) % 3
        with torch.no_grad():
            wanted = model(plain)
            for budget, split in (("1TiB", False), ("20KiB", True)):
                x, t = koila.lazy(plain, labels, batch=0, budget=budget)
                out = model(x)
                with koila.strict():
                    torch.testing.assert_close(out.run(), wanted)
                    self.assertEqual(koila.last().tile is not None, split)
                    right = (model(x).argmax(1) == t).float().mean().item()
                self.assertAlmostEqual(
                    right, (wanted.argmax(1) == labels).float().mean().item(), places=6
                )

    def test_environment(self):
        code = (
            "import torch, koila\n"
            "x = koila.lazy(torch.ones(64, 100), batch=0)\n"
            "with torch.no_grad(): y = (x.sin() * 2).cos().sum(1); y.run()\n"
            "print(koila.last().tile, koila.last().budget_bytes)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            text=True,
            capture_output=True,
            env={**os.environ, "KOILA_BUDGET": "20KiB"},
        )
        self.assertEqual(done.stderr, "")
        tile, budget = done.stdout.split()
        self.assertIn(int(tile), (1, 2, 4, 8, 16, 32))
        self.assertEqual(budget, "20480")

    def test_a_batch_that_is_there_at_the_end(self):
        """Globals of a script that another module has a function of go last of all."""
        code = """
            import warnings, torch, koila
            warnings.showwarning = lambda *_: None
            x = koila.lazy(torch.randn(16, 8), batch=0, budget=300000)
            noise = torch.randn(16, 8)
            out = torch.nn.Linear(8, 8)(noise) + x
            total = x.sum(0)
        """
        run = subprocess.run(
            [sys.executable, "-c", inspect.cleandoc(code)], capture_output=True, text=True
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_names_of_koila_0_1_1(self):
        plain = make()
        x, number = koila.lazy(plain, 3, batch=0)
        self.assertEqual(number, 3)
        self.assertIsInstance(x, koila.LazyTensor)
        self.assertIs(koila.lazy(x, batch=1), x)
        self.same(koila.LazyTensor(plain, 0), plain)
        self.assertEqual(koila.LazyTensor(plain, batch=1).batch(), koila.BatchInfo(1, 4))
        self.assertIsNone(koila.LazyTensor(plain).batch())
        torch.testing.assert_close(x.torch(), plain)
        torch.testing.assert_close((x * 2).run((3, 6)), plain[3:6] * 2)
        torch.testing.assert_close(koila.run([x, (x + 1, 5)])[1][0], plain + 1)
        self.assertEqual(koila.run("text"), "text")
        y = x + torch.ones(4)
        self.assertEqual(y.buffer_numel(), koila.BatchedPair(8, 4))
        self.assertEqual(y.buffer_memory(), koila.BatchedPair(32, 16))
        self.assertEqual(len(y.buffer()), 3)
        self.same(koila.LazyTensor(koila.Evaluation(torch.add, None, x, 2)), plain + 2)
        self.same(koila.Evaluation(torch.add, None, x, 2).run(), plain + 2)
        self.same(koila.LazyFunction(torch.mul, None)(plain, 2), plain * 2)
        self.assertIsInstance(koila.LazyFunction(torch.mul, None)(plain, 2), koila.LazyTensor)

    def test_modules_of_koila_0_1_1(self):
        pair = koila.BatchedPair(1, 0)
        for count, free, parts in (
            (100, 40, (32, 32, 32, 4)),
            (64, 64, (64,)),
            (64, 63, (32, 32)),
            (9, 10**9, (9,)),
        ):
            self.assertEqual(koila.gpus.split_batch(pair, count, free), parts)
        self.assertEqual(koila.gpus.maximum_batch(koila.BatchedPair(3, 4), 20), 5)
        with self.assertRaisesRegex(koila.KoilaError, "a sample needs 7 bytes, and 6"):
            koila.gpus.maximum_batch(koila.BatchedPair(3, 4), 6)
        with self.assertRaisesRegex(koila.KoilaError, "bound no batch"):
            koila.gpus.maximum_batch(koila.BatchedPair(0, 4), 6)
        self.assertEqual(koila.constants.UNITS["tb"], 10**12)
        self.assertEqual(koila.constants.MEMORY_BYTES[torch.bfloat16], 2)
        self.assertTrue(issubclass(koila.UnsupportedError, Exception))
        found = koila.prepasses.prepass(torch.matmul)(
            koila.lazy(torch.ones(9, 4), batch=0), torch.ones(4, 2)
        )
        self.assertEqual(found.shape, (9, 2))
        self.assertEqual(found.metadata.batch, koila.BatchInfo(0, 9))

    def test_errors(self):
        with self.assertRaisesRegex(koila.KoilaError, "batch=5 is no dim"):
            koila.lazy(make(), batch=5)
        with self.assertRaisesRegex(koila.KoilaError, "write a number"):
            koila.lazy(make(), batch=0, budget="much")
        x = koila.lazy(make(), batch=0)
        with self.assertRaisesRegex(RuntimeError, "invalid for input"):
            x.view(5, 5)
        with self.assertRaisesRegex(RuntimeError, "does not require grad"):
            x.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "only for scalar"):
            (x * nn.Parameter(torch.ones(4))).backward()
        with self.assertRaises(TypeError):
            koila.LazyTensor(3)
        with self.assertRaisesRegex(koila.KoilaError, "dense"):
            koila.lazy(make().to_sparse(), batch=0)

    def test_batch_that_was_not_named(self):
        plain = torch.randn(512, 64)
        x = koila.lazy(plain, budget="40KiB")
        self.assertIsNone(x.batch())
        self.same((x.sin() * 2).cos().sum(1), (plain.sin() * 2).cos().sum(1))
        self.assertLess(koila.last().tile, 512)

    def test_what_runs_whole_is_announced(self):
        def compute():
            x = koila.lazy(torch.randn(32, 32), budget="6KiB")
            return torch.linalg.inv(x).cos().run()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compute()
        self.assertIsNone(koila.last().tile)
        self.assertEqual(len(caught), 1)
        self.assertEqual(caught[0].lineno, inspect.getsourcelines(compute)[1] + 2)
        self.assertIn("runs whole: what it computes is not made of samples", str(caught[0].message))
        koila.strict()
        try:
            with self.assertRaisesRegex(koila.KoilaError, "runs whole"):
                compute()
        finally:
            koila.strict(False)
        # Where samples mix and no tile helps, what is said says how much would.
        x = koila.lazy(torch.randn(64, 32), batch=0, budget="6KiB")
        with self.assertWarnsRegex(koila.KoilaWarning, "no tile fits 6.00 KiB.*8.00 KiB"):
            (x - x.mean(0)).softmax(0).cumsum(0).run()

    def test_warnings_of_code_that_is_in_no_module(self):
        """A cell of a notebook, ``python -c``, ``exec``: once a place, as elsewhere."""
        source = """
            import torch, koila

            def compute():
                x = koila.lazy(torch.randn(32, 32), budget="6KiB")
                torch.linalg.inv(x).exp().run()

            compute()
            compute()
        """
        for file in ("/tmp/ipykernel_1/123.py", "<string>", ""):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                exec(compile(inspect.cleandoc(source), file, "exec"), {"__name__": "__main__"})
            self.assertEqual([(w.filename, w.lineno) for w in caught], [(file, 5)])
            self.assertIn("runs whole", str(caught[0].message))
            plan_cache.forget()
        run = subprocess.run(
            [sys.executable, "-c", inspect.cleandoc(source)], capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count("<string>:5: KoilaWarning: this needs"), 1, run.stderr)

    def test_what_was_computed_keeps_its_batch(self):
        x = koila.lazy(torch.randn(64, 32), batch=0, budget="12KiB")
        y = x * 2
        y.run()
        self.assertEqual(y.batch(), koila.BatchInfo(0, 64))
        z = (y.sin() + 1).cos()
        wanted = (y.run().sin() + 1).cos()
        self.same(z, wanted)
        self.assertEqual(koila.last().budget_bytes, 12 * 1024)
        self.assertLess(koila.last().tile, 64)

    def test_a_view_of_what_was_computed_runs_nothing(self):
        x = koila.lazy(torch.randn(256, 64), batch=0, budget=300_000)
        totals = x.sum(0)
        totals.sum().item()
        last = koila.last()
        self.assertEqual(last.budget_bytes, 300_000)
        first = totals[0]
        self.assertEqual(first.item(), totals.tolist()[0])
        self.assertIs(koila.last(), last)

    def test_script_modules_run_whole(self):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 4)).eval()
        data = torch.randn(1024, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripts = torch.jit.script(plain), torch.jit.trace(plain, data[:2])
        for script in scripts:
            for budget, fits in (("1MiB", False), ("1GiB", True)):
                with warnings.catch_warnings(record=True) as caught, torch.no_grad():
                    warnings.simplefilter("always", koila.KoilaWarning)
                    found = script(koila.lazy(data, batch=0, budget=budget)).run()
                self.assertTrue(torch.equal(found, plain(data)))
                texts = [str(item.message) for item in caught]
                self.assertEqual(fits, not texts, texts)
                if not fits:
                    self.assertIn("runs whole, and needs 2.00 MiB of 1.00 MiB", texts[0])
                limits._announced.clear()


class UnknownCalls(unittest.TestCase):
    """Calls that read data to know what they compute run past every plan."""

    def run_network(self, budget, packed):
        torch.manual_seed(0)
        network, x = nn.LSTM(24, 24, batch_first=True), torch.randn(16, 40, 24)
        lengths = torch.arange(40, 24, -1)
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
            if packed:
                x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            _, (h, _) = network(x)
            found = h[-1].sum(1).tolist()
        return found, [str(entry.message) for entry in caught]

    def test_what_takes_more_is_told(self):
        for packed in (True, False):
            wanted, _ = self.run_network(None, packed)
            for budget, is_small in (("300KiB", True), ("1GiB", False)):
                with self.subTest(packed=packed, budget=budget):
                    found, texts = self.run_network(budget, packed)
                    self.assertTrue(numpy.allclose(found, wanted, rtol=1e-5))
                    told = [text for text in texts if "'lstm' depends on data" in text]
                    self.assertEqual(len(told), 1 if packed and is_small else 0)
                    if told:
                        self.assertRegex(told[0], r"took [\d.]+ KiB of 300\.00 KiB")


class Strides(unittest.TestCase):
    """Results lie in memory as those of PyTorch's kernels, in whose order masks are drawn."""

    calls = (
        ("F.batch_norm(x, None, None, None, None, True)", 3),
        ("F.batch_norm(x, x.new_zeros(4), x.new_ones(4))", 4),
        ("F.batch_norm(x, None, None, None, None, True)", 2),
        ("F.one_hot((x > 0).long(), 2)", 3),
        ("F.max_pool1d(x, 2)", 3),
        ("torch.channel_shuffle(x, 2)", 4),
        ("torch.roll(x, 1, 3)", 4),
        ("F.instance_norm(x)", 4),
        ("F.group_norm(x, 2)", 4),
        ("F.conv2d(x, x.new_ones(5, 4, 3, 3))", 4),
        ("F.layer_norm(x, (8,))", 3),
        ("F.linear(x, x.new_ones(5, 8))", 3),
    )

    def test_every_order(self):
        shapes = {2: (6, 4), 3: (6, 4, 8), 4: (6, 4, 8, 10)}
        for call, rank in self.calls:
            for order in itertools.permutations(range(rank)):
                with self.subTest(call=call, order=order):
                    shape = shapes[rank]
                    x = torch.randn([shape[dim] for dim in order])
                    x = x.permute([order.index(dim) for dim in range(rank)])
                    wanted = eval(call)
                    plain, x = x, koila.lazy(x, batch=0, budget="1GiB")
                    found = eval(call)
                    del plain
                    self.assertEqual(found.stride(), wanted.stride())
                    self.assertEqual(found.run().stride(), wanted.stride())

    def test_masks_behind_a_norm(self):
        torch.manual_seed(0)
        norm, x = nn.BatchNorm1d(4), torch.randn(13, 5, 4)

        def run(x):
            torch.manual_seed(1)
            return F.dropout(norm(x.transpose(1, 2)), 0.5).transpose(1, 2).detach()

        wanted = run(x)
        self.assertGreater(int((wanted == 0).sum()), 50)
        for budget in ("1500B", "1GiB"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", koila.KoilaWarning)
                found = run(koila.lazy(x, batch=0, budget=budget)).run()
            torch.testing.assert_close(found, wanted)


class NothingRuns:
    """Fails if something is computed."""

    def __init__(self, test):
        self.test = test

    def __enter__(self):
        self.before = koila.last()

    def __exit__(self, *exception):
        self.test.assertIs(koila.last(), self.before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
