"""Mixup inside the training step: the batch is mixed with a random permutation of itself."""

# koila: tiles
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(4)
rng = np.random.default_rng(4)


def mixup_data(x, y, alpha=0.4):
    lam = float(rng.beta(alpha, alpha))
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index], y, y[index], lam


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5, padding=2)
        self.conv2 = nn.Conv2d(20, 20, 3, padding=1, groups=4)
        self.pool = nn.AdaptiveAvgPool2d(3)
        self.fc = nn.Linear(20 * 9, 3)

    def forward(self, x):
        x = torch.tanh(self.conv2(torch.tanh(self.conv1(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


targets = torch.randint(3, (330,))
inputs = torch.randn(330, 1, 16, 16) * torch.linspace(0.6, 1.4, 330)[:, None, None, None]
for c in range(3):
    inputs[targets == c, :, 5 * c : 5 * c + 5] *= 2.5
trainloader = DataLoader(TensorDataset(inputs[:250], targets[:250]), batch_size=125, shuffle=True)
net, criterion = SmallNet(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
results = {"train": []}
for epoch in range(2):
    train_loss = correct = total = 0.0
    for x, y in trainloader:
        x, y = koila.lazy(x, y, batch=0)
        x, y_a, y_b, lam = mixup_data(x, y)
        outputs = net(x)
        loss = lam * criterion(outputs, y_a) + (1 - lam) * criterion(outputs, y_b)
        train_loss += loss.item()
        predicted = outputs.argmax(1)
        total += y.size(0)
        correct += (
            lam * predicted.eq(y_a).sum().float() + (1 - lam) * predicted.eq(y_b).sum().float()
        ).item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    results["train"].append([train_loss / len(trainloader), 100.0 * correct / total])
    print("Loss: %.3f | Acc: %.3f%%" % tuple(results["train"][-1]))
with torch.no_grad():
    x, y = koila.lazy(inputs[250:], targets[250:], batch=0)
    outputs = net.eval()(x)
    results["test_loss"] = criterion(outputs, y).item()
    results["confidence"] = outputs.softmax(dim=1).max(dim=1).values.numpy()
results["weights"] = net.state_dict()
