"""Memory that runs out although koila has planned that there is enough: what reaches the user
and what does not, of each way to run something."""

import warnings

import pytest
import torch
from torch import nn

import koila
from koila._compile.staleness import Follower
from koila._errors import GRADIENTS_STAY
from koila._execute import undo
from koila._out_of_memory import is_out_of_memory
from out_of_memory_steps import (
    WIDTH,
    Compiled,
    Lazily,
    changes,
    differences,
    forget_plans,
    freeze,
    make_batch,
    measure,
    memory,
    run,
)

SAMPLES = 32

# What else runs.


class Evaluated:
    """A forward pass without gradients; ``how`` makes the values."""

    def __init__(self, how, fraction=None):
        self.how = how
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 3)).double()
        self.batch = make_batch(SAMPLES)[0]
        self.wanted = self.model(self.batch).detach()
        freeze()
        self.budget = SAMPLES * 64 * 8 if fraction else "1TiB"
        if how == "compiled":
            self.compiled = koila.compile(
                self.model, self.batch, budget=self.budget, batch=SAMPLES, check=False
            )

    @torch.no_grad()
    def __call__(self):
        if self.how == "compiled":
            return self.compiled(self.batch), self.compiled.tile
        found = self.model(koila.lazy(self.batch, batch=0, budget=self.budget))
        if self.how == "run":
            return koila.run(found), koila.last().tile
        return torch.tensor(found.tolist(), dtype=found.dtype), koila.last().tile


@pytest.mark.parametrize("fraction", [None, 0.5])
@pytest.mark.parametrize("how", ["compiled", "run", "read"])
def test_forward_passes(how, fraction):
    way = Evaluated(how, fraction)
    forget_plans()
    with warnings.catch_warnings(), memory.limited() as figures:
        warnings.simplefilter("error")
        found, first = way()
    planned = figures.peak
    torch.testing.assert_close(found, way.wanted)
    assert (first is None) == (fraction is None)
    for cap in (planned * 3 // 4, planned // 3):
        with (
            pytest.warns(koila.KoilaWarning, match="memory ran out with .* samples at once"),
            memory.limited(extra=cap) as figures,
        ):
            found, tile = way()
        assert 1 <= figures.refused <= 5 and tile < (first or SAMPLES)
        torch.testing.assert_close(found, way.wanted)
        with warnings.catch_warnings(), memory.limited(extra=cap) as figures:
            warnings.simplefilter("error")
            found, tile = way()
        assert figures.refused == 0
        if how == "compiled":
            way = Evaluated(how, fraction)
        else:
            way.batch = way.batch.clone()
            forget_plans()


def measure_read(way):
    """Bytes of reading a loss, and of the step then."""
    planned = measure(way)
    way.prepare()
    with memory.limited() as figures:
        way.loss.item()
    way.restart()
    return figures.peak, planned


def test_a_loss_that_is_read_first():
    """What it needs itself is found in tiles."""
    way = Lazily(SAMPLES)
    loss, wanted, _ = run(way)
    way.restart()
    peak, _ = measure_read(way)
    way.prepare()
    with memory.limited(extra=peak * 3 // 4):
        with pytest.warns(koila.KoilaWarning, match="memory ran out"):
            assert way.loss.item() == pytest.approx(loss, rel=1e-9)
        assert koila.last().tile
        way.step()
    way.finish()
    assert not differences(way.look(), wanted)


def test_a_loss_that_was_read():
    """Where memory runs out behind that, the step is done in tiles; but not if the read has
    updated statistics."""
    for norm in (nn.Identity(), None):
        way = Lazily(SAMPLES, norm=norm)
        loss, wanted, _ = run(way)
        way.restart()
        cap = sum(measure_read(way)) // 2
        way.prepare()
        with memory.limited(extra=cap) as figures:
            assert way.loss.item() == pytest.approx(loss, rel=1e-9)
            assert koila.last().tile is None
            if norm is None:
                with pytest.raises(torch.OutOfMemoryError):
                    way.step()
                continue
            with pytest.warns(koila.KoilaWarning, match="memory ran out"):
                way.step()
            assert way.tile
        assert figures.refused
        way.finish()
        assert not differences(way.look(), wanted)


def test_gradients_that_are_asked_for():
    way = Lazily(SAMPLES)
    way.prepare()
    weights = list(way.model.parameters())
    with memory.limited() as figures:
        wanted = torch.autograd.grad(way.loss, weights)
    way.restart()
    way.prepare()
    with (
        memory.limited(extra=figures.peak * 3 // 4),
        pytest.warns(koila.KoilaWarning, match="memory ran out"),
    ):
        found = torch.autograd.grad(way.loss, weights)
    torch.testing.assert_close(found, wanted)


# What reaches the user.


@pytest.mark.parametrize("fraction", [None, 0.6])
def test_strictly_it_is_an_error(fraction):
    way = Lazily(SAMPLES, fraction)
    planned = measure(way)
    before = way.look()
    way.prepare()
    with (
        koila.strict(),
        memory.limited(extra=planned * 3 // 4) as figures,
        pytest.raises(koila.OutOfMemoryError, match="memory ran out") as caught,
    ):
        way.step()
    assert figures.refused == 1
    assert isinstance(caught.value, torch.OutOfMemoryError)
    assert is_out_of_memory(caught.value.__cause__)
    assert not changes(way, before)


def test_with_guards_that_raise_it_is_an_error():
    way = Compiled(SAMPLES, 0.6)
    way.compile(guard="raise")
    planned = measure(way)
    before = way.look()
    with (
        memory.limited(extra=planned * 3 // 4) as figures,
        pytest.raises(koila.OutOfMemoryError),
    ):
        way.step()
    assert figures.refused == 1
    assert not changes(way, before)


@pytest.mark.parametrize("kind", [Lazily, Compiled])
def test_warnings_that_are_errors_leave_nothing(kind):
    for way in (kind(SAMPLES), kind(SAMPLES, 0.6)):
        planned = measure(way)
        before = way.look()
        way.prepare()
        with (
            warnings.catch_warnings(),
            memory.limited(extra=planned * 3 // 4),
            pytest.raises(koila.KoilaWarning),
        ):
            warnings.simplefilter("error")
            way.step()
        if kind is Lazily:
            # It is still recorded, and statistics are updated for whoever looks.
            way.loss = None
            assert all(weight.grad is None for weight in way.model.parameters())
        else:
            assert not changes(way, before)


@pytest.mark.parametrize("as_device", [False, True])
def test_what_cannot_be_split(as_device):
    """It is an error at the line of the call, and every time, with PyTorch's as its cause where
    that is none of PyTorch's class for it."""
    weight = nn.Parameter(torch.randn(16, 128, dtype=torch.float64))
    given = torch.randn(16, 16, dtype=torch.float64)

    def mix(x):
        return torch.linalg.svdvals(x.T @ x @ weight).sum()

    mix(koila.lazy(given, batch=0, budget="1TiB")).backward()
    weight.grad = None
    for _ in range(2):
        lazy = koila.lazy(given, batch=0, budget="1TiB")
        loss = mix(lazy)
        with (
            warnings.catch_warnings(),
            memory.limited(extra=16 * 128 * 8 + 100, as_device=as_device),
            pytest.raises(torch.OutOfMemoryError, match="DefaultCPUAllocator") as caught,
        ):
            warnings.simplefilter("error")
            loss.backward()
        assert isinstance(caught.value, koila.OutOfMemoryError) != as_device
        assert is_out_of_memory(caught.value if as_device else caught.value.__cause__)
        assert str(caught.traceback[-1].path) == __file__
        assert weight.grad is None
        del loss, lazy, caught
    lazy = koila.lazy(given, batch=0, budget="1TiB")
    mix(lazy).backward()
    plain, weight.grad = weight.grad, None
    mix(given).backward()
    torch.testing.assert_close(plain, weight.grad)


def test_without_memory_for_copies_it_says_what_stays(monkeypatch):
    """Of what tiles have added to gradients that were there."""

    def fail(copies, tensors, **options):
        raise MemoryError

    monkeypatch.setattr(undo.Copies, "__init__", fail)
    for kind in (Lazily, Compiled):
        way = kind(SAMPLES, 0.6, accumulates=True)
        planned = measure(way)
        way.prepare()
        with (
            memory.limited(extra=planned * 3 // 4),
            pytest.raises(koila.OutOfMemoryError, match=GRADIENTS_STAY),
        ):
            way.step()


# Errors of others.

MENTIONS = "the memory of this student is out of order: no allocation"
SAYS = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Complains(torch.autograd.Function):
    """``text`` is what it says in a backward pass."""

    text = ""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError(Complains.text)


def complain(text):
    """What a step raises in which PyTorch raises something with this text."""
    Complains.text = text
    weight = nn.Parameter(torch.ones(WIDTH, 4, dtype=torch.float64))
    x = koila.lazy(make_batch(SAMPLES)[0], batch=0, budget="1TiB")
    loss = Complains.apply(x @ weight).sum()
    with warnings.catch_warnings(), pytest.raises(RuntimeError) as caught:
        warnings.simplefilter("error")
        loss.backward()
    assert weight.grad is None
    return caught.value


def test_errors_that_only_mention_memory_pass():
    error = complain(MENTIONS)
    assert not isinstance(error, torch.OutOfMemoryError) and MENTIONS in str(error)
    # The same in the words of an allocator.
    error = complain(SAYS)
    assert isinstance(error, torch.OutOfMemoryError) and SAYS in str(error)


def test_compiled_calls_are_not_shrunk_for_these(monkeypatch):
    way = Compiled(SAMPLES)
    wanted = run(way)[1]
    for text, is_shrunk in ((MENTIONS, False), (SAYS, True)):
        way.restart()
        original, texts = Follower.read_back, [text]

        def fail(follower, original=original, texts=texts):
            """At the end of the step."""
            if texts:
                raise RuntimeError(texts.pop())
            original(follower)

        monkeypatch.setattr(Follower, "read_back", fail)
        _, left, said = run(way)
        monkeypatch.undo()
        assert not differences(left, wanted)
        assert bool(said) == (way.tile is not None) == is_shrunk


def test_smallest_tiles_of_a_plan():
    """Where there is no smaller one, the next plan runs more again, and nothing is compiled."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24)) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(20 * 24, 4)).double()
    x, target = torch.randn(6, 20, 24).double(), torch.arange(6) % 4
    compiled = koila.compile(
        model, x, target, loss="cross_entropy", budget="300KiB", plans=3, check=False
    )
    plans = compiled.report.data["plans"]
    upper = max(plans, key=lambda plan: plan["budget_bytes"])
    koila.fit(compiled, upper["budget_bytes"])
    peaks = [row["peak_bytes"] for row in upper["by_tile"]]

    def gradients_of(extra):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        with memory.limited(extra=extra) as figures:
            compiled.train_step(x, target)
        return figures, [weight.grad for weight in model.parameters()]

    _, wanted = gradients_of(None)
    cap = min(peaks) - 512
    with pytest.warns(koila.KoilaWarning, match="runs again with"):
        figures, found = gradients_of(cap)
    assert 1 <= figures.refused <= len(peaks) + len(plans) and figures.peak <= cap
    for gradient, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, other)
    assert upper is not plans[compiled.script.koila_plan]
    assert compiled.report.peak < min(peaks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradients_of(cap)[0].refused == 0
