"""Classification with an MLP: the loss is read after the step, accuracy in evaluation."""

# koila: tiles

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(0)
results = {}

centers = torch.randn(10, 48)
labels = torch.randint(10, (2048,))
points = centers[labels] + torch.randn(2048, 48) * torch.linspace(0.5, 2, 2048)[:, None]
train = DataLoader(TensorDataset(points[:1536], labels[:1536]), batch_size=512, shuffle=True)
test = DataLoader(TensorDataset(points[1536:], labels[1536:]), batch_size=256)

model = nn.Sequential(
    nn.Linear(48, 64),
    *(layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))),
    nn.Linear(64, 10),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

running_loss = 0.0
results["losses"] = []
model.train()
for step, (x, y) in enumerate(train):
    x, y = koila.lazy(x, y, batch=0)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    running_loss += loss.item()
    results["losses"].append(loss.item())
    print(f"step {step}: loss {loss.item():.4f}")
results["mean loss"] = running_loss / len(train)

model.eval()
correct = total = 0
with torch.no_grad():
    for x, y in test:
        x, y = koila.lazy(x, y, batch=0)
        predicted = model(x).argmax(dim=1)
        correct += (predicted == y).sum().item()
        total += y.size(0)
results["accuracy"] = correct / total
print(f"accuracy: {100 * correct / total:.1f}%")
results["weights"] = model.state_dict()
