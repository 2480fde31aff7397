"""Some batches are broken: what they raise is caught, and losses that are not finite skipped."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(19)
results = {"skipped": [], "losses": []}


class SetNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(6, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.out = nn.Linear(2 * dim, 4)

    def forward(self, x):
        h = self.each(x)
        return self.out(torch.cat([h.mean(1), h.amax(1)], dim=1))


def load(index):
    y = torch.randint(4, (80,))
    x = torch.randn(80, 32, 6) * (0.5 + y[:, None, None]) + torch.rand(80, 1, 6)
    if index == 1:
        x = x[..., :5]
    elif index == 3:
        x = x.double()
    elif index == 4:
        y[17] = 9
    elif index == 6:
        x[3, 4, 2] = float("nan")
    return x, y


def train_step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        return None
    loss.backward()
    optimizer.step()
    return loss.item()


model = SetNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for index in range(8):
    x, y = koila.lazy(*load(index), batch=0)
    try:
        loss = train_step(x, y)
    except (RuntimeError, IndexError) as error:
        results["skipped"].append((index, type(error).__name__, str(error).splitlines()[0]))
        print(f"skipping batch {index}: {error}")
        continue
    results["losses"].append((y.size(0), loss))
    print(f"batch {index}: loss {loss}")
results["weights"] = model.state_dict()
