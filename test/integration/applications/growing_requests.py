"""A service compiled for batches of 128 that gets more at once, up to 32 times as many."""

# points: 2
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 256 << 10


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 256))

    def forward(self, x):
        return self.layers(x)


def application(koila, app):
    torch.manual_seed(0)
    classifier = nn.Sequential(
        nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 4)
    ).eval()
    embedder = Embedder().eval()
    x = torch.randn(4096, 32)
    small = koila.compile(classifier, x[:128], budget=BUDGET)
    large = koila.compile(embedder, x[:128], budget=BUDGET)
    answers = []
    with torch.no_grad():
        for size in (128, 256, 1000, 4096):
            # Results of a few bytes a sample: tiles serve any batch.
            with app.within(BUDGET, strict=True):
                answers.append(small(x[:size]))
        before = len(app.warnings)
        for size in (128, 1024, 2048, 1024):
            # Results that are larger than the budget: nothing helps.
            with app.within(BUDGET):
                answers.append(large(x[:size]))
    app.check(len(app.warnings) - before <= 1, f"warned more than once: {app.warnings[before:]}")
    return {"answers": answers}
