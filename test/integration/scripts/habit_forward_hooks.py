"""Forward hooks collect statistics of activations, hooks of weights the norms of gradients."""

# koila: tiles
from collections import defaultdict
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(12)
activations, gradients = defaultdict(list), defaultdict(list)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.act = nn.GroupNorm(4, channels), nn.ReLU()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.act(self.conv(self.norm(x)))


model = nn.Sequential(
    nn.Conv2d(2, 16, 3, padding=1),
    Residual(16),
    nn.AvgPool2d(2),
    Residual(16),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 1),
)


def watch(name, module, args, output):
    dead = (output <= 0).float().mean().item()
    activations[name].append((output.mean().item(), output.std().item(), dead))


handles = []
for name, module in model.named_modules():
    if isinstance(module, nn.ReLU):
        handles.append(module.register_forward_hook(partial(watch, name)))
for name, p in model.named_parameters():
    p.register_hook(lambda grad, name=name: gradients[name].append(grad.norm().item()))

# Two fields; how much do they have in common?
mix, field = torch.rand(256, 1, 1), torch.randn(256, 16, 16).cumsum(1) / 2
other = mix * field + (1 - mix) * torch.randn(256, 16, 16).cumsum(2) / 2
images, targets = torch.stack([field, other], 1), 1 + mix.flatten()

optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
for x, y in zip(images.split(64), targets.split(64)):
    x, y = koila.lazy(x, y, batch=0)
    loss = F.mse_loss(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}", *(f"{k} {v[-1][2]:.1%} dead" for k, v in activations.items()))
for handle in handles:
    handle.remove()
results = {"activations": dict(activations), "gradients": dict(gradients)}
results["weights"] = model.state_dict()
