"""Loops that call a compiled module, compute their own loss of it, and go back through both."""

# points: 3
# catches: silent, wrong, keeps

import torch
from torch import nn
from torch.nn import functional

BUDGET = 1 << 20


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 8))


def application(koila, app):
    x = torch.randn(1024, 32, generator=torch.Generator().manual_seed(1))
    y = (x[:, :8].cumsum(1) > 0).float()
    results = {}
    trained = make_model()
    compiled = {
        "for steps": (trained, koila.compile(trained, x, y, loss="mse_loss", budget=BUDGET)),
    }
    model = make_model()
    compiled["for calls"] = model, koila.compile(model, x, budget=BUDGET)
    for name, (model, small) in compiled.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with app.within(BUDGET, model.parameters()):
                output = small(x)
                loss = functional.binary_cross_entropy_with_logits(output, y)
                loss = loss + 0.01 * output.square().mean()
                loss.backward()
            losses.append(loss.item())
            del output, loss
            optimizer.step()
        results[name] = losses, model.state_dict()
        with torch.no_grad(), app.within(BUDGET):
            results[f"{name}, at last"] = small(x)
    return results
