"""A service: requests of many sizes, answered by four threads with one compiled model."""

# points: 2, 5
# catches: silent, wrong, keeps

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

BUDGET = 256 << 10
THREADS = 4


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8)
    ).eval()
    requests = [torch.randn(size, 32) for size in (512, 768, 1, 640, 700, 512, 900, 33)]
    compiled = koila.compile(model, requests[0], budget=BUDGET)

    def answer(request):
        with torch.no_grad():
            return compiled(request)

    with app.within(THREADS * BUDGET), ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(answer, requests))
    return {"answers": answers, "one by one": [answer(request) for request in requests[:2]]}
