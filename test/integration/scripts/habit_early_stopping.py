"""Lowers the rate when the validation loss stalls, stops early, and loads the best weights."""

# koila: tiles
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(6)


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(2, hidden, batch_first=True)
        self.fc = nn.Sequential(nn.Dropout(0.2), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1]).squeeze(1)


def make_loader(n, batch_size, shuffle=False):
    slope, level, t = torch.randn(n, 1), 3 * torch.rand(n, 1), torch.linspace(0, 1, 40)
    series = level + slope * t + 0.3 * torch.sin(12 * t + level)
    x = torch.stack([series, series.diff(prepend=series[:, :1])], dim=2)
    return DataLoader(TensorDataset(x, (level + 1.1 * slope).squeeze(1)), batch_size, shuffle)


train_loader = make_loader(256, 128, True)
val_loader = make_loader(340, 180)  # the last batch has 160
model = Forecaster()
criterion, best_loss, history = nn.MSELoss(), float("inf"), []
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
for epoch in range(5):
    model.train()
    for x, y in train_loader:
        x, y = koila.lazy(x, y, batch=0)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    model.eval()
    val_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            x, y = koila.lazy(x, y, batch=0)
            val_loss += criterion(model(x), y) * x.size(0)
    val_loss = val_loss / len(val_loader.dataset)
    scheduler.step(val_loss)
    history.append((float(val_loss), optimizer.param_groups[0]["lr"]))
    print(f"epoch {epoch}: val_loss {val_loss:.5f}, lr {history[-1][1]:g}")
    if val_loss < best_loss:
        best_loss, best_weights = val_loss, copy.deepcopy(model.state_dict())
    else:
        break

model.load_state_dict(best_weights)
results = {"history": history, "best": best_loss.item(), "weights": model.state_dict()}
