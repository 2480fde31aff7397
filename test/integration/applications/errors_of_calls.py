"""A service that answers wrong requests by what they raise: as plain PyTorch does."""

# points: 10, 4
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 256 << 10


def make_classifier():
    class Classifier(nn.Module):
        """A class that is defined in a function."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(32, 512), nn.Linear(512, 4)

        def forward(self, x, temperature: float = 1.0):
            return self.second(torch.tanh(self.first(x)) / temperature)

    return Classifier()


def application(koila, app):
    torch.manual_seed(0)
    model = make_classifier().eval()
    x = torch.randn(1024, 32)
    compiled = koila.compile(model, x, budget=BUDGET)
    wrong = {
        "text": lambda: compiled("words"),
        "none": lambda: compiled(None),
        "list": lambda: compiled([x]),
        "missing": lambda: compiled(),
        "too many": lambda: compiled(x, 1.0, 2.0),
        "unknown": lambda: compiled(x, heat=2.0),
        "twice": lambda: compiled(x, x=x),
        "number": lambda: compiled(x, temperature="hot"),
        "features": lambda: compiled(x[:, :31]),
        "type": lambda: compiled(x.double()),
    }
    kinds = {}
    with torch.no_grad():
        for name, call in wrong.items():
            error = app.error(call)
            kinds[name] = type(error).__name__
            lines = str(error).count("\n") + 1
            app.check(lines <= 4, f"{name}: {lines} lines: {error}")
        # And goes on.
        with app.within(BUDGET, strict=True):
            answer = compiled(x)
        with app.within(BUDGET):
            other = compiled(x, 0.5)
    return {"kinds": kinds, "answer": answer, "other": other}
