"""Accumulates gradients over micro batches, clips their norm, and keeps a meter of the loss."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

results = {}
torch.manual_seed(2)


class AverageMeter:
    """Computes and stores the average and current value"""

    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 48), nn.GELU(), nn.Linear(48, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


series = 3 * torch.rand(512, 1, 1) * torch.sin(torch.arange(32.0)[:, None] * torch.rand(512, 1, 4))
targets = series.abs().amax((1, 2)) + series[:, -1].mean(1)
loader = DataLoader(TensorDataset(series + 0.1 * torch.randn_like(series), targets), batch_size=64)

model = nn.Sequential(nn.Linear(4, 48), MixerBlock(32, 48), MixerBlock(32, 48), nn.Linear(48, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
accumulation_steps, losses, norms = 4, AverageMeter(), []
for i, (x, y) in enumerate(loader):
    x, y = koila.lazy(x, y, batch=0)
    loss = F.mse_loss(model(x).mean(dim=1).squeeze(-1), y)
    (loss / accumulation_steps).backward()
    losses.update(loss.item(), x.size(0))
    if (i + 1) % accumulation_steps == 0:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        norms.append(norm.item())
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {i + 1} loss {losses.val:.4f} ({losses.avg:.4f}) grad norm {norm:.4f}")

results.update({"loss": losses.avg, "last": losses.val, "samples": losses.count, "norms": norms})
results["weights"] = model.state_dict()
