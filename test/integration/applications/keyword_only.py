"""A recommender whose arguments have names only, as people write them for many features."""

# points: 4
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 1 << 20


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(50, 32)
        self.items = nn.Embedding(80, 32)
        self.layers = nn.Sequential(nn.Linear(72, 512), nn.GELU(), nn.Linear(512, 1))

    def forward(self, *, user, item, context, weights=None, normalise=False):
        features = torch.cat([self.users(user), self.items(item), context], dim=1)
        if normalise:
            features = torch.nn.functional.normalize(features, dim=1)
        scores = self.layers(features).squeeze(1)
        return scores if weights is None else scores * weights


def application(koila, app):
    torch.manual_seed(0)
    model = Recommender().eval()
    batch = {
        "user": torch.randint(0, 50, (1024,)),
        "item": torch.randint(0, 80, (1024,)),
        "context": torch.randn(1024, 8),
    }
    weights = torch.rand(1024) + 0.5
    compiled = koila.compile(model, **batch, budget=BUDGET)
    weighted = koila.compile(model, **batch, weights=weights, normalise=True, budget=BUDGET)
    answers = []
    with torch.no_grad():
        for call in (
            lambda: compiled(**batch),
            lambda: compiled(**{name: value[:700] for name, value in batch.items()}),
            lambda: compiled(**batch, weights=None),
            lambda: weighted(**batch, weights=weights, normalise=True),
            lambda: weighted(normalise=True, weights=weights, **dict(reversed(batch.items()))),
        ):
            with app.within(BUDGET, strict=True):
                answers.append(call())
        with app.within(BUDGET):
            answers.append(compiled(**batch, normalise=True))
    errors = [
        type(app.error(call)).__name__
        for call in (
            lambda: compiled(*batch.values()),
            lambda: compiled(user=batch["user"], item=batch["item"]),
            lambda: compiled(**batch, wieghts=weights),
        )
    ]
    return {"answers": answers, "errors": errors}
