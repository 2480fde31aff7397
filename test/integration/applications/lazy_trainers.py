"""A search over learning rates: two threads, each trains its own model with koila.lazy."""

# points: 5
# catches: silent, wrong, keeps

import threading

import torch
from torch import nn

BUDGET = 1 << 20
RATES = 0.05, 0.2
STEPS = 5


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 4))


def application(koila, app):
    x = torch.randn(2048, 32, generator=torch.Generator().manual_seed(1))
    y = (x[:, :4].cumsum(1) > 0).float()
    models = [make_model(seed) for seed in range(len(RATES))]
    for model in models:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
    losses = [[] for _ in RATES]
    together = threading.Barrier(len(RATES), timeout=10)

    def train(index):
        model = models[index]
        optimizer = torch.optim.SGD(model.parameters(), lr=RATES[index])
        for _ in range(STEPS):
            together.wait()
            inputs, target = koila.lazy(x, y, budget=BUDGET)
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(model(inputs), target)
            together.wait()  # both have begun, and neither has computed
            loss.backward()
            optimizer.step()
            losses[index].append(loss.item())

    threads = [threading.Thread(target=train, args=(index,)) for index in range(len(RATES))]
    with app.within(len(RATES) * BUDGET, strict=True):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"losses": losses, "weights": [model.state_dict() for model in models]}
