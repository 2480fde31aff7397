"""AdaBoost of small networks: samples have weights, which grow where the last learner is wrong."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(21)
n, size = 384, 128

# Rising or falling sequences, some of them with a step that misleads.
label = torch.randint(2, (n,))
slope = (2 * label[:, None] - 1) * (0.3 + torch.rand(n, 1))
x = slope * torch.linspace(-1, 1, 48) + 0.1 * torch.randn(n, 48)
x[::7, 24:] += 1.5
x = torch.stack([x, 8 * x.diff(dim=1, prepend=x[:, :1])], dim=2)


class Learner(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(2, dim), nn.ELU(), nn.Linear(dim, dim), nn.ELU())
        self.score = nn.Linear(dim, 1, bias=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.point(x)
        attention = self.score(h).softmax(dim=1)
        return self.out((attention * h).sum(1))


weights = torch.full((n,), 1 / n)
learners, alphas, log = [], [], torch.zeros(2, n)
for number in range(2):
    learner = Learner()
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.02)
    for start in range(0, n, size):
        batch = slice(start, start + size)
        xb, yb, wb = koila.lazy(x[batch], label[batch], weights[batch], batch=0)
        losses = F.cross_entropy(learner(xb), yb, reduction="none")
        log[number, batch] = losses.detach()
        loss = (wb * losses).sum() / wb.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        xb, yb = koila.lazy(x, label, batch=0)
        margin = (learner(xb).softmax(1) * F.one_hot(yb, 2)).sum(1)
    error = (weights * (1 - margin)).sum()
    alpha = 0.5 * torch.log((1 - error) / error)
    weights = weights * torch.exp(-alpha * (2 * margin - 1))
    weights = weights / weights.sum()
    learners.append(learner)
    alphas.append(alpha.item())
    print(f"round {number}: error {error:.4f} alpha {alpha:.4f} largest weight {weights.max():.5f}")

results = {"alphas": alphas, "sample weights": weights.numpy(), "log": log}
results["weights"] = [learner.state_dict() for learner in learners]
