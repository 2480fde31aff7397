"""Training with the arguments that losses take, within budgets, as the documentation has it."""

# points: 10, 3
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 1 << 20
LOSSES = (
    "cross_entropy(label_smoothing=0.1)",
    "cross_entropy(label_smoothing=0.1, ignore_index=0)",
    "cross_entropy(reduction=sum)",
    "cross_entropy",
)


def application(koila, app):
    results = {}
    for loss in LOSSES:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
        x, y = torch.randn(1024, 32), torch.randint(0, 10, (1024,))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        step = koila.compile(model, x, y, loss=loss, budget=BUDGET)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            with app.within(BUDGET, model.parameters(), strict=True):
                losses.append(float(step.train_step(x, y)))
            optimizer.step()
        asked = {"mode": "train", "loss": loss}
        peak = koila.analyze(model, x, y, **asked).peak
        largest = koila.max_batch(model, x, y, budget=BUDGET, **asked)
        results[loss] = losses, model.state_dict(), peak, largest
    model.eval()
    with torch.no_grad(), app.within(BUDGET, strict=True):
        results["answer"] = step(x)
    return results
