"""Trains, and then explains predictions by Grad-CAM, with retain_grad on the last feature maps."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

results = {"losses": []}
torch.manual_seed(14)


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(4),
            nn.Conv2d(16, 24, 3, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(24, classes)

    def forward(self, x):
        self.maps = self.features(x)
        return self.classifier(self.maps.amax(dim=(2, 3)))


def draw(n):
    """A bar, a square or noise."""
    kind = torch.randint(3, (n,))
    images = 0.3 * torch.randn(n, 1, 24, 24)
    for i, (row, column) in enumerate(torch.randint(0, 14, (n, 2)).tolist()):
        height, width = [(2, 10), (7, 7), (10, 10)][kind[i]]
        bright = 2.0 if kind[i] < 2 else 2 * torch.randn(height, width)
        images[i, 0, row : row + height, column : column + width] += bright
    return images, kind


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    x, y = koila.lazy(*draw(64), batch=0)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    results["losses"].append(loss.item())

model.eval()
images, kind = draw(80)
x = koila.lazy(images, batch=0)
logits, maps = model(x), model.maps
maps.retain_grad()
logits.gather(1, kind[:, None]).sum().backward()
cam = F.relu((maps.grad.mean(dim=(2, 3), keepdim=True) * maps).sum(dim=1)).detach()
cam = cam / (cam.amax(dim=(1, 2), keepdim=True) + 1e-6)
results["cam"] = F.interpolate(cam[:4, None], size=24, mode="bilinear").squeeze(1).numpy()
results["spread"] = cam.mean(dim=(1, 2)).tolist()
results["gradient"] = maps.grad.norm().item()
print("losses", results["losses"])
results["weights"] = model.state_dict()
