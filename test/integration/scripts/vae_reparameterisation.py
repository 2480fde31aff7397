"""A VAE: reparameterised draws, the ELBO with a KL part, and samples from the prior at the end."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import koila

torch.manual_seed(17)


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
        )
        self.mu, self.logvar = nn.Linear(256, latent), nn.Linear(256, latent)
        self.expand = nn.Linear(latent, 256)
        self.to_image = nn.Sequential(
            nn.Upsample(scale_factor=4),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 1, 3, padding=1),
        )

    def reparameterise(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return self.to_image(self.expand(z).view(-1, 16, 4, 4))

    def forward(self, x):
        h = self.encode(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decode(self.reparameterise(mu, logvar)), mu, logvar


blobs = F.interpolate(torch.randn(400, 1, 4, 4) * 3, size=16, mode="bicubic", align_corners=False)
data = torch.sigmoid(blobs + torch.linspace(-1, 1, 400).view(-1, 1, 1, 1))
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
log = {"elbo": [], "reconstruction": [], "kl": []}
for x in DataLoader(data[:320], batch_size=128, shuffle=True):
    x = koila.lazy(x, batch=0)
    logits, mu, logvar = vae(x)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    loss = reconstruction + kl
    optimizer.zero_grad()
    loss.backward()
    log["elbo"].append(-loss.item())
    log["reconstruction"].append(reconstruction.item())
    log["kl"].append(kl.item())
    optimizer.step()
    print(f"ELBO {log['elbo'][-1]:.3f} (KL {log['kl'][-1]:.4f})")
vae.eval()
with torch.no_grad():
    x = koila.lazy(data[320:], batch=0)
    latent = vae.mu(vae.encode(x)).numpy()
    z = koila.lazy(torch.randn(96, 6), batch=0)
    samples = torch.sigmoid(vae.decode(z))
    results = {
        "log": log,
        "latent": latent,
        "samples": samples.cpu().numpy(),
        "brightness": samples.mean(dim=(1, 2, 3)).tolist(),
        "weights": vae.state_dict(),
    }
