"""Traced recommenders, and losses over the batch, that no rule was made with."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program


@program
def unseen_factorization():
    def forward(self, ids, values):
        first = (self.linear(ids).squeeze(-1) * values).sum(1, keepdim=True)
        v = self.table(ids) * values.unsqueeze(-1)
        second = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        x0 = x = v.flatten(1)
        for cross in self.cross:
            x = x0 * cross(x) + x
        pairs = torch.bmm(v, v.transpose(1, 2))
        rows, columns = torch.triu_indices(4, 4, 1)
        pairs = pairs[:, rows, columns]
        return torch.sigmoid(first + second + self.deep(torch.cat([x, pairs], 1))).squeeze(1)

    return network(
        forward,
        linear=nn.Embedding(30, 1),
        table=nn.Embedding(30, 5),
        cross=nn.ModuleList(nn.Linear(20, 20) for _ in range(2)),
        deep=nn.Sequential(nn.Linear(26, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)),
    ), ["int64[B,4]{0:30}", "float32[B,4]"]


@program
def unseen_two_towers():
    """The other items of the batch are what a user did not choose."""

    def forward(self, user, item):
        u = F.normalize(self.user(user).mean(1), dim=-1)
        i = F.normalize(self.item(item), dim=-1)
        logits = torch.einsum("ud,id->ui", u, i) * self.scale.exp()
        labels = torch.arange(logits.size(0), device=logits.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        return loss, logits.argmax(1)

    return network(
        forward,
        user=nn.Embedding(30, 12),
        item=nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 12)),
        scale=nn.Parameter(torch.tensor(1.5)),
    ), ["int64[B,5]{0:30}", "float32[B,9]"]


@program
def unseen_redundancy_loss():
    """Features of two views, correlated over the batch."""

    def forward(self, x, y):
        a, b = self.net(x), self.net(y)
        a = (a - a.mean(0)) / (a.std(0) + 1e-3)
        b = (b - b.mean(0)) / (b.std(0) + 1e-3)
        cross = torch.einsum("bi,bj->ij", a, b) / a.size(0)
        diagonal = (torch.diagonal(cross) - 1).pow(2).sum()
        rest = cross.pow(2).sum() - cross.diagonal().pow(2).sum()
        return diagonal + 0.005 * rest, cross

    return network(forward, net=nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))), [
        "float32[B,10]",
        "float32[B,10]",
    ]


@program
def unseen_interest_attention():
    """What was seen before, weighed by how it fits a candidate."""

    def forward(self, history, candidate, lengths):
        h, c = self.table(history), self.table(candidate)
        q = c.unsqueeze(1).expand_as(h)
        scores = self.fit(torch.cat([q, h, q - h, q * h], -1)).squeeze(-1)
        mask = torch.arange(h.size(1)).unsqueeze(0) < lengths.unsqueeze(1)
        scores = torch.where(mask, scores, torch.tensor(-1e4))
        interest = torch.matmul(scores.softmax(-1).unsqueeze(1), h).squeeze(1)
        return self.head(torch.cat([interest, c], 1))[:, 0]

    return network(
        forward,
        table=nn.Embedding(40, 8),
        fit=nn.Sequential(nn.Linear(32, 10), nn.PReLU(), nn.Linear(10, 1)),
        head=nn.Sequential(nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 1)),
    ), ["int64[B,9]{0:40}", "int64[B]{0:40}", "int64[B]{1:10}"]


@program
def unseen_expert_gates():
    """Several tasks weigh the same experts."""

    def forward(self, x):
        experts = torch.stack([expert(x) for expert in self.experts], 1)
        outs = []
        for gate, tower in zip(self.gates, self.towers):
            weights = gate(x).softmax(1)
            outs.append(tower(torch.einsum("be,bed->bd", weights, experts)))
        return tuple(outs)

    return network(
        forward,
        experts=nn.ModuleList(nn.Sequential(nn.Linear(10, 8), nn.ReLU()) for _ in range(3)),
        gates=nn.ModuleList(nn.Linear(10, 3) for _ in range(2)),
        towers=nn.ModuleList(nn.Linear(8, 1 + i) for i in range(2)),
    ), ["float32[B,10]"]
