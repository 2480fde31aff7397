"""A loop of training and validation with loaders that have workers, and metrics per epoch."""

# points: 3
# catches: silent, wrong, keeps

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUDGET = 1 << 20


class Windows(Dataset):
    """Windows of a long series, and what it does next."""

    def __init__(self, first, last):
        self.first, self.last = first, last

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, index):
        times = torch.arange(index + self.first, index + self.first + 65) * 0.37
        series = torch.sin(times) + 0.5 * torch.sin(times * 0.13 * (1 + index % 7))
        return series[None, :64], series[64:]


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 24, 5, padding=2),
        nn.GroupNorm(4, 24),
        nn.GELU(),
        nn.Conv1d(24, 24, 5, padding=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(24 * 64, 1),
    )
    train = DataLoader(Windows(0, 512), batch_size=256, shuffle=True, num_workers=2)
    test = DataLoader(Windows(600, 1000), batch_size=400, num_workers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    example = next(iter(train))
    step = koila.compile(model, *example, loss="mse_loss", budget=BUDGET)
    history = []
    for _ in range(2):
        step.train()
        losses = []
        for x, y in train:
            optimizer.zero_grad()
            with app.within(BUDGET, model.parameters()):
                losses.append(float(step.train_step(x, y)))
            optimizer.step()
        step.eval()
        errors = []
        with torch.no_grad():
            for x, y in test:
                # The program of the step's tiles without its backward pass.
                with app.within(BUDGET, strict=True):
                    errors.append(step(x) - y)
        history.append((losses, torch.cat(errors).square().mean().item()))
    return {"history": history, "weights": model.state_dict()}
