"""The same LSTM classifier, batch first, and time-major as older code has it."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(1)
CLASSES, STEPS, FEATURES = 4, 24, 6

# Waves of four frequencies, every recording with its own loudness.
labels = torch.randint(CLASSES, (288,))
phase = torch.arange(STEPS)[None, :, None] * (labels[:, None, None] + 1) * 0.3
waves = torch.sin(phase + 6 * torch.rand(288, 1, FEATURES))
waves = waves * torch.linspace(0.5, 2, 288).view(-1, 1, 1) + 0.1 * torch.randn(waves.shape)


class Classifier(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.batch_first = batch_first
        self.lstm = nn.LSTM(FEATURES, 48, batch_first=batch_first)
        self.fc = nn.Linear(48, CLASSES)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1] if self.batch_first else out[-1])


def fit(batch_first):
    model = Classifier(batch_first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses = []
    for x, y in DataLoader(TensorDataset(waves[:192], labels[:192]), batch_size=96):
        if batch_first:
            x, y = koila.lazy(x, y, batch=0)
        else:
            x = koila.lazy(x.transpose(0, 1), batch=1)
        loss = F.cross_entropy(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x, y = waves[192:], labels[192:]
        x = koila.lazy(x, batch=0) if batch_first else koila.lazy(x.transpose(0, 1), batch=1)
        probabilities = F.softmax(model(x), dim=1)
        accuracy = (probabilities.argmax(1) == y).float().mean()
    print(f"batch_first={batch_first}: loss {losses[-1]:.4f}, accuracy {accuracy:.2%}")
    return {"losses": losses, "accuracy": accuracy.item(), "probabilities": probabilities}, model


results = {}
results["batch_first"], first_model = fit(batch_first=True)
results["time_major"], model = fit(batch_first=False)
results["weights"] = {"first": first_model.state_dict(), "major": model.state_dict()}
