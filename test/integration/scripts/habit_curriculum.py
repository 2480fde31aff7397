"""A curriculum: batches grow, images are augmented in each, labels are smoothed less and less."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F

import koila

results = {"loss": [], "size": [], "brightness": []}
torch.manual_seed(18)


def make(n, noise):
    """Crosses and rings of different sizes, in more or less noise."""
    kind, radius = torch.randint(2, (n,)), 3 + 5 * torch.rand(n, 1, 1)
    v, u = torch.meshgrid(torch.arange(-8.0, 8), torch.arange(-8.0, 8), indexing="ij")
    ring = ((u**2 + v**2).sqrt() - radius).abs() < 1.5
    cross = (torch.minimum(u.abs(), v.abs()) < 1.5) & (torch.maximum(u.abs(), v.abs()) < radius)
    images = torch.where(kind[:, None, None] == 0, ring, cross) * (1 + torch.rand(n, 1, 1))
    return images[:, None] + noise * torch.randn(n, 1, 16, 16), kind


def augment(x):
    flip = torch.rand(x.size(0), 1, 1, 1) < 0.5
    x = torch.where(flip, x.flip(3), x)
    x = x * (0.8 + 0.4 * torch.rand(x.size(0), 1, 1, 1))
    x = torch.roll(x, int(torch.randint(-2, 3, ())), dims=2)
    return x + 0.05 * torch.randn_like(x)


def step(model, optimizer, x, y, smoothing):
    x = augment(x)
    brightness = x.mean().item()
    loss = F.cross_entropy(model(x), y, label_smoothing=smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), brightness


model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.LeakyReLU(0.1),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.LeakyReLU(0.1),
    nn.MaxPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 2),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for size, noise, smoothing in [(64, 0.1, 0.2), (96, 0.3, 0.1), (128, 0.6, 0.0)]:
    images, kind = make(2 * size - 32, noise)
    for x, y in zip(images.split(size), kind.split(size)):
        x, y = koila.lazy(x, y, batch=0)
        loss, brightness = step(model, optimizer, x, y, smoothing)
        results["loss"].append(loss)
        results["size"].append(len(y))
        results["brightness"].append(brightness)
        print(f"{len(x)} images, noise {noise}, smoothing {smoothing}: loss {loss:.4f}")
results["weights"] = model.state_dict()
