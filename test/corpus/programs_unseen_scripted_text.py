"""Scripted attention and text that no rule was made with."""

import math
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import scripted

ROWS = "float32[B,8]"

SEQUENCE = "float32[B,6,8]"


@scripted()
def unseen_script_optional_mask():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, mask: Optional[Tensor] = None, causal: bool = True):
            scores = torch.matmul(self.q(x), self.k(x).transpose(-1, -2)) / math.sqrt(8.0)
            if causal:
                length = x.size(1)
                upper = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(upper, -1e9)
            if mask is not None:
                scores = scores.masked_fill(mask[:, None] == 0, -1e9)
            return torch.matmul(F.softmax(scores, -1), self.v(x))

    return Attention(), [SEQUENCE, "bool[B,6]"]


class Choice(nn.Module):
    """Strings decide what is done."""

    def __init__(self, pooling: str, activation: str):
        super().__init__()
        self.pooling, self.activation = pooling, activation
        self.fc = nn.Linear(8, 10)

    def act(self, x):
        if self.activation == "gelu":
            return F.gelu(x)
        elif self.activation == "silu":
            return F.silu(x)
        else:
            return F.relu(x)

    def forward(self, x):
        y = self.act(self.fc(x))
        if self.pooling == "mean":
            return y.mean(1)
        if self.pooling == "max":
            return y.max(dim=1)[0]
        if self.pooling == "last":
            return y[:, -1]
        raise RuntimeError("no such pooling")


@scripted()
def unseen_script_strings_mean():
    return Choice("mean", "gelu"), [SEQUENCE]


@scripted()
def unseen_script_strings_max():
    return Choice("max", "relu"), [SEQUENCE]


@scripted()
def unseen_script_encoder_layers():
    """Layers with states of all kinds out, as an option."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.fc = nn.Linear(8, 8)

        def forward(self, x, padding: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
            y, weights = self.attention(x, x, x, key_padding_mask=padding)
            x = self.norm1(x + y)
            return self.norm2(x + F.relu(self.fc(x))), weights

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x, padding: Optional[Tensor] = None, states: bool = True):
            kept: List[Tensor] = []
            for layer in self.layers:
                if states:
                    kept.append(x)
                x, weights = layer(x, padding)
                assert weights is not None
                kept.append(weights)
            return x, kept

    return Layers(), [SEQUENCE]


@scripted()
def unseen_script_experts():
    """The best two of four, weighed; each over all of the rows."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)) for _ in range(4)
            )

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                share = (weights * (chosen == i)).sum(-1, keepdim=True)
                out = out + share * expert(x)
            return out

    return Experts(), [ROWS]


@scripted(decided="how many rows choose an expert")
def unseen_script_routed_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 3)
            self.experts = nn.ModuleList(nn.Linear(8, 5) for _ in range(3))

        def forward(self, x):
            chosen = self.gate(x).argmax(-1)
            out = torch.zeros(x.size(0), 5)
            for i, expert in enumerate(self.experts):
                rows = torch.nonzero(chosen == i).squeeze(1)
                out.index_add_(0, rows, expert(x[rows]))
            return out

    return Experts(), [ROWS]
