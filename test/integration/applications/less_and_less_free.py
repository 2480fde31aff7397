"""budget="auto" is read again: other parts of a service take memory after it was compiled."""

# points: 8, 2

import pathlib
import resource

import torch
from torch import nn

MIB = 1 << 20


def limit_to(more):
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 4)).eval()
    trained = nn.Sequential(nn.Linear(16, 1024), nn.GELU(), nn.Linear(1024, 4))
    x = torch.randn(32768, 16)
    y = torch.randn(32768, 4)
    with torch.no_grad():
        wanted = torch.cat([model(part) for part in x.split(4096)])
    nn.functional.mse_loss(trained(x[:16384]), y[:16384]).backward()
    gradient = trained[0].weight.grad.clone()
    trained.zero_grad(set_to_none=False)
    compiled = koila.compile(model, x[:64])
    step = koila.compile(trained, x[:64], y[:64], loss="mse_loss")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x[:8192]), wanted[:8192], rtol=1e-4, atol=1e-5)
        # 256 MiB of activations, twice; then in ever less.
        for free in (300, 150):
            limit_to(free * MIB)
            torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-5)
    limit_to(120 * MIB)
    step.train_step(x[:16384], y[:16384])
    torch.testing.assert_close(trained[0].weight.grad, gradient, rtol=1e-3, atol=1e-6)
