"""Noise is drawn for every batch with randn_like; losses are kept as tensors and stacked."""

# koila: tiles
import math
from dataclasses import dataclass

import torch
from torch import nn

import koila


@dataclass
class Config:
    seed: int = 13
    channels: int = 16
    noise: float = 0.3
    batch_size: int = 112
    lr: float = 5e-3


config = Config()
torch.manual_seed(config.seed)


class Denoiser(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.middle = nn.Conv2d(channels, channels, 3, padding=1)
        self.last = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, noisy):
        hidden = nn.functional.silu(self.first(noisy))
        hidden = hidden + nn.functional.silu(self.middle(hidden))
        return noisy + self.last(hidden)


@torch.inference_mode()
def psnr(model, clean):
    clean = koila.lazy(clean, batch=0)
    noisy = clean + config.noise * torch.randn_like(clean)
    return [
        -10 * (image - clean).square().mean(dim=(1, 2, 3)).log10()
        for image in (noisy, model.eval()(noisy))
    ]


model, t = Denoiser(config.channels), torch.arange(20.0)
optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
data = torch.sin(torch.rand(416, 1, 1, 1) * t) * torch.cos(torch.rand(416, 1, 1, 1) * t[:, None])
data *= torch.linspace(0.5, 1.5, 416).view(-1, 1, 1, 1)
losses = []
for batch in data[:336].split(config.batch_size):
    clean = koila.lazy(batch, batch=0)
    noisy = clean + config.noise * torch.randn_like(clean)
    loss = nn.functional.mse_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
mean_loss = torch.stack(losses).mean()
print("mean loss", mean_loss)
before, after = psnr(model, data[336:])
print(f"PSNR {before.mean().item():.2f} -> {after.mean().item():.2f} dB")
results = {
    "losses": torch.stack(losses).tolist(),
    "rmse": math.sqrt(mean_loss),
    "before": before.numpy(),
    "after": after.numpy(),
    "weights": model.state_dict(),
}
