"""A job under ulimit -v: budget="auto" knows of it, and a batch that would not fit runs."""

# points: 8

import pathlib
import resource

import torch
from torch import nn

MIB = 1 << 20


def limit_to(more):
    """As ``ulimit -v``: so many bytes more than there are now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 4)).eval()
    x = torch.randn(65536, 16)  # 512 MiB of activations, of which the ReLU has two
    with torch.no_grad():
        wanted = torch.cat([model(part) for part in x.split(4096)])
    limit_to(400 * MIB)
    free = koila.memory.free()
    app.check(free <= 400 * MIB, f"{free:,} bytes are said to be free of {400 * MIB:,}")
    with torch.no_grad():
        error = app.error(lambda: model(x))
        app.check(error is not None, "the application has no limit")
        compiled = koila.compile(model, x)
        torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-5)
        report = koila.analyze(model, x, batch=1024)
        app.check(report.peak == 2 * 1024 * 2048 * 4, f"peak {report.peak}")
        largest = koila.max_batch(model, x)
        app.check(largest < 65536, f"the largest batch is {largest}")
        part = largest * 9 // 10  # not to the last page
        torch.testing.assert_close(model(x[:part]), wanted[:part], rtol=1e-4, atol=1e-5)
    app.check(not app.warnings, f"warned: {app.warnings}")
