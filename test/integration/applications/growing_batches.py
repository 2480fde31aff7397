"""Training whose batch grows from 128 to 2,048 samples, as the noise of gradients matters more."""

# points: 2
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 1 << 20


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    x = torch.randn(2048, 32)
    y = torch.randint(0, 10, (2048,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = koila.compile(model, x[:128], y[:128], loss="cross_entropy", budget=BUDGET)
    losses = []
    for size in (128, 256, 512, 2048):
        for _ in range(2):
            optimizer.zero_grad()
            with app.within(BUDGET, model.parameters(), strict=True):
                losses.append(float(step.train_step(x[:size], y[:size])))
            optimizer.step()
    loss, gradients = step.grads(x, y)
    return {"losses": losses, "weights": model.state_dict(), "last": (loss, gradients)}
