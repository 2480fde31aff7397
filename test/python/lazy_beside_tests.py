"""What a step through koila.lazy needs beside its tiles: gradients that hooks see, the
graphs that weights come from, and buffers that a model writes to after it has read them.

A step is within its budget, or a warning says what is not; values, gradients and buffers
are those of plain PyTorch in either case.
"""

import contextlib
import functools
import gc
import unittest
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import orthogonal

import koila
from koila._plan import plan_cache
from memory_counter import peak_of

SAMPLES, FEATURES, WIDTH, CLASSES = 1024, 32, 64, 5

torch.manual_seed(0)
X = torch.randn(SAMPLES, FEATURES) * torch.linspace(0.5, 3, SAMPLES)[:, None]
Y = torch.randint(CLASSES, (SAMPLES,))


class Hooked(nn.Module):
    """A hidden tensor has a hook."""

    def __init__(self, hook):
        super().__init__()
        self.low = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU())
        self.high = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        self.hook = hook

    def forward(self, x):
        hidden = self.low(x)
        self.hook(hidden)
        return self.high(hidden)


class WithBuffer(nn.Module):
    """``read`` reads a buffer, which is then written to."""

    last: torch.Tensor

    def __init__(self, read, rows=1):
        super().__init__()
        self.low, self.high = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("last", torch.ones(rows, CLASSES))
        self.read = read

    def forward(self, x):
        result = self.read(self.high(F.relu(self.low(x))), self.last)
        self.last[0].copy_(result.detach().mean(0))
        return result


class Crossed(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(FEATURES, WIDTH), nn.Bilinear(WIDTH, WIDTH, CLASSES)

    def forward(self, x):
        hidden = F.relu(self.low(x))
        return self.high(hidden, hidden)


class CodeBook(nn.Module):
    """A VQ-VAE whose codes follow the mean of what they stand for, written through .data."""

    codes: torch.Tensor
    counts: torch.Tensor
    sums: torch.Tensor

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("codes", torch.randn(WIDTH, 16))
        self.register_buffer("counts", torch.zeros(16))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        z = torch.tanh(self.encoder(x))
        scores = 2 * z @ self.codes - self.codes.pow(2).sum(0, keepdim=True)
        index = scores.argmax(1)
        chosen = F.one_hot(index, 16).type(z.dtype)
        quantized = F.embedding(index, self.codes.t())
        with torch.no_grad():
            self.counts.data.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_(z.t() @ chosen, alpha=0.1)
            self.codes.data.copy_(self.sums / (self.counts + 1e-2))
        return self.decoder(z + (quantized - z).detach() + z * 0.1)


class Queue(nn.Module):
    """MoCo's: keys of earlier batches are negatives, and those of this one take the place
    of the oldest."""

    queue: torch.Tensor

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(FEATURES, WIDTH), nn.Linear(64, CLASSES)
        self.register_buffer("queue", F.normalize(torch.randn(WIDTH, 2 * SAMPLES), dim=0))
        self.place = 0

    def forward(self, x):
        z = F.normalize(self.low(x), dim=1)
        result = self.high(z @ self.queue.clone().detach()[:, :64])
        with torch.no_grad():
            self.queue[:, self.place : self.place + SAMPLES] = z.t()
        self.place = SAMPLES - self.place
        return result


def halve(hidden):
    hidden.register_hook(lambda gradient: gradient * 0.5)


def orthogonal_layers():
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH),
        nn.ReLU(),
        orthogonal(nn.Linear(WIDTH, WIDTH)),
        nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    )


def look_and_differentiate(loss, model):
    loss.item()
    loss.backward()


def ask_for_gradients(loss, model):
    weights = list(model.parameters())
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient


def differentiate(loss, model):
    loss.backward()


class Beside(unittest.TestCase):
    def run_steps(self, make, budget, way):
        """Three steps of a model, of which the second may do without what is planned for the
        first: the bytes of the last, what it leaves, and what is said of all."""
        plan_cache.forget()  # what was said of other budgets
        torch.manual_seed(1)
        model = make()
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)

        def step():
            x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
            way(F.cross_entropy(model(x), y), model)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            for _ in range(3):
                for weight in model.parameters():
                    weight.grad.zero_()
                peak = peak_of(step)[0]
        left = [weight.grad.clone() for weight in model.parameters()]
        left += [buffer.clone() for buffer in model.buffers()]
        said = [str(entry.message) for entry in caught if entry.category is koila.KoilaWarning]
        return peak, left, said

    def check(self, make, budget, words=None, way=differentiate):
        """The same as plainly: within the budget and without a warning, or with one that
        has these words, and then indeed over the budget."""
        plain, wanted, _ = self.run_steps(make, None, way)
        self.assertGreater(plain, budget)
        peak, left, said = self.run_steps(make, budget, way)
        for found, value in zip(left, wanted, strict=True):
            self.assertGreater(value.norm(), 1e-6)
            torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-5)
        if words is None:
            self.assertEqual(said, [])
            self.assertLessEqual(peak, budget)
        else:
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], words)
            self.assertGreater(peak, budget)

    def test_tables_that_are_computed_before_a_step_that_fits(self):
        """As of a graph network: the step looks up a few rows, and its backward pass goes on
        through the graph that made them all."""

        class Propagated(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Parameter(torch.randn(4 * SAMPLES, WIDTH))
                self.head = nn.Linear(WIDTH, CLASSES)

            def forward(self, x):
                rows = self.table
                for _ in range(2):
                    # Of these nothing is saved, and all have a gradient.
                    rows = torch.cat([rows, 2 * rows, rows.flip(1)], 1)
                    rows = rows.view(-1, 3, WIDTH).mean(1)
                return self.head(rows[(x[:, 0].abs() * 100).long()])

        plain, _, said = self.run_steps(Propagated, 1 << 30, differentiate)
        self.assertEqual(said, [])
        known = koila.last().peak_bytes
        self.assertLess(known, 0.9 * plain)
        self.check(Propagated, (known + plain) // 2, "computed by before the step takes")
        self.assertIsNone(koila.last().tile)

    def test_gradients_of_inputs_count_beside_the_next_step(self):
        """Of adversarial training: those that the first pass has given are held."""
        model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        x, y = koila.lazy(X, Y, batch=0, budget="1GiB")
        moved = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved), y), [moved])
        F.cross_entropy(model(moved.detach()), y).backward()
        with_gradient = koila.last().peak_bytes
        size = gradient.nbytes
        del gradient
        F.cross_entropy(model(moved.detach()), y).backward()
        self.assertEqual(with_gradient - koila.last().peak_bytes, size)

    def test_the_least_budget_is_said_in_lines_of_the_program(self):
        """Not in those of what koila has made of it."""

        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU())
                self.head = nn.Linear(WIDTH, CLASSES)

            def forward(self, x):
                hidden = self.body(x)
                return self.head(hidden / hidden.var(0).add(1).sqrt())

        words = rf"no tile fits .* bytes\): live at the peak.* at {__file__}:\d+"
        self.check(Mixed, 300_000, words)

    def test_the_samples_that_the_first_step_runs(self):
        """Of one sample it runs two. They are measured, and later steps do without."""
        torch.manual_seed(0)
        conv = lambda low, high: nn.Conv2d(low, high, 3, padding=1)
        model = nn.Sequential(conv(3, 16), nn.ReLU(), conv(16, 16), nn.ReLU(), conv(16, 3))
        images = torch.randn(1, 3, 64, 64)

        def evaluate(budget):
            with torch.no_grad():
                x = images if budget is None else koila.lazy(images, batch=0, budget=budget)
                return F.mse_loss(model(x), images).item()

        plain = peak_of(lambda: evaluate(None))[0]
        for is_first in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", koila.KoilaWarning)
                peak = peak_of(lambda: evaluate(plain))[0]
            said = " ".join(str(entry.message) for entry in caught)
            self.assertEqual("the first step ran a few samples, which took" in said, is_first)
            self.assertEqual(peak > plain, is_first)

    def test_a_buffer_that_the_forward_pass_updates(self):
        """What runs with a graph for it is there beside the step of the rest, with the
        gradients that go on through that graph."""

        class Seen(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.low, self.mid, self.high = self.layer(), self.layer(), self.layer()
                self.register_buffer("seen", torch.ones(()))

            def layer(self):
                return nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU())

            def forward(self, x, y):
                low = self.low(x)
                with torch.no_grad():
                    self.get_buffer("seen").mul_(0.9).add_(low.mean(), alpha=0.1)
                return (self.high(self.mid(low)) - y).square().mean()

        torch.manual_seed(1)
        pair = torch.randn(13, 6, 12, 12).double(), torch.randn(13, 6, 12, 12).double()

        def step(model, budget):
            model(*koila.lazy(*pair, batch=0, budget=budget)).backward()

        step(Seen().double(), "1GiB")
        whole = koila.last().peak_bytes
        within = 0
        for part in (0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5):
            model = Seen().double()
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", koila.KoilaWarning)
                for call in range(2):
                    model.load_state_dict(state)
                    model.zero_grad(set_to_none=call == 0)
                    measured = functools.partial(step, model, int(part * whole))
                    peak = peak_of(measured)[0]
            if not caught:
                within += koila.last().tile is not None
                self.assertLessEqual(peak, part * whole, part)
        self.assertGreater(within, 2)

    def test_a_transposed_batch(self):
        """A trace of a few of its samples does not copy all."""
        torch.manual_seed(0)
        wide = torch.randn(4096, 64).t()
        budget = 600_000
        plan_cache.forget()
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)

            def step():
                x = koila.lazy(wide, batch=1, budget=budget)
                return (x.t() @ torch.ones(64, 2)).tanh().square().mean().item()

            self.assertLessEqual(peak_of(step)[0], budget)

    def test_noise_of_all_steps(self):
        """Drawn at once, and read step by step: each part keeps all of it."""
        torch.manual_seed(0)
        cell = nn.Linear(FEATURES + 32, 32)
        for weight in cell.parameters():
            weight.grad = torch.zeros_like(weight)

        def train(budget):
            x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
            noise = torch.randn(6, len(X), 32)
            state = torch.zeros(len(X), 32)
            for t in range(6):
                state = torch.tanh(cell(torch.cat([x, state], -1))) + noise[t]
            state.square().mean().backward()

        plain = peak_of(lambda: train(None))[0]
        plan_cache.forget()
        budget = int(0.8 * plain)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*(fits|whole)", koila.KoilaWarning)
            peak = max(peak_of(lambda: train(budget))[0] for _ in range(2))
        self.assertLessEqual(peak, koila.last().peak_bytes)
        self.assertLess(koila.last().tile, len(X))

    def test_samples_that_nobody_has_named_without_gradients(self):
        """As what a generator makes for the step of a discriminator: it runs at once, and it is
        said where that takes more than there is."""
        torch.manual_seed(0)
        maker = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, FEATURES))
        real = koila.lazy(X, batch=0, budget=1_000_000)
        samples = torch.randn(len(real), 8)
        takes = SAMPLES * 2 * 512 * 4  # a layer, and what follows
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            found = maker(samples)
            maker(samples[: len(samples) // 8])
        (entry,) = caught
        self.assertRegex(
            str(entry.message), "'Sequential' ran whole on samples that koila.lazy was"
        )
        self.assertIn(f"{takes / (1 << 20):.2f} MiB of 976.56 KiB", str(entry.message))
        self.assertEqual(entry.filename, __file__)
        self.assertIs(type(found), torch.Tensor)

    def test_an_interrupt_without_gradients(self):
        """Nothing is counted any longer, and the next samples are taken as ever."""

        class Interrupted(nn.Linear):
            def forward(self, x):
                raise KeyboardInterrupt

        real = koila.lazy(X, batch=0, budget="1GiB")
        with torch.no_grad(), contextlib.suppress(KeyboardInterrupt):
            Interrupted(8, 8)(torch.randn(len(real), 8))
        self.assertIsInstance(nn.Linear(8, 8)(torch.randn(len(real), 8)), type(real))
        self.assertTrue(gc.isenabled())

    def test_masks_of_dropouts(self):
        """What runs whole frees what it does not need any more where the program that is
        analysed does."""
        for layer in (nn.Dropout(0.3), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)):
            for dtype in (torch.float32, torch.float64):
                torch.manual_seed(0)
                layers = nn.Linear(FEATURES, WIDTH), nn.SELU(), layer, nn.Linear(WIDTH, WIDTH)
                model, values = nn.Sequential(*layers).to(dtype), X.to(dtype)

                def evaluate(model=model, values=values):
                    with torch.no_grad():
                        x = koila.lazy(values, batch=0, budget="1GiB")
                        return model(x).norm().item()

                evaluate()
                peak = peak_of(evaluate)[0]
                self.assertEqual(peak, koila.last().peak_bytes, (layer, dtype))

    def test_draws_of_what_is_computed(self):
        """Where the numbers depend on values they are drawn for the whole batch."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 256), nn.Sigmoid())

        def draw(budget):
            torch.manual_seed(1)
            with torch.no_grad():
                x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
                return torch.bernoulli(model(x)).sum().item()

        plain = peak_of(lambda: draw(None))[0]
        for budget, is_said in ((4 * plain, False), (plain - 100_000, True)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", koila.KoilaWarning)
                self.assertEqual(draw(budget), draw(None))
            said = [str(entry.message) for entry in caught]
            self.assertEqual(
                any("'bernoulli' draws for the whole batch" in s for s in said), is_said
            )

    def test_a_figure_to_which_something_is_missing(self):
        """What it takes need not be near to what is known of it."""

        self.check(Crossed, 6_000_000, "the figure is not exact: what autograd keeps")

    def test_words_that_lead_somewhere(self):
        """Options of compilations are none of koila.lazy."""

        class Written(nn.Module):
            def __init__(self):
                super().__init__()
                self.low, self.norm = nn.Linear(FEATURES, WIDTH), nn.BatchNorm1d(WIDTH)
                self.high = nn.Linear(WIDTH, CLASSES)

            def forward(self, x):
                product = self.norm(self.low(x)).T @ self.norm(self.low(x * 0.9))
                torch.diagonal(product).add_(-1)
                return self.high(self.norm(self.low(x)) @ product)

        for make, words in ((Crossed, "without a promise"), (Written, "written in place")):
            said = self.run_steps(make, 300_000, differentiate)[2]
            self.assertRegex(" ".join(said), words)
            self.assertNotRegex(" ".join(said), "tile=N|batchnorm=")

    def test_a_hook_makes_another_gradient(self):
        make = lambda: Hooked(halve)
        self.check(make, 900_000)
        self.check(make, 660_000, "a hook made another gradient of the whole batch")

    def test_a_hook_looks_at_a_gradient(self):
        seen = []
        look = lambda gradient: seen.append(gradient.norm().item())
        make = lambda: Hooked(lambda hidden: hidden.register_hook(look))
        self.check(make, 660_000)
        self.assertEqual(len(seen), 6)
        self.assertAlmostEqual(seen[1], seen[3], places=5)

    def test_a_gradient_that_is_kept(self):
        self.check(lambda: Hooked(lambda hidden: hidden.retain_grad()), 700_000)

    def test_weights_that_are_computed_before_the_step(self):
        words = "what weights are computed by before the step"
        for way in (differentiate, look_and_differentiate, ask_for_gradients):
            with self.subTest(way=way.__name__):
                self.check(orthogonal_layers, 800_000, way=way)
                self.check(orthogonal_layers, 500_000, words, way=way)

    def test_a_loss_that_is_read_is_differentiated_once(self):
        """Its gradients wait for the backward pass, also those of weights that are computed."""

        class Transposed(nn.Module):
            def __init__(self):
                super().__init__()
                self.low = nn.Parameter(torch.randn(FEATURES, 512) * 0.1)
                self.high = nn.Parameter(torch.randn(512, CLASSES) * 0.1)

            def forward(self, x):
                return F.linear(F.linear(x, self.low.t()).tanh(), self.high.t())

        reads = []

        def look(loss, model):
            look_and_differentiate(loss, model)
            reads.append(koila.last().reads)

        self.check(Transposed, 1_600_000, way=look_and_differentiate)
        self.run_steps(Transposed, 1_600_000, look)
        self.assertEqual(reads, [0, 0, 0])

    def test_a_buffer_is_written_after_it_was_read(self):
        for read in (
            lambda result, last: result + last[0],
            lambda result, last: result - last,
            lambda result, last: result + (result.detach() * last).mean(),
            lambda result, last: result + torch.cat([last, last]).mean(0),
        ):
            self.check(lambda read=read: WithBuffer(read), 600_000)

    def test_a_code_book(self):
        self.check(CodeBook, 800_000)

    def test_a_queue(self):
        """The copy of all of it counts, of which the program has a part."""
        for budget in (1_450_000, 1_200_000):
            self.check(Queue, budget)

    def test_a_write_that_nobody_has_seen_before_the_one_that_is(self):
        """What calls were to read is not there any more, and a copy of what is would be
        another number."""

        def read(result, last):
            scored = result + (result.detach() * last[0]).mean()
            last[0].mul_(0.9)
            return scored

        refused = self.assertRaisesRegex(koila.KoilaError, "was written to after this was")
        with refused:
            self.run_steps(lambda: WithBuffer(read), 600_000, differentiate)

    def test_a_write_that_has_no_version(self):
        """Through .data, to NumPy's memory, or to other memory under the name: what calls
        were to read is gone."""
        array = np.ones((1, CLASSES), dtype=np.float32)

        def through_data(last):
            last.data.mul_(0.5).add_(1.0)
            return last.data.mul_(0.5)

        def swap(last):
            last.data = torch.full_like(last, 5.0)
            return last[:]

        def in_numpy(last):
            array.__imul__(7)
            return last[:]

        class Written(WithBuffer):
            def __init__(self, write):
                super().__init__(None)
                self.write = write
                if write is in_numpy:
                    self.last = torch.from_numpy(array)

            def forward(self, x):
                result = self.high(F.relu(self.low(x))) + self.last
                self.write(self.last).add_(result.detach().mean(0))
                return result

        for write in (through_data, swap, in_numpy):
            refused = self.assertRaisesRegex(koila.KoilaError, "was written to after this was")
            with self.subTest(write=write.__name__), refused:
                self.run_steps(lambda write=write: Written(write), 600_000, differentiate)

    def test_labels_that_are_written_many_times(self):
        """Copies of a batch would add up, and be in no figure."""
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        budget = 300_000

        def step():
            x, y = koila.lazy(X, Y.clone(), batch=0, budget=budget)
            result = model(x)
            for _ in range(40):
                result = result + (y * 0.01).mean()
                y.mul_(1)
            F.cross_entropy(result, y).backward()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            peaks = [peak_of(step)[0] for _ in range(2)]
        said = [entry for entry in caught if entry.category is koila.KoilaWarning]
        self.assertTrue(said or max(peaks) <= budget, peaks)

    def test_hooks_on_what_adds_up_the_gradient_of_an_input(self):
        found = []
        for budget in (None, 700_000):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
            given = X.clone().requires_grad_()
            node = given.view_as(given).grad_fn.next_functions[0][0]
            node.register_prehook(lambda gradients: (2 * gradients[0],))
            x, y = (given, Y) if budget is None else koila.lazy(given, Y, batch=0, budget=budget)
            F.cross_entropy(model(x), y).backward()
            found.append(given.grad)
        self.assertIsNotNone(koila.last().tile)
        torch.testing.assert_close(found[1], found[0])

    def test_hooks_that_return_no_gradient_of_the_tensor(self):
        """PyTorch's errors."""
        for hook, error, words in (
            (lambda gradient: gradient.sum(), RuntimeError, "changed the size"),
            (lambda gradient: gradient[:1], RuntimeError, "changed the size"),
            (lambda gradient: gradient.double(), RuntimeError, "changed the type"),
            (lambda gradient: 3, TypeError, "expected Variable"),
        ):
            make = lambda hook=hook: Hooked(lambda hidden: hidden.register_hook(hook))
            for budget in (None, 700_000):
                with self.subTest(words=words), self.assertRaisesRegex(error, words):
                    self.run_steps(make, budget, differentiate)

    def test_a_gradient_that_is_kept_is_not_the_one_that_a_hook_has(self):
        for budget in (None, 900_000):
            seen, hidden = [], []

            def watch(tensor, seen=seen, hidden=hidden):
                tensor.retain_grad()
                tensor.register_hook(lambda gradient: seen.append(gradient))
                hidden.append(tensor)

            self.run_steps(lambda watch=watch: Hooked(watch), budget, differentiate)
            seen[-1].zero_()
            self.assertGreater(hidden[-1].grad.norm().item(), 0)

    def test_a_buffer_that_is_too_large_to_copy(self):
        read = lambda result, last: result + F.embedding(result.argmax(1), last)
        make = lambda: WithBuffer(read, rows=4096)
        self.check(make, 600_000, "others see what it writes")

    def test_a_buffer_that_autograd_has_saved(self):
        """PyTorch raises; of a copy nobody would notice."""
        make = lambda: WithBuffer(lambda result, last: result * last[0])
        for budget in (None, 600_000):
            with self.subTest(budget=budget), self.assertRaisesRegex(RuntimeError, "inplace"):
                self.run_steps(make, budget, differentiate)


if __name__ == "__main__":
    unittest.main()
