"""Writes through other names of the same memory, before and after reads.

What is written to a view, to detach() or to .data is in the tensor, and what was
read before is not read again; hooks see the gradient of what they were registered
on. Each case runs in plain PyTorch, with memory for the whole batch, and in budgets
of which some split the step and not the reads, or all.
"""

import unittest
import warnings

import numpy as np
import torch
from torch import nn

import koila

SAMPLES = 64
WHOLE = "1TiB"
BUDGETS = [WHOLE, *(f"{kib}KiB" for kib in (2, 6, 10, 16, 20, 26, 32, 50, 80, 100))]

torch.manual_seed(0)
X = torch.randn(SAMPLES, 6) * torch.linspace(0.5, 3, SAMPLES)[:, None]
Y = torch.randn(SAMPLES, 3)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 3))


# Cases: what happens to the result of the model before the loss. They append what
# a user would see.


def a_row_of_detach(out, log):
    out.detach()[0] += 1.0


def detach_after_a_read_of_it(out, log):
    plain = out.detach()
    log(plain.sum())
    plain.mul_(2)


def detach_after_a_read(out, log):
    log(out.sum())
    out.detach().mul_(2)


def data_after_a_read(out, log):
    log(out.sum())
    out.data[0] += 2


def data_twice(out, log):
    out.data.clamp_(min=0.1)
    log(out.sum())
    out.data.mul_(2)


def detach_after_a_row_was_read(out, log):
    plain = out.detach()
    log(plain[0].sum())
    plain.add_(1)


def rows_of_detach(out, log):
    for row in out.detach():
        row.add_(1)


def reads_of_rows(out, log):
    log(max(row.max().item() for row in out.detach()))


def between_two_reads(out, log):
    plain = out.detach()
    plain.add_(1)
    log(plain.sum())
    plain.add_(1)
    log(out.sum())


def no_grad(out, log):
    with torch.no_grad():
        out.add_(1.0)


def no_grad_after_a_read(out, log):
    log(out.sum())
    with torch.no_grad():
        out.add_(1.0)


def a_part_without_grad_after_a_read(out, log):
    log(out.sum())
    with torch.no_grad():
        out[:3].add_(1.0)
    log(out.sum())


def a_column_after_a_read(out, log):
    column = out[:, 0]
    log(column.sum())
    column.mul_(2)
    log(out.sum())


def a_view_after_a_read(out, log):
    part = out.view(-1)[:3]
    log(part.sum())
    part.mul_(2)
    log(out.sum())


def between_reads_of_what_follows(out, log):
    log((out[:, 0] - 1).abs().mean())
    out.view(-1)[:3].add_(0.5)
    each = out.abs().sum(1)
    log(each.detach().sort().values[:5].sum())
    log((out[:, 0] - 1).abs().mean())


def what_detach_sees(out, log):
    plain = out.detach()
    log(plain.sum())
    out.mul_(0.5)
    log(plain.sum())


def a_read_of_a_copy(out, log):
    log(out.sum())
    copied = out.detach().clone()
    copied.add_(1)
    log(copied.sum())


def hook_after_a_write(out, log):
    out[: out.size(0) // 2].mul_(0.5)
    out.register_hook(lambda gradient: log(gradient.norm()))


def hook_before_a_write(out, log):
    out.register_hook(lambda gradient: log(gradient.norm()))
    out[: out.size(0) // 2].mul_(0.5)


def hooks_around_a_write(out, log):
    out.register_hook(lambda gradient: log(gradient.norm()))
    out.mul_(0.5)
    out.register_hook(lambda gradient: log(gradient.sum()))


def retained_gradient_before_a_write(out, log):
    out.retain_grad()
    out.mul_(0.5)


def hook_and_a_graph_that_stays(out, log):
    out.register_hook(lambda gradient: log(gradient.norm()))
    (out[:32] * 2).sum().backward(retain_graph=True)


CASES = [
    a_row_of_detach,
    detach_after_a_read_of_it,
    detach_after_a_read,
    data_after_a_read,
    data_twice,
    detach_after_a_row_was_read,
    rows_of_detach,
    reads_of_rows,
    between_two_reads,
    no_grad,
    no_grad_after_a_read,
    a_part_without_grad_after_a_read,
    a_column_after_a_read,
    a_view_after_a_read,
    between_reads_of_what_follows,
    what_detach_sees,
    a_read_of_a_copy,
    hook_after_a_write,
    hook_before_a_write,
    hooks_around_a_write,
    retained_gradient_before_a_write,
    hook_and_a_graph_that_stays,
]


def run(case, budget, reads_loss):
    """What a user sees of a step, and of its gradients."""
    model, seen = make_model(), []

    def log(value):
        seen.append(float(value))

    x, y = (X, Y) if budget is None else koila.lazy(X, Y, batch=0, budget=budget)
    out = model(x)
    case(out, log)
    loss = (out - y).square().mean()
    if reads_loss:
        log(loss)
    loss.backward()
    log(loss)
    log(out.detach().sum())
    return seen + [weight.grad.norm().item() for weight in model.parameters()]


class Writes(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", koila.KoilaWarning)

    def test_cases(self):
        for case in CASES:
            for reads_loss in (False, True):
                wanted = run(case, None, reads_loss)
                for budget in BUDGETS:
                    with self.subTest(case=case.__name__, budget=budget, reads=reads_loss):
                        found = run(case, budget, reads_loss)
                        self.assertEqual(len(found), len(wanted))
                        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)

    def test_cases_can_fail(self):
        # Every write matters: without it something else is seen.
        nothing = run(lambda out, log: None, None, False)
        for case in CASES:
            if case in (reads_of_rows, a_read_of_a_copy, hook_and_a_graph_that_stays):
                continue  # these write to nothing
            with self.subTest(case=case.__name__):
                found = run(case, None, False)[-len(nothing) :]
                self.assertFalse(np.allclose(found, nothing, rtol=1e-4))

    def test_budgets_split(self):
        x, y = koila.lazy(X, Y, batch=0, budget="10KiB")
        (make_model()(x) - y).square().mean().backward()
        self.assertIsNotNone(koila.last().tile)

    def test_arrays(self):
        """An array has the memory of its tensor in plain PyTorch: koila refuses
        where a write to it would be lost."""
        for budget in BUDGETS:
            with self.subTest(budget=budget):
                model = make_model()
                x, y = koila.lazy(X, Y, batch=0, budget=budget)
                out = model(x)
                out.detach().numpy()[0] += 1  # gone at once
                with self.assertRaisesRegex(koila.KoilaError, "array of shape .* written to"):
                    (out - y).square().mean().backward()

    def test_arrays_that_are_only_read(self):
        for budget in BUDGETS:
            with self.subTest(budget=budget):
                model = make_model()
                x, y = koila.lazy(X, Y, batch=0, budget=budget)
                out = model(x)
                array = out.detach().numpy()
                before = array.sum()
                (out - y).square().mean().backward()
                # A write to the tensor is seen in the array.
                with torch.no_grad():
                    out += 0.5
                self.assertAlmostEqual(array.sum(), before + 0.5 * array.size, delta=1e-3)

    def test_a_copy_of_what_is_written_to(self):
        """It is there since a read, and is not made anew when the write before runs."""

        def run(budget):
            x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
            doubled = x * 2
            copied = doubled.clone()
            part = doubled[:, :2][:30]
            doubled.add_(copied)
            rows = copied.transpose(0, 1)
            seen = part.sum().item()
            torch.relu_(copied)
            found = [each.detach().clone() for each in (doubled, copied, rows, part)]
            return [seen, *(each.square().sum().item() for each in found)]

        for budget in BUDGETS:
            np.testing.assert_allclose(run(budget), run(None), rtol=2e-5)

    def test_no_graph_is_written_under_no_grad(self):
        def run(budget):
            model = make_model()
            x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
            out, doubled = model(x), x[:, :3] * 2
            part = doubled[:, :3]
            with torch.no_grad():
                part.add_(out)
            loss = out.square().mean() + doubled.cos().mean()
            loss.backward()
            return [loss.item(), *(weight.grad.norm().item() for weight in model.parameters())]

        for budget in BUDGETS:
            np.testing.assert_allclose(run(budget), run(None), rtol=2e-5)

    def test_a_temporary_gets_no_graph(self):
        """As codebooks are updated: nobody has what PyTorch gives the graph of ``out`` to."""

        def run(budget):
            model = make_model()
            model.register_buffer("average", torch.zeros(3))
            losses = []
            for _ in range(2):
                x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
                out = model(x)
                model.average.data.mul_(0.9).add_(out.sum(0), alpha=0.1)
                loss = (out - model.average).square().mean()
                loss.backward()
                losses.append(loss.item())
            weights = [weight.grad.norm().item() for weight in model.parameters()]
            return [*losses, *weights, *model.average.tolist()]

        for budget in BUDGETS:
            np.testing.assert_allclose(run(budget), run(None), rtol=2e-5)
        run("26KiB")
        self.assertGreater(koila.last().tile, 1)
        self.assertIsNone(koila.last().announced)

    def test_what_is_more_than_a_temporary_gets_a_graph(self):
        def bound(average, given):
            total = average.data.add_(given)
            return total.sum()

        def used(average, given):
            return (average.data.mul_(0.9).add_(given) * given).sum()

        def view(average, given):
            average[1].copy_(given[1])
            return average.square().sum()

        def held(average, given):
            data = average.data
            data[1].copy_(given[1])
            return data.square().sum()

        for case in (bound, used, view, held):
            seen = []
            for budget in (None, "16KiB", WHOLE):
                model = make_model()
                x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
                average = torch.ones(3)
                loss = case(average, model(x).mean(0))
                loss.backward()
                weights = [weight.grad.norm().item() for weight in model.parameters()]
                seen.append([loss.item(), *weights])
                del x, loss
            for found in seen[1:]:
                np.testing.assert_allclose(found, seen[0], rtol=2e-5, err_msg=case.__name__)

    def test_a_copy_of_before_a_write_is_read_with_it(self):
        """The first part of the step makes both, and has to write in between."""

        def run(budget):
            model = make_model()
            x = X if budget is None else koila.lazy(X, batch=0, budget=budget)
            out = model(x) * 1
            out.add_(x[:, :3])
            seen = out.detach()
            copied = seen.clone()
            seen.narrow(0, 0, SAMPLES // 2).mul_(3)
            total = sum(map(sum, seen.tolist()))
            loss = out.cos().sum() + copied.sin().sum() + seen.square().sum()
            loss.backward()
            return [total, loss.item(), *(each.grad.norm().item() for each in model.parameters())]

        for budget in BUDGETS:
            np.testing.assert_allclose(run(budget), run(None), rtol=2e-5)

    def test_hooks_of_weights_and_autograd_grad(self):
        for budget in (WHOLE, "10KiB"):
            model, seen = make_model(), []
            model[0].weight.register_hook(
                lambda gradient, seen=seen: seen.append(gradient.norm().item())
            )
            x, y = koila.lazy(X, Y, batch=0, budget=budget)
            loss = (model(x) - y).square().mean()
            (gradient,) = torch.autograd.grad(loss, [model[0].weight])
            self.assertEqual(seen, [gradient.norm().item()])


if __name__ == "__main__":
    unittest.main()
