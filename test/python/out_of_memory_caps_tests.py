"""Memory ends at every power of two below what a step was planned to need: it runs in smaller
tiles, with the same results, and the next step begins with these."""

import math
import warnings

import pytest
import torch

import koila
from koila._compile import program_selection
from koila._out_of_memory import is_out_of_memory
from koila._plan import plan_cache, planner
from koila._plan.planner import half_of
from out_of_memory_steps import LONG, Compiled, Lazily, changes, differences, measure, memory, run

SAMPLES = 64
STEPS = [
    (kind, accumulates, fraction)
    for kind in (Lazily, Compiled)
    for accumulates in (False, True)
    for fraction in (None, 0.6)
    if LONG or accumulates == bool(fraction)
]


def find_floor(way):
    """The most bytes of a step in tiles of one sample, once these are all that is tried."""
    way.restart()
    before = way.look()
    way.prepare()
    with (
        warnings.catch_warnings(),
        memory.limited(extra=512) as figures,
        pytest.raises(torch.OutOfMemoryError) as caught,
    ):
        warnings.simplefilter("ignore")
        way.step()
    assert figures.refused <= 1 + math.log2(SAMPLES)
    assert "no tile is smaller" in str(caught.value)
    assert is_out_of_memory(caught.value.__cause__)
    assert not changes(way, before)
    run(way)
    assert way.tile == 1
    return way.figures.peak


@pytest.mark.parametrize(("kind", "accumulates", "fraction"), STEPS)
def test_caps(kind, accumulates, fraction):
    way = kind(SAMPLES, fraction, accumulates)
    wanted = [run(way)[:2] for _ in range(2)]
    first, planned = way.tile, way.figures.peak
    assert way.figures.refused == 0 and (first is None) == (fraction is None)
    floor = find_floor(way)
    caps = [1 << power for power in range(8, 40) if floor <= 1 << power < planned]
    assert len(caps) > 1, (floor, planned)
    tiles = []
    for cap in caps:
        way.restart()
        loss, left, said = run(way, extra=cap)
        figures = way.figures
        assert figures.peak <= cap and 1 <= figures.refused <= math.log2(first or SAMPLES)
        assert loss == pytest.approx(wanted[0][0], rel=1e-9)
        assert not differences(left, wanted[0][1])
        assert len(said) == 1 and "memory ran out with" in said[0]
        assert f"with {first or SAMPLES} samples at once" in said[0]
        assert way.tile < (first or SAMPLES)
        tiles.append(way.tile)
        # The next step begins with what this one has found.
        loss, left, said = run(way, extra=cap)
        assert way.figures.refused == 0 and not said and way.tile == tiles[-1]
        assert loss == pytest.approx(wanted[1][0], rel=1e-9)
        assert not differences(left, wanted[1][1])
    assert tiles == sorted(tiles)


@pytest.mark.parametrize("kind", [Lazily, Compiled])
def test_each_place_is_told_once(kind):
    way = kind(SAMPLES)
    cap = measure(way) // 2

    def again(step):
        """As if what was found were forgotten, but not that it was said."""
        if kind is Lazily:
            for plans in plan_cache._plans.values():
                for plan in plans:
                    plan.most.clear()
        else:
            told = set(way.compiled._selection._told)
            way.forget()
            way.compiled._selection._told |= told
        way.prepare()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", koila.KoilaWarning)
            with memory.limited(extra=cap) as figures:
                step()
        assert figures.refused
        way.finish()
        return len(caught)

    def step():
        way.step()

    assert [again(step) for _ in range(3)] == [1, 0, 0]
    if kind is Lazily:
        another = lambda: way.loss.backward()
    else:

        def another():
            way.loss = way.compiled.train_step(*way.batch)

    assert [again(another) for _ in range(2)] == [1, 0]


# Controls.


def test_each_tile_is_tried_once(monkeypatch):
    """More refusals than the logarithm are seen."""
    tried = []

    def find_next(samples):
        tried.append(samples)
        return samples if tried.count(samples) == 1 else half_of(samples)

    for module in (planner, program_selection):
        monkeypatch.setattr(module, "half_of", find_next)
    for kind in (Lazily, Compiled):
        way = kind(SAMPLES, 0.6)
        way.prepare()
        tried.clear()
        with (
            warnings.catch_warnings(),
            memory.limited(extra=512) as figures,
            pytest.raises(torch.OutOfMemoryError),
        ):
            warnings.simplefilter("ignore")
            way.step()
        assert figures.refused > 1 + math.log2(SAMPLES)


def test_what_is_forgotten_is_found_again():
    for kind in (Lazily, Compiled):
        way = kind(SAMPLES)
        cap = measure(way) // 2
        for _ in range(2):
            run(way, extra=cap)
            assert way.figures.refused
            way.forget()


def test_nothing_is_kept_of_what_failed():
    """Of the tensors that a traceback keeps, too: there is room for the last attempt alone."""
    for kind in (Lazily, Compiled):
        way = kind(SAMPLES)
        run(way, extra=measure(way) * 15 // 16)
        tile = way.tile
        run(way)
        peak = way.figures.peak
        way.restart()
        run(way, extra=peak + 64)
        assert tile < SAMPLES and way.tile == tile
