"""Memory that runs out although koila has planned that there is enough: the step runs in
smaller tiles, nothing is lost or done twice, and the next step begins with these.

PyTorch's allocator ends at a cap, or fails at one allocation. All counts are of what it
refused.
"""

import ctypes
import functools
import gc
import math
import os
import pathlib
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._compile.specialized_module import Specialization
from koila._execute import undo
from koila._out_of_memory import is_out_of_memory
from koila._plan import planner

LONG = bool(os.environ.get("KOILA_TEST_LONG"))
COUNT, WIDTH, CLASSES = 64, 16, 5
RTOL, ATOL = 1e-9, 1e-11
NO_CAP = 1 << 62


class Memory:
    """PyTorch's memory of the CPU, with an end (tools/koila-run/CappedAllocator.cpp)."""

    def __init__(self):
        library = pathlib.Path(koila.__file__).parents[2] / "lib" / "libkoila-capped-allocator.so"
        self._library = ctypes.CDLL(str(library))
        self._library.koilaCapFail.restype = ctypes.c_int64
        self._library.koilaCapInstall()

    def begin(self, extra=None, failing=0, as_device=False):
        """At most so many bytes more than now, and one allocation that fails."""
        gc.collect()
        self.start = self.read()[0]
        most = NO_CAP if extra is None else self.start + extra
        self._library.koilaCapSet(ctypes.c_int64(most))
        self._library.koilaCapFail(ctypes.c_int64(failing))
        self._library.koilaCapRaiseOutOfMemory(as_device)

    @staticmethod
    def size_of(tensors):
        return sum(0 if each is None else each.nbytes for each in tensors.values())

    def read(self):
        values = [ctypes.c_int64() for _ in range(3)]
        self._library.koilaCapRead(*map(ctypes.byref, values))
        return [value.value for value in values]

    def end(self):
        """The most bytes since the beginning, the refusals, and the allocations."""
        _, peak, refused = self.read()
        count = self._library.koilaCapFail(ctypes.c_int64(0))
        self._library.koilaCapSet(ctypes.c_int64(NO_CAP))
        self._library.koilaCapRaiseOutOfMemory(False)
        return peak - self.start, refused, count


memory = Memory()
# What is imported is not looked at with each collection.
gc.freeze()


@functools.cache
def with_tile(item, tile, name):
    return _with_tile(item, tile, name)


# Each tile is compiled once.
_with_tile, Specialization.with_tile = Specialization.with_tile, with_tile


@pytest.fixture(autouse=True)
def uncapped():
    yield
    memory.end()


def make_model():
    torch.manual_seed(0)
    hidden = [layer for _ in range(12) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.Tanh(),
        nn.Dropout(0.25),
        *hidden,
        nn.Linear(WIDTH, CLASSES),
    ).double()


def make_batch(count=COUNT):
    torch.manual_seed(1)
    # Samples that differ in scale: statistics of a tile are others.
    scale = torch.linspace(0.2, 3, count, dtype=torch.float64)[:, None]
    return torch.randn(count, WIDTH, dtype=torch.float64) * scale, torch.arange(count) % CLASSES


class Way:
    """One way to run steps of training. What may run out of memory is ``step``; ``prepare``
    comes before, and ``finish`` after it."""

    figures = 0, 0, 0
    loss: Any
    tile: int | None

    def __init__(self, fraction=None, accumulates=False):
        self.accumulates = accumulates
        self.model, self.batch = make_model(), make_batch()
        self.first = {key: value.clone() for key, value in self.model.state_dict().items()}
        self.budget = "1TiB"
        self.restart()
        if fraction is not None:
            self.budget = int(self.find_peak() * fraction)
            self.restart()

    def forget(self):
        raise NotImplementedError

    def find_peak(self):
        raise NotImplementedError

    def restart(self):
        """As before the first step, without what was learned of memory."""
        self.model.load_state_dict(self.first)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        for weight in self.model.parameters():
            weight.grad = torch.ones_like(weight) if self.accumulates else None
        torch.manual_seed(2)
        self.forget()

    def look(self):
        """All that a step changes. (Whoever looks at statistics that are to be updated makes the
        step run.)"""
        found = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        for name, weight in self.model.named_parameters():
            found[f"{name}.grad"] = None if weight.grad is None else weight.grad.clone()
        found["generator"] = torch.get_rng_state()
        return found


def forget_plans():
    """What was learned of memory."""
    for plans in planner._plans.values():
        for plan in plans:
            plan.most.clear()
            plan.announced.clear()
            plan.stays_whole = False


class Lazily(Way):
    # What is done when a step is recorded.
    prepared = frozenset({"1.num_batches_tracked", "generator"})

    def forget(self):
        forget_plans()

    def find_peak(self):
        self.prepare()
        self.step()
        self.finish()
        return koila.last().peak_bytes

    def prepare(self):
        x, target = koila.lazy(*self.batch, batch=0, budget=self.budget)
        self.loss = F.cross_entropy(self.model(x), target)

    def step(self):
        self.loss.backward()
        self.tile = koila.last().tile

    def finish(self):
        loss = self.loss.item()
        del self.loss
        return loss


class Compiled(Way):
    prepared = frozenset()
    compiled_for = None

    def compile(self, **options):
        self.compiled = koila.compile(
            self.model,
            *self.batch,
            loss="cross_entropy",
            budget=self.budget,
            random="full-batch-masks",
            check=False,
            **options,
        )
        self.main, self.compiled_for = self.compiled._selection.main, self.budget

    def forget(self):
        if self.compiled_for != self.budget:
            self.compile()
        selection = self.compiled._selection
        selection.main, selection._kept = self.main, [self.main]
        selection._most.clear()
        selection._told.clear()

    def find_peak(self):
        return self.compiled.report.peak

    def prepare(self):
        pass

    def step(self):
        self.loss = self.compiled.train_step(*self.batch)
        self.tile = self.compiled.tile

    def finish(self):
        return self.loss.item()


def differences(found, wanted, exact=False):
    """The names of what is not the same; but for ``exact`` up to rounding."""
    assert found.keys() == wanted.keys()
    names = []
    for name, tensor in wanted.items():
        other = found[name]
        if tensor is None or other is None:
            is_same = tensor is other
        elif exact or not tensor.is_floating_point():
            is_same = torch.equal(tensor, other)
        else:
            is_same = torch.allclose(other, tensor, RTOL, ATOL)
        if not is_same:
            names.append(name)
    return names


def assert_untouched(way, before):
    """A step that raised has done nothing."""
    assert not set(differences(way.look(), before, exact=True)) - way.prepared


def run(way, **limits):
    """A step within limits, and one of the optimizer: the loss, what the step left, and what
    was said. The bytes and refusals are in ``figures``."""
    way.prepare()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", koila.KoilaWarning)
        memory.begin(**limits)
        try:
            way.step()
        finally:
            way.figures = memory.end()
    loss = way.finish()
    left = way.look()
    way.optimizer.step()
    if not way.accumulates:
        way.optimizer.zero_grad()
    return loss, left, [str(each.message) for each in caught]


def measure(way):
    """The most bytes of a step that is planned already."""
    run(way)
    way.restart()
    run(way)
    way.restart()
    return way.figures[0]


def find_floor(way):
    """The most bytes of a step in tiles of one sample, once these are all that is tried."""
    way.restart()
    before = way.look()
    way.prepare()
    memory.begin(extra=8 << 10)
    with warnings.catch_warnings(), pytest.raises(torch.OutOfMemoryError) as caught:
        warnings.simplefilter("ignore")
        way.step()
    _, refused, _ = memory.end()
    assert refused <= 1 + math.log2(COUNT)
    assert "no tile is smaller" in str(caught.value)
    assert is_out_of_memory(caught.value.__cause__)
    assert_untouched(way, before)
    run(way)
    assert way.tile == 1
    return way.figures[0]


STEPS = [
    (kind, accumulates, fraction)
    for kind in (Lazily, Compiled)
    for accumulates in (False, True)
    for fraction in (None, 0.6)
    if LONG or accumulates == bool(fraction)
]


@pytest.mark.parametrize(("kind", "accumulates", "fraction"), STEPS)
def test_caps(kind, accumulates, fraction):
    """Every power of two between what the smallest tile needs and what is planned."""
    way = kind(fraction, accumulates)
    wanted = [run(way)[:2] for _ in range(2)]
    first, (planned, refused, _) = way.tile, way.figures
    assert refused == 0 and (first is None) == (fraction is None)
    floor = find_floor(way)
    caps = [1 << power for power in range(10, 40) if floor <= 1 << power < planned]
    assert caps, (floor, planned)
    tiles = []
    for cap in caps:
        way.restart()
        loss, left, said = run(way, extra=cap)
        peak, refused, _ = way.figures
        assert peak <= cap and 1 <= refused <= math.log2(first or COUNT)
        assert loss == pytest.approx(wanted[0][0], rel=1e-9)
        assert not differences(left, wanted[0][1])
        assert len(said) == 1 and "memory ran out with" in said[0]
        assert f"with {first or COUNT} samples at once" in said[0]
        assert way.tile < (first or COUNT)
        tiles.append(way.tile)
        # The next step begins with what this one has found.
        loss, left, said = run(way, extra=cap)
        assert way.figures[1] == 0 and not said and way.tile == tiles[-1]
        assert loss == pytest.approx(wanted[1][0], rel=1e-9)
        assert not differences(left, wanted[1][1])
    assert tiles == sorted(tiles)


def live_after(way, **limits):
    """Whether a step was done, what it gave or left, and the bytes that are left of it."""
    way.restart()
    before = way.look()
    way.prepare()
    found = None
    memory.begin(**limits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            way.step()
    except torch.OutOfMemoryError as error:
        assert is_out_of_memory(error)
    else:
        found = True
    way.figures = memory.end()
    left = way.look()
    if found is None:
        assert_untouched(way, before)
        way.loss = None
    else:
        found = way.finish()
    del before
    for weight in way.model.parameters():
        weight.grad = None
    gc.collect()
    return found, left, memory.read()[0]


@pytest.mark.parametrize(("kind", "accumulates", "fraction"), STEPS)
def test_faults(kind, accumulates, fraction):
    """One allocation of a step fails, whichever it is: the step is right, or nothing of it has
    happened. Memory is what it is without."""
    way = kind(fraction, accumulates)
    live_after(way)
    loss, wanted, _ = live_after(way)
    count = way.figures[2]
    assert count > 20
    # Once smaller tiles are compiled.
    _, left, live = live_after(way, failing=count // 2)
    live -= memory.size_of(left)
    done = 0
    for number in range(1, count + 1, 1 if LONG else count // 16):
        left = None
        found, left, now = live_after(way, failing=number, as_device=number % 2 == 0)
        assert way.figures[1] == 1, number
        if found is not None:
            done += 1
            assert found == pytest.approx(loss, rel=1e-9), number
            assert not differences(left, wanted), number
        assert now - memory.size_of(left) == live, number
    assert done


# What else runs.


class Evaluated:
    """A forward pass without gradients; ``how`` makes the values."""

    def __init__(self, how, fraction=None):
        self.how = how
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 3)).double()
        self.batch = make_batch()[0]
        self.wanted = self.model(self.batch).detach()
        self.budget = 64 * 256 * 8 if fraction else "1TiB"
        if how == "compiled":
            self.compiled = koila.compile(
                self.model, self.batch, budget=self.budget, batch=COUNT, check=False
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.begin()
        found, first = way()
        planned = memory.end()[0]
    torch.testing.assert_close(found, way.wanted)
    assert (first is None) == (fraction is None)
    for cap in (planned * 3 // 4, planned // 3):
        memory.begin(extra=cap)
        with pytest.warns(koila.KoilaWarning, match="memory ran out with .* samples at once"):
            found, tile = way()
        _, refused, _ = memory.end()
        assert 1 <= refused <= 6 and tile < (first or COUNT)
        torch.testing.assert_close(found, way.wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            memory.begin(extra=cap)
            found, tile = way()
            assert memory.end()[1] == 0
        if how == "compiled":
            way = Evaluated(how, fraction)
        else:
            way.batch = way.batch.clone()
            forget_plans()


def test_a_loss_that_is_read_first():
    """What it needs itself is found in tiles."""
    way = Lazily()
    loss, wanted, _ = run(way)
    way.restart()
    planned = measure(way)
    way.prepare()
    memory.begin(extra=planned * 3 // 4)
    with pytest.warns(koila.KoilaWarning, match="memory ran out"):
        assert way.loss.item() == pytest.approx(loss, rel=1e-9)
    assert koila.last().tile
    way.step()
    memory.end()
    way.finish()
    assert not differences(way.look(), wanted)


def test_gradients_that_are_asked_for():
    way = Lazily()
    way.prepare()
    weights = list(way.model.parameters())
    memory.begin()
    wanted = torch.autograd.grad(way.loss, weights)
    planned = memory.end()[0]
    way.restart()
    way.prepare()
    memory.begin(extra=planned * 3 // 4)
    with pytest.warns(koila.KoilaWarning, match="memory ran out"):
        found = torch.autograd.grad(way.loss, weights)
    memory.end()
    torch.testing.assert_close(found, wanted)


def test_strictly_it_is_an_error():
    for fraction in (None, 0.6):
        way = Lazily(fraction)
        planned = measure(way)
        before = way.look()
        way.prepare()
        memory.begin(extra=planned * 3 // 4)
        with (
            koila.strict(),
            pytest.raises(koila.OutOfMemoryError, match="memory ran out") as caught,
        ):
            way.step()
        assert memory.end()[1] == 1
        assert isinstance(caught.value, torch.OutOfMemoryError)
        assert is_out_of_memory(caught.value.__cause__)
        assert_untouched(way, before)
        del caught  # and what its traceback keeps
    way = Compiled(0.6)
    way.compile(guard="raise")
    planned = measure(way)
    before = way.look()
    memory.begin(extra=planned * 3 // 4)
    with pytest.raises(koila.OutOfMemoryError):
        way.step()
    assert memory.end()[1] == 1
    assert_untouched(way, before)


def test_warnings_that_are_errors_leave_nothing():
    for way in (Lazily(), Lazily(0.6), Compiled(), Compiled(0.6)):
        planned = measure(way)
        before = way.look()
        way.prepare()
        memory.begin(extra=planned * 3 // 4)
        with warnings.catch_warnings(), pytest.raises(koila.KoilaWarning):
            warnings.simplefilter("error")
            way.step()
        memory.end()
        if isinstance(way, Lazily):
            # It is still recorded, and statistics are updated for whoever looks.
            way.loss = None
            assert all(weight.grad is None for weight in way.model.parameters())
        else:
            assert_untouched(way, before)


def test_what_cannot_be_split_raises_what_pytorch_raises():
    """At the line of the call, and every time."""

    weight = nn.Parameter(torch.randn(64, 512, dtype=torch.float64))
    given = torch.randn(64, 64, dtype=torch.float64)

    def mix(x):
        return torch.linalg.svdvals(x.T @ x @ weight).sum()

    mix(koila.lazy(given, batch=0, budget="1TiB")).backward()
    weight.grad = None
    for _ in range(2):
        lazy = koila.lazy(given, batch=0, budget="1TiB")
        loss = mix(lazy)
        memory.begin(extra=64 * 512 * 8 + 100)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught:
                loss.backward()
        memory.end()
        assert not isinstance(caught.value, torch.OutOfMemoryError)
        assert str(caught.traceback[-1].path) == __file__
        assert weight.grad is None
        del loss, lazy, caught
    lazy = koila.lazy(given, batch=0, budget="1TiB")
    mix(lazy).backward()
    plain, weight.grad = weight.grad, None
    mix(given).backward()
    torch.testing.assert_close(plain, weight.grad)


# Controls.


def test_without_taking_back_gradients_are_doubled(monkeypatch):
    for kind in (Lazily, Compiled):
        way = kind(0.6, accumulates=True)
        wanted = run(way)[1]
        monkeypatch.setattr(undo.Copies, "restore", lambda copies: None)
        way.restart()
        # The last of the large allocations: some tiles have added theirs.
        found = run(way, failing=way.figures[2] * 3 // 4)[1]
        monkeypatch.undo()
        assert any(name.endswith(".grad") for name in differences(found, wanted))


class Complains(torch.autograd.Function):
    """As code of the user's may, with words like those of an allocator."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("the memory of this student is out of order: no allocation")


def test_errors_that_only_mention_memory_pass():
    weight = nn.Parameter(torch.ones(16, 4, dtype=torch.float64))
    x = koila.lazy(make_batch()[0], batch=0, budget="1TiB")
    loss = Complains.apply(x @ weight).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="this student"):
            loss.backward()
    assert weight.grad is None


def test_nothing_is_kept_of_what_failed():
    """Of the tensors that a traceback keeps, too: there is room for the last attempt alone."""
    for way in (Lazily(), Compiled()):
        run(way, extra=measure(way) * 15 // 16)
        tile = way.tile
        run(way)
        peak = way.figures[0]
        way.restart()
        run(way, extra=peak + (1 << 10))
        assert tile < COUNT and way.tile == tile
