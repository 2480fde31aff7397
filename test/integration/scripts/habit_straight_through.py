"""Binary activations with a straight-through estimator and a clipped identity of one's own."""

# koila: whole: torch.autograd.Function is code of the user's that koila cannot look into
import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(10)
results = {"loss": [], "active": []}


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (ctx.saved_tensors[0].abs() <= 1)


class ClipGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-ctx.limit, ctx.limit), None


class BinaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        bits = Sign.apply(self.conv1(x))
        self.active = (bits > 0).float().mean()
        return self.out(ClipGradient.apply(self.conv2(bits).tanh(), 1e-3).mean((2, 3)))


y = torch.randint(3, (320,))
x = torch.randn(320, 1, 20, 20).cumsum(2) * (0.2 + 0.5 * y[:, None, None, None])
model = BinaryNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for images, labels in zip(x.split(80), y.split(80)):
    images, labels = koila.lazy(images, labels, batch=0)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    results["loss"].append(loss.item())
    results["active"].append(model.active.item())
    print(f"loss {loss.item():.5f}, {model.active:.1%} of the bits are set")
results["weights"] = model.state_dict()
