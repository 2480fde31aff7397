"""A grid of boxes and classes; the losses take the cells with an object by a boolean mask."""

# koila: tiles
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import koila


class Targets(NamedTuple):
    positive: torch.Tensor
    box: torch.Tensor
    label: torch.Tensor


def collate(samples):
    """One bright square an image, in one of 8 x 8 cells."""
    images, n = 0.3 * torch.randn(len(samples), 1, 24, 24), len(samples)
    targets = Targets(
        torch.zeros(n, 8, 8, dtype=torch.bool),
        torch.zeros(n, 8, 8, 2),
        torch.zeros(n, 8, 8, dtype=torch.long),
    )
    for i, (row, column, size) in enumerate(samples):
        images[i, 0, 3 * row : 3 * row + size, 3 * column : 3 * column + size] += 1 + i % 5
        targets.positive[i, row, column] = True
        targets.box[i, row, column] = torch.tensor([size / 8, column / 8 - 0.4])
        targets.label[i, row, column] = int(size > 5)
    return images, targets


def losses(output, target):
    score, box, logits = output.permute(0, 2, 3, 1).split([1, 2, 2], dim=-1)
    positive = target.positive
    count = positive.sum().clamp(min=1)
    return {
        "score": F.binary_cross_entropy_with_logits(score.squeeze(-1), positive.float()),
        "box": F.smooth_l1_loss(box[positive], target.box[positive], reduction="sum") / count,
        "class": F.cross_entropy(logits[positive], target.label[positive]),
    }


torch.manual_seed(5)
net = nn.Sequential(
    nn.Conv2d(1, 16, 5, padding=2),
    nn.SiLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.SiLU(),
    nn.MaxPool2d(3),
    nn.Conv2d(16, 5, 1),
)
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
samples = [(i % 7, i * 5 % 8, 2 + i % 6) for i in range(192)]
results = {"log": []}
for images, targets in DataLoader(samples[:160], batch_size=64, shuffle=True, collate_fn=collate):
    images, targets = koila.lazy(images, targets, batch=0)
    parts = losses(net(images), targets)
    optimizer.zero_grad()
    (parts["score"] + 2.0 * parts["box"] + parts["class"]).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    optimizer.step()
    results["log"].append({name: value.item() for name, value in parts.items()})
    print(" ".join(f"{name}={value:.4f}" for name, value in results["log"][-1].items()))
with torch.no_grad():
    images, targets = koila.lazy(*collate(samples[128:]), batch=0)
    output = net(images).permute(0, 2, 3, 1)
    results["best"] = output[..., 0].sigmoid().flatten(1).max(dim=1).values.tolist()
    results["box_error"] = (output[..., 1:3] - targets.box)[targets.positive].abs().mean(1)
results["weights"] = net.state_dict()
