"""A GAN in the usual steps: one fake batch serves both optimizers, detached for the first."""

# koila: tiles
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(999)
nz, ngf, ndf = 12, 16, 16
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf, 4),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, ngf, 4, 2, 1),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 3, 1, 1),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf, 4, 2, 1),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, 1, 8),
    nn.Flatten(0),
)
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))

position, phase = torch.arange(16.0), torch.rand(288, 1, 1) * 6.28
waves = torch.sin(position * 0.7 + phase) * torch.cos(position[:, None] * 0.4 + phase)
dataset = TensorDataset((waves * torch.linspace(0.4, 1.0, 288)[:, None, None]).unsqueeze(1))
G_losses, D_losses, D_of = [], [], []
for i, (data,) in enumerate(DataLoader(dataset, batch_size=96, shuffle=True)):
    # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
    # Train with all-real batch
    netD.zero_grad()
    real = koila.lazy(data, batch=0)
    output = netD(real)
    errD_real = criterion(output, torch.ones_like(output))
    errD_real.backward()
    D_x = output.sigmoid().mean().item()
    # Train with all-fake batch
    noise = koila.lazy(torch.randn(data.size(0), nz, 1, 1), batch=0)
    fake = netG(noise)
    output = netD(fake.detach())
    errD_fake = criterion(output, torch.zeros_like(output))
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()
    # (2) Update G network: maximize log(D(G(z)))
    netG.zero_grad()
    output = netD(fake)
    errG = criterion(output, torch.ones_like(output))
    errG.backward()
    optimizerG.step()
    D_losses.append(errD.item())
    G_losses.append(errG.item())
    D_of.append((D_x, output.sigmoid().mean().item()))
    print(f"[{i}] Loss_D: {D_losses[-1]:.4f} Loss_G: {G_losses[-1]:.4f} D(x): {D_x:.4f}")

with torch.no_grad():
    images = netG(koila.lazy(torch.randn(160, nz, 1, 1), batch=0)).detach().cpu()
results = {
    "G_losses": G_losses,
    "D_losses": D_losses,
    "D_of": D_of,
    "images": images,
    "weights": {"G": netG.state_dict(), "D": netD.state_dict()},
}
