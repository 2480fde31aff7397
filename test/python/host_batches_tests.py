"""koila.lazy and koila.compile with `device=`: a batch on the host whose bytes alone are more
than the device has. The device stands in for a GPU (stand_in_device.py)."""

import copy
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila import _compiler
from koila._plan import plan_cache
from stand_in_device import DEVICE, memory

COUNT, WIDTH, CLASSES = 2048, 256, 10
KIB = 1 << 10


class Model(nn.Module):
    def __init__(self, width=CLASSES, with_dropout=False, with_norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(WIDTH, 16), nn.Linear(16, width)
        self.norm = nn.BatchNorm1d(16) if with_norm else nn.Identity()
        self.drop = nn.Dropout(0.5) if with_dropout else nn.Identity()
        self.double()

    def forward(self, x):
        return self.second(self.drop(torch.tanh(self.norm(self.first(x)))))


class Centred(nn.Module):
    """Of whose samples each depends on all."""

    def __init__(self):
        super().__init__()
        self.inner = Model()

    def forward(self, x):
        return self.inner(x.softmax(0))


def make_batch():
    torch.manual_seed(1)
    return torch.randn(COUNT, WIDTH, dtype=torch.float64), torch.arange(COUNT) % CLASSES


# The device has blocks of 512 bytes, of which a step takes some for single numbers.
ROUNDING = 8 * 512
# Less than the batch.
ROOM = COUNT * WIDTH * 8 // 4


def step(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


def make_pair(*args, **kwargs):
    wanted = Model(*args, **kwargs)
    return copy.deepcopy(wanted).to(DEVICE), wanted


def give_gradients(model):
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)


def assert_equal_gradients(model, wanted):
    for weight, right in zip(model.parameters(), wanted.parameters(), strict=True):
        assert weight.device == weight.grad.device == DEVICE
        torch.testing.assert_close(weight.grad.cpu(), right.grad, rtol=1e-9, atol=1e-11)


@pytest.fixture(autouse=True)
def fresh():
    plan_cache.forget()
    yield
    memory.end()


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        yield


def test_the_batch_alone_is_too_much():
    x, _ = make_batch()
    with pytest.raises(torch.OutOfMemoryError):
        memory.measure(lambda: x.to(DEVICE), ROOM)


@pytest.mark.usefixtures("silent")
class TestLazy:
    def test_a_step(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        give_gradients(model)
        memory.begin(ROOM)
        lazy, labels = koila.lazy(x, y, batch=0, device=DEVICE)
        assert lazy.device == labels.device == DEVICE
        loss = step(model, lazy, labels)
        how, figures = koila.last(), memory.read()
        assert how.tile < COUNT and figures.refusals == 0
        # All that is there: rows and labels of one tile, what is computed of them.
        assert 0 <= memory.end() - how.peak_bytes <= ROUNDING
        assert how.peak_bytes <= how.budget_bytes <= ROOM
        right = step(wanted, x, y)
        torch.testing.assert_close(loss.run(), right.detach())
        assert loss.run().device.type == "cpu"
        assert_equal_gradients(model, wanted)

    def test_results_as_large_as_the_batch(self):
        (model, wanted), (x, _) = make_pair(WIDTH), make_batch()
        memory.begin(ROOM)
        with torch.no_grad():
            out = model(koila.lazy(x, batch=0, device=DEVICE))
            found = out.run()
        how = koila.last()
        assert memory.end() == how.peak_bytes <= ROOM and how.tile < COUNT
        assert out.device == DEVICE and found.device.type == "cpu"
        torch.testing.assert_close(found, wanted(x).detach())

    def test_what_is_held_comes_down_with_a_step(self):
        (model, wanted), (x, y) = make_pair(WIDTH), make_batch()
        memory.begin(ROOM)
        lazy, labels = koila.lazy(x, y, batch=0, device=DEVICE)
        out = model(lazy)
        loss = F.cross_entropy(out, labels)
        loss.backward()
        assert koila.last().tile < COUNT and memory.end() <= ROOM
        torch.testing.assert_close(out.detach().cpu(), wanted(x).detach())
        step(wanted, x, y)
        assert_equal_gradients(model, wanted)

    def test_gradients_of_the_batch(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        other = x.clone().requires_grad_()
        x.requires_grad_()
        memory.begin(ROOM)
        step(model, *koila.lazy(x, y, batch=0, device=DEVICE))
        assert koila.last().tile < COUNT and memory.end() <= ROOM
        step(wanted, other, y)
        assert x.grad.device.type == "cpu"
        torch.testing.assert_close(x.grad, other.grad)
        assert_equal_gradients(model, wanted)

    def test_labels_larger_than_the_device(self):
        """How many of them count is found in a pass of its own, which leaves nothing there."""
        places = 128
        (model, wanted), (x, _) = make_pair(CLASSES * places), make_batch()
        y = torch.arange(COUNT * places).view(COUNT, places) % CLASSES
        y[::3] = -100
        give_gradients(model)

        def run(model, x, y):
            F.cross_entropy(model(x).view(-1, CLASSES, places), y).backward()

        assert y.nbytes > ROOM
        memory.begin(ROOM)
        run(model, *koila.lazy(x, y, batch=0, device=DEVICE))
        assert koila.last().tile < COUNT
        assert 0 <= memory.end() - koila.last().peak_bytes <= ROUNDING
        run(wanted, x, y)
        assert_equal_gradients(model, wanted)

    def test_steps_with_an_optimizer(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        optimizer, plain = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, wanted))
        memory.begin(ROOM)
        for _ in range(3):
            optimizer.zero_grad()
            plain.zero_grad()
            loss = step(model, *koila.lazy(x, y, batch=0, device="standin"))
            optimizer.step()
            right = step(wanted, x, y)
            plain.step()
            assert loss.item() == pytest.approx(right.item(), rel=1e-9)
        assert koila.last().tile < COUNT and memory.read().refusals == 0

    def test_the_generator_is_that_of_the_device(self):
        (model, _), (x, y) = make_pair(with_dropout=True), make_batch()
        plain = copy.deepcopy(model)
        torch.manual_seed(2)
        right = step(plain, x.to(DEVICE), y.to(DEVICE))
        then = torch.get_rng_state()
        torch.manual_seed(2)
        memory.begin(ROOM)
        loss = step(model, *koila.lazy(x, y, batch=0, device=DEVICE))
        assert koila.last().tile < COUNT and torch.equal(torch.get_rng_state(), then)
        torch.testing.assert_close(loss.run(), right.detach().cpu())
        for weight, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(weight.grad, other.grad)

    def test_parts_and_samples(self):
        (model, wanted), (x, _) = make_pair(), make_batch()
        order = torch.randperm(COUNT)
        memory.begin(ROOM)
        with torch.no_grad():
            lazy = koila.lazy(x, batch=0, device=DEVICE)
            right = wanted(x)
            parts = [model(part).cpu() for part in lazy.split(COUNT // 2)]
            torch.testing.assert_close(torch.cat(parts), right)
            torch.testing.assert_close(model(lazy[order]).cpu(), right[order])
            torch.testing.assert_close(lazy[3].run(), x[3])
        assert memory.end() <= ROOM

    def test_where_all_fits(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        memory.begin()
        with torch.no_grad():
            out = model(koila.lazy(x, batch=0, device=DEVICE))
            torch.testing.assert_close(out.run(), wanted(x))
        step(model, *koila.lazy(x, y, batch=0, device=DEVICE))
        assert koila.last().tile is None and memory.end() >= x.nbytes
        step(wanted, x, y)
        assert_equal_gradients(model, wanted)


class TestLazyWithWarnings:
    def test_statistics_of_the_whole_batch(self):
        """They are made of what the first layer gives for all samples, which is kept."""
        (model, wanted), (x, y) = make_pair(with_norm=True), make_batch()
        memory.begin(2 * ROOM)
        lazy, labels = koila.lazy(x, y, batch=0, device=DEVICE)
        with pytest.warns(koila.KoilaWarning, match="without a promise that they fit"):
            step(model, lazy, labels)
        assert koila.last().tile < COUNT and memory.end() <= 2 * ROOM < x.nbytes
        step(wanted, x, y)
        assert_equal_gradients(model, wanted)
        torch.testing.assert_close(model.norm.running_mean.cpu(), wanted.norm.running_mean)
        torch.testing.assert_close(model.norm.running_var.cpu(), wanted.norm.running_var)

    def test_memory_that_runs_out_all_the_same(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        give_gradients(model)
        memory.begin(ROOM // 4)
        lazy, labels = koila.lazy(x, y, batch=0, budget=ROOM, device=DEVICE)
        with pytest.warns(koila.KoilaWarning, match="memory ran out with .* this runs again with"):
            loss = step(model, lazy, labels)
        assert memory.read().refusals > 0
        right = step(wanted, x, y)
        torch.testing.assert_close(loss.run(), right.detach())
        assert_equal_gradients(model, wanted)

    def test_what_is_in_no_tiles(self):
        x, _ = make_batch()
        model = Centred().to(DEVICE)
        memory.begin(ROOM)
        with (
            torch.no_grad(),
            pytest.raises(torch.OutOfMemoryError),
            pytest.warns(koila.KoilaWarning, match="no tile fits .* which needs 8.00 MiB"),
        ):
            model(koila.lazy(x, batch=0, device=DEVICE)).run()
        memory.begin()
        with torch.no_grad():
            found = model(koila.lazy(x, batch=0, device=DEVICE)).run()
            torch.testing.assert_close(found, model.cpu()(x))

    def test_writes(self):
        x, _ = make_batch()
        before = x.clone()
        with torch.no_grad():
            lazy = koila.lazy(x, batch=0, device=DEVICE)
            lazy.add_(1)  # to a copy, as of x.to(device)
            torch.testing.assert_close(lazy.run(), before + 1)
            lazy = koila.lazy(x, batch=0, device=DEVICE)
            with pytest.raises(koila.KoilaError, match=r"'zero_' writes in place .*\n.*clone\(\)"):
                lazy[:, 0].zero_()
            own = lazy.clone()
            own[:, 0].zero_()
            assert not own.run()[:, 0].any()
        assert torch.equal(x, before)

    def test_devices(self):
        x, _ = make_batch()
        for device, words in (
            ("nothing", "device='nothing' is no device"),
            ("standin:3", "device='standin:3': one is here"),
            ("meta", "device='meta' has no memory"),
            ("xpu", "no figures of devices of type 'xpu'"),
        ):
            with pytest.raises(koila.KoilaError, match=words):
                koila.lazy(x, batch=0, device=device)
        with pytest.raises(koila.KoilaError, match="was given a tensor on standin:0"):
            koila.lazy(x.to(DEVICE), batch=0, device="cpu")
        # What is there stays there.
        there = x.to(DEVICE)
        assert koila.lazy(there, batch=0, device=DEVICE).run() is there
        assert koila.lazy(x, batch=0, device="cpu").run() is x
        # As PyTorch says it.
        with pytest.raises(RuntimeError, match="same device"):
            Model()(koila.lazy(x, batch=0, device=DEVICE))


class TestCompile:
    @pytest.mark.usefixtures("silent")
    def test_a_step(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        give_gradients(model)
        memory.begin(ROOM)
        compiled = koila.compile(model, x, y, loss="cross_entropy", device=DEVICE)
        assert compiled.tile < COUNT
        memory.begin(ROOM)
        loss = compiled.train_step(x, y)
        assert 0 <= memory.end() - compiled.report.peak <= ROUNDING
        transfers = compiled.report.data["transfers"]
        assert transfers["device_bytes"] == compiled.tile * (WIDTH + 1) * 8 < x.nbytes
        right = step(wanted, x, y)
        assert loss.device.type == "cpu"
        torch.testing.assert_close(loss, right.detach())
        assert_equal_gradients(model, wanted)
        loss, gradients = compiled.grads(x, y)
        torch.testing.assert_close(loss, right.detach())
        for gradient, weight in zip(gradients, wanted.parameters(), strict=True):
            assert gradient.device == DEVICE
            torch.testing.assert_close(gradient.cpu(), weight.grad)

    @pytest.mark.usefixtures("silent")
    def test_inference(self):
        (model, wanted), (x, _) = make_pair(WIDTH), make_batch()
        memory.begin(ROOM)
        compiled = koila.compile(model, x, device=DEVICE)
        memory.begin(ROOM)
        with torch.no_grad():
            found = compiled(x)
            assert memory.end() == compiled.report.peak <= ROOM and compiled.tile < COUNT
            assert found.device.type == "cpu"
            torch.testing.assert_close(found, wanted(x))
            # Another batch, and one that fits.
            torch.testing.assert_close(compiled(x[:7]), wanted(x[:7]))
            larger = torch.cat([x, x])
            memory.begin(ROOM)
            torch.testing.assert_close(compiled(larger), wanted(larger))
            assert memory.end() <= ROOM

    def test_calls_that_are_recorded(self):
        (model, wanted), (x, _) = make_pair(), make_batch()
        compiled = koila.compile(model, x, budget=ROOM, device=DEVICE)
        found = compiled(x)  # with its graph, and to be computed
        found.sum().backward()
        wanted(x).sum().backward()
        assert_equal_gradients(model, wanted)

    def test_memory_that_runs_out_all_the_same(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        give_gradients(model)
        compiled = koila.compile(model, x, y, loss="cross_entropy", budget=ROOM, device=DEVICE)
        memory.begin(ROOM // 4)
        with pytest.warns(koila.KoilaWarning, match="memory ran out"):
            compiled.train_step(x, y)
        step(wanted, x, y)
        assert_equal_gradients(model, wanted)

    def test_what_is_where(self):
        (model, other), (x, _) = make_pair(), make_batch()
        with pytest.raises(
            koila.CompileError, match=r"'first.weight' is on cpu, and device='standin:0'"
        ):
            koila.compile(other, x, device=DEVICE)
        with pytest.raises(koila.CompileError, match="an input is on standin:0, and"):
            koila.compile(model, x.to(DEVICE), device=DEVICE)
        compiled = koila.compile(model, x, tile=64, device=DEVICE)
        with pytest.raises(koila.CompileError, match="an input is on standin:0, and"):
            compiled(x.to(DEVICE))
        with pytest.raises(koila.KoilaError, match="is no device"):
            koila.compile(model, x, device="nothing")

    def test_specs(self):
        (model, wanted), (x, y) = make_pair(), make_batch()
        compiled = koila.compile(
            model,
            f"float64[B,{WIDTH}]",
            "int64[B]",
            batch=COUNT,
            tile=64,
            loss="cross_entropy",
            device=DEVICE,
        )
        compiled.train_step(x, y)
        step(wanted, x, y)
        assert_equal_gradients(model, wanted)


class TestAsACopy:
    """To the script the batch is what ``x.to(device)`` gives: a copy."""

    def test_the_caller_writes_to_it(self):
        x, _ = make_batch()
        lazy = koila.lazy(x, batch=0, device=DEVICE)
        x.zero_()
        with pytest.raises(koila.KoilaError, match="was written to since koila"):
            lazy.run()

    def test_what_is_run_is_written_to(self):
        x, _ = make_batch()
        before = x.clone()
        koila.lazy(x, batch=0, device=DEVICE).run().zero_()
        assert torch.equal(x, before)

    def test_what_is_detached_goes_with_it(self):
        (model, wanted), (x, _) = make_pair(), make_batch()
        lazy = koila.lazy(x, batch=0, device=DEVICE)
        detached = lazy.detach()
        assert detached.device == DEVICE
        torch.testing.assert_close(model(detached).run(), wanted(x))


class TestCompiled:
    def test_a_file_moves_nothing(self, tmp_path):
        model, _ = make_pair()
        compiled = koila.compile(model, make_batch()[0], tile=64, device=DEVICE)
        with pytest.raises(koila.CompileError, match="compile without device= for it"):
            compiled.save(tmp_path / "model.pt")

    def test_another_budget(self):
        (model, wanted), (x, _) = make_pair(), make_batch()
        with torch.no_grad():
            compiled = koila.compile(model, x, budget=ROOM, device=DEVICE)
            before, tile = compiled.report.data["transfers"]["device_bytes"], compiled.tile
            assert koila.fit(compiled, ROOM // 4) < tile
            assert (
                compiled.report.data["transfers"]["device_bytes"] == before * compiled.tile // tile
            )
            torch.testing.assert_close(compiled(x), wanted(x))

    def test_a_module_without_weights(self):
        x, _ = make_batch()
        with torch.no_grad():
            compiled = koila.compile(nn.Tanh(), x, budget=ROOM, device=DEVICE)
            koila.fit(compiled, ROOM // 2)
            torch.testing.assert_close(compiled(x), x.tanh())

    def test_the_tile_is_no_attribute_to_set(self):
        compiled = koila.compile(Model(), make_batch()[0], tile=64)
        with pytest.raises(AttributeError, match="is not set by hand here"):
            compiled.koila_tile = 32


class TestTiles:
    def test_rows_are_staged_in_pinned_memory(self, monkeypatch):
        """On CUDA alone, whose memory that is; only what goes up by tiles."""
        card = types.SimpleNamespace(name="Some", major=9, minor=0, multi_processor_count=1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
        module = torch.jit.trace(Model(), make_batch()[0][:2])

        def compile(device):
            return _compiler.compile_script(
                module,
                [f"float64[B,{WIDTH}]"],
                batch={"B": COUNT},
                tile=64,
                device=device,
                from_host=(0,),
            )

        made = compile(torch.device("cuda", 0))
        code = made.module.forward_guarded.code
        assert "torch._to_copy(torch.pin_memory(" in code
        assert "torch.pin_memory(" not in made.module.forward_untiled.code
        size = 64 * WIDTH * 8
        assert made.report["transfers"]["pinned_bytes"] == 2 * size
        there = compile(DEVICE)
        assert "torch.pin_memory(" not in there.module.forward_guarded.code
        assert there.report["transfers"] == {
            "device": "standin:0",
            "arguments": [0],
            "device_bytes": size,
            "pinned_bytes": 0,
        }

    def test_arguments_that_are_no_tensors(self):
        class Optional(nn.Module):
            def forward(self, x: torch.Tensor | None):
                assert x is not None
                return x.exp()

        script, (x, _) = torch.jit.script(Optional()), make_batch()
        words = "argument 'x' is on the CPU and is declared as Optional.Tensor.; only a Tensor"
        with pytest.raises(koila.CompileError, match=words):
            koila.compile(script, x, tile=64, device=DEVICE)

    def test_containers(self):
        class Pair(nn.Module):
            def forward(self, pair: tuple[torch.Tensor, torch.Tensor]):
                return pair[0] + pair[1]

        script, (x, _) = torch.jit.script(Pair()), make_batch()
        with pytest.raises(koila.CompileError, match="is no tensor by its place, and only such"):
            koila.compile(script, (x, x), tile=64, device=DEVICE)
        # A trace takes what is in them.
        with torch.no_grad():
            compiled = koila.compile(Pair(), (x, x), tile=64, device=DEVICE)
            torch.testing.assert_close(compiled((x, x)), 2 * x)
