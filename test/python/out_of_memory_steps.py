"""Steps of training, and PyTorch's memory with an end, for the tests of memory that runs out.

PyTorch's allocator ends at a cap, or fails at one allocation. All counts are of what it refused.
"""

import contextlib
import ctypes
import dataclasses
import functools
import gc
import os
import pathlib
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila._compile.specialized_module import Specialization
from koila._plan import plan_cache

LONG = bool(os.environ.get("KOILA_TEST_LONG"))
WIDTH, HIDDEN, CLASSES = 4, 64, 3
RTOL, ATOL = 1e-9, 1e-11
NO_CAP = 1 << 62


@dataclasses.dataclass
class Figures:
    """The most bytes more than at the beginning, the refusals, and the allocations."""

    peak: int = 0
    refused: int = 0
    count: int = 0


class Memory:
    """PyTorch's memory of the CPU, with an end (tools/koila-run/CappedAllocator.cpp)."""

    def __init__(self):
        library = pathlib.Path(koila.__file__).parents[2] / "lib" / "libkoila-capped-allocator.so"
        self._library = ctypes.CDLL(str(library))
        self._library.koilaCapFail.restype = ctypes.c_int64
        self._library.koilaCapInstall()

    @contextlib.contextmanager
    def limited(self, extra=None, failing=0, as_device=False):
        """At most so many bytes more than now, and one allocation that fails, as those of
        devices or of the CPU do. Yields the figures, which are there at the end."""
        figures = Figures()
        gc.collect()
        start = self.read()[0]
        self._library.koilaCapSet(ctypes.c_int64(NO_CAP if extra is None else start + extra))
        self._library.koilaCapFail(ctypes.c_int64(failing))
        self._library.koilaCapRaiseOutOfMemory(as_device)
        try:
            yield figures
        finally:
            _, peak, figures.refused = self.read()
            figures.peak = peak - start
            figures.count = self._library.koilaCapFail(ctypes.c_int64(0))
            self._library.koilaCapSet(ctypes.c_int64(NO_CAP))
            self._library.koilaCapRaiseOutOfMemory(False)

    def read(self):
        """The bytes there are, the most there were, and the refusals."""
        values = [ctypes.c_int64() for _ in range(3)]
        self._library.koilaCapRead(*map(ctypes.byref, values))
        return [value.value for value in values]


memory = Memory()


@functools.cache
def with_tile(item, tile, name):
    return _with_tile(item, tile, name)


# Each tile is compiled once.
_with_tile, Specialization.with_tile = Specialization.with_tile, with_tile


def freeze():
    """Collections are of what steps make, not of all that has been imported: these take most of
    the time otherwise."""
    gc.collect()
    gc.freeze()


def make_model(norm):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        norm,
        nn.Tanh(),
        nn.Dropout(0.25),
        nn.Linear(WIDTH, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, CLASSES),
    ).double()


def make_batch(count):
    torch.manual_seed(1)
    # Samples that differ in scale: statistics of a tile are others.
    scale = torch.linspace(0.2, 3, count, dtype=torch.float64)[:, None]
    return torch.randn(count, WIDTH, dtype=torch.float64) * scale, torch.arange(count) % CLASSES


class Way:
    """One way to run steps of training. What may run out of memory is ``step``; ``prepare``
    comes before, and ``finish`` after it. With a ``fraction`` of what the whole batch needs as
    the budget it is in tiles; one that ``accumulates`` has gradients before the step."""

    loss: Any
    tile: int | None

    def __init__(self, samples, fraction=None, accumulates=False, norm=None):
        self.samples, self.accumulates = samples, accumulates
        self.model, self.batch = make_model(norm or nn.BatchNorm1d(WIDTH)), make_batch(samples)
        self.first = {key: value.clone() for key, value in self.model.state_dict().items()}
        self.figures = Figures()
        self.budget = "1TiB"
        self.restart()
        peak = self.find_peak()
        if fraction is not None:
            self.budget = int(peak * fraction)
        self.restart()
        freeze()

    def forget(self):
        raise NotImplementedError

    def find_peak(self):
        raise NotImplementedError

    def restart(self):
        """As before the first step, without what was learned of memory."""
        self.model.load_state_dict(self.first)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
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
    for plans in plan_cache._plans.values():
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
    names = set()
    for name, tensor in wanted.items():
        other = found[name]
        if tensor is None or other is None:
            is_same = tensor is other
        elif exact or not tensor.is_floating_point():
            is_same = torch.equal(tensor, other)
        else:
            is_same = torch.allclose(other, tensor, RTOL, ATOL)
        if not is_same:
            names.add(name)
    return names


def changes(way, before):
    """What a step has changed that raised."""
    return differences(way.look(), before, exact=True) - way.prepared


def run(way, **limits):
    """A step within limits, and one of the optimizer: the loss, what the step left, and what
    was said. The bytes and refusals are in ``figures``."""
    way.prepare()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", koila.KoilaWarning)
        with memory.limited(**limits) as way.figures:
            way.step()
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
    return way.figures.peak
