"""Traced networks of tables that no rule was made with."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program


@program
def unseen_sparse_steps():
    """Features chosen by sparse weights, in steps."""

    def sparsemax(x):
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        count = torch.arange(1, x.size(-1) + 1, dtype=x.dtype)
        size = (count * ordered > sums).sum(-1, keepdim=True)
        return torch.clamp(x - sums.gather(-1, size - 1) / size.to(x.dtype), min=0)

    def forward(self, x):
        x = self.norm(x)
        prior = torch.ones_like(x)
        total, kept = 0, []
        hidden = self.shared(x)
        for attend, transform in zip(self.attend, self.transform):
            mask = sparsemax(attend(hidden) * prior)
            prior = prior * (1.3 - mask)
            hidden = F.glu(transform(self.shared(mask * x)), -1)
            total = total + F.relu(hidden)
            kept.append(mask)
        return self.head(total), torch.stack(kept).sum(0)

    return network(
        forward,
        norm=nn.BatchNorm1d(14),
        shared=nn.Linear(14, 8),
        attend=nn.ModuleList(nn.Linear(8, 14) for _ in range(3)),
        transform=nn.ModuleList(nn.Linear(8, 16) for _ in range(3)),
        head=nn.Linear(8, 3),
    ), ["float32[B,14]"]


@program
def unseen_feature_tokens():
    """Numbers and categories as tokens of a transformer."""

    def forward(self, numbers, categories):
        tokens = numbers.unsqueeze(-1) * self.scale + self.shift
        offset = categories + torch.tensor([0, 5, 12])
        tokens = torch.cat(
            [self.token.expand(numbers.size(0), -1, -1), tokens, self.table(offset)], 1
        )
        return self.head(self.encoder(tokens)[:, 0])

    return network(
        forward,
        scale=nn.Parameter(torch.randn(6, 16)),
        shift=nn.Parameter(torch.randn(6, 16)),
        token=nn.Parameter(torch.randn(1, 1, 16)),
        table=nn.Embedding(20, 16),
        encoder=nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True),
        head=nn.Sequential(nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2)),
    ), ["float32[B,6]", "int64[B,3]{0:5}"]


@program
def unseen_soft_trees():
    def forward(self, x):
        right = torch.sigmoid(self.split(x)).view(-1, 4, 3)
        choice = torch.stack([right, 1 - right], -1)
        leaves = torch.einsum("bti,btj,btk->btijk", *choice.unbind(2)).flatten(2)
        return torch.einsum("btl,tlo->bo", leaves, self.values) / 4, leaves.amax(-1)

    return network(forward, split=nn.Linear(10, 12), values=nn.Parameter(torch.randn(4, 8, 3))), [
        "float32[B,10]"
    ]


@program
def unseen_entity_embeddings():
    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        y = torch.cat([*parts, self.norm(numbers)], 1)
        for layer in self.layers:
            y = layer(y)
        low, high = self.range
        return torch.sigmoid(y) * (high - low) + low

    return network(
        forward,
        tables=nn.ModuleList(nn.Embedding(size, width) for size, width in ((7, 3), (9, 4))),
        norm=nn.BatchNorm1d(5),
        layers=nn.ModuleList(
            [
                nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.1)),
                nn.Linear(16, 1),
            ]
        ),
        range=torch.tensor([1.0, 5.0]),
    ), ["int64[B,2]{0:7}", "float32[B,5]"]


@program
def unseen_time_series():
    """A series taken apart, each part forecast by blocks with back-casts."""

    def forward(self, x):
        trend = F.avg_pool1d(F.pad(x.unsqueeze(1), (2, 2), mode="replicate"), 5, 1).squeeze(1)
        rest = x - trend
        forecast = self.trend(trend)
        for block in self.blocks:
            back, ahead = block(rest).split([24, 6], dim=1)
            rest = rest - back
            forecast = forecast + ahead
        scale = x.std(1, keepdim=True, unbiased=False)
        return forecast * scale + x[:, -1:], rest

    return network(
        forward,
        trend=nn.Linear(24, 6),
        blocks=nn.ModuleList(
            nn.Sequential(nn.Linear(24, 16), nn.Softplus(), nn.Linear(16, 30)) for _ in range(2)
        ),
    ), ["float32[B,24]"]
