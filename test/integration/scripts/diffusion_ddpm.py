"""DDPM: a random time a sample, the noise is predicted, and a loop that samples step by step."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(41)
T = 6
beta = torch.linspace(0.02, 0.4, T)
alpha_bar = torch.cumprod(1 - beta, dim=0)


class NoisePredictor(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.time = nn.Embedding(T, channels)
        self.conv_in = nn.Conv2d(1, channels, 3, padding=1)
        self.conv_mid = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.conv_out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.conv_in(x) + self.time(t)[:, :, None, None])
        return self.conv_out(h + F.silu(self.norm(self.conv_mid(h))))


def diffusion_loss(model, x0):
    t = torch.randint(0, T, (x0.shape[0],))
    noise = torch.randn_like(x0)
    ab = alpha_bar[t].view(-1, 1, 1, 1)
    return F.mse_loss(model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)


@torch.no_grad()
def sample(model, count):
    x = koila.lazy(torch.randn(count, 1, 14, 14), batch=0)
    for step in reversed(range(T)):
        eps = model(x, torch.full((x.shape[0],), step, dtype=torch.long))
        x = (x - beta[step] / (1 - alpha_bar[step]).sqrt() * eps) / (1 - beta[step]).sqrt()
        if step > 0:
            x = x + beta[step].sqrt() * torch.randn_like(x)
    return x


angle, axis = torch.rand(300, 1, 1) * 3.14, torch.linspace(-6, 6, 14)
images = torch.sin(angle.cos() * axis + angle.sin() * axis[:, None]).unsqueeze(1)
images = images * torch.linspace(0.5, 1.2, 300).view(-1, 1, 1, 1)
model, losses = NoisePredictor(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for x0 in torch.split(images, 120):
    x0 = koila.lazy(x0, batch=0)
    loss = diffusion_loss(model, x0)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    print(f"loss {losses[-1]:.4f} mean {sum(losses) / len(losses):.4f}")
samples = sample(model.eval(), 80)
print("samples between", samples.min().item(), "and", samples.max().item())
results = {"losses": losses, "samples": samples.cpu().numpy(), "weights": model.state_dict()}
