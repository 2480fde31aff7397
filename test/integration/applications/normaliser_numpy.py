"""A model that normalises with NumPy arrays, which a calibration changes while it serves."""

# points: 1
# catches: silent, wrong, keeps

import numpy as np
import torch
from torch import nn

BUDGET = 512 << 10


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = np.zeros(32, dtype=np.float32)
        self.scale = np.ones(32, dtype=np.float32)
        self.layers = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4))

    def forward(self, x):
        return self.layers((x - torch.from_numpy(self.mean)) / torch.from_numpy(self.scale))


def application(koila, app):
    torch.manual_seed(0)
    model = Normalised().eval()
    x = torch.randn(1024, 32) * 3 + 2
    compiled = koila.compile(model, x, budget=BUDGET)
    answers = []

    def serve():
        with torch.no_grad(), app.within(BUDGET):
            answers.append(compiled(x))

    serve()
    model.mean[:] = x.mean(0).numpy()  # in place
    serve()
    model.scale = x.std(0).numpy()  # another array
    serve()
    serve()
    return {"answers": answers}
