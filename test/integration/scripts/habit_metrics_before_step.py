"""Reads accuracies before backward and confidences between backward and step; a running loss."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(7)
results = {"accuracy": [], "top2": [], "confidence": [], "margin": []}


def make_batch(n):
    """A bright square in one of four corners, on a background of noise."""
    label = torch.randint(4, (n,))
    images = 0.3 * torch.randn(n, 1, 24, 24) * (0.5 + torch.rand(n, 1, 1, 1))
    size = torch.randint(4, 10, (n,))
    for i in range(n):
        row, column = 12 * (label[i] // 2), 12 * (label[i] % 2)
        images[i, 0, row : row + size[i], column : column + size[i]] += 2.0
    return images, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24 * 9, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 4)
        return self.fc(x.view(x.size(0), -1))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
running = torch.zeros(())
for step in range(4):
    x, y = koila.lazy(*make_batch(96), batch=0)
    logits = model(x)
    accuracy = (logits.argmax(dim=1) == y).float().mean().item()
    top2 = (logits.topk(2, dim=1).indices == y[:, None]).any(1).sum().item() / len(y)
    loss = F.cross_entropy(logits, y)
    running = 0.9 * running + 0.1 * loss.detach()
    optimizer.zero_grad()
    loss.backward()
    probability = logits.softmax(1)
    confidence = probability.max(1).values.mean().item()
    ordered = probability.sort(dim=1, descending=True).values
    margin = (ordered[:, 0] - ordered[:, 1]).detach().cpu().numpy()
    optimizer.step()
    results["accuracy"].append(accuracy)
    results["top2"].append(top2)
    results["confidence"].append(confidence)
    results["margin"].append(margin)
    print(f"{step}: loss {loss.item():.4f} accuracy {accuracy:.1%} confidence {confidence:.4f}")
results["running loss"] = running.item()
results["weights"] = model.state_dict()
