"""An autoencoder with discrete codes: gumbel_softmax, the temperature falls, straight through."""

# koila: tiles
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(37)
CODES, LETTERS = 6, 8

# Pictures of a bar and a block, with noise.
rows, columns = torch.randint(8, (416, 1, 1)), torch.randint(6, (416, 1, 1))
grid_y, grid_x = torch.arange(8).view(1, 8, 1), torch.arange(8).view(1, 1, 8)
images = ((grid_y == rows) | ((grid_x >= columns) & (grid_x < columns + 2))).float()
images = (0.8 * images + 0.2 * torch.rand(416, 8, 8)).unsqueeze(1)


class CodeAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ELU(),
            nn.Conv2d(16, 16, 3, 2, padding=1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(256, CODES * LETTERS),
        )
        self.decoder = nn.Sequential(
            nn.Linear(CODES * LETTERS, 256),
            nn.ELU(),
            nn.Unflatten(1, (16, 4, 4)),
            nn.ConvTranspose2d(16, 16, 4, 2, padding=1),
            nn.ELU(),
            nn.Conv2d(16, 1, 3, padding=1),
        )

    def forward(self, x, tau, hard=False):
        logits = self.encoder(x).view(-1, CODES, LETTERS)
        codes = F.gumbel_softmax(logits, tau=tau, hard=hard, dim=-1)
        return self.decoder(codes.flatten(1)), logits


def elbo_parts(output, x, logits):
    reconstruction = F.binary_cross_entropy_with_logits(output, x, reduction="sum") / len(x)
    log_q = logits.log_softmax(dim=-1)
    return reconstruction, (log_q.exp() * (log_q + math.log(LETTERS))).sum(dim=(1, 2)).mean()


model = CodeAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-4)
results = {"reconstruction": [], "kl": []}
for step, (x,) in enumerate(DataLoader(TensorDataset(images[:288]), batch_size=96, shuffle=True)):
    tau = max(0.5, math.exp(-0.2 * step))
    x = koila.lazy(x, batch=0)
    output, logits = model(x, tau, hard=step % 2 == 1)
    reconstruction, kl = elbo_parts(output, x, logits)
    loss = reconstruction + 0.5 * kl
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    results["reconstruction"].append(reconstruction.item())
    results["kl"].append(kl.item())
    print(f"tau {tau:.3f}: loss {loss.item():.3f} = {reconstruction:.3f} + 0.5 * {kl:.3f}")

model.eval()
with torch.no_grad():
    x = koila.lazy(images[288:], batch=0)
    letters = model.encoder(x).view(len(x), CODES, LETTERS).argmax(-1)
    output = model.decoder(F.one_hot(letters, LETTERS).float().flatten(1)).sigmoid()
    results["mse"] = F.mse_loss(output, x).item()
    results["codes"] = letters.tolist()
    results["used"] = F.one_hot(letters, LETTERS).sum(dim=0).numpy()
results["weights"] = model.state_dict()
