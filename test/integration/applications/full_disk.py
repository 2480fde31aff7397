"""A disk that fills while koila works: errors say so, and then all works again."""

# points: 8

import re
import resource
import signal

import torch
from torch import nn

BUDGET = 512 << 10


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10)).eval()
    x = torch.randn(512, 64)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    target = app.folder / "small.pt"
    compiled = koila.compile(model, x, budget=BUDGET)
    compiled.save(target)
    before = target.read_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    calls = (
        lambda: koila.compile(model, x, budget=BUDGET),
        lambda: compiled.save(target),
        lambda: koila.analyze(model, x),
        lambda: koila.compile(model, x, x[:, :10], loss="mse_loss", budget=BUDGET),
    )
    for limit in (200 << 10, 64 << 10, 16 << 10, 1 << 10, 0):
        for number, call in enumerate(calls):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            error = app.error(call)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            about = f"call {number} with {limit:,} bytes: {type(error).__name__}: {error}"
            # What needs no file may work.
            app.check(error is None or isinstance(error, koila.KoilaError), about)
            folder = re.escape(str(app.folder.parent))  # of the target and of temporary files
            says = re.search(rf"{folder}.*\d (bytes|[KM]iB)", str(error), re.DOTALL)
            app.check(error is None or says, f"names no folder and bytes: {about}")
            app.check(target.read_bytes() == before, f"the target is another: {about}")
    with torch.no_grad():
        again = koila.compile(model, x, budget=BUDGET)
        torch.testing.assert_close(again(x), model(x))
    left = sorted(path.name for path in app.folder.iterdir())
    app.check(left == ["small.pt"], f"left over: {left}")
