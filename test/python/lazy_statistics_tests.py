"""Batch normalisation in training mode through koila.lazy: as without the line.

Each use is written once and run twice, on plain tensors and on lazy ones that have to
be split. Both must see the same numbers, and leave the same gradients and the same state
of the model. Statistics of a tile, which are the control, are told apart.
"""

import contextlib
import copy
import functools
import io
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import koila
from koila._capture.graphs import measure_graphs
from koila._lazy import checkpoints
from memory_counter import peak_of

COUNT, CLASSES = 24, 5
RTOL, ATOL = 1e-9, 1e-11


def make_model(*, momentum=0.1, affine=True, norm=nn.BatchNorm2d):
    torch.manual_seed(0)
    options = {"momentum": momentum, "affine": affine}
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        norm(8, **options),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        norm(8, **options),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )
    return model.double()


def make_batch(seed=0):
    # Samples that differ in scale: statistics of a tile are others.
    torch.manual_seed(seed)
    scale = torch.linspace(0.2, 3, COUNT, dtype=torch.float64)[:, None, None, None]
    return torch.randn(COUNT, 3, 12, 12, dtype=torch.float64) * scale, torch.arange(COUNT) % CLASSES


def state_of(model):
    """What a step leaves: parameters, buffers and gradients, all by their names."""
    found = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"{name}.grad"] = parameter.grad.clone()
    return found


def differences(found, wanted):
    if found.keys() != wanted.keys():
        return sorted(found.keys() ^ wanted.keys())
    return [
        name
        for name, tensor in wanted.items()
        if not torch.allclose(found[name].double(), tensor.double(), RTOL, ATOL)
    ]


class Stateless(nn.Module):
    """Normalises by the batch alone."""

    num_batches_tracked = torch.tensor(0)

    def forward(self, x):
        return F.batch_norm(x, None, None, training=True)


class Batches:
    """Gives a script its batches: plain tensors, or lazy ones within a budget."""

    def __init__(self, budget=None):
        self.budget = budget
        self.log = []
        self.peaks = []

    def __call__(self, seed=0):
        batch = make_batch(seed)
        return batch if self.budget is None else koila.lazy(*batch, batch=0, budget=self.budget)

    def see(self, value):
        self.log.append(float(value))

    def tiled(self):
        """After a step: whether it ran in tiles, within the budget."""
        if self.budget is not None:
            last = koila.last()
            assert last.tile is not None, last
            assert last.peak_bytes <= koila.memory.budget_bytes(self.budget), last
            self.peaks.append(last.peak_bytes)


class Statistics(unittest.TestCase):
    def budget(self, model, part=0.55):
        """A part of what a step takes as a whole."""
        trial = copy.deepcopy(model)
        x, y = koila.lazy(*make_batch(), batch=0, budget="1GiB")
        F.cross_entropy(trial(x), y).backward()
        return int(koila.last().peak_bytes * part)

    def check(self, script, model=None, message=None, part=0.55):
        """``script(model, batches)``; a ``message`` is of a warning that is expected, or any
        may come."""
        model = model or make_model()
        plain, lazy = copy.deepcopy(model), copy.deepcopy(model)
        wanted, found = Batches(), Batches(self.budget(model, part))
        script(plain, wanted)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            script(lazy, found)
        texts = [str(each.message) for each in caught if each.category is koila.KoilaWarning]
        if message is None:
            self.assertEqual(texts, [])
        elif message:
            self.assertTrue(any(message in text for text in texts), texts)
        self.assertEqual(differences(state_of(lazy), state_of(plain)), [])
        logs = (torch.tensor(batches.log, dtype=torch.float64) for batches in (found, wanted))
        torch.testing.assert_close(*logs, rtol=RTOL, atol=ATOL)
        # Something was seen to change: the state is not that of the beginning.
        self.assertFalse(torch.allclose(lazy[1].running_mean, model[1].running_mean))
        return lazy

    def test_steps(self):
        def script(model, batches):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for seed in range(3):
                x, y = batches(seed)
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                batches.tiled()
                optimizer.step()
                batches.see(loss.item())

        self.check(script)

    def test_statistics_that_are_parameters(self):
        """Of a list of weights, as programs that learn to learn have them. Nobody would notice
        who looks at them, so that they are updated at once, and what that needs is said."""

        def step(budget):
            x, y = make_batch()
            torch.manual_seed(0)
            low, high = torch.randn(40, 3, 3, 3).double(), torch.randn(CLASSES, 40).double()
            weights = [nn.Parameter(each) for each in (low, high)]
            mean = nn.Parameter(torch.zeros(40).double(), requires_grad=False)
            var = nn.Parameter(torch.ones(40).double(), requires_grad=False)
            if budget is not None:
                x, y = koila.lazy(x, y, batch=0, budget=budget)
            hidden = F.conv2d(x, weights[0], padding=1)
            hidden = F.relu(F.batch_norm(hidden, mean, var, training=True)).mean((2, 3))
            seen = mean.sum() + var.sum()
            F.cross_entropy(F.linear(hidden, weights[1]), y).backward()
            return [*(weight.grad for weight in weights), mean.data, var.data, seen]

        step("1GiB")
        with self.assertWarnsRegex(koila.KoilaWarning, "before the step takes .* of"):
            found = step(koila.last().peak_bytes // 2)
        for value, right in zip(found, step(None), strict=True):
            torch.testing.assert_close(value, right, rtol=RTOL, atol=ATOL)

    def test_the_control_is_caught(self):
        """Statistics of each tile of four, as gradient accumulation has them."""
        model = make_model()
        parts = copy.deepcopy(model)
        x, y = make_batch()
        F.cross_entropy(model(x), y).backward()
        for start in range(0, COUNT, 4):
            part = slice(start, start + 4)
            (F.cross_entropy(parts(x[part]), y[part]) * 4 / COUNT).backward()
        # All but the count of classes, and a bias whose gradient is zero.
        wrong = differences(state_of(parts), state_of(model))
        for name in ("0.weight.grad", "1.running_mean", "1.num_batches_tracked", "8.bias.grad"):
            self.assertIn(name, wrong)

    def test_loss_is_read_first(self):
        def script(model, batches):
            for seed in range(2):
                x, y = batches(seed)
                loss = F.cross_entropy(model(x), y)
                batches.see(loss.item())
                loss.backward()
                batches.tiled()

        self.check(script)

    def test_accuracy_is_read_first(self):
        def script(model, batches):
            for seed in range(2):
                x, y = batches(seed)
                out = model(x)
                loss = F.cross_entropy(out, y)
                batches.see((out.argmax(1) == y).float().mean().item())
                batches.tiled()
                loss.backward()
                batches.see(loss.item())

        self.check(script)

    def test_losses_that_are_read_alone(self):
        """As someone who looks for a learning rate: no backward pass follows."""

        def script(model, batches):
            for seed in range(3):
                x, y = batches(seed)
                batches.see(F.cross_entropy(model(x), y).item())
                batches.tiled()

        self.check(script)

    def test_accumulation(self):
        def script(model, batches):
            for seed in range(3):
                x, y = batches(seed)
                (F.cross_entropy(model(x), y) / 3).backward()
                batches.tiled()

        self.check(script)

    def test_graph_is_kept(self):
        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            loss.backward()
            batches.see(loss.item())

        self.check(script)

    def test_layer_is_called_twice(self):
        """A discriminator sees two batches in a step, and its statistics both in order."""

        def script(model, batches):
            x, y = batches()
            real, fake = model(x), model(x * 0.5 + 1)
            loss = F.cross_entropy(real, y) + F.cross_entropy(fake, (y + 1) % CLASSES)
            loss.backward()
            batches.tiled()
            batches.see(loss.item())

        self.check(script)

    def test_two_losses_of_two_calls(self):
        def script(model, batches):
            x, y = batches()
            first = F.cross_entropy(model(x), y)
            second = F.cross_entropy(model(x * 0.5 + 1), y)
            second.backward()
            first.backward()
            batches.see(first.item())
            batches.see(second.item())

        self.check(script, part=0.9)

    def test_gradients_of_autograd(self):
        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            for gradient in torch.autograd.grad(loss, list(model.parameters())):
                batches.see(gradient.norm())
            batches.tiled()

        self.check(script)

    def test_graph_of_the_gradient(self):
        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            batches.see(loss.item())
            loss.backward(create_graph=True)
            for parameter in model.parameters():
                parameter.grad = parameter.grad.detach()

        self.check(script, message="create_graph=True")

    def test_hook(self):
        def script(model, batches, reads=False):
            x, y = batches()
            out = model(x)
            loss = F.cross_entropy(out, y)
            if reads:
                batches.see(loss.item())
            out.register_hook(lambda gradient: gradient * 2)
            loss.backward()

        self.check(script, message="a hook sees the gradient")
        # The statistics are updated when the loss is read, and are not in the way then.
        self.check(functools.partial(script, reads=True))

    def test_hook_on_the_way_to_inputs(self):
        def script(model, batches):
            x, y = batches()
            F.cross_entropy(model(x), y).backward()
            model[1].eval(), model[4].eval()
            out = model(x)
            loss = F.cross_entropy(out, y)
            out.register_hook(lambda gradient: gradient * 3)
            loss.backward(inputs=[model[0].weight])

        self.check(script, message="what inputs= names", part=0.45)

    def test_gradients_of_inputs(self):
        """Adversarial training: the step of other images begins with a gradient of these; and
        of what is normalised first."""

        def script(model, batches):
            x, y = batches()
            x = x.clone().requires_grad_()
            F.cross_entropy(model(x), y).backward()
            batches.tiled()
            batches.see(x.grad.square().sum())
            model.zero_grad(set_to_none=False)
            moved = x.detach() + 0.1 * x.grad.sign()
            F.cross_entropy(model(moved), y).backward()

        self.check(script, part=0.7)
        model = make_model()
        model[0] = nn.Sequential(nn.BatchNorm2d(3), model[0]).double()
        self.check(script, model, part=0.7)

    def test_gradients_of_two_inputs_are_two(self):
        """Of a sum both get the same, and who writes to one does not write to the other."""
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 6)).double()
        model = nn.Sequential(layers, nn.BatchNorm1d(6).double())
        given = torch.randn(2, COUNT, 6).double()

        def step(budget):
            x, y = (tensor.clone().requires_grad_() for tensor in given)
            one, two = (x, y) if budget is None else koila.lazy(x, y, batch=0, budget=budget)
            model(one + two).pow(3).mean().backward()
            x.grad.zero_()
            return y.grad

        wanted = step(None)
        step(1 << 30)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = step(int(0.7 * koila.last().peak_bytes))
        self.assertLess(koila.last().tile, COUNT)
        self.assertGreater(wanted.norm(), 1e-3)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)

    def test_inputs(self):
        def script(model, batches):
            x, y = batches()
            F.cross_entropy(model(x), y).backward(inputs=[model[0].weight, model[4].bias])
            batches.tiled()

        self.check(script)

    def test_result_that_nobody_uses(self):
        """The layers have run, and count the batch."""

        def script(model, batches):
            x, y = batches()
            model(x + 1)
            loss = F.cross_entropy(model(x), y)
            loss.backward()

        self.check(script, part=0.9)

    def test_error_in_the_step(self):
        """A class that is not there: the forward pass has updated the statistics."""

        def script(model, batches):
            x, y = batches()
            loss = None
            try:
                loss = F.cross_entropy(model(x), y + 1)
                loss.backward()
            except (IndexError, RuntimeError) as error:
                batches.see("out of bounds" in str(error))
            del loss
            x, y = batches(1)
            F.cross_entropy(model(x), y).backward()
            batches.tiled()

        self.check(script)

    def test_average_over_all_calls(self):
        def script(model, batches):
            for seed in range(4):
                x, y = batches(seed)
                F.cross_entropy(model(x), y).backward()
                batches.tiled()

        self.check(script, make_model(momentum=None))

    def test_other_layers(self):
        def script(model, batches):
            x, y = batches()
            F.cross_entropy(model(x), y).backward()
            batches.tiled()

        frozen = make_model()
        for parameter in frozen[:2].parameters():
            parameter.requires_grad_(False)
        for model in (frozen, make_model(affine=False), make_model(norm=nn.SyncBatchNorm)):
            self.check(script, model)

    def test_dropout_in_place(self):
        """Autograd has no derivative of what a write in place is without the write."""

        def script(model, batches):
            for seed in range(2):
                x, y = batches(seed)
                torch.manual_seed(seed)
                F.cross_entropy(model(x), y).backward()
                batches.tiled()

        for drop in (nn.Dropout, nn.AlphaDropout):
            with self.subTest(drop.__name__):
                model = make_model()
                model[5] = nn.Sequential(nn.Softplus(), drop(0.3, inplace=True))
                self.check(script, model, part=0.6)

    def test_part_in_eval(self):
        def script(model, batches):
            model[4].eval()
            for seed in range(2):
                x, y = batches(seed)
                F.cross_entropy(model(x), y).backward()
                batches.tiled()
            model.eval()
            x, _ = batches(2)
            with torch.no_grad():
                batches.see(model(x).sum())

        self.check(script)

    def test_evaluation_with_as_many_channels_as_samples(self):
        """Running statistics are no samples, whatever plain tensors are."""
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.BatchNorm2d(COUNT) for _ in range(6))).double()
        images, targets = torch.randn(COUNT, COUNT, 6, 6).double(), torch.arange(COUNT)
        model(images)
        model.eval()
        evaluate = lambda x: F.cross_entropy(model(x).mean((2, 3)), targets).item()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            found = evaluate(koila.lazy(images, batch=0, budget=images.nbytes))
            self.assertLess(koila.last().tile, COUNT)
            self.assertAlmostEqual(found, evaluate(images), 12)

    def test_a_graph_that_has_saved_statistics_is_measured(self):
        """They are lazy while an update of them waits, and nothing is computed to ask a graph
        from before for its bytes."""
        layer = nn.BatchNorm1d(6).eval()
        samples = torch.randn(COUNT, 6)
        evaluated = layer(samples)
        updated = layer.train()(koila.lazy(samples, batch=0, budget="1GiB"))
        self.assertIs(type(layer.running_mean), type(updated))
        self.assertGreaterEqual(measure_graphs([evaluated], ()), samples.nbytes)
        self.assertIs(type(layer.running_mean), type(updated))

    def test_statistics_are_seen_before_the_step(self):
        """They are those of this batch, whoever looks: a log, a file, an average of models."""

        def script(model, batches):
            average = copy.deepcopy(model)
            for seed, look in enumerate(self.looks(average)):
                x, y = batches(seed)
                loss = F.cross_entropy(model(x), y)
                batches.see(look(model[1], loss))
                batches.tiled()
                loss.backward()
                batches.see(loss.item())
            for buffer in model.buffers():
                assert type(buffer) is torch.Tensor, type(buffer)

        self.check(script)

    def looks(self, average):
        def save(layer, _):
            file = io.BytesIO()
            torch.save(layer.state_dict(), file)
            file.seek(0)
            return torch.load(file)["running_mean"].norm()

        def follow(layer, _):
            with torch.no_grad():
                average[1].running_mean.lerp_(layer.running_mean, 0.25)
            return average[1].running_mean.norm()

        return (
            lambda layer, _: layer.running_mean.norm().item(),
            lambda layer, _: float(repr(layer.running_var.double()).split("[")[1].split(",")[0]),
            lambda layer, _: layer.running_var.numpy().sum(),
            lambda layer, _: copy.deepcopy(layer).running_var.sum(),
            lambda layer, _: layer.running_mean.data.norm(),
            lambda layer, _: sum(buffer.double().sum() for buffer in layer.buffers()),
            save,
            follow,
        )

    def test_statistics_that_the_loss_reads(self):
        """A penalty on a running mean, which the call before it has updated."""

        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            loss = loss + (model[0].weight.mean() * model[1].running_mean).sum()
            loss.backward()
            batches.see(loss.item())

        self.check(script, part=0.4)

    def test_statistics_are_set_before_the_step(self):
        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            model[4].running_var.data = model[4].running_var.data + 1
            loss.backward()
            batches.see(loss.item())
            batches.see(F.cross_entropy(model(x), y).item())
            with torch.no_grad():
                model[1].running_mean.mul_(0.5)

        self.check(script, part=0.4)

    def test_plain_batch_in_between(self):
        """As a discriminator sees samples that nobody made lazy: in the order of the calls."""

        def script(model, batches):
            x, y = batches()
            loss = F.cross_entropy(model(x), y)
            plain, _ = make_batch(1)
            with torch.no_grad():
                batches.see(model(plain * 2).norm())
            loss.backward()
            batches.see(loss.item())

        self.check(script, part=0.4)

    def test_batches_without_a_loss(self):
        """As statistics are made anew for other data; they are there behind the loop."""

        def script(model, batches, context):
            with context():
                for seed in range(3):
                    x, _ = batches(seed)
                    model(x)
            batches.see(model[1].running_mean.norm())
            batches.see(model[4].running_var.norm())
            batches.tiled()

        for context in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
            with self.subTest(context.__name__):
                self.check(functools.partial(script, context=context), part=0.4)

    def test_forward_alone(self):
        """Without a loss, too, each call counts once."""

        def script(model, batches):
            x, _ = batches()
            batches.see(model(x).sum().item())
            batches.tiled()
            x, _ = batches(1)
            batches.see(model(x)[0, 0].item())
            x, _ = batches(2)
            with torch.no_grad():
                batches.see(model(x).square().sum())
            batches.tiled()

        self.check(script, part=0.4)

    def test_forward_alone_in_its_bytes(self):
        """Of the statistics a tile gives its part; between layers one result is kept, and
        where that is too much it is made again, as in a step."""
        x, _ = make_batch()

        def run(budget):
            model = make_model()
            for weight in model.parameters():
                weight.grad = torch.zeros_like(weight)

            def read():
                given = x if budget is None else koila.lazy(x, batch=0, budget=budget)
                return model(given).tolist()

            peak, found = peak_of(read)
            return peak, torch.tensor(found), state_of(model)

        plain, wanted, state = run(None)
        for share in (0.75, 0.5, 0.35):
            with self.subTest(share=share), warnings.catch_warnings():
                warnings.simplefilter("error", koila.KoilaWarning)
                budget = int(plain * share)
                peak, found, left = run(budget)
                self.assertIsNotNone(koila.last().tile)
                self.assertLessEqual(peak, budget)
                torch.testing.assert_close(found, wanted, rtol=RTOL, atol=ATOL)
                self.assertEqual(differences(left, state), [])

    def test_read_before_several_losses(self):
        """What is read of the first has updated the statistics, and the step has not."""

        def script(model, batches):
            x, y = batches()
            out = model(x)
            first, second = F.cross_entropy(out, y), out.square().mean()
            batches.see(out[0, 0].item())
            batches.tiled()
            first.backward(retain_graph=True)
            second.backward()

        self.check(script)

    def test_losses_that_are_held(self):
        """Their forward passes do not run again for those that come after them."""

        def script(model, batches):
            held = []
            for seed in range(4):
                x, y = batches(seed)
                held.append(F.cross_entropy(model(x), y))
                batches.see(held[-1].item())
                batches.tiled()
            self.assertEqual(len(set(batches.peaks[-3:])), batches.budget is not None)

        self.check(script)

    def test_evaluation_that_nobody_has_read(self):
        """It has the statistics of before the pass that follows it, also where what is read of
        that is read alone."""

        def script(model, batches):
            x, y = batches()
            model.eval()
            with torch.no_grad():
                out = model(x)
                apart = torch.cdist(out, out)[y[:, None] == y[None]].mean()
            model.train()
            out = model(x)
            batches.see(out.mean().item())
            F.cross_entropy(out, y).backward()
            batches.see(apart.item())

        for part in (0.8, 0.6):
            with self.subTest(part=part), warnings.catch_warnings():
                self.check(script, part=part, message="")

    def test_second_call_is_read_first(self):
        """Double Q-learning: the network is asked again, about some of the states alone, for
        an action of which the loss is made."""

        class Rows(nn.Module):
            def forward(self, x):
                return x.view(x.size(0), -1)

        def script(model, batches):
            x, y = batches()
            target = copy.deepcopy(model).eval()
            mask = y != 0
            others = x[mask] * 0.5 + 1
            wanted = torch.zeros(len(x), dtype=torch.float64)
            scores = model(x).gather(1, y[:, None])
            with torch.no_grad():
                values = target(others)
                best = model(others).max(1)[1]
                wanted[mask] = values.gather(1, best[:, None])[:, 0]
            loss = F.smooth_l1_loss(scores, 0.9 * wanted[:, None])
            loss.backward()
            batches.see(loss.item())

        model = make_model()
        model[7] = Rows()
        for part in (0.8, 0.55):
            with self.subTest(part=part):
                self.check(script, model, part=part, message="")

    def test_instance_statistics(self):
        def script(model, batches):
            x, y = batches()
            F.cross_entropy(model(x), y).backward()

        def norm(size, momentum, affine):
            return nn.InstanceNorm2d(
                size, momentum=momentum, affine=affine, track_running_stats=True
            )

        self.check(script, make_model(norm=norm), message="runs whole")

    def test_norms_whose_results_nobody_reads(self):
        # As an auxiliary head that the loss leaves out, or a pass that refreshes statistics.
        def refresh(norm, x):
            with torch.no_grad():
                norm(2 * x)
            return x.view(x.shape)

        def ignored(norm, x):
            norm(x)
            return torch.cat([torch.cat([x[:, :2], x[:, 2:4]], 1), x[:, 4:]], 1)

        def kept(norm, x):
            norm(x)
            return x

        for use in (refresh, ignored, kept):
            states = []
            for budget in (None, 120_000):
                torch.manual_seed(0)
                net = nn.ModuleList([nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8)])
                net.double()
                for _ in range(2):
                    x = torch.randn(COUNT, 3, 9, 9, dtype=torch.float64)
                    x = x if budget is None else koila.lazy(x, batch=0, budget=budget)
                    hidden = net[0](x)
                    loss = net[2](use(net[1], hidden)).relu().square().mean()
                    del hidden
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", koila.KoilaWarning)
                        loss.backward()
                states.append({**net.state_dict(), "gradient": net[0].weight.grad})
            with self.subTest(use.__name__):
                self.assertEqual(differences(*states), [])
        self.assertTrue(koila.last().tile)  # of what PyTorch itself would not lose

        class Ignoring(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.first, self.norm = (
                    nn.Conv2d(3, 6, 3),
                    nn.BatchNorm2d(6),
                    nn.BatchNorm2d(6),
                )

            def forward(self, x):
                hidden = self.inner(x)
                self.first(hidden)
                return self.norm(hidden.view(hidden.shape)).relu().mean()

        message = "PyTorch would not make an update of running statistics when it runs the program"
        with self.assertRaisesRegex(koila.CompileError, message):
            koila.compile(Ignoring(), torch.randn(8, 3, 9, 9), mode="train", tile=2, budget=None)

    def test_checkpoints(self):
        # Plain PyTorch runs the part again in the backward pass, and its layers move
        # their statistics twice. koila has no part run again by that, and says so.
        def step(part, reentrant=False, budget="1GiB"):
            x = torch.linspace(-1, 2, 16 * 3 * 6 * 6, dtype=torch.float64).view(16, 3, 6, 6)
            if budget is not None:
                x = koila.lazy(x, batch=0, budget=budget)
            first = nn.Conv2d(3, 3, 1).double()
            y = checkpoint(part, first(x), use_reentrant=reentrant)
            if y.requires_grad:
                y.square().mean().backward()
            return part[1].num_batches_tracked.item()

        def make(norm=nn.BatchNorm2d, **options):
            torch.manual_seed(0)
            return nn.Sequential(nn.Conv2d(3, 8, 3), norm(8, **options), nn.ReLU()).double()

        self.assertEqual(step(make(), budget=None), 2)
        norms = {
            "'batch_norm'": functools.partial(make, nn.BatchNorm2d),
            "'instance_norm'": functools.partial(make, nn.InstanceNorm2d, track_running_stats=True),
        }
        for name, make_part in norms.items():
            message = f"{name} in a checkpoint updates its running statistics once in koila"
            for budget in ("1GiB", "60KiB"):
                with self.subTest(name, budget=budget):
                    checkpoints._announced.clear()
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        for _ in range(2):
                            counts = step(make_part(), budget=budget)
                            self.assertEqual(counts, int("batch" in name))
                    said = [entry for entry in caught if message in str(entry.message)]
                    self.assertEqual(len(said), 1, caught)
                    self.assertTrue(said[0].filename.endswith("lazy_statistics_tests.py"))
            with koila.strict(), self.assertRaisesRegex(koila.KoilaError, message):
                step(make_part())
        # Where nothing differs nothing is said.
        checkpoints._announced.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            self.assertEqual(step(make().eval()), 0)
            with torch.no_grad():
                self.assertEqual(step(make()), 1)
            step(nn.Sequential(nn.Conv2d(3, 8, 3).double(), Stateless(), nn.ReLU()))
            # One that runs its part by a function of its own does so in koila, too.
            states = []
            for budget in (None, "1GiB"):
                part = make()
                torch.manual_seed(1)
                self.assertEqual(step(part, reentrant=True, budget=budget), 2)
                states.append(part.state_dict())
            self.assertEqual(differences(*states), [])


if __name__ == "__main__":
    unittest.main()
