"""Fits a network for sets of points with LBFGS, whose closure runs the batch several times."""

# koila: tiles
import torch
from torch import nn

import koila

results = {}
torch.manual_seed(3)

# Points on ellipses, and the two radii of each.
radii = 0.3 + 1.5 * torch.rand(400, 2)
angle = 6.2832 * torch.rand(400, 48, 1)
clouds = torch.cat([angle.cos(), angle.sin()], 2) * radii[:, None]
clouds = clouds + 0.02 * torch.randn_like(clouds)
train_x, train_y = clouds[:200], radii[:200]
test_x, test_y = clouds[200:], radii[200:]


class PointNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
        )
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.each(x).mean(dim=1))


model = PointNet()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=6)
trace = []

for step in range(2):
    x, y = koila.lazy(train_x, train_y, batch=0)

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        trace.append(loss.item())
        return loss

    first = optimizer.step(closure)
    print("step", step, "loss before:", first.item(), "evaluations:", len(trace))

with torch.no_grad():
    x, y = koila.lazy(test_x, test_y, batch=0)
    pred = model(x)
    results["test loss"] = criterion(pred, y).item()
    results["worst"] = (pred - y).abs().max().item()
results["trace"] = trace
results["weights"] = model.state_dict()
