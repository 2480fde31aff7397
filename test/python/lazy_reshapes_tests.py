"""Shapes that change in place, and what was read before it is written to."""

import functools
import unittest
import warnings

import torch
from torch import nn

import koila

SAMPLES, STEPS, WIDTH = 32, 6, 4
BUDGETS = (8_000, 8_000_000)  # in tiles, and whole


def make(budget=None):
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    x = torch.randn(SAMPLES, STEPS, WIDTH).double()
    return head, x if budget is None else koila.lazy(x, batch=0, budget=budget)


def finish(head, loss):
    loss.backward()
    return [loss.item(), *(weight.grad for weight in head.parameters())]


class Case(unittest.TestCase):
    def compare(self, run):
        """Whether ``run(head, x)`` gives the same numbers with the one line."""
        wanted = run(*make())
        for budget in BUDGETS:
            with self.subTest(budget=budget), warnings.catch_warnings():
                warnings.simplefilter("ignore", koila.KoilaWarning)
                for found, right in zip(run(*make(budget)), wanted, strict=True):
                    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-12)


class Shapes(Case):
    calls = (
        ("unsqueeze_", (1,)),
        ("unsqueeze_", (-1,)),
        ("squeeze_", ()),
        ("transpose_", (0, 1)),
        ("swapaxes_", (1, 2)),
        ("swapdims_", (0, 2)),
        ("as_strided_", ((4, 4), (4, 1))),
    )

    def test_the_shape_is_there_at_once(self):
        for name, args in self.calls:
            for budget in BUDGETS:
                for is_made in (False, True):
                    with self.subTest(name=name, budget=budget, is_made=is_made):
                        right = make()[1]
                        getattr(right, name)(*args)
                        x = make(budget)[1]
                        x = x * 2 if is_made else x
                        self.assertIs(getattr(x, name)(*args), x)
                        self.assertEqual(x.shape, right.shape)
                        self.assertTrue(torch.equal(x.run(), right * 2 if is_made else right))

    def test_resize(self):
        for budget in BUDGETS:
            x = make(budget)[1]
            self.assertIs(x.resize_(3, 2), x)
            self.assertEqual(x.shape, (3, 2))

    def test_of_the_batch(self):
        def run(head, x):
            x.unsqueeze_(1)
            return finish(head, head(x).square().mean() * x.shape[1] + x.dim())

        self.compare(run)

    def test_of_what_was_computed(self):
        def run(head, x):
            out = head(x[:, :1])
            out.squeeze_(1)
            out.t_()
            return finish(head, (out[0] * out[1]).square().mean() + out.shape[0])

        self.compare(run)

    def test_without_a_graph_first(self):
        def run(head, x):
            with torch.no_grad():
                out = torch.zeros_like(x[..., :3])
                out.unsqueeze_(1)
            out.add_(head(x)[:, None])
            return finish(head, out.square().mean())

        self.compare(run)

    def test_gradients_that_are_kept(self):
        def run(head, x):
            out = head(x) * 1
            out.retain_grad()
            out.unsqueeze_(1)
            return [*finish(head, out.square().mean()), out.grad]

        self.compare(run)

    def test_of_a_step_of_a_sequence(self):
        def run(head, x):
            x = x.permute(1, 0, 2)
            return finish(
                head, sum(head(x[t].unsqueeze_(0).clone()).square().mean() for t in range(STEPS))
            )

        self.compare(run)
        make_tiled = make(BUDGETS[0])
        run(*make_tiled)
        self.assertIsNotNone(koila.last().tile)


class Detached(Case):
    def test_of_what_was_computed(self):
        def run(head, x):
            first = head(x[:, 0])
            kept = first
            self.assertIs(first.detach_(), first)
            self.assertFalse(kept.requires_grad)
            return finish(head, (head(x[:, 1]) * first).sum())

        self.compare(run)

    def test_of_the_batch(self):
        def run(head, x):
            x.detach_()
            return finish(head, head(x).square().mean())

        self.compare(run)

    def test_of_what_is_no_view(self):
        def run(head, x):
            outs = [torch.tanh(head(x)) for _ in range(4)]
            outs[0].detach_().detach_()
            outs[1].detach_()
            outs[2].mul_(2).detach_()
            outs[3].unsqueeze_(1).detach_()
            return finish(head, sum(out.mean() for out in outs) * head(x).square().mean())

        self.compare(run)

    def test_of_a_view(self):
        def run(head, x):
            with self.assertRaisesRegex(RuntimeError, "Can't detach views in-place"):
                head(x)[:, 1:].detach_()
            return []

        self.compare(run)

    def test_of_another_shape_with_views(self):
        """To PyTorch it is no view, and a later write takes its graph from what is one."""

        def run(head, x):
            out = torch.tanh(head(x)).unsqueeze_(0)
            part = out[:, :3]
            out.mul_(0.5)
            out.detach_()
            torch.relu_(out)
            return [float(part.requires_grad), *finish(head, head(x).mean() + part.sum())]

        run(*make(None))
        for budget in BUDGETS:
            with self.assertRaisesRegex(koila.KoilaError, "view with a graph or of no_grad"):
                run(*make(budget))


class Read(Case):
    def test_a_view_that_was_read_is_written_to(self):
        """As DeepAR, which gives what it has forecast where the series has no value."""

        def run(head, x):
            x, loss, out = x.permute(1, 0, 2), 0, torch.zeros(())
            for t in range(1, STEPS):
                missing = x[t, :, 0] < -1
                if missing.sum() > 0:
                    x[t, missing, 0] = out.mean(-1)[missing] if t > 1 else 0.5
                out = head(x[t].clone())
                loss = loss + out.square().mean()
            return finish(head, loss)

        self.compare(run)

    def test_a_view_of_what_was_computed(self):
        def run(head, x):
            steps = (x * 2).permute(1, 0, 2)
            if steps[0].sum() > -1e9:
                steps[1] = head(steps[0].clone()).mean(-1, keepdim=True)
            return finish(head, head(steps[1].clone()).square().mean())

        self.compare(run)


def read_then_write(head, x, through):
    """A tensor without a graph that was read, and a view of it, of which one is written."""
    y = x * 2
    y.sum().item()
    view = y.unsqueeze(0)
    (view if through else y).mul_(3)
    loss = head(x).square().mean() + y.cos().sum() + view.sin().sum()
    return [*finish(head, loss), y.sum().item(), view.sum().item()]


def alias(head, x):
    out, y = head(x), x * 2
    detached = y.detach()
    out.sum().item()
    y.mul_(3)
    return [*finish(head, out.square().mean()), y.sum().item(), detached.sum().item()]


def read_between(head, x):
    """What a call has still to read is what was there before the write."""
    y, out = x * 2, head(x)
    total = out + y[..., :3]
    y.narrow(1, 0, 2).mul_(3)
    first = y.sum().item()
    return [*finish(head, total.cos().sum() + y.cos().sum()), first, y.sum().item()]


def written_by_itself(head, x):
    """What was there before a write, and is read without a graph, in front of it and behind."""
    out = head(x) * 1
    kept = out.detach()
    out.add_(kept)
    return [*finish(head, out.cos().sum() + kept.sin().sum()), out.sum().item()]


def logged(head, x, through):
    """An array of what was written to in place, before the step."""
    out, y = head(x) * 1, x * 2
    out[..., 0] *= 3
    y[..., 1] *= 2
    shown = (out[..., 1:] if through else out).detach().numpy().sum()
    given = y.detach().numpy().sum()
    loss = out.cos().sum() + (y[..., :3].sin() * out).sum()
    return [*finish(head, loss), out.sum().item(), y.sum().item(), float(shown), float(given)]


def detached_twice(head, x):
    """A detached tensor that was read, and another of it, whose memory is written to."""
    out = head(x) * 1
    first = out.detach()
    first.sum().item()
    second = first.detach()
    out.narrow(0, 0, 4).mul_(3)
    loss = out.cos().sum() + first.sin().sum() + second.sin().sum()
    return [*finish(head, loss), first.sum().item(), second.sum().item()]


def flags_of(*tensors):
    return [float(tensor.requires_grad) for tensor in tensors]


def write_with_a_graph(head, x):
    """To a tensor that was read, of which there is a view that was read."""
    y = x[..., :3] * 2
    view, turned = y.narrow(0, 0, 4), y.transpose(0, 1)
    y.sum().item()
    y.add_(head(x))
    loss = y.cos().sum() + view.sin().sum() + turned.square().mean()
    return [*flags_of(y, view, turned), *finish(head, loss), y.sum().item(), view.sum().item()]


def write_to_a_view_with_a_graph(head, x):
    y = x[..., :3] * 2
    detached = y.detach()
    y.sum().item()
    view = y.narrow(0, 0, 4)
    view.add_(head(x)[:4])
    loss = y.cos().sum() + view.sin().sum() + detached.square().mean()
    return [*flags_of(y, view, detached), *finish(head, loss), detached.sum().item()]


def copy_then_write(head, x):
    """The copy, which is written to as well, has to be made before the write."""
    y, out = x * 2, head(x)
    out.sum().item()
    copied = y.clone()
    copied.mul_(0.5)
    y.narrow(1, 0, 2).mul_(3)
    loss = out.cos().sum() + (y * copied).sin().sum()
    return [*finish(head, loss), y.sum().item(), copied.sum().item()]


def detach_what_others_see(head, x):
    out, y = head(x) * 1, x * 2
    view, copied = out.narrow(1, 0, 2), out.detach()
    turned = y.transpose(0, 1)
    y.sum().item()
    y.detach_()
    out.detach_()
    out.mul_(3)
    y.mul_(2)
    loss = head(x).sum() + out.cos().sum() + view.sin().sum() + turned.sum() + copied.sum()
    return [*flags_of(out, view, copied), *finish(head, loss), view.sum().item()]


def write_what_is_freed(head, x):
    out, y = head(x) * 1, x[..., :3] * 2
    with torch.no_grad():
        y.add_(out)
    turned = y.transpose(0, 1)
    turned.mul_(0.5)
    finish(head, (out * y).cos().sum())
    return [*flags_of(out, y, turned), (out * y).sum().item(), (y + 1).sum().item()]


class Views(Case):
    """Writes to memory that several tensors look at, some of which were read."""

    def test_a_write_is_made_once(self):
        for through in (False, True):
            self.compare(functools.partial(read_then_write, through=through))

    def test_a_detached_tensor_sees_it(self):
        self.compare(alias)

    def test_what_was_read_keeps_its_write(self):
        self.compare(read_between)

    def test_both_sides_of_a_write(self):
        self.compare(written_by_itself)

    def test_what_was_read_is_written_to(self):
        self.compare(detached_twice)

    def test_arrays_of_what_was_written(self):
        for through in (False, True):
            self.compare(functools.partial(logged, through=through))

    def test_views_get_a_gradient(self):
        for write in (write_with_a_graph, write_to_a_view_with_a_graph):
            self.compare(write)

    def test_a_call_that_reads_what_was_there(self):
        self.compare(copy_then_write)

    def test_detached_in_place(self):
        self.compare(detach_what_others_see)

    def test_a_write_under_no_grad_whose_reads_are_freed(self):
        self.compare(write_what_is_freed)

    def test_arrays_of_a_part(self):
        """Of memory that has to be computed again, where the whole of it is not there."""
        for budget in BUDGETS:
            head, x = make(budget)
            kept = (head(x) * 1).transpose(0, 1)
            array = kept[1:].detach().numpy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", koila.KoilaWarning)
                with self.assertRaisesRegex(koila.KoilaError, "NumPy array of a part"):
                    kept.mul_(2)
            del array
            kept.mul_(2)
            plain, x = make()
            wanted = (plain(x) * 1).transpose(0, 1) * 2
            torch.testing.assert_close(kept.run().detach(), wanted.detach())

    def test_the_same_object(self):
        for budget in BUDGETS:
            head, x = make(budget)
            out = head(x)
            self.assertIs(out.contiguous(), out)
            self.assertIs(out.double(), out)
            self.assertIsNot(out.transpose(0, 1).contiguous(), out)
            y = x * 2
            y.sum().item()
            self.assertIs(torch.relu_(y), y)


class Normalised(nn.Module):
    """ActNorm: the first batch sets the parameters."""

    def __init__(self):
        super().__init__()
        self.is_set = False
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        if not self.is_set:
            self.is_set = True
            with torch.no_grad():
                std, mean = x.std((0, 1)), x.mean((0, 1))
                self.scale.data = 1 / std
                self.shift.data = -mean / std
        return x * self.scale + self.shift


class Data(Case):
    def test_parameters_of_the_first_batch(self):
        def run(head, x):
            head[0] = nn.Sequential(Normalised(), head[0])
            return [*finish(head, head(x).square().mean()), *head.state_dict().values()]

        self.compare(run)


if __name__ == "__main__":
    unittest.main()
