"""One allocation of a step fails, whichever it is: the step is right, or nothing of it has
happened. Memory is what it is without."""

import gc
import math
import warnings

import pytest
import torch

import koila
from koila._compile import compiled, rollback
from koila._execute import smaller_tiles, undo
from koila._out_of_memory import is_out_of_memory
from out_of_memory_steps import LONG, Compiled, Lazily, differences, memory

SAMPLES = 32
STEPS = [
    (Lazily, False, None),
    (Lazily, True, 0.6),
    (Compiled, True, 0.6),
    *([(Lazily, False, 0.6), (Lazily, True, None)] if LONG else []),
    *([(Compiled, False, 0.6), (Compiled, False, None), (Compiled, True, None)] if LONG else []),
]


def attempt(way, **limits):
    """The loss of a step, or None of one that was not done; what it left; the bytes of it that
    are neither; and what it has changed although it was not done."""
    way.restart()
    before = way.look()
    way.prepare()
    found, changed = None, set()
    with warnings.catch_warnings(), memory.limited(**limits) as way.figures:
        warnings.simplefilter("ignore", koila.KoilaWarning)
        try:
            way.step()
            is_done = True
        except torch.OutOfMemoryError as error:
            assert is_out_of_memory(error)
            is_done = False
    left = way.look()
    if is_done:
        found = way.finish()
    else:
        changed = differences(left, before, exact=True) - way.prepared
    way.loss = None
    del before
    for weight in way.model.parameters():
        weight.grad = None
    gc.collect()
    known = sum(0 if each is None else each.nbytes for each in left.values())
    return found, left, memory.read()[0] - known, changed


def list_faults(way, most=None):
    """Of each allocation that fails, or of so many, its number and what is wrong then; how many
    of the steps were done, and how many allocations there are."""
    attempt(way)
    loss, wanted, *_ = attempt(way)
    count = way.figures.count
    # Once smaller tiles are compiled.
    for number in (count // 2, count // 3):
        live = attempt(way, failing=number)[2]
    done, wrong = 0, []
    for number in range(1, count + 1, 1 if most is None else max(count // most, 1)):
        for as_device in (False, True) if LONG else (number % 2 == 0,):
            found, left, now, changed = attempt(way, failing=number, as_device=as_device)
            if way.figures.refused != 1:
                wrong.append((number, "refused"))
            if found is None:
                wrong += [(number, name) for name in changed]
            else:
                done += 1
                wrong += [(number, name) for name in differences(left, wanted)]
                if not math.isclose(found, loss, rel_tol=1e-9):
                    wrong.append((number, "loss"))
            if now != live:
                wrong.append((number, f"{now - live} bytes"))
            del left  # which would count beside the next step
    return wrong, done, count


@pytest.mark.parametrize(("kind", "accumulates", "fraction"), STEPS)
def test_each_allocation(kind, accumulates, fraction):
    way = kind(SAMPLES, fraction, accumulates)
    wrong, done, count = list_faults(way)
    assert not wrong
    assert count > 20 and done > count // 2


# Controls: what is not taken back is seen.


def find_wrong(way):
    return {name for _, name in list_faults(way, most=8)[0]}


def test_gradients_and_statistics_that_stay(monkeypatch):
    monkeypatch.setattr(undo.Copies, "restore", lambda copies: None)
    wrong = find_wrong(Lazily(SAMPLES, 0.6, accumulates=True))
    assert {"0.weight.grad", "1.running_var"} <= wrong
    wrong = find_wrong(Compiled(SAMPLES, 0.6, accumulates=True))
    assert "0.weight.grad" in wrong and "1.running_var" not in wrong


def test_buffers_that_stay(monkeypatch):
    way = Compiled(SAMPLES, 0.6, accumulates=True)
    monkeypatch.setattr(rollback.Undo, "_copy_buffers", lambda undo: None)
    assert "1.running_var" in find_wrong(way)


def test_random_numbers_that_stay(monkeypatch):
    way = Compiled(SAMPLES, 0.6, accumulates=True)
    monkeypatch.setattr(rollback.RandomState, "restore", lambda state: None)
    assert {"generator", "loss"} <= find_wrong(way)


def test_an_error_that_is_kept(monkeypatch):
    """With its traceback, and what the step had made."""
    for kind, module in ((Lazily, smaller_tiles), (Compiled, compiled)):
        way, kept = kind(SAMPLES), []

        def keep(error, kept=kept):
            kept.append((error, error.__traceback__))
            return error

        monkeypatch.setattr(module, "let_go", keep)
        assert any(name.endswith(" bytes") for name in find_wrong(way))
