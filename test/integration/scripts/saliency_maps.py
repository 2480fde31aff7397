"""Explains a trained regressor by the gradient of its output to the input, and by SmoothGrad."""
# koila: whole: saliency asks for the gradient of the inputs

import numpy as np
import torch
from torch import nn

import koila

torch.manual_seed(27)

model = nn.Sequential(
    nn.Conv2d(2, 16, 3, padding=1),
    nn.Softplus(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.Softplus(),
    nn.AvgPool2d(4),
    nn.Flatten(),
    nn.Linear(144, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
images = torch.randn(260, 2, 12, 12) * (0.5 + 1.5 * torch.rand(260, 1, 1, 1))
targets = torch.stack([images[:, 0, :6].mean((1, 2)), images[:, 1, 6:].mean((1, 2))], dim=1) * 4


def train_step(x, t):
    x, t = koila.lazy(x, t, batch=0)
    error = (model(x) - t).square().sum(dim=1)
    loss = error.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), error.detach().max().item()


def saliency(x):
    x = koila.lazy(x, batch=0)
    x.requires_grad_()
    output = model(x)
    output[:, 0].sum().backward()
    return x.grad.abs().amax(dim=1), output.detach()


def smooth_grad(x, draws=2, noise=0.1):
    total = 0
    x = koila.lazy(x, batch=0)
    for _ in range(draws):
        noisy = (x + noise * torch.randn_like(x)).requires_grad_()
        (gradient,) = torch.autograd.grad(model(noisy)[:, 1].sum(), noisy)
        total = total + gradient
    return (total / draws).abs().amax(dim=1)


log = [train_step(images[i : i + 90], targets[i : i + 90]) for i in range(0, 180, 90)]
for step, (loss, worst) in enumerate(log):
    print(f"step {step}: loss {loss:.4f}, worst sample {worst:.4f}")

model.eval()
for p in model.parameters():
    p.requires_grad_(False)
maps, outputs = saliency(images[180:])
smooth = smooth_grad(images[180:])
upper = maps[:, :6].sum() / maps.sum()
print(f"upper half has {100 * upper.item():.1f} % of the saliency")
results = {
    "log": log,
    "maps": maps.cpu().numpy(),
    "outputs": outputs.tolist(),
    "smooth": np.asarray(smooth),
    "upper": float(upper),
    "weights": model.state_dict(),
}
