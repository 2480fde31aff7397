"""Compiled on a few samples, which fit as they are, and then run over a whole table at once."""

# points: 2, 8
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 1 << 20


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(4, 32, 5, padding=2),
        nn.GELU(),
        nn.Conv1d(32, 32, 5, padding=2),
        nn.GELU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 3),
    ).eval()
    table = torch.randn(512, 4, 64) * torch.linspace(0.5, 2, 512)[:, None, None]
    with app.within(BUDGET, strict=True):
        compiled = koila.compile(model, table[:16], budget=BUDGET)
    answers = []
    with torch.no_grad():
        for rows in (table[:16], table[:100], table):
            with app.within(BUDGET, strict=True):
                answers.append(compiled(rows))
    return {"answers": answers}
