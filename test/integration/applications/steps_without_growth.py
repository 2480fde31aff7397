"""A long run: hundreds of steps and evaluations with one compiled module keep nothing."""

# points: 6, 3
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 512 << 10
MIB = 1 << 20


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    x, y = torch.randn(512, 32), torch.randint(0, 10, (512,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = koila.compile(model, x, y, loss="cross_entropy", budget=BUDGET)
    losses = []

    def train():
        optimizer.zero_grad()
        losses.append(float(step.train_step(x, y)))
        optimizer.step()

    def evaluate():
        with torch.no_grad():
            losses.append(step(x).square().mean().item())

    with app.within(BUDGET, model.parameters(), strict=True):
        for call in (train, evaluate):
            grown = app.grow(call, first=10, times=100)
            app.check(grown < MIB, f"{call.__name__}: 100 grow by {grown:,} bytes", "keeps")
    return {"losses": losses, "weights": model.state_dict()}
