"""A moving average of the weights is updated after each step and swapped in for evaluation."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(6)


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay, self.backup = model, decay, {}
        self.shadow = {name: p.data.clone() for name, p in model.named_parameters()}

    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p.data

    def apply_shadow(self):
        for name, p in self.model.named_parameters():
            self.backup[name], p.data = p.data, self.shadow[name]

    def restore(self):
        for name, p in self.model.named_parameters():
            p.data = self.backup[name]


@torch.no_grad()
def validate(model, loader):
    errors = []
    for inputs, target in loader:
        inputs, target = koila.lazy(inputs, target, batch=0)
        errors.append(F.l1_loss(model(inputs).squeeze(1), target, reduction="none"))
    return torch.cat(errors)


x = torch.randn(400, 2, 16, 16) * (0.5 + 1.5 * torch.rand(400, 1, 1, 1))
y = x[:, 0, :2].sum((1, 2)).div(4).clamp(-2, 2)
train, valid = (
    DataLoader(TensorDataset(x[part], y[part]), batch_size=100, shuffle=True)
    for part in (slice(300), slice(300, None))
)
model = nn.Sequential(
    nn.Conv2d(2, 16, 3, padding=1),
    nn.Hardswish(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.Hardswish(),
    nn.AvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 1),
)
ema, results = EMA(model, decay=0.7), {"losses": [], "residuals": []}
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for inputs, target in train:
    inputs, target = koila.lazy(inputs, target, batch=0)
    prediction = model(inputs).squeeze(1)
    loss = F.huber_loss(prediction, target, delta=0.5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update()
    results["losses"].append(loss.item())
    results["residuals"].append((prediction - target).detach().std().item())
raw = validate(model.eval(), valid)
ema.apply_shadow()
averaged = validate(model, valid)
ema.restore()
print(f"error {raw.mean():.4f}, averaged {averaged.mean():.4f}")
results.update(raw=raw.numpy(), averaged=averaged.numpy(), weights=model.state_dict())
