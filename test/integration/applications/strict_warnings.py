"""A test suite that makes warnings errors, by type and by the module that they are about."""

# points: 10, 2

import traceback
import warnings

import torch
from torch import nn

BUDGET = 256 << 10


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 256)).eval()
    x = torch.randn(4096, 32)
    compiled = koila.compile(model, x[:64], budget=BUDGET)
    with torch.no_grad():
        wanted = model(x)
    filters = (
        {"category": koila.KoilaWarning},
        {"category": koila.KoilaWarning, "module": __name__},
        {"category": UserWarning, "module": __name__},
    )
    for options in filters:
        compiled = koila.compile(model, x[:64], budget=BUDGET)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("error", **options)
            error = None
            try:
                # The result alone is larger than the budget.
                compiled(x)
            except Exception as caught:
                error = caught
        found = type(error).__name__
        app.check(isinstance(error, koila.KoilaWarning), f"{options}: {found} is raised: {error}")
        if error is None:
            continue
        # What people look at first: the line of theirs.
        lines = traceback.extract_tb(error.__traceback__)
        mine = [entry.line for entry in lines if entry.filename == __file__]
        app.check(mine[-1:] == ["compiled(x)"], f"{options}: it is raised in {lines[-1]}")
        del error
        # Nothing is half done.
        with torch.no_grad():
            torch.testing.assert_close(compiled(x[:64]), wanted[:64])
