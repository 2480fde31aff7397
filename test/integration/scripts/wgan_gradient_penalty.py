"""WGAN-GP: a penalty on the gradient of the critic, made with create_graph=True."""

# koila: whole: the gradient penalty needs create_graph=True
import torch
from torch import autograd, nn

import koila

torch.manual_seed(31)
LAMBDA, LATENT, BATCH = 10.0, 8, 96

G = nn.Sequential(
    nn.Linear(LATENT, 16 * 4 * 4),
    nn.ReLU(),
    nn.Unflatten(1, (16, 4, 4)),
    nn.Upsample(scale_factor=3),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 1, 3, padding=1),
)
D = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.Softplus(),
    nn.Conv2d(16, 16, 3, stride=2, padding=1),
    nn.Softplus(),
    nn.Flatten(),
    nn.Linear(16 * 36, 1),
)


def gradient_penalty(D, real, fake):
    alpha = torch.rand(real.size(0), 1, 1, 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = D(mixed)
    (gradient,) = autograd.grad(
        outputs=score,
        inputs=mixed,
        grad_outputs=torch.ones_like(score),
        create_graph=True,
        retain_graph=True,
    )
    return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def sample_real(count):
    x = torch.randn(count, 1, 12, 12).cumsum(2).cumsum(3)
    return x / x.std() * torch.linspace(0.5, 1.5, count).view(-1, 1, 1, 1)


opt_g = torch.optim.RMSprop(G.parameters(), lr=2e-3)
opt_d = torch.optim.RMSprop(D.parameters(), lr=2e-3)
history = {"wasserstein": [], "penalty": [], "generator": []}
for step in range(2):
    for _ in range(2):
        real, z = koila.lazy(sample_real(BATCH), torch.randn(BATCH, LATENT), batch=0)
        with torch.no_grad():
            fake = G(z)
        distance = D(real).mean() - D(fake).mean()
        penalty = gradient_penalty(D, real, fake)
        opt_d.zero_grad()
        (LAMBDA * penalty - distance).backward()
        opt_d.step()
        history["wasserstein"].append(distance.item())
        history["penalty"].append(penalty.item())
    z = koila.lazy(torch.randn(BATCH, LATENT), batch=0)
    loss = -D(G(z)).mean()
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()
    history["generator"].append(loss.item())
    print(f"step {step}: " + ", ".join(f"{k} {v[-1]:.4f}" for k, v in history.items()))
with torch.no_grad():
    scores = D(G(koila.lazy(torch.randn(128, LATENT), batch=0))).squeeze(1)
results = {
    "history": history,
    "scores": scores.tolist(),
    "weights": {"G": G.state_dict(), "D": D.state_dict()},
}
