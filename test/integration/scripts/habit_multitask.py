"""Trains one encoder with two heads, a class and a number, on a weighted sum of two losses."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

results = {"kind": [], "strength": [], "total": []}
torch.manual_seed(0)


def make_signals(n):
    kind, strength = torch.randint(4, (n,)), 0.3 + 2 * torch.rand(n)
    waves = torch.sin((20 * kind[:, None] + 6) * torch.linspace(0, 1, 64) + torch.rand(n, 1))
    return (strength[:, None] * waves + 0.1 * torch.randn(n, 64))[:, None], kind, strength


class TwoHeads(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers = [nn.Conv1d(1, width, 5, padding=2), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Conv1d(width, width, 5, padding=2), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)
        self.kind = nn.Linear(2 * width, 4)
        self.strength = nn.Linear(2 * width, 1)

    def forward(self, x):
        h = self.encoder(x)
        h = torch.cat([h.mean(2), h.amax(2)], dim=1)
        return {"kind": self.kind(h), "strength": self.strength(h).squeeze(1)}


weights = {"kind": 1.0, "strength": 0.5}
model = TwoHeads()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(*make_signals(512)), batch_size=128, shuffle=True)
for x, kind, strength in loader:
    x, kind, strength = koila.lazy(x, kind, strength, batch=0)
    out = model(x)
    losses = {
        "kind": F.cross_entropy(out["kind"], kind),
        "strength": F.smooth_l1_loss(out["strength"], strength),
    }
    losses["total"] = sum(weights[task] * losses[task] for task in weights)
    optimizer.zero_grad()
    losses["total"].backward()
    optimizer.step()
    for name, value in losses.items():
        results[name].append(value.item())
    print(" ".join(f"{name} {values[-1]:.4f}" for name, values in results.items()))

with torch.no_grad():
    x, kind, strength = koila.lazy(*make_signals(192), batch=0)
    out = model(x)
    results["test kind"] = F.cross_entropy(out["kind"], kind).item()
    results["test error"] = (out["strength"] - strength).abs().mean().item()
results["weights"] = model.state_dict()
