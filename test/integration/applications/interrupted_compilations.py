"""Ctrl-C at many moments of a compilation, each followed by a right one in the same process."""

# points: 7
# catches: wrong

from functools import partial

import torch
from torch import nn

from applications_interrupt import find_moments, interrupted

BUDGET = 512 << 10
MOMENTS = 6  # of each


class Traced(nn.Module):
    """TorchScript cannot express it, so that it is traced."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x, **options):
        return self.layers(x)


def application(koila, app):
    torch.manual_seed(0)
    x, y = torch.randn(512, 32), torch.randint(0, 4, (512,))
    answers = []
    widths = iter(range(256, 512))

    def make_model(traced):
        """One that TorchScript has not seen yet."""
        width = next(widths)
        layers = [nn.Linear(32, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 4)]
        return Traced(nn.Sequential(*layers)) if traced else nn.Sequential(*layers)

    def serve(model):
        with torch.no_grad():
            answers.append(koila.compile(model.eval(), x, budget=BUDGET)(x))

    def train(model):
        step = koila.compile(model.train(), x, y, loss="cross_entropy", budget=BUDGET)
        answers.append(step.train_step(x, y))

    for traced in (False, True):
        for call in (serve, train):
            call(make_model(traced))  # once without, which imports
            model = make_model(traced)
            for moment in find_moments(partial(call, model), MOMENTS):
                model, before = make_model(traced), len(answers)
                state = torch.get_rng_state()
                with interrupted(moment):
                    call(model)
                # What came in spite of it is not counted.
                del answers[before:]
                model.zero_grad()
                app.check(torch.equal(torch.get_rng_state(), state), "the generator went on")
                call(model)
                if not traced:
                    # Others use TorchScript, too.
                    torch.jit.script(model)
    return {"answers": answers}
