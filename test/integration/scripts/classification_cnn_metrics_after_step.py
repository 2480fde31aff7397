"""Accuracy of a CNN from logits that are read after optimizer.step(), totals are tensors."""

# koila: tiles

import torch
import torch.nn.functional as F
from torch import nn

import koila

torch.manual_seed(1)
results = {}

labels = torch.randint(4, (288,))
images = torch.randn(288, 1, 16, 16) * torch.linspace(0.5, 2, 288)[:, None, None, None]
for label in range(4):
    images[labels == label, :, label * 4 : label * 4 + 4] += 1.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 4 * 4, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
results["epochs"] = []
for epoch in range(2):
    total_loss = torch.zeros(())
    total_correct = torch.zeros((), dtype=torch.long)
    seen = 0
    # The last batch is smaller.
    for x, y in zip(images.split(128), labels.split(128)):
        x, y = koila.lazy(x, y, batch=0)
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        total_loss += loss.detach() * len(x)
        total_correct += (logits.argmax(1) == y).sum()
        seen += len(x)
    print(f"epoch {epoch}: loss {total_loss / seen:.4f}, accuracy {total_correct / seen:.3f}")
    results["epochs"].append((total_loss / seen, total_correct, seen))
results["weights"] = model.state_dict()
