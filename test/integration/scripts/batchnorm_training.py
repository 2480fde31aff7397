"""BatchNorm in training mode and then in eval, with the running statistics logged on the way."""

# koila: whole: batch normalisation in training mode
import torch
import torch.nn as nn

import koila

torch.manual_seed(11)


def conv_bn(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(1, 16), conv_bn(16, 16), nn.MaxPool2d(2))
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(self.features(x).mean(dim=(2, 3)))


def train(model, batches, criterion, optimizer, log):
    model.train()
    for x, y in batches:
        x, y = koila.lazy(x, y, batch=0)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        log["loss"].append(loss.item())
        log["running_mean"].append(model.features[0][1].running_mean.norm().item())
        print(f"loss {loss:.4f}, running mean {log['running_mean'][-1]:.5f}")


def evaluate(model, batches, criterion):
    model.eval()
    total, confidence = 0.0, []
    with torch.no_grad():
        for x, y in batches:
            x, y = koila.lazy(x, y, batch=0)
            output = model(x)
            total += criterion(output, y)
            confidence.append(output.softmax(dim=1).gather(1, y[:, None]).squeeze(1))
    return total.item() / len(batches), torch.cat(confidence).numpy()


x = torch.randn(448, 1, 16, 16) * torch.linspace(0.5, 1.5, 448).view(-1, 1, 1, 1)
y = torch.arange(448) % 4
x = (x + (y % 2).view(-1, 1, 1, 1)).where((y < 2).view(-1, 1, 1, 1), x.cumsum(2) / 3)
batches = list(zip(x.split(128), y.split(128)))
model, criterion = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
results = {"train": {"loss": [], "running_mean": []}, "test": []}
for epoch in range(2):
    train(model, batches[:2], criterion, optimizer, results["train"])
    results["test"].append(evaluate(model, batches[2:], criterion))
results["weights"] = model.state_dict()
