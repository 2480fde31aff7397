"""A tuning run that sets a constant of its file and replaces a function of it."""

# points: 1
# catches: silent, wrong, keeps

import torch
from torch import nn
from torch.nn import functional

BUDGET = 512 << 10
SLOPE = 0.1


def activate(x):
    return functional.leaky_relu(x, SLOPE)


def activate_smoothly(x):
    return functional.silu(x)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 512)
        self.second = nn.Linear(512, 6)

    def forward(self, x):
        return self.second(activate(self.first(x)) * (1 + SLOPE))


def application(koila, app):
    torch.manual_seed(0)
    model = Regressor().eval()
    x = torch.randn(1024, 32)
    compiled = koila.compile(model, x, budget=BUDGET)
    names = globals()
    answers = []

    def serve():
        with torch.no_grad(), app.within(BUDGET):
            answers.append(compiled(x))

    serve()
    for slope in (0.3, 0.7):
        names["SLOPE"] = slope
        serve()
    names["activate"] = activate_smoothly
    serve()
    names["SLOPE"] = 0.1
    serve()
    serve()
    return {"answers": answers}
