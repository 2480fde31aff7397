"""Updates a dict of weights by hand, with momentum, decay and an L1 penalty (functional_call)."""

# koila: tiles
import torch
from torch import nn
from torch.func import functional_call

import koila

torch.manual_seed(15)
lr, momentum, decay, l1 = 0.02, 0.8, 1e-2, 1e-4

# Weekly sums of a daily series with a trend and a season; the next week is wanted.
trend, season = torch.randn(512, 1) / 2, torch.rand(512, 1) * 6.28
days = torch.linspace(0, 4, 70)
series = trend * days + torch.sin(6.28 * days + season) + 0.1 * torch.randn(512, 70)
history, future = series[:, None, :63], series[:, 63:]

net = nn.Sequential(
    nn.Conv1d(1, 24, 7, padding=3),
    nn.Tanh(),
    nn.Conv1d(24, 24, 7, padding=3),
    nn.Tanh(),
    nn.Conv1d(24, 8, 7, stride=7),
    nn.Flatten(),
    nn.Linear(72, 7),
)
params = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
velocity = {name: torch.zeros_like(p) for name, p in params.items()}
mse, penalties = [], []
for x, y in zip(history[:384].split(96), future[:384].split(96)):
    x, y = koila.lazy(x, y, batch=0)
    prediction = functional_call(net, params, (x,))
    error = ((prediction - y) ** 2).mean()
    penalty = sum(p.abs().sum() for name, p in params.items() if name.endswith("weight"))
    loss = error + l1 * penalty
    loss.backward()
    with torch.no_grad():
        for name, p in params.items():
            velocity[name] = momentum * velocity[name] + p.grad + decay * p
            p -= lr * velocity[name]
            p.grad = None
    mse.append(error.item())
    penalties.append(penalty.item())
    print(f"mse {mse[-1]:.5f} l1 {penalties[-1]:.3f}")

with torch.no_grad():
    x, y = koila.lazy(history[384:], future[384:], batch=0)
    days_off = (functional_call(net, params, (x,)) - y).abs().mean(dim=0)
results = {
    "mse": mse,
    "penalty": penalties,
    "error by day": days_off,
    "weights": {name: p.detach() for name, p in params.items()},
}
