"""Early stopping: the best weights are saved, come back at the end, and a new process goes on."""

# points: 3
# catches: silent, wrong, keeps

import copy

import torch
from torch import nn

BUDGET = 1 << 20


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.GroupNorm(2, 16),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )


def application(koila, app):
    torch.manual_seed(0)
    model = make_model()
    x, y = torch.randn(192, 1, 16, 16), torch.randint(0, 4, (192,))
    x += 0.5 * y[:, None, None, None]
    train, valid = slice(0, 128), slice(128, 192)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = koila.compile(model, x[train], y[train], loss="cross_entropy", budget=BUDGET)
    best, curve = float("inf"), []
    path = app.folder / "best.pt"

    def evaluate(module):
        module.eval()
        with torch.no_grad(), app.within(BUDGET, strict=True):
            output = module(x[valid])
        module.train()
        return nn.functional.cross_entropy(output, y[valid]).item()

    for epoch in range(4):
        optimizer.zero_grad()
        with app.within(BUDGET, model.parameters()):
            step.train_step(x[train], y[train])
        optimizer.step()
        curve.append(evaluate(step))
        if curve[-1] < best and epoch < 3:
            best = curve[-1]
            state = {"model": step.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(copy.deepcopy(state), path)
    state = torch.load(path)
    step.load_state_dict(state["model"])
    curve.append(evaluate(step))
    # As after a crash: other objects, the same state.
    again = make_model()
    again.load_state_dict(state["model"])
    optimizer = torch.optim.Adam(again.parameters(), lr=1e-2)
    optimizer.load_state_dict(state["optimizer"])
    step = koila.compile(again, x[train], y[train], loss="cross_entropy", budget=BUDGET)
    optimizer.zero_grad()
    with app.within(BUDGET, again.parameters()):
        curve.append(float(step.train_step(x[train], y[train])))
    optimizer.step()
    return {"curve": curve, "weights": again.state_dict(), "first": model.state_dict()}
