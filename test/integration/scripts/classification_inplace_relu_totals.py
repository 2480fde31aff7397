"""Residual blocks with ReLU(inplace=True); totals are tensors that are read once an epoch."""

# koila: tiles
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(7)
results = {}


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.conv2(out)
        out += x
        return self.relu(out)


images = torch.randn(352, 1, 16, 16) * torch.linspace(0.5, 2, 352).view(-1, 1, 1, 1)
labels = images[:, 0, :8].mean((1, 2)).gt(images[:, 0, 8:].mean((1, 2))).long()
train_loader = DataLoader(TensorDataset(images[:256], labels[:256]), batch_size=128, shuffle=True)
valid_loader = DataLoader(TensorDataset(images[256:], labels[256:]), batch_size=96)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(inplace=True),
    Block(16),
    nn.AvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 2),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(2):
    model.train()
    running_loss, correct = 0.0, 0
    for inputs, targets in train_loader:
        inputs, targets = koila.lazy(inputs, targets, batch=0)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        if torch.isnan(loss):
            raise RuntimeError("the loss is not a number")
        loss.backward()
        correct += (outputs.argmax(1) == targets).sum()
        optimizer.step()
        running_loss += loss.detach() * inputs.size(0)
    model.eval()
    with torch.inference_mode():
        for inputs, targets in valid_loader:
            inputs, targets = koila.lazy(inputs, targets, batch=0)
            outputs = model(inputs)
            results[f"valid_probabilities_{epoch}"] = outputs.softmax(1)[:, 1].cpu().numpy()
            valid_loss = criterion(outputs, targets).item()
    results[f"epoch_{epoch}"] = [float(running_loss) / 256, correct.item() / 256, valid_loss]
    print(f"epoch {epoch} train loss {running_loss / 256:.4f} valid loss {valid_loss:.4f}")
results["weights"] = model.state_dict()
