"""Ctrl-C while a step runs: gradients, statistics of layers and draws are as before."""

# points: 7

import time

import torch
from applications_interrupt import interrupted
from torch import nn

POINTS = 8


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, 4)
    )
    x, y = torch.randn(8192, 32), torch.randint(0, 4, (8192,))
    options = {"random": "full-batch-masks", "batchnorm": "per-tile"}
    step = koila.compile(model, x, y, loss="cross_entropy", tile=256, **options)
    step.train_step(x, y)
    start = time.perf_counter()
    step.train_step(x, y)
    seconds = time.perf_counter() - start

    def copy_state():
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state |= {f"{name}.grad": value.grad.clone() for name, value in model.named_parameters()}
        return state | {"the generator": torch.get_rng_state()}

    def restore(state):
        model.load_state_dict({name: state[name] for name in model.state_dict()})
        for name, weight in model.named_parameters():
            weight.grad.copy_(state[f"{name}.grad"])
        torch.set_rng_state(state["the generator"])

    before = copy_state()
    step.train_step(x, y)
    wanted = copy_state()
    heard = 0
    for point in range(POINTS):
        restore(before)
        done = False
        with interrupted(seconds * (point + 0.5) / POINTS):
            step.train_step(x, y)
            done = True
        if not done:
            heard += 1
            found = copy_state()
            changed = [name for name in before if not torch.equal(before[name], found[name])]
            app.check(not changed, f"after Ctrl-C {', '.join(changed)} are not as before")
        restore(before)
        step.train_step(x, y)
        found = copy_state()
        off = [name for name in wanted if not torch.equal(wanted[name], found[name])]
        app.check(not off, f"the next step leaves other values in {', '.join(off)}")
    app.check(heard >= POINTS // 2, f"Ctrl-C was heard {heard} times of {POINTS}")
