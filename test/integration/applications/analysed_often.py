"""A search over widths: many networks are analysed, and their largest batches found."""

# points: 6
# catches: wrong

import itertools

import torch
from torch import nn

MIB = 1 << 20


def make_model(width):
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 4)).eval()


def application(koila, app):
    torch.manual_seed(0)
    x = torch.randn(64, 32)
    # PyTorch keeps a type for each new one.
    widths, peaks, batches = itertools.cycle((64, 100, 256, 500)), [], []

    def analyze():
        peaks.append(koila.analyze(make_model(next(widths)), x).peak)

    def find_batch():
        batches.append(koila.max_batch(make_model(next(widths)), x, budget=MIB))

    for call in (analyze, find_batch):
        grown = app.grow(call, first=8, times=20)
        app.check(grown < 16 << 10, f"{call.__name__} keeps {grown:,.0f} bytes each time", "keeps")
    return {"peaks": peaks, "batches": batches}
