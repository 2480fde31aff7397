"""``koila.lazy`` in several threads: what each records is its own."""

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
from koila._plan import plan_cache

STEPS = 4
BUDGET = "1.5MiB"


def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(512, 64, generator=generator)
    return x, torch.randint(10, (512,), generator=generator)


def train(model, batches, prepare):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, tiles = [], []
    for x, y in batches:
        x, y = prepare(x, y)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tiles.append(koila.last())
    return losses, tiles


def in_tiles(x, y):
    return koila.lazy(x, y, batch=0, budget=BUDGET)


def run_in_threads(*functions):
    """What each returned; raises what one of them raised."""
    found: list = [None] * len(functions)

    def call(place, function):
        try:
            found[place] = function()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=call, args=entry) for entry in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found


@pytest.mark.parametrize("shared", [False, True], ids=["batches of their own", "one batch"])
def test_models_that_train_side_by_side(shared):
    # All are of one architecture, so that their programs are equal.
    seeds = range(3)
    models = [make(seed) for seed in seeds]
    batches = [[batch(0 if shared else 10 * seed + i) for i in range(STEPS)] for seed in seeds]
    wanted = [train(make(seed), batches[seed], lambda x, y: (x, y))[0] for seed in seeds]
    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        found = run_in_threads(
            *(lambda seed=seed: train(models[seed], batches[seed], in_tiles) for seed in seeds)
        )
    for (losses, last), plain in zip(found, wanted, strict=True):
        torch.testing.assert_close(losses, plain, rtol=1e-5, atol=0)
        assert all(run.tile is not None and run.announced is None for run in last)
        assert all(run.peak_bytes <= 3 << 19 for run in last)


def test_a_model_that_threads_share():
    model = make(0)
    data = [batch(seed)[0] for seed in range(3)]

    def infer(x):
        with torch.no_grad():
            return [koila.run(model(koila.lazy(x, batch=0, budget="1MiB"))) for _ in range(4)]

    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        found = run_in_threads(*(lambda x=x: infer(x) for x in data))
    for results, x in zip(found, data, strict=True):
        for result in results:
            torch.testing.assert_close(result, model(x).detach())


def test_the_thread_that_comes_next_compiles_nothing():
    plan_cache.forget()
    x, y = batch(1)
    for _ in range(3):
        run_in_threads(lambda: train(make(1), [(x, y)], in_tiles))
    plans = [plan for plans in plan_cache._plans.values() for plan in plans]
    assert len(plans) == len(plan_cache._plans)
    assert any(plan.compiled for plan in plans)


def test_what_is_read_in_another_thread():
    model = make(2)
    x, y = batch(2)
    lazy_x, lazy_y = in_tiles(x, y)
    loss = functional.cross_entropy(model(lazy_x), lazy_y)

    def step():
        loss.backward()
        return loss.item()

    [found] = run_in_threads(step)
    gradients = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    wanted = functional.cross_entropy(model(x), y)
    wanted.backward()
    torch.testing.assert_close(found, wanted.item(), rtol=1e-5, atol=0)
    torch.testing.assert_close(gradients, [weight.grad for weight in model.parameters()])


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))
