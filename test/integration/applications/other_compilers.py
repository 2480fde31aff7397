"""Compiled modules in the hands of other tools: torch.compile, torch.export, pickle."""

# points: 10

import pickle

import torch
from torch import nn

BUDGET = 512 << 10


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()
    x = torch.randn(1024, 32)
    compiled = koila.compile(model, x, budget=BUDGET)

    def export(module):
        return torch.export.export(module, (x,)).module()

    tools = {
        "torch.compile": lambda: torch.compile(compiled, backend="eager"),
        "torch.export": lambda: export(compiled),
        "pickle": lambda: pickle.loads(pickle.dumps(compiled)),
    }
    with torch.no_grad():
        wanted = model(x)
        for name, make in tools.items():
            try:
                found = make()(x)
            except Exception as error:
                # It says what to give the tool instead.
                text = str(error)
                helps = any(word in text for word in (".original", ".script", ".save", "compiled."))
                helps = helps and "compile it again" not in text
                app.check(helps, f"{name}: {type(error).__name__}: {text[:300]}")
            else:
                torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(export(compiled.original)(x), wanted)

    # What goes wrong is caught as people catch it.
    error = app.error(lambda: koila.compile(model, x, budget=1 << 10))
    app.check(isinstance(error, torch.OutOfMemoryError), f"no OutOfMemoryError: {error!r}")
    app.check(isinstance(error, RuntimeError), f"no RuntimeError: {error!r}")
    app.check(isinstance(error, koila.KoilaError), f"no KoilaError: {error!r}")
    small = koila.compile(model, x, budget=error.smallest_budget)
    with torch.no_grad():
        torch.testing.assert_close(small(x), wanted)
    error = app.error(lambda: koila.compile(nn.Softmax(dim=0), x, tile=8))
    app.check(isinstance(error, RuntimeError), f"no RuntimeError: {error!r}")
    copied = pickle.loads(pickle.dumps(error))
    app.check(str(copied) == str(error), f"an error that a worker sends is another: {copied}")
