"""Counts of claims are regressed by a sum of small networks, with a Poisson loss of its own."""

# koila: tiles
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import koila

torch.manual_seed(43)
FEATURES, HIDDEN = 9, 32
x, exposure = torch.randn(1400, FEATURES), 0.2 + 3 * torch.rand(1400)
rate = torch.exp(0.5 * x[:, 0] - 0.3 * x[:, 1].abs() + 0.2 * torch.sin(3 * x[:, 2]))
claims = torch.poisson(rate * exposure)


class AdditiveModel(nn.Module):
    """A network for every feature; what they say is added up."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(FEATURES, HIDDEN))
        self.shift = nn.Parameter(torch.zeros(FEATURES, HIDDEN))
        self.second = nn.Parameter(torch.randn(FEATURES, HIDDEN, HIDDEN) / HIDDEN**0.5)
        self.last = nn.Parameter(torch.randn(FEATURES, HIDDEN) / HIDDEN)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x, exposure):
        h = torch.relu(x.unsqueeze(-1) * self.first + self.shift)
        h = torch.relu(torch.einsum("bfh,fhk->bfk", h, self.second))
        return torch.exp((h * self.last).sum(dim=(1, 2)) + self.bias) * exposure


def poisson_loss(predicted, count):
    return torch.mean(predicted - count * torch.log(predicted + 1e-8))


def deviance(predicted, count):
    return 2 * (torch.special.xlogy(count, count / predicted) - (count - predicted))


model = AdditiveModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
data = TensorDataset(x, exposure, claims)
train, test = Subset(data, range(960)), Subset(data, range(960, 1400))
losses, deviances = [], []
for batch in DataLoader(train, batch_size=480, shuffle=True):
    features, time, count = koila.lazy(*batch, batch=0)
    predicted = model(features, time)
    loss = poisson_loss(predicted, count)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    deviances.append(deviance(predicted.detach(), count))
results = {"losses": losses, "deviance": torch.cat(deviances).mean().item()}

predictions, truth = [], []
with torch.no_grad():
    for batch in DataLoader(test, batch_size=240):
        features, time, count = koila.lazy(*batch, batch=0)
        predictions.append(model(features, time).numpy())
        truth.append(count.numpy())
predictions, truth = np.concatenate(predictions), np.concatenate(truth)
results["mae"] = float(np.abs(predictions - truth).mean())
results["correlation"] = float(np.corrcoef(predictions, truth)[0, 1])
results["predictions"] = predictions
print(f"mean loss {np.mean(losses):.4f}, MAE {results['mae']:.4f}, r {results['correlation']:.3f}")
results["weights"] = model.state_dict()
