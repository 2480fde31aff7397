"""Triplet loss over a named tuple, then a gallery of embeddings is concatenated and searched."""

# koila: tiles
from collections import namedtuple

import torch
from torch import nn

import koila

torch.manual_seed(8)
Triplet = namedtuple("Triplet", "anchor positive negative")
centers = torch.randn(10, 24)


class SequenceEncoder(nn.Module):
    """Embeds 32 vectors of 24 numbers by gated convolutions over time."""

    def __init__(self, width=48, size=16):
        super().__init__()
        self.inputs = nn.Conv1d(24, 2 * width, 3, padding=1)
        self.middle = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.outputs = nn.Linear(width, size)

    def forward(self, x):
        x = nn.functional.glu(self.inputs(x), dim=1)
        x = x + nn.functional.glu(self.middle(x), dim=1)
        return self.outputs(x.amax(dim=-1))


def draw(labels):
    noise = torch.randn(len(labels), 24, 32) * torch.linspace(0.5, 1.5, len(labels)).view(-1, 1, 1)
    return centers[labels].unsqueeze(-1) * torch.rand(len(labels), 1, 32) + noise


def triplets(count):
    label = torch.randint(10, (count,))
    other = (label + torch.randint(1, 10, (count,))) % 10
    return Triplet(draw(label), draw(label), draw(other))


model = SequenceEncoder()
criterion = nn.TripletMarginLoss(margin=20.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
violations, total = 0, 0.0
for step in range(3):
    batch = koila.lazy(triplets(96), batch=0)
    a, p, n = model(batch.anchor), model(batch.positive), model(batch.negative)
    loss = criterion(a, p, n)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        violations += ((a - p).norm(dim=1) > (a - n).norm(dim=1)).sum()
    total += loss.item()
labels = torch.arange(200) % 10
with torch.inference_mode():
    gallery = torch.cat([model(koila.lazy(draw(part), batch=0)) for part in labels.split(128)])
distance = torch.cdist(gallery, gallery).fill_diagonal_(float("inf"))
recall = (labels[distance.argmin(dim=1)] == labels).float().mean().item()
print(f"loss {total / 3:.4f}, {violations} violations, recall@1 {recall:.3f}")
results = {
    "mean_loss": total / 3,
    "violations": violations.item(),
    "recall": recall,
    "gallery": gallery.numpy(),
    "weights": model.state_dict(),
}
