"""Saves model, optimizer and OneCycle schedule after an epoch, and resumes in new objects."""

# koila: tiles
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

results = {"rates": []}
torch.manual_seed(5)


def build():
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2)
    model = nn.Sequential(nn.Embedding(64, 32), encoder, nn.Flatten(), nn.Linear(24 * 32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def train_epoch(loader, model, optimizer, scheduler):
    model.train()
    losses = []
    for text, label in loader:
        text, label = koila.lazy(text, label, batch=0)
        loss = F.cross_entropy(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        results["rates"].append(scheduler.get_last_lr()[0])
        scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


label = torch.randint(4, (256,))
text = (torch.randint(32, (256, 24)) + 8 * label[:, None]) % 64
loader = DataLoader(TensorDataset(text, label), batch_size=128)
parts = build()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.pt")
    results["epoch 1"] = train_epoch(loader, **parts)
    torch.save({"epoch": 1, **{name: part.state_dict() for name, part in parts.items()}}, path)
    parts = build()
    checkpoint = torch.load(path, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(checkpoint[name])
results["epoch 2"] = train_epoch(loader, **parts)
print("rates:", " ".join(f"{rate:.2e}" for rate in results["rates"]), "loss:", results["epoch 2"])

model = parts["model"].eval()
with torch.no_grad():
    text, label = koila.lazy(text, label, batch=0)
    results["final"] = F.cross_entropy(model(text), label).item()
results["weights"] = model.state_dict()
