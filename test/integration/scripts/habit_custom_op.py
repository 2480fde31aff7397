"""An operator of one's own, registered with torch.library, with its fake and its gradient."""

# koila: whole: an operator that only the user knows, which may mix the samples
import torch
from torch import nn

import koila

results = {"loss": []}
torch.manual_seed(11)


@torch.library.custom_op("mylib::soft_shrink", mutates_args=())
def soft_shrink(x: torch.Tensor, threshold: float) -> torch.Tensor:
    return x.sign() * (x.abs() - threshold).clamp_min(0)


@soft_shrink.register_fake
def _(x, threshold):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(output)


def backward(ctx, grad):
    return grad * (ctx.saved_tensors[0] != 0), None


soft_shrink.register_autograd(backward, setup_context=setup_context)


class Ista(nn.Module):
    """Sparse codes of patches by three learned iterations."""

    def __init__(self, dim=16, codes=48):
        super().__init__()
        self.encode, self.refine = nn.Linear(dim, codes), nn.Linear(codes, codes)
        self.decode = nn.Linear(codes, dim)

    def forward(self, x):
        start = self.encode(x)
        code = soft_shrink(start, 0.1)
        for _ in range(3):
            code = soft_shrink(start + code - self.refine(code), 0.1)
        return self.decode(code), code


patches = torch.randn(384, 32, 10) * (torch.rand(384, 32, 10) < 0.2) * (0.2 + torch.rand(384, 1, 1))
patches = patches @ torch.randn(10, 16)
model = Ista()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for batch in patches.split(96):
    batch = koila.lazy(batch, batch=0)
    decoded, code = model(batch)
    loss = (decoded - batch).square().mean() + 0.05 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    results["loss"].append(loss.item())
results["weights"] = model.state_dict()
