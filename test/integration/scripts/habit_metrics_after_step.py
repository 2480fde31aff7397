"""The epoch of many tutorials: loss and accuracy are read after optimizer.step()."""

# koila: tiles
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(8)
results = {"train": [], "test": []}

# Textures of four directions.
targets = torch.randint(4, (512,))
u, v = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
waves = torch.stack([u, v, (u + v) / 1.4, (u - v) / 1.4])[targets]
pictures = torch.sin(1.3 * waves + 6 * torch.rand(512, 1, 1)) * (0.5 + 1.5 * torch.rand(512, 1, 1))
pictures = torch.stack([pictures, 0.5 * pictures.roll(1, 2), torch.randn(512, 16, 16) / 4], 1)
trainloader = DataLoader(TensorDataset(pictures[:384], targets[:384]), 128, shuffle=True)
testloader = DataLoader(TensorDataset(pictures[384:], targets[384:]), 128)

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 4),
)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def train(epoch):
    net.train()
    train_loss = correct = total = 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = koila.lazy(inputs, targets, batch=0)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
        print("Loss: %.3f | Acc: %.3f%%" % (train_loss / (batch_idx + 1), 100.0 * correct / total))
    results["train"].append((train_loss, correct, total))


@torch.no_grad()
def test(epoch):
    net.eval()
    for inputs, targets in testloader:
        inputs, targets = koila.lazy(inputs, targets, batch=0)
        outputs = net(inputs)
        results["test"].append((criterion(outputs, targets).item(), outputs.argmax(1).tolist()))


for epoch in range(2):
    train(epoch)
    test(epoch)
results["weights"] = net.state_dict()
