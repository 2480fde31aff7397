"""Writes a loss over attention whose score has a bias: a softmax takes no note of
it, so that its gradient is what rounding leaves; and the same loss with another
gradient of a weight.

    cancelled_gradient.py LOSS.pt OTHER.pt
"""

import sys

import torch
from torch import nn


class Loss(nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.twice = twice
        self.score, self.head = nn.Linear(6, 1), nn.Linear(6, 4)

    def forward(self, x):
        weight = self.head.weight
        if self.twice:
            weight = weight + (weight - weight.detach())
        shares = self.score(x.tanh()).softmax(1)
        return nn.functional.linear((x * shares).sum(1), weight).square().mean()


for twice, path in enumerate(sys.argv[1:]):
    torch.manual_seed(0)
    torch.jit.script(Loss(bool(twice))).save(path)
