"""Adversarial training: FGSM examples from x.grad.sign(), and accuracy with and without attack."""
# koila: whole: the attack asks for the gradient of the inputs

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(19)
EPSILON = 0.1


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ELU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ELU(),
            nn.AvgPool2d(4),
        )
        self.head = nn.Linear(144, 3)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def fgsm(model, criterion, x, y):
    x.requires_grad_()
    loss = criterion(model(x), y)
    model.zero_grad()
    loss.backward()
    return (x + EPSILON * x.grad.sign()).clamp(-3, 3).detach(), loss.item()


y = torch.arange(288) % 3
x = torch.sin(torch.arange(12.0) * (y[:, None, None, None] + 1) * 0.5)
x = (x + 0.5 * torch.randn(288, 1, 12, 12)) * torch.linspace(0.5, 1.5, 288).view(-1, 1, 1, 1)
model, criterion = ConvNet(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
results = {"clean": [], "attacked": [], "margins": [], "correct": {"clean": 0, "attacked": 0}}
for x_batch, y_batch in DataLoader(TensorDataset(x[:192], y[:192]), batch_size=96, shuffle=True):
    x_batch, y_batch = koila.lazy(x_batch, y_batch, batch=0)
    adversarial, clean_loss = fgsm(model, criterion, x_batch, y_batch)
    optimizer.zero_grad()
    loss = criterion(model(adversarial), y_batch)
    loss.backward()
    optimizer.step()
    results["clean"].append(clean_loss)
    results["attacked"].append(loss.item())
    print(f"clean {clean_loss:.4f} attacked {loss.item():.4f}")

model.eval()
for x_batch, y_batch in DataLoader(TensorDataset(x[192:], y[192:]), batch_size=96):
    x_batch, y_batch = koila.lazy(x_batch, y_batch, batch=0)
    adversarial, _ = fgsm(model, criterion, x_batch, y_batch)
    with torch.no_grad():
        results["correct"]["clean"] += (model(x_batch).argmax(1) == y_batch).sum().item()
        logits = model(adversarial)
        results["correct"]["attacked"] += (logits.argmax(1) == y_batch).sum().item()
        top = logits.topk(2, dim=1).values
        results["margins"].extend((top[:, 0] - top[:, 1]).tolist())
results["weights"] = model.state_dict()
