"""A GRUCell forecasts series, fed with truth or its own forecast by a ratio that falls."""

# koila: tiles
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(21)
HISTORY, HORIZON = 16, 12

# Daily load curves: trend, season and noise; every series has its own level.
time = torch.arange(HISTORY + HORIZON, dtype=torch.float32)
level, speed = torch.rand(352, 1) * 3, 0.2 + torch.rand(352, 1)
series = level + 0.05 * level * time + torch.sin(speed * time) + 0.05 * torch.randn(352, len(time))
history, future = series[:, :HISTORY, None], series[:, HISTORY:, None]


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.cell = nn.GRUCell(1, hidden)
        self.out = nn.Sequential(nn.Linear(hidden, 24), nn.Tanh(), nn.Linear(24, 1))
        self.hidden = hidden

    def forward(self, history, truth=None, ratio=0.0):
        hidden = torch.zeros(history.size(0), self.hidden, device=history.device)
        for t in range(history.size(1)):
            hidden = self.cell(history[:, t], hidden)
        value, forecasts = history[:, -1], []
        for t in range(HORIZON):
            value = value + self.out(hidden)
            forecasts.append(value)
            if truth is not None:
                use_truth = torch.rand(history.size(0), 1) < ratio
                value = torch.where(use_truth, truth[:, t], value)
            hidden = self.cell(value, hidden)
        return torch.stack(forecasts, dim=1)


model = Forecaster()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, eps=1e-5)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
results = {"mse": []}
loader = DataLoader(TensorDataset(history[:256], future[:256]), batch_size=128, shuffle=True)
for epoch in range(2):
    ratio = 0.9**epoch
    for past, target in loader:
        past, target = koila.lazy(past, target, batch=0)
        loss = nn.functional.mse_loss(model(past, target, ratio), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        results["mse"].append(loss.detach().item())
    scheduler.step()
    print(f"epoch {epoch}: truth {ratio:.2f}, mse {np.mean(results['mse'][-2:]):.4f}")

with torch.no_grad():
    past, target = koila.lazy(history[256:], future[256:], batch=0)
    forecast = model(past)
    results["mae_by_step"] = (forecast - target).abs().mean(dim=(0, 2)).numpy()
    results["forecast"] = forecast.squeeze(-1).numpy()
results["weights"] = model.state_dict()
