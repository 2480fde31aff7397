"""Looks into a compiled Sequential as people do: layers by index, slices, loops, and lengths."""

# points: 10
# catches: silent, wrong, keeps

import copy

import torch
from torch import nn

BUDGET = 512 << 10


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()
    x = torch.randn(1024, 32)
    compiled = koila.compile(model, x, budget=BUDGET)
    results = {
        "length": len(compiled),
        "kinds": [type(layer).__name__ for layer in compiled],
        "last": compiled[-1].weight,
        "slice": [type(layer).__name__ for layer in compiled[:2]],
        "features": compiled[0].out_features,
        "names": [name for name, _ in compiled.named_parameters()],
        "children": [name for name, _ in compiled.named_children()],
    }
    with torch.no_grad():
        compiled[2].weight.mul_(2)  # a change that shows
        with app.within(BUDGET, strict=True):
            results["answer"] = compiled(x)
        again = copy.deepcopy(compiled)
        again[0].weight.mul_(0.5)
        with app.within(BUDGET, strict=True):
            results["copy"] = again(x)
        with app.within(BUDGET, strict=True):
            results["itself"] = compiled(x)
    return results
