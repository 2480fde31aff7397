"""Makes programs that draw random numbers, in training mode.

Usage: random_models.py FOLDER

Apart from the draws they compute elementwise and with exact operations, so that
a tiled program which draws the same numbers gives the same bits.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class TwoDropouts(nn.Module):
    """The loop over tiles would interleave their streams."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7))
        self.first, self.second = nn.Dropout(0.5), nn.Dropout(0.3)

    def forward(self, x):
        return self.second(self.first(x) * self.weight + 1)


class Channels(nn.Module):
    """Noise of another shape than the input, of affine values, and both."""

    def forward(self, x):
        h = F.feature_alpha_dropout(F.dropout2d(x, 0.4), 0.2, training=True)
        return F.alpha_dropout(h.permute(0, 2, 3, 1), 0.3, training=True) * 2


class Noise(nn.Module):
    def forward(self, x):
        flipped = x.transpose(1, 2) * 2
        return (
            x + torch.rand_like(x),
            flipped * torch.randn_like(flipped),
            torch.randint_like(x, 3, 9, dtype=torch.int64),
            x.double() + torch.rand_like(x, dtype=torch.float64),
        )


class Vae(nn.Module):
    """The reparametrisation; rows of 7, which normal draws do not split."""

    def forward(self, x):
        mean, deviation = x[:, :7], x[:, 7:].abs()
        z = mean + torch.randn_like(deviation) * deviation
        return z + torch.randn(x.size(0), 7), z


class ByValues(nn.Module):
    """One draw needs the values of the whole batch, between others."""

    def forward(self, x):
        h = F.dropout(x, 0.5, training=True)
        p = (h * h) / (1 + h * h)
        mask = torch.bernoulli(p)
        return F.dropout(h * mask, 0.25, training=True), torch.rand_like(h)


class Permutation(nn.Module):
    def forward(self, x):
        order = torch.randperm(7)
        return F.dropout(x * order, 0.5, training=True) + torch.rand(7)


class InPlace(nn.Module):
    def forward(self, x):
        h = F.dropout(x * 2, 0.5, training=True, inplace=True)
        h = h + torch.empty_like(h).bernoulli_(0.3)
        h = h + torch.zeros_like(h).uniform_(-1.0, 1.0)
        return h + torch.empty(h.size(0), 7).normal_(1.0, 2.0)


class Edges(nn.Module):
    """Nothing is drawn for probabilities of 0 and 1, nor outside training."""

    def forward(self, x):
        h = F.dropout(x, 0.0, training=True) + F.dropout(x, 0.5, training=False)
        return h + F.dropout(x, 1.0, training=True) + torch.rand_like(x)


class Classifier(nn.Module):
    """With products, whose rounding depends on the tile."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(7, 32),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(32, 32),
            nn.Tanh(),
            nn.Dropout(0.1),
            nn.Linear(32, 5),
        )

    def forward(self, x):
        return self.layers(x)


MODELS = {
    "two_dropouts": (TwoDropouts, (7,)),
    "channels": (Channels, (3, 4, 5)),
    "noise": (Noise, (3, 5)),
    "vae": (Vae, (14,)),
    "by_values": (ByValues, (7,)),
    "permutation": (Permutation, (7,)),
    "in_place": (InPlace, (7,)),
    "edges": (Edges, (7,)),
    "classifier": (Classifier, (7,)),
}


def main():
    folder = sys.argv[1]
    for name, (model, shape) in MODELS.items():
        torch.manual_seed(1)
        torch.jit.save(
            torch.jit.trace(model().train(), torch.randn(3, *shape), check_trace=False),
            f"{folder}/{name}.pt",
        )


if __name__ == "__main__":
    main()
