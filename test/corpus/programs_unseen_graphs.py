"""Traced networks of graphs and sets that no rule was made with."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program


@program
def unseen_dense_graph():
    def forward(self, x, edges):
        adjacency = ((edges + edges.transpose(1, 2)) > 0.5).float() + torch.eye(edges.size(-1))
        degree = adjacency.sum(-1)
        scale = degree.pow(-0.5)
        normal = scale.unsqueeze(-1) * adjacency * scale.unsqueeze(-2)
        y = F.relu(torch.bmm(normal, self.one(x)))
        y = torch.baddbmm(self.bias, normal, self.two(y))
        assign = self.pool(y).softmax(-1)
        pooled = torch.einsum("bnk,bnd->bkd", assign, y)
        coarse = assign.mT @ adjacency @ assign
        return pooled, coarse / coarse.diagonal(dim1=1, dim2=2).sum(-1).view(-1, 1, 1)

    return network(
        forward,
        one=nn.Linear(5, 12),
        two=nn.Linear(12, 8),
        pool=nn.Linear(8, 3),
        bias=nn.Parameter(torch.randn(8)),
    ), ["float32[B,9,5]", "float32[B,9,9]{0:1}"]


@program
def unseen_edge_messages():
    """Nodes and edges of a batch of graphs in one row each."""

    def forward(self, x, edges):
        source, target = edges[0], edges[1]
        message = self.message(torch.cat([x[source], x[target]], 1)).relu()
        total = torch.zeros(x.size(0), message.size(1)).index_add_(0, target, message)
        degree = x.new_zeros(x.size(0)).scatter_add_(
            0, target, torch.ones_like(target, dtype=x.dtype)
        )
        y = self.update(total / degree.clamp(min=1).unsqueeze(-1), x)
        return self.head(y)

    return network(
        forward,
        message=nn.Linear(12, 10),
        update=nn.GRUCell(10, 6),
        head=nn.Linear(6, 3),
    ), ["float32[5*B,6]", "int64[2,12*B]{0:5*B}"]


@program
def unseen_edge_softmax():
    """Attention over the edges of each node."""

    def forward(self, x, edges):
        h = self.project(x).view(-1, 2, 4)
        source, target = edges.unbind(0)
        score = (h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        index = target.unsqueeze(-1).expand_as(score)
        most = torch.full((x.size(0), 2), -1e9).scatter_reduce(0, index, score, "amax")
        weight = (score - most.gather(0, index)).exp()
        total = torch.zeros(x.size(0), 2).scatter_add(0, index, weight)
        weight = weight / (total.gather(0, index) + 1e-16)
        out = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
        return F.elu(out.flatten(1)), weight

    return network(
        forward,
        project=nn.Linear(6, 8, bias=False),
        left=nn.Parameter(torch.randn(1, 2, 4)),
        right=nn.Parameter(torch.randn(1, 2, 4)),
    ), ["float32[4*B,6]", "int64[2,10*B]{0:4*B}"]


@program
def unseen_induced_sets():
    def forward(self, x):
        h, _ = self.into(self.points.repeat(x.size(0), 1, 1), x, x)
        y, _ = self.back(x, h, h)
        y = self.norm(x + y)
        y = y + F.relu(self.fc(y))
        pooled, weights = self.pool(self.seed.expand(x.shape[0], 1, 12), y, y)
        return self.head(pooled).squeeze(1), weights.squeeze(1)

    return network(
        forward,
        points=nn.Parameter(torch.randn(1, 4, 12)),
        seed=nn.Parameter(torch.randn(1, 1, 12)),
        into=nn.MultiheadAttention(12, 3, batch_first=True),
        back=nn.MultiheadAttention(12, 3, batch_first=True),
        pool=nn.MultiheadAttention(12, 1, batch_first=True),
        norm=nn.LayerNorm(12),
        fc=nn.Linear(12, 12),
        head=nn.Linear(12, 5),
    ), ["float32[B,10,12]"]


@program
def unseen_edge_convolution():
    """Neighbours of points in the space of features, by index."""

    def forward(self, x):
        batch, points, _ = x.shape
        inner = -2 * torch.matmul(x, x.transpose(2, 1))
        squares = torch.sum(x**2, dim=2, keepdim=True)
        index = (-squares - inner - squares.transpose(2, 1)).topk(k=4, dim=-1)[1]
        base = torch.arange(0, batch).view(-1, 1, 1) * points
        near = x.reshape(batch * points, -1)[(index + base).view(-1)].view(batch, points, 4, -1)
        centre = x.view(batch, points, 1, -1).repeat(1, 1, 4, 1)
        feature = torch.cat((near - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()
        y = F.leaky_relu(self.norm(self.conv(feature)), negative_slope=0.2)
        y = y.max(dim=-1, keepdim=False)[0]
        return torch.cat([F.adaptive_max_pool1d(y, 1), F.adaptive_avg_pool1d(y, 1)], 1).view(
            batch, -1
        )

    return network(forward, conv=nn.Conv2d(6, 8, 1, bias=False), norm=nn.BatchNorm2d(8)), [
        "float32[B,11,3]"
    ]
