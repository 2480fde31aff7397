"""A decoder with layers in lists and dicts, and caches that may not be there, as attributes."""

# points: 11
# catches: silent, wrong, keeps

from typing import Optional

import torch
from torch import nn

BUDGET = 1 << 20


class Attention(nn.Module):
    """Over what is given and, if there is one, a prefix that was computed before."""

    keys: Optional[torch.Tensor]  # noqa: UP045 (TorchScript's)
    values: Optional[torch.Tensor]  # noqa: UP045

    def __init__(self, width: int, prefix: bool):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.keys = torch.randn(1, 8, width) if prefix else None
        self.values = torch.randn(1, 8, width) if prefix else None

    def forward(self, x):
        keys, values = self.key(x), self.value(x)
        first, second = self.keys, self.values
        if first is not None and second is not None:
            keys = torch.cat([first.expand(x.size(0), -1, -1), keys], 1)
            values = torch.cat([second.expand(x.size(0), -1, -1), values], 1)
        return x + (self.query(x) @ keys.transpose(1, 2)).softmax(-1) @ values


class Decoder(nn.Module):
    def __init__(self, prefix: bool):
        super().__init__()
        self.attention = nn.ModuleList(Attention(32, prefix) for _ in range(3))
        self.heads = nn.ModuleDict({name: nn.Linear(32, 4) for name in ("first", "second")})

    def forward(self, x, gates: Optional[torch.Tensor] = None):  # noqa: UP045
        for index, layer in enumerate(self.attention):
            x = layer(x)
            if gates is not None:
                x = x * gates[:, index, None, None]
        result = {}
        for name, head in self.heads.items():
            result[name] = head(x.mean(1))
        return result


def application(koila, app):
    torch.manual_seed(0)
    x, gates = torch.randn(256, 32, 32), torch.rand(256, 3)
    results = {}
    for prefix in (False, True):
        model = Decoder(prefix).eval()
        script = torch.jit.script(model)
        path = app.folder / "model.pt"
        script.save(path)
        for program in (model, script, path):
            about = type(program).__name__, prefix
            compiled = koila.compile(program, x, budget=BUDGET)
            gated = koila.compile(program, x, gates, budget=BUDGET)
            with torch.no_grad():
                with app.within(BUDGET, strict=True):
                    results[("plain", *about)] = compiled(x)
                with app.within(BUDGET, strict=True):
                    results[("gated", *about)] = gated(x, gates)
            if prefix and program is not path:
                # The next text has another prefix.
                for index, layer in enumerate(program.attention):
                    layer.keys = torch.full((1, 5, 32), 0.1 * index)
                    layer.values = torch.ones(1, 5, 32)
                with torch.no_grad(), app.within(BUDGET):
                    results[("another", *about)] = compiled(x)
    return results
