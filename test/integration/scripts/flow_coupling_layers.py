"""A normalising flow of affine coupling layers: log determinants, bits per dimension, samples."""

# koila: tiles
import math

import torch
import torch.nn as nn

import koila

torch.manual_seed(23)


class Coupling(nn.Module):
    def __init__(self, parity, side=12, hidden=16):
        super().__init__()
        board = torch.arange(side)[:, None] + torch.arange(side)
        self.register_buffer("mask", ((board + parity) % 2).float())
        self.net = nn.Sequential(
            nn.Conv2d(1, hidden, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(hidden, hidden, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(hidden, 2, 3, padding=1),
        )

    def affine(self, x):
        log_scale, shift = ((1 - self.mask) * self.net(x * self.mask)).chunk(2, dim=1)
        return torch.tanh(log_scale), shift

    def forward(self, x):
        log_scale, shift = self.affine(x)
        return x * log_scale.exp() + shift, log_scale.sum(dim=(1, 2, 3))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(parity) for parity in (0, 1, 0, 1))

    def log_prob(self, x):
        log_det = 0
        for layer in self.layers:
            x, change = layer(x)
            log_det = log_det + change
        return (-0.5 * (x**2 + math.log(2 * math.pi))).flatten(1).sum(1) + log_det

    @torch.no_grad()
    def sample(self, count):
        z = koila.lazy(torch.randn(count, 1, 12, 12), batch=0)
        for layer in reversed(self.layers):
            log_scale, shift = layer.affine(z)
            z = (z - shift) * torch.exp(-log_scale)
        return z


data = torch.randn(352, 1, 12, 12).cumsum(2) * (0.1 + 0.3 * torch.rand(352, 1, 1, 1))
flow, bits = Flow(), []
optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
for batch in data[:256].split(128):
    loss = -flow.log_prob(koila.lazy(batch, batch=0)).mean()
    bits.append(loss.item() / (144 * math.log(2)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{bits[-1]:.4f} bits per dimension")
with torch.inference_mode():
    unseen = flow.log_prob(koila.lazy(data[256:], batch=0)).cpu().numpy()
samples = flow.sample(80).numpy()
results = dict(bits=bits, unseen=unseen, samples=samples, weights=flow.state_dict())
