"""Large examples: while koila traces, compares and verifies it stays within the budget, too."""

# points: 8, 2
# catches: wrong, keeps

import torch
from torch import nn

BUDGET = 1 << 20


class Traced(nn.Module):
    """With options that TorchScript does not know."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 4),
        )

    def forward(self, x, **options):
        return self.layers(x)


def application(koila, app):
    torch.manual_seed(0)
    traced = Traced()
    scripted = traced.layers
    x, y = torch.randn(64, 3, 32, 32), torch.randn(64, 4)
    answers = []
    for model in (traced, scripted):
        for examples, options in (((x,), {}), ((x, y), {"loss": "mse_loss"})):
            model.train(bool(options))
            # One sample of a step takes less than the budget, the batch forty times.
            with app.within(BUDGET, model.parameters()):
                compiled = koila.compile(model, *examples, budget=BUDGET, **options)
            with app.within(BUDGET, model.parameters()), torch.set_grad_enabled(bool(options)):
                answers.append(compiled.train_step(x, y) if options else compiled(x))
            model.zero_grad()
    return {"answers": answers}
