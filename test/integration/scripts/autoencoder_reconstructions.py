"""A convolutional autoencoder: reconstructions are kept as arrays, and the best loss is tracked."""

# koila: tiles
import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(21)
np.random.seed(21)


class Autoencoder(nn.Module):
    def __init__(self, channels=16, code=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, code, 3, stride=2, padding=1),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(code, channels, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(channels, channels, 2, stride=2),
            nn.ReLU(),
            nn.Conv2d(channels, 1, 3, padding=1),
        )

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code


grid = np.linspace(-1, 1, 20, dtype="float32")
centers = np.random.uniform(-0.8, 0.8, (400, 2)).astype("float32")
widths = np.random.uniform(0.1, 0.6, (400, 1, 1)).astype("float32")
distance = (grid[:, None] - centers[:, :1, None]) ** 2 + (grid - centers[:, 1:, None]) ** 2
data = torch.from_numpy(np.exp(-distance / widths)).unsqueeze(1)
model = Autoencoder()
mse = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=4e-3)
best, best_step, reconstructions, codes, errors = float("inf"), -1, [], [], []
for step, (x,) in enumerate(DataLoader(TensorDataset(data[:288]), batch_size=96, shuffle=True)):
    x = koila.lazy(x, batch=0)
    optimizer.zero_grad()
    output, _ = model(x)
    loss = mse(output, x)
    loss.backward()
    optimizer.step()
    if loss < best:
        best, best_step = loss.item(), step
    print(f"step {step} mse {loss.item():.5f} best {best:.5f}")

model.eval()
for (x,) in DataLoader(TensorDataset(data[288:]), batch_size=64):
    with torch.no_grad():
        x = koila.lazy(x, batch=0)
        output, code = model(x)
        errors += ((output - x) ** 2).mean(dim=(1, 2, 3)).tolist()
        reconstructions.append(output.cpu().numpy())
        codes.append(code.flatten(1).cpu().numpy())
results = {
    "best": best,
    "best_step": best_step,
    "errors": errors,
    "codes": np.concatenate(codes),
    "reconstructions": np.concatenate(reconstructions),
    "weights": model.state_dict(),
}
