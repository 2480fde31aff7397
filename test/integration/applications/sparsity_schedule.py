"""An autoencoder that returns its loss, whose weights of the terms follow a schedule."""

# points: 1, 3
# catches: silent, wrong, keeps

import dataclasses

import torch
from torch import nn

BUDGET = 1 << 20


@dataclasses.dataclass
class Weights:
    sparsity: float = 0.0
    levels: tuple = (1.0, 0.5)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32))
        self.weights = Weights()
        self.reconstruction = 1.0

    def forward(self, x):
        code = self.encoder(x)
        first = (self.decoder(code) - x).square().mean() * self.reconstruction
        return first + self.weights.sparsity * self.weights.levels[1] * code.abs().mean()


def application(koila, app):
    torch.manual_seed(0)
    model = Autoencoder()
    x = torch.randn(1024, 32) * torch.linspace(0.5, 2, 1024)[:, None]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    step = koila.compile(model, x, mode="train", budget=BUDGET)
    losses = []
    for epoch in range(6):
        if epoch == 2:
            model.reconstruction = 3.0
        model.weights.sparsity = 0.25 * (epoch // 2)
        if epoch == 5:
            model.weights = Weights(1.0, (0.5, 2.0))
        optimizer.zero_grad()
        with app.within(BUDGET, model.parameters()):
            losses.append(float(step.train_step(x)))
        optimizer.step()
    return {"losses": losses, "weights": model.state_dict()}
