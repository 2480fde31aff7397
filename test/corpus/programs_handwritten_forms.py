"""Programs written for the corpus: element types, forms of arguments and
results, extents, losses, indices and order."""

from typing import Optional

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


# ---------------------------------------------------------------------------
# Element types


@program
def hand_half():
    def forward(self, x):
        y = self.mlp(self.norm(x))
        return y.softmax(-1), y.float().mean(1), y.sum(-1)

    return network(forward, norm=nn.LayerNorm(16), mlp=mlp()).half(), ["float16[B,16]"]


@program
def hand_bfloat16():
    def forward(self, x):
        y = self.mlp(x.to(torch.bfloat16))
        return y * 2.5, y + x[:, :8], F.layer_norm(y, (8,))

    return network(forward, mlp=mlp().bfloat16()), ["float32[B,16]"]


@program
def hand_double():
    def forward(self, x):
        return self.mlp(x).exp().log1p(), x.float() * torch.ones(16)

    return network(forward, mlp=mlp()).double(), ["float64[B,16]"]


@program
def hand_complex():
    def forward(self, z, x):
        w = torch.complex(x, x.sin())
        y = z * w.conj() + torch.view_as_complex(self.pairs)
        z = torch.polar(y.abs(), y.angle())
        return torch.view_as_real(z), z.real, (z @ z.mH).imag

    return network(forward, pairs=torch.randn(6, 2)), ["complex64[B,5,6]", "float32[B,5,6]"]


@program
def hand_promotion():
    """Integers, numbers, 0-dim tensors and floats meet."""

    def forward(self, i, x, flag):
        mean = i.float().mean()
        return (
            i / 2,
            i * 2.5,
            i + x.half(),
            i // 3,
            i % 5,
            i * flag,
            x * mean.double(),
            torch.where(flag, i, 0.5),
            i**2,
            torch.true_divide(i, i + 1),
            -i,
            i.to(torch.uint8) + i,
        )

    return network(forward), ["int32[B,4]{0:9}", "float32[B,4]", "bool[B,4]"]


@program
def hand_bits():
    """A program without numbers: bool and integers."""

    def forward(self, a, b):
        both = (a & b) | (a ^ b)
        shifted = (a << 2) + (b >> 1)
        odd = torch.bitwise_and(a, 1).bool()
        equal = torch.eq(a, b) & ~odd
        parity = torch.logical_xor(odd, equal).sum(1) % 2
        return both, shifted, equal.any(1), odd.all(dim=1), parity, ~a

    return network(forward), ["int64[B,6]{0:8}", "int64[B,6]{0:8}"]


# ---------------------------------------------------------------------------
# Forms of arguments and results


@program
def hand_several_inputs():
    """A batch in different places, and an input without batch."""

    def forward(self, x, y, table):
        picked = self.mlp(x) + y.transpose(0, 1)[:, :8]
        return picked @ table, picked.unsqueeze(0).repeat(2, 1, 1)

    return network(forward, mlp=mlp()), ["float32[B,16]", "float32[10,B]", "float32[8,4]"]


@program
def hand_list_input():
    def forward(self, parts):
        return self.mlp(torch.cat(parts, dim=1))

    return network(forward, mlp=mlp()), ["[float32[B,10],float32[B,6]]"]


@program
def hand_dict_input():
    def forward(self, batch):
        return self.mlp(batch["x"]) * batch["weight"].unsqueeze(-1)

    return network(forward, mlp=mlp()), ["{'x': float32[B,16], 'weight': float32[B]}"]


@program
def hand_dict_output():
    def forward(self, x):
        y = self.mlp(x)
        return {"logits": y, "classes": y.argmax(-1)}

    return network(forward, mlp=mlp()), ["float32[B,16]"]


@program
def hand_nested_output():
    def forward(self, x):
        first, *rest = self.mlp(x).split([2, 3, 3], dim=1)
        return first, (rest, {"input": x}), [x.sum(1)]

    return network(forward, mlp=mlp()), ["float32[B,16]"]


@program
def hand_none_output():
    """Scripted, since a trace cannot return None."""

    class WithNone(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = mlp()

        def forward(self, x, mask: Optional[torch.Tensor] = None):
            return self.mlp(x), None

    return torch.jit.script(WithNone().eval()), ["float32[B,16]", "none"]


@program
def hand_unbatched():
    """No batch anywhere."""

    def forward(self, x):
        return self.conv(x).flatten(1).mean(1)

    return network(forward, conv=nn.Conv2d(3, 8, 3)), ["float32[3,9,9]"]


@program
def hand_multiple_extents():
    """Extents 2*B and 3*B, halved, joined and counted."""

    def forward(self, x, y):
        b = x.size(0) // 2
        pairs = x.view(b, 2, -1)
        both = torch.cat([x, y], dim=0)
        count = both.size(0) + b - 1
        return (
            pairs.sum(1),
            both,
            torch.arange(count) * 2,
            y.reshape(-1, 3, 8).mean(1) + pairs[:, 0],
        )

    return network(forward), ["float32[2*B,8]", "float32[3*B,8]"]


@program
def hand_sizes():
    """Extents that arithmetic on sizes decides."""

    def forward(self, x):
        b, c, h, w = x.shape
        n = b * h
        rows = x.permute(0, 2, 3, 1).reshape(n * w, c)
        padded = F.pad(rows, (0, 0, 0, n - h))
        zeros = torch.zeros(n // 2 + 1, c)
        half = x[: (b + 1) // 2]
        return padded, torch.cat([zeros, rows]), half, x.new_full((c, n), 2)

    return network(forward), ["float32[B,4,5,6]"]


@program
def hand_baked_view():
    """The batch as a literal: a person's mistake that tracing records."""

    def forward(self, x):
        return self.mlp(x.view(3, -1))

    return network(forward, mlp=mlp()), ["float32[B,4,4]"]


@program
def hand_baked_length():
    """`len` gives a number that tracing takes for a constant."""

    def forward(self, x):
        return self.mlp(x) + torch.zeros(len(x), 8), torch.ones(int(x.shape[0]))

    return network(forward, mlp=mlp()), ["float32[B,16]"]


# ---------------------------------------------------------------------------
# Losses


@program
def hand_classification_losses():
    def forward(self, x, target, soft):
        y = self.mlp(x)
        each = F.cross_entropy(y, target, reduction="none")
        smooth = F.cross_entropy(y, target, label_smoothing=0.1)
        nll = F.nll_loss(y.log_softmax(1), target, weight=self.weight)
        divergence = F.kl_div(y.log_softmax(1), soft, reduction="batchmean")
        margin = F.multi_margin_loss(y, target)
        return each, smooth + nll + divergence + margin

    return network(forward, mlp=mlp(), weight=torch.rand(8)), [
        "float32[B,16]",
        "int64[B]{0:8}",
        "float32[B,8]{0:1}",
    ]


@program
def hand_regression_losses():
    def forward(self, x, target):
        y = self.mlp(x)
        probability = y.sigmoid()
        return (
            F.mse_loss(y, target),
            F.l1_loss(y, target, reduction="sum"),
            F.smooth_l1_loss(y, target, reduction="none"),
            F.huber_loss(y, target),
            F.binary_cross_entropy(probability, target),
            F.binary_cross_entropy_with_logits(y, target, reduction="none"),
            F.soft_margin_loss(y, target),
            F.poisson_nll_loss(y, target),
        )

    return network(forward, mlp=mlp()), ["float32[B,16]", "float32[B,8]{0:1}"]


@program
def hand_contrastive_loss():
    """Every sample with every other one: the batch times the batch."""

    def forward(self, x, y):
        x, y = F.normalize(self.mlp(x)), F.normalize(self.mlp(y))
        logits = x @ y.t() / 0.07
        labels = torch.arange(logits.size(0))
        return (
            F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)
        ) / 2, logits.diag()

    return network(forward, mlp=mlp()), ["float32[B,16]", "float32[B,16]"]


# ---------------------------------------------------------------------------
# Indices, order, masks


@program
def hand_detection_head():
    """Anchors by arange and meshgrid, boxes decoded, the best ones picked."""

    def forward(self, x):
        features = self.features(x)
        h, w = features.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centres = torch.stack((columns, rows), -1).reshape(-1, 2) * 8.0 + 4
        scores = self.scores(features).flatten(2).transpose(1, 2).sigmoid()
        deltas = self.boxes(features).flatten(2).transpose(1, 2)
        middle = centres + deltas[..., :2] * 8
        size = deltas[..., 2:].clamp(max=4.0).exp() * 8
        boxes = torch.cat((middle - size / 2, middle + size / 2), dim=-1)
        best, classes = scores.max(-1)
        best, index = best.topk(5, dim=1)
        boxes = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        return boxes.clamp_(0, 64), best, classes.gather(1, index)

    return network(
        forward,
        features=nn.Conv2d(3, 8, 8, stride=8),
        scores=nn.Conv2d(8, 3, 1),
        boxes=nn.Conv2d(8, 4, 1),
    ), ["float32[B,3,64,48]"]


@program
def hand_data_dependent():
    """Extents that only data decide."""

    def forward(self, x, ids):
        positive = x[x > 0]
        places = torch.nonzero(ids == 2)
        distinct, inverse = torch.unique(ids, return_inverse=True)
        return positive * 2, places[:, 0], distinct + 1, inverse

    return network(forward), ["float32[B,6]", "int64[B,5]{0:4}"]


@program
def hand_indexing():
    """Every form of an index."""

    def forward(self, x, ids):
        rows = torch.arange(x.size(0))
        y = x.clone()
        y[:, 0] = 1.0
        y[:, :, 2:4] *= 2
        z = x.clone()
        z[rows, ids] = 0.0
        z.index_put_((rows, ids), x[:, 0], accumulate=True)
        z[x < -1] = -1
        return (
            y,
            z,
            x[rows, ids],
            x[:, [0, 2, 4]],
            x[..., None, -1],
            x[:, 1:-1:2],
            x[:, ids % 3],
            x[ids.remainder(2)],
            x.flip(1).narrow(2, 1, 3),
            torch.take_along_dim(x, ids.view(-1, 1, 1), dim=1),
        )

    return network(forward), ["float32[B,6,5]", "int64[B]{0:6}"]


@program
def hand_ordering():
    def forward(self, x):
        values, order = torch.sort(x, dim=-1, descending=True)
        rank = order.argsort(-1)
        low = torch.kthvalue(x, 2, dim=1).values
        middle = x.median(dim=1)
        return (
            values,
            rank,
            low,
            middle[0],
            middle[1],
            x.argmin(1),
            x.mode(1)[0],
            torch.searchsorted(self.edges, x),
            torch.bucketize(x, self.edges),
            x.quantile(0.5, dim=1),
            x.unfold(1, 3, 2),
        )

    return network(forward, edges=torch.arange(-2.0, 3.0)), ["float32[B,9]"]


@program
def hand_cumulative():
    def forward(self, x, mask):
        total = x.cumsum(1)
        product = torch.cumprod(x.sigmoid(), dim=-1)
        high, where = torch.cummax(x, dim=1)
        low = x.cummin(dim=1).values
        positions = mask.long().cumsum(1) * mask
        return (
            total,
            product,
            high,
            where,
            low,
            positions,
            torch.logcumsumexp(x, 1),
            x.diff(dim=1),
            x.flip(-1),
            torch.var_mean(x, dim=1)[0],
            x.std(dim=1, keepdim=True),
            x.norm(dim=1),
            x.prod(1),
            torch.aminmax(x, dim=1)[1],
        )

    return network(forward), ["float32[B,7]", "bool[B,7]"]


@program
def hand_masked_pooling():
    """A mask from lengths; sums, means and maxima over what it leaves."""

    def forward(self, ids, lengths):
        x = self.embedding(ids)
        mask = torch.arange(ids.size(1)).unsqueeze(0) < lengths.unsqueeze(1)
        mask = mask.unsqueeze(-1)
        mean = (x * mask).sum(1) / mask.sum(1).clamp(min=1)
        high = x.masked_fill(~mask, -1e4).amax(1)
        soft = torch.where(mask, x, torch.full_like(x, float("-inf")))
        weights = soft.softmax(1)
        last = x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 12))
        return torch.cat([mean, high, (weights * x).sum(1), last[:, 0]], -1)

    return network(forward, embedding=nn.Embedding(40, 12)), ["int64[B,9]{0:40}", "int64[B]{1:10}"]


@program
def hand_ranking():
    """Scores of all pairs of two lists, and how often one beats another."""

    def forward(self, query, items):
        scores = torch.einsum("bd,bnd->bn", self.query(query), items)
        differences = scores.unsqueeze(2) - scores.unsqueeze(1)
        wins = (differences > 0).sum(-1)
        upper = differences.triu(1).abs().sigmoid()
        order = scores.argsort(dim=1, descending=True)
        return wins, upper.sum((1, 2)), items.gather(1, order.unsqueeze(-1).expand_as(items))[:, :3]

    return network(forward, query=nn.Linear(16, 8)), ["float32[B,16]", "float32[B,11,8]"]
