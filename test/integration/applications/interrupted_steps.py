"""Ctrl-C while a step runs: gradients, statistics of layers and draws are as before;
where gradients are added to those of an earlier step, as after it."""

# points: 7

import time

import torch
from torch import nn

from applications_interrupt import interrupted

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
        for name, weight in model.named_parameters():
            state[f"{name}.grad"] = None if weight.grad is None else weight.grad.clone()
        return state | {"the generator": torch.get_rng_state()}

    def restore(state):
        model.load_state_dict({name: state[name] for name in model.state_dict()})
        for name, weight in model.named_parameters():
            gradient = state[f"{name}.grad"]
            weight.grad = None if gradient is None else gradient.clone()
        torch.set_rng_state(state["the generator"])

    def find_changes(state):
        found = copy_state()
        return [
            name
            for name, value in state.items()
            if (value is None) != (found[name] is None)
            or (value is not None and not torch.equal(value, found[name]))
        ]

    for accumulates in (False, True):
        if not accumulates:
            model.zero_grad()
        before = copy_state()
        step.train_step(x, y)
        after = copy_state()
        heard = 0
        for point in range(POINTS):
            restore(before)
            done = False
            with interrupted(seconds * (point + 0.5) / POINTS):
                step.train_step(x, y)
                done = True
            if not done:
                heard += 1
                changed = find_changes(before)
                if accumulates and changed:
                    changed = find_changes(after)
                app.check(not changed, f"after Ctrl-C {', '.join(changed)} are not as before")
            restore(before)
            step.train_step(x, y)
            off = find_changes(after)
            app.check(not off, f"the next step leaves other values in {', '.join(off)}")
        app.check(heard >= POINTS // 2, f"Ctrl-C was heard {heard} times of {POINTS}")
