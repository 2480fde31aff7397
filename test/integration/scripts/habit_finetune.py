"""Trains a head on a frozen body, unfreezes it at a lower rate, and averages weights (SWA)."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import SWALR, AveragedModel

import koila

torch.manual_seed(22)
results = {"loss": [], "rates": []}


class Model(nn.Module):
    def __init__(self, dim=32, classes=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, dim, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(dim, dim, 3, padding=1, groups=8),
            nn.GELU(),
            nn.AdaptiveMaxPool2d(1),
        )
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


# Checkerboards: three colours, two sizes.
labels = torch.randint(6, (640,))
stripes = (torch.arange(16) // torch.where(labels < 3, 1, 4)[:, None]) % 2
board = (stripes[:, :, None] ^ stripes[:, None, :]).float()
colour = torch.eye(3)[labels % 3] * (1 + 2 * torch.rand(640, 1))
images = board[:, None] * colour[:, :, None, None] + 0.1 * torch.randn(640, 3, 16, 16)

model = Model()
model.body.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.3, momentum=0.9)
for step, (x, y) in enumerate(zip(images[:512].split(128), labels[:512].split(128))):
    if step == 2:
        model.body.requires_grad_(True)
        optimizer.add_param_group({"params": model.body.parameters(), "lr": 0.1})
        swa_model = AveragedModel(model)
        scheduler = SWALR(optimizer, swa_lr=0.1, anneal_epochs=2)
    x, y = koila.lazy(x, y, batch=0)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    for p in filter(lambda p: p.requires_grad, model.parameters()):
        p.grad.mul_(0.9)
    optimizer.step()
    if step >= 2:
        swa_model.update_parameters(model)
        scheduler.step()
    results["loss"].append(loss.item())
    results["rates"].append([group["lr"] for group in optimizer.param_groups])
    print(f"step {step}: loss {loss.item():.4f} rates {results['rates'][-1]}")
with torch.no_grad():
    x, y = koila.lazy(images[512:], labels[512:], batch=0)
    results["swa"] = F.cross_entropy(swa_model(x), y).item()
    results["last"] = F.cross_entropy(model(x), y).item()
results["weights"] = swa_model.module.state_dict()
