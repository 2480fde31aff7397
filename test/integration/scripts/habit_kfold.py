"""Cross-validation: a new model per fold, a confusion matrix, and accuracies per class."""

# koila: tiles
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

import koila

K, CLASSES = 3, 3
torch.manual_seed(9)
results = {"folds": []}

# Steps of walks: drifting, returning, or jumping.
kind = torch.randint(CLASSES, (288,))
steps = torch.randn(288, 64, 2) * (0.3 + torch.rand(288, 1, 1))
steps[kind == 0] += 0.6
steps[kind == 1] -= 0.9 * steps[kind == 1].roll(1, dims=1)
steps[kind == 2] *= 1 + 3.0 * (torch.rand(int((kind == 2).sum()), 64, 1) < 0.15)
dataset = TensorDataset(steps, kind)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(-1)


def make_model():
    return nn.Sequential(
        nn.Conv1d(2, 24, 3, padding=1),
        nn.SiLU(),
        nn.Conv1d(24, 24, 3, padding=1),
        nn.SiLU(),
        nn.Conv1d(24, 24, 3, padding=1),
        nn.SiLU(),
        Mean(),
        nn.Linear(24, CLASSES),
    )


confusion = np.zeros((CLASSES, CLASSES), dtype=np.int64)
for fold, validation in enumerate(np.array_split(np.random.default_rng(0).permutation(288), K)):
    train_idx = np.setdiff1d(np.arange(288), validation)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in DataLoader(Subset(dataset, train_idx.tolist()), batch_size=96, shuffle=True):
        x, y = koila.lazy(x, y, batch=0)
        loss = F.cross_entropy(model(x.transpose(1, 2)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(Subset(dataset, validation.tolist()), batch_size=96):
            x, y = koila.lazy(x, y, batch=0)
            logits = model(x.transpose(1, 2))
            np.add.at(confusion, (y.numpy(), logits.argmax(dim=1).numpy()), 1)
            results["folds"].append(F.cross_entropy(logits, y).item())
    print(f"fold {fold}: {results['folds'][-1]:.4f}")

results["confusion"] = confusion
results["per class"] = (confusion.diagonal() / confusion.sum(1)).tolist()
results["weights"] = model.state_dict()
