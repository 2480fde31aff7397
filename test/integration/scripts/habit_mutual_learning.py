"""Two models in one loop learn from the labels and from each other, at a temperature that falls."""

# koila: tiles
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(16)
results = {"a": [], "b": [], "temperature": [], "agreement": []}


class ConvStudent(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv1d(3, 32, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(32, 4),
        )


class RecurrentStudent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 24, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, 4)

    def forward(self, x):
        return self.fc(self.lstm(x.transpose(1, 2))[0].mean(1))


def distill(student, teacher, T):
    log_p, q = F.log_softmax(student / T, 1), F.softmax(teacher.detach() / T, 1)
    return F.kl_div(log_p, q, reduction="batchmean") * T * T


y, t = torch.randint(4, (384,)), torch.arange(32.0)
phase = torch.stack([(y[:, None] + 1) * t / 4, 1.6 + y[:, None] * t / 3, t.expand(384, -1)], 1)
x = torch.sin(phase) * (0.5 + torch.rand(384, 1, 1)) + 0.2 * torch.randn(384, 3, 32)
model_a, model_b = ConvStudent(), RecurrentStudent()
opt_a, opt_b = (torch.optim.Adam(m.parameters(), lr=1e-2) for m in (model_a, model_b))
for step, (inputs, labels) in enumerate(DataLoader(TensorDataset(x, y), batch_size=128)):
    T = 1.0 + 3.0 * math.exp(-step)
    weight = min(1.0, 0.25 * (step + 1))
    inputs, labels = koila.lazy(inputs, labels, batch=0)
    out_a, out_b = model_a(inputs), model_b(inputs)
    loss_a = F.cross_entropy(out_a, labels) + weight * distill(out_a, out_b, T)
    loss_b = F.cross_entropy(out_b, labels) + weight * distill(out_b, out_a, T)
    results["agreement"].append((out_a.softmax(1) * out_b.softmax(1)).sum(1).mean().item())
    for optimizer, loss in ((opt_a, loss_a), (opt_b, loss_b)):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, value in (("a", loss_a), ("b", loss_b)):
        results[name].append(value.item())
    results["temperature"].append(T)
    print(f"T={T:.2f} a {loss_a.item():.4f} b {loss_b.item():.4f}")
results["weights"] = {"a": model_a.state_dict(), "b": model_b.state_dict()}
