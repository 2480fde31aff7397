"""Accuracy is read from the logits before backward, the loss as a float after the step."""
# koila: tiles

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(0)


def make_dataset(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (count,), generator=generator)
    pattern = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(count, 3, 16, 16, generator=generator)
    scale = torch.linspace(0.5, 1.5, count)[:, None, None, None]
    return TensorDataset(scale * (pattern[labels] + noise), labels)


train_loader = DataLoader(make_dataset(320, 1), batch_size=128, shuffle=True)
test_loader = DataLoader(make_dataset(192, 2), batch_size=128)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.GELU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.GELU(),
    nn.MaxPool2d(4),
    nn.Flatten(),
    nn.Linear(16 * 4 * 4, 5),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@torch.no_grad()
def predict(loader):
    model.eval()
    predictions, targets, losses = [], [], []
    for x, y in loader:
        x, y = koila.lazy(x, y, batch=0)
        logits = model(x)
        losses.append(F.cross_entropy(logits, y, reduction="none"))
        predictions.append(logits.argmax(dim=1))
        targets.append(y)
    return torch.cat(predictions), torch.cat(targets), torch.cat(losses)


history = []
model.train()
for step, (x, y) in enumerate(train_loader):
    x, y = koila.lazy(x, y, batch=0)
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    accuracy = (logits.argmax(dim=1) == y).float().mean().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append({"loss": loss.item(), "accuracy": accuracy})
    print(f"step {step}: loss {history[-1]['loss']:.4f} accuracy {accuracy:.3f}")

predictions, targets, losses = predict(test_loader)
results = {
    "history": history,
    "test_accuracy": (predictions == targets).float().mean().item(),
    "predictions": predictions.numpy(),
    "test_losses": losses.tolist(),
    "weights": model.state_dict(),
}
print(f"test accuracy {results['test_accuracy']:.3f}")
