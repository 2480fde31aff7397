"""A service that compiles again for every new version of its weights, and for every tenant."""

# points: 6
# catches: wrong, keeps

import weakref

import torch
from torch import nn

BUDGET = 1 << 20


def make_model():
    return nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()


def application(koila, app):
    torch.manual_seed(0)
    model, x = make_model(), torch.randn(1024, 32)
    answers, gone = [], []

    def renew():
        """The same module, with other weights."""
        with torch.no_grad():
            model[0].weight.mul_(1.01)
            answers.append(koila.compile(model, x, budget=BUDGET)(x[:700]).sum().item())

    def serve_tenant():
        tenant = make_model()
        gone.append(weakref.ref(tenant))
        with torch.no_grad():
            answers.append(koila.compile(tenant, x, budget=BUDGET)(x[:700]).sum().item())

    # A service lives for a million of them; the answers are a few bytes.
    for call in (renew, serve_tenant):
        grown = app.grow(call, first=6, times=14)
        app.check(grown < 16 << 10, f"{call.__name__} keeps {grown:,.0f} bytes each time", "keeps")
    alive = sum(tenant() is not None for tenant in gone)
    app.check(not alive, f"{alive} of {len(gone)} modules that are gone are alive", "keeps")
    return {"answers": answers}
