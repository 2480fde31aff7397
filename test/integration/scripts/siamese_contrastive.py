"""A siamese network over dict batches; distances are collected and a threshold is chosen."""

# koila: tiles
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import koila

torch.manual_seed(2)
kinds = torch.randn(6, 1, 14, 14)


class Pairs(Dataset):
    def __init__(self, count):
        first = torch.randint(6, (count,))
        self.same = torch.rand(count) < 0.5
        noise = torch.randn(2, count, 1, 14, 14) * torch.rand(count, 1, 1, 1)
        self.left = kinds[first] + noise[0]
        self.right = kinds[torch.where(self.same, first, (first + 1) % 6)] + noise[1]

    def __len__(self):
        return len(self.same)

    def __getitem__(self, i):
        return {"left": self.left[i], "right": self.right[i], "same": self.same[i].float()}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(7),
        )
        self.project = nn.Linear(64, 8)

    def forward(self, x):
        return F.normalize(self.project(self.conv(x).flatten(start_dim=1)), dim=1)


encoder, losses, distances, same = Encoder(), [], [], []
optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
for batch in DataLoader(Pairs(240), batch_size=80):
    batch = koila.lazy(batch, batch=0)
    distance = F.pairwise_distance(encoder(batch["left"]), encoder(batch["right"]))
    loss = (
        batch["same"] * distance.pow(2) + (1 - batch["same"]) * F.relu(1.5 - distance).pow(2)
    ).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach().cpu().numpy())
    print("loss", loss)
with torch.no_grad():
    for batch in DataLoader(Pairs(150), batch_size=80):
        batch = koila.lazy(batch, batch=0)
        distances.append(F.pairwise_distance(encoder(batch["left"]), encoder(batch["right"])))
        same.append(batch["same"])
distances, same = torch.cat(distances).numpy(), torch.cat(same).numpy() > 0.5
thresholds = np.linspace(distances.min(), distances.max(), 21)[1:-1]
accuracies = [float(((distances < t) == same).mean()) for t in thresholds]
print(f"best accuracy {max(accuracies):.3f}")
results = {
    "losses": np.array(losses),
    "distances": distances,
    "accuracies": accuracies,
    "weights": encoder.state_dict(),
}
