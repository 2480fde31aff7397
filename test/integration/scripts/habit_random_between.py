"""Draws for skipped layers, bootstrap weights and gradient noise come among those of dropout."""

# koila: tiles
import torch
from torch import nn
from torch.distributions import Exponential, Normal
from torch.nn import functional as F

import koila

results = {"loss": [], "depth": [], "noise": []}
torch.manual_seed(17)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.down(self.dropout(F.gelu(self.up(self.norm(x)))))


class LayerDropNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed, self.head = nn.Linear(6, dim), nn.Linear(dim, 3)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(4))

    def forward(self, x):
        x, self.used = self.embed(x), 0
        for block in self.blocks:
            if self.training and torch.rand(1).item() < 0.3:
                continue
            x, self.used = block(x), self.used + 1
        return self.head(x.mean(1))


# Three processes with other spreads, seen by 6 sensors.
kind = torch.randint(3, (384,))
readings = torch.randn(384, 24, 6) * (0.5 + kind[:, None, None]) + torch.rand(384, 1, 6)
model = LayerDropNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(zip(readings.split(96), kind.split(96))):
    x, y = koila.lazy(x, y, batch=0)
    losses = F.cross_entropy(model(x), y, reduction="none")
    weights = Exponential(1.0).sample((len(losses),))
    loss = (weights * losses).sum() / weights.sum()
    optimizer.zero_grad()
    loss.backward()
    noise = Normal(0.0, 0.01 / (1 + step) ** 0.55)
    for p in model.head.parameters():
        p.grad += noise.sample(p.shape)
    optimizer.step()
    results["loss"].append(loss.item())
    results["depth"].append(model.used)
    results["noise"].append(torch.rand(()).item())
    print(f"step {step}: {model.used} blocks, loss {loss.item():.4f}")
results["weights"] = model.state_dict()
