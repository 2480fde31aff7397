"""An encoder of texts: masks by name, by position, None, or left out."""

# points: 4
# catches: silent, wrong, keeps

from typing import Optional

import torch
from torch import nn

BUDGET = 1 << 20


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.query = nn.Linear(32, 32)
        self.key = nn.Linear(32, 32)
        self.value = nn.Linear(32, 32)
        self.layers = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU())
        self.head = nn.Linear(128, 4)

    def forward(
        self,
        tokens: torch.Tensor,
        mask: Optional[torch.Tensor] = None,  # noqa: UP045 (TorchScript's)
        scale: float = 1.0,
    ):
        x = self.embedding(tokens)
        scores = self.query(x) @ self.key(x).transpose(1, 2) * scale
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e9)
        x = x + scores.softmax(-1) @ self.value(x)
        return self.head(self.layers(x).mean(1))


def application(koila, app):
    torch.manual_seed(0)
    model = Encoder().eval()
    tokens = torch.randint(0, 100, (256, 32))
    mask = torch.arange(32) < torch.randint(4, 33, (256, 1))
    answers = []
    masked = koila.compile(model, tokens, mask=mask, budget=BUDGET)
    plain = koila.compile(model, tokens, budget=BUDGET)
    none = koila.compile(model, tokens, mask=None, budget=BUDGET)
    scaled = koila.compile(model, tokens, mask, 0.5, budget=BUDGET)
    calls = (
        lambda: masked(tokens, mask=mask),
        lambda: masked(tokens, mask),
        lambda: masked(tokens=tokens, mask=mask),
        lambda: masked(mask=mask[:200], tokens=tokens[:200]),
        lambda: plain(tokens),
        lambda: plain(tokens=tokens),
        lambda: none(tokens, mask=None),
        lambda: none(tokens, None),
        lambda: none(tokens),
        lambda: scaled(tokens, mask, 0.5),
        lambda: scaled(tokens, mask=mask, scale=0.5),
    )
    with torch.no_grad():
        for call in calls:
            with app.within(BUDGET, strict=True):
                answers.append(call())
        # Not what was compiled for: right, and within or said.
        for call in (
            lambda: plain(tokens, mask=mask),
            lambda: masked(tokens),
            lambda: scaled(tokens, mask, scale=2.0),
            lambda: none(tokens, scale=0.1),
        ):
            with app.within(BUDGET):
                answers.append(call())
    return {"answers": answers}
