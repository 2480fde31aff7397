"""A cache of compiled models: the oldest makes room, and its memory is there for the next."""

# points: 6
# catches: silent, wrong, keeps

import collections

import torch
from torch import nn

BUDGET = 512 << 10
MOST = 2


def make_model(width):
    return nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, 4)).eval()


def application(koila, app):
    x = {width: torch.randn(512, width) for width in (64, 96, 128, 160)}
    loaded, answers = collections.OrderedDict(), []

    def find(width):
        if width not in loaded:
            if len(loaded) == MOST:
                loaded.popitem(last=False)
            torch.manual_seed(width)
            model = make_model(width)
            loaded[width] = koila.compile(model, x[width], budget=BUDGET)
        return loaded[width]

    weights = sum(4 * (width * 1024 + 5 * 1024 + 4) for width in (128, 160))
    for width in (64, 96, 64, 128, 160, 64, 96):
        with torch.no_grad(), app.within(BUDGET + weights):
            answers.append(find(width)(x[width]).sum(1))
    return {"answers": answers}
