"""A target out of range in the third batch raises IndexError, as in plain PyTorch."""

# koila: tiles

import torch
from torch import nn

import koila

torch.manual_seed(2)
results = {"losses": []}

targets = torch.randint(7, (768,))
images = torch.randn(768, 1, 12, 12) * torch.linspace(0.5, 2, 768)[:, None, None, None]
for target in range(7):
    images[targets == target, :, target] += 1
targets[500] = 7  # of the classes 0 to 6

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.Tanh(),
    nn.Conv2d(8, 8, 3, padding=1),
    nn.Tanh(),
    nn.AdaptiveAvgPool2d((4, 1)),
    nn.Flatten(),
    nn.Linear(32, 7),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for start in range(0, 768, 192):
    x, y = koila.lazy(images[start : start + 192], targets[start : start + 192], batch=0)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    results["losses"].append(loss.item())
    loss.backward()
    optimizer.step()
    print(f"{start}: {results['losses'][-1]:.4f}")
    results["weights"] = model.state_dict()
