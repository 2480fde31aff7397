"""Settings that all models of a class share, an attribute and a dict, changed between requests."""

# points: 1
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 512 << 10


class Ranker(nn.Module):
    temperature = 1.0
    settings = {"scale": 1.0, "shift": 0.0}  # noqa: RUF012 (shared on purpose)

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 6))

    def forward(self, x):
        scores = self.layers(x) / self.temperature
        return torch.sigmoid(scores * self.settings["scale"] + self.settings["shift"])


def application(koila, app):
    torch.manual_seed(0)
    model = Ranker().eval()
    x = torch.randn(1024, 32)
    compiled = koila.compile(model, x, budget=BUDGET)
    answers = []

    def serve():
        with torch.no_grad(), app.within(BUDGET):
            answers.append(compiled(x))

    serve()
    Ranker.temperature = 0.25
    serve()
    Ranker.settings["shift"] = 1.5  # the same dict
    serve()
    Ranker.settings = {"scale": 2.0, "shift": -1.0}
    serve()
    serve()
    return {"answers": answers}
