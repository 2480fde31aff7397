"""Writes that PyTorch counts nowhere, between the recording of a step and its backward
pass: through `.data`, of which tensors other than lazy ones do not tell anybody.

What was recorded to read the memory is told by its bits: values and gradients are those of
plain PyTorch, or it is refused. Tensors that were given to koila.lazy may be written to, too,
and `.data` of plain ones may become a lazy tensor.
"""

import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._plan import plan_cache

SAMPLES, FEATURES, CLASSES = 256, 20, 6
WHOLE, TILED = "1TiB", "12KiB"
REFUSED = "was written to after this was recorded"

torch.manual_seed(0)
X = torch.randn(SAMPLES, FEATURES, dtype=torch.float64)
X *= torch.linspace(0.5, 3, SAMPLES)[:, None]
Y = torch.randint(CLASSES, (SAMPLES,))


class Step:
    """A model, a tensor that it reads, and what was given to koila.lazy."""

    def __init__(self, budget):
        plan_cache.forget()
        torch.manual_seed(0)
        self.low, self.high = nn.Linear(FEATURES, 12).double(), nn.Linear(12, CLASSES).double()
        self.scale = torch.ones(CLASSES, dtype=torch.float64)
        self.given, self.labels = X.clone(), Y.clone()
        self.x, self.y = self.given, self.labels
        if budget is not None:
            self.x, self.y = koila.lazy(self.given, self.labels, batch=0, budget=budget)

    def compute(self, x):
        return self.high(torch.tanh(self.low(x))) * self.scale


# Writes between the forward and the backward pass.


def to_a_buffer(step, out):
    step.scale.data.mul_(7)


def to_equal_elements(step, out):
    # An exclusive or of their bits is zero before and after.
    step.scale.data.fill_(2.0)


def to_one_element(step, out):
    step.scale.data[1] = -3.0


def to_a_weight(step, out):
    step.low.weight.data.mul_(7)


def through_a_view(step, out):
    step.scale[2:].data.mul_(7)


def to_the_batch(step, out):
    step.given.data.neg_()


def and_then_by_a_call(step, out):
    # Readers would be given a copy, of what is there by now.
    step.scale.data.mul_(7)
    with torch.no_grad():
        step.scale[:2].copy_(out.detach().mean(0)[:2])


def by_another_batch(step, out):
    step.given.data = step.given * 2


UNSEEN = [
    to_a_buffer,
    to_equal_elements,
    to_one_element,
    to_a_weight,
    through_a_view,
    to_the_batch,
    and_then_by_a_call,
    by_another_batch,
]


# What has the memory before the forward pass.


def data(step):
    return step.scale.data


def a_view_of_data(step):
    return step.scale.data[1:]


def what_was_assigned(step):
    step.scale.data = flat = torch.ones(CLASSES, dtype=torch.float64)
    return flat


def data_of_the_batch(step):
    return step.given.data


HELD = [data, a_view_of_data, what_was_assigned, data_of_the_batch]


def finish(step, out):
    loss = F.cross_entropy(out, step.y)
    loss.backward()
    return [float(loss), *(w.grad.norm().item() for w in (step.low.weight, step.high.weight))]


def finish_later(step):
    return F.cross_entropy(step.compute(step.x), step.y)


def run(write, budget):
    step = Step(budget)
    out = step.compute(step.x)
    write(step, out)
    return finish(step, out)


class UnseenWrites(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", koila.KoilaWarning)

    def test_are_refused(self):
        for write in UNSEEN:
            for budget in (WHOLE, TILED):
                with (
                    self.subTest(write=write.__name__, budget=budget),
                    self.assertRaisesRegex(koila.KoilaError, REFUSED),
                ):
                    run(write, budget)

    def test_matter(self):
        """Who ran the forward pass behind the write would have computed something else."""
        right = run(lambda step, out: None, None)
        for write in UNSEEN:
            with self.subTest(write=write.__name__):
                step = Step(None)
                write(step, step.compute(step.x))
                self.assertGreater(abs(finish(step, step.compute(step.given))[0] - right[0]), 1e-3)

    def test_by_what_is_held(self):
        """What was taken before, and a view of it, has the memory as well."""
        for hold in HELD:
            for budget in (WHOLE, TILED):
                with self.subTest(hold=hold.__name__, budget=budget):
                    step = Step(budget)
                    held = hold(step)
                    out = step.compute(step.x)
                    held.mul_(-7)
                    with self.assertRaisesRegex(koila.KoilaError, REFUSED):
                        finish(step, out)

    def test_in_hooks(self):
        """What a step has read is told by its bits, as far as these differ."""
        step = Step(TILED)
        weight = step.scale = nn.Parameter(step.scale)
        first, second = finish_later(step), finish_later(step)

        def mask(parameter):
            parameter.data[2:] = 0

        weight.register_post_accumulate_grad_hook(mask)
        first.backward()
        with self.assertRaisesRegex(koila.KoilaError, REFUSED):
            second.backward()

    def test_in_inference_mode(self):
        """Tensors that are made there count no writes at all."""
        for budget in (WHOLE, TILED):
            with torch.inference_mode():
                step = Step(budget)
                scale = torch.ones(CLASSES, dtype=torch.float64)
                step.scale = scale
                out = step.compute(step.x)
                scale += 1
                with self.assertRaisesRegex(koila.KoilaError, REFUSED):
                    out.norm().item()

    def test_of_a_batch_that_nothing_has_read(self):
        """It is what it is when it is read first, also where it is given new memory in each
        step."""
        for budget in (None, WHOLE, TILED):
            step, losses = Step(budget), []
            for scale in (2, 3):
                step.given.data = X * scale
                losses.append(finish(step, step.compute(step.x))[0])
                step.given.data.mul_(2)
                losses.append(finish(step, step.compute(step.x))[0])
            if budget is None:
                wanted = losses
            for found, right in zip(losses, wanted, strict=True):
                self.assertAlmostEqual(found, right, places=10)
        self.assertEqual(len(set(wanted)), 4)

    def test_modules_that_stay_as_they_are(self):
        """`to()` assigns the memory that is there."""
        for budget in (WHOLE, TILED):
            step = Step(budget)
            out = step.compute(step.x)
            step.low.to(torch.float64)
            wanted = run(lambda step, out: None, None)
            for found, right in zip(finish(step, out), wanted, strict=True):
                self.assertAlmostEqual(found, right, places=10)

    def test_data_inside_of_transforms(self):
        """Tensors of torch.func have no memory to look at."""
        koila.lazy(X, batch=0, budget=WHOLE)
        gradient = torch.func.grad(lambda x: (x * x.data).sum())(torch.ones(3))
        self.assertEqual(gradient.tolist(), [1.0, 1.0, 1.0])

    def test_reads_are_no_writes(self):
        wanted = run(lambda step, out: None, None)
        for budget in (WHOLE, TILED):
            step = Step(budget)
            held = step.scale.data
            out = step.compute(step.x)
            seen = [w.data.norm().item() for w in (step.low.weight, step.scale, step.given)]
            self.assertGreater(min(seen), 0)
            for found, right in zip(finish(step, out), wanted, strict=True):
                self.assertAlmostEqual(found, right, places=10)
            # What has been computed is done with it.
            held.mul_(7)
            step.low.weight.data.mul_(7)
            self.assertAlmostEqual(float(F.cross_entropy(out, step.y)), wanted[0], places=10)

    def test_tiles(self):
        run(lambda step, out: None, TILED)
        self.assertIsNotNone(koila.last().tile)

    def test_data_that_becomes_lazy(self):
        """As a centre that follows the mean of what was computed."""

        def compute(budget):
            step = Step(budget)
            out = step.compute(step.x)
            centre = torch.zeros(CLASSES, dtype=torch.float64)
            centre.data = out.mean(0)
            kept = centre.data
            found = finish(step, out - centre)
            centre.data.mul_(2)
            return [*found, *centre.tolist(), *kept.tolist()]

        mean = Step(TILED).x.mean(0)
        with self.assertRaisesRegex(koila.KoilaError, "which the program still has"):
            torch.zeros(FEATURES, dtype=torch.float64).data = mean

        wanted = compute(None)
        for budget in (WHOLE, TILED):
            for found, right in zip(compute(budget), wanted, strict=True):
                self.assertAlmostEqual(found, right, places=10)

    def test_what_autograd_has_kept(self):
        """Through `.data` of what was recorded: the gradient is made of what is written, which
        no tile can do, and it is said that the step runs whole."""

        def of_a_result(step):
            h = torch.tanh(step.low(step.x))
            h.data.masked_fill_(h.detach() < 0.2, 0.5)
            return step.high(h)

        def of_an_input(step):
            h = step.low(step.x)
            squares = h.square()
            h.data[:, 3:].mul_(2)
            return step.high(squares + h)

        def of_a_view(step):
            h = torch.tanh(step.low(step.x))
            h.view(-1).data.view_as(h)[:, :5].neg_()
            return step.high(h)

        for compute in (of_a_result, of_an_input, of_a_view):
            plain = Step(None)
            wanted = finish(plain, compute(plain))
            step = Step(WHOLE)
            self.assertEqual(finish(step, compute(step)), wanted)
            step = Step(TILED)
            with self.assertWarnsRegex(koila.KoilaWarning, r"'\.data'.* kept") as caught:
                found = finish(step, compute(step))
            self.assertEqual(caught.filename, __file__)
            self.assertIsNone(koila.last().tile)
            for value, right in zip(found, wanted, strict=True):
                self.assertAlmostEqual(value, right, places=10, msg=compute.__name__)

    def test_what_autograd_has_not_kept(self):
        def compute(step):
            h = step.low(step.x)
            h.data.masked_fill_(h.detach() < 0.2, 0.5)
            return step.high(torch.tanh(h))

        plain, step = Step(None), Step("20KiB")
        wanted = finish(plain, compute(plain))
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = finish(step, compute(step))
        self.assertIsNotNone(koila.last().tile)
        for value, right in zip(found, wanted, strict=True):
            self.assertAlmostEqual(value, right, places=10)

    def test_the_batch_becomes_another(self):
        """A plain tensor that was given is written to, by what was computed of it."""

        def compute(budget, part):
            step = Step(budget)
            with torch.no_grad():
                step.given[:, :part] = (step.x * 2 + 1)[:, :part]
            return [*finish(step, step.compute(step.x)), step.given.norm().item()]

        for part in (FEATURES, 7):
            wanted = compute(None, part)
            for budget in (WHOLE, TILED):
                with self.subTest(part=part, budget=budget):
                    found = compute(budget, part)
                    for value, right in zip(found, wanted, strict=True):
                        self.assertAlmostEqual(value, right, places=10)


class Lists(unittest.TestCase):
    def test_writes_to_lists_of_tensors(self):
        """As averages of models are kept."""
        for budget in ("4KiB", "1GiB"):
            totals = [torch.zeros(3), torch.ones(3)]
            x = koila.lazy(torch.ones(64, 3), batch=0, budget=budget)
            with torch.no_grad():
                torch._foreach_add_(totals, [x.sum(0), (x * 2).mean(0)])
                torch._foreach_mul_(totals, 2.0)
            self.assertEqual([total.tolist() for total in totals], [[128.0] * 3, [6.0] * 3])


if __name__ == "__main__":
    unittest.main()
