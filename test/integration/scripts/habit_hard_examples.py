"""Online hard example mining: only the quarter of a batch with the largest losses counts."""

# koila: whole: topk over the losses, in which the samples compete
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(20)
results = {"hard": [], "all": [], "hardest": []}

# Blobs of three shapes; a tenth of them is hard to see.
label = torch.randint(3, (416,))
contrast = torch.where(torch.rand(416) < 0.1, 0.2, 1.0 + torch.rand(416))
v, u = torch.meshgrid(torch.linspace(-2, 2, 20), torch.linspace(-2, 2, 20), indexing="ij")
shapes = torch.stack([torch.exp(-(u**2) - v**2), torch.exp(-5 * u**2), torch.exp(-5 * v**2)])
images = (contrast[:, None, None] * shapes[label] + 0.15 * torch.randn(416, 20, 20))[:, None]
index = torch.arange(416)

model = nn.Sequential(
    nn.Conv2d(1, 12, 5, padding=2),
    nn.ReLU(),
    nn.Conv2d(12, 12, 5, padding=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(192, 3),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(images, label, index), batch_size=104, shuffle=True)
for x, y, i in loader:
    x, y = koila.lazy(x, y, batch=0)
    losses = F.cross_entropy(model(x), y, reduction="none")
    hard, where = losses.topk(len(losses) // 4)
    loss = hard.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    results["hard"].append(loss.item())
    results["all"].append(losses.mean().item())
    results["hardest"].append(contrast[i[where]].mean().item())
    print(f"hard {loss.item():.4f}, contrast {results['hardest'][-1]:.3f}")
results["weights"] = model.state_dict()
