"""Look-alikes of the hazards: nothing passes from a sample to another."""

import torch
from torch import nn
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES, safe

IMAGES = "float32[B,8,6,4]"

# ---------------------------------------------------------------------------
# Shapes


@safe(SERIES)
def rows_of_series(self, x):
    """Time is merged into the batch dim and taken out again."""
    h = self.encode(x.reshape(-1, 8))
    return h.view(x.size(0), 5, 6), h


@safe(SERIES)
def rows_of_series_inferred(self, x):
    return self.encode(x.flatten(0, 1)).unflatten(0, (-1, 5)).sum(1)


@safe("float32[4*B,8]")
def rows_for_each_sample(self, x):
    """Four rows per sample, which stay together."""
    h = self.encode(x).view(-1, 4, 6)
    return (h - h.mean(1, keepdim=True)).flatten(0, 1)


@safe("float32[2*B,8]", ROWS)
def two_and_one_row(self, pairs, x):
    h = self.encode(pairs).view(-1, 2, 6)
    return (h * self.encode(x).unsqueeze(1)).sum(1)


@safe("float32[5,B,8]")
def time_major(self, x):
    return self.encode(x), self.encode(x).mean(0)


@safe("float32[5,B,8]", parts=lambda: {"lstm": nn.LSTM(8, 6)})
def lstm_time_major(self, x):
    return self.lstm(x)[0]


@safe("float32[8,B]")
def features_first(self, x):
    return self.encode(x.t()).t().softmax(0)


@safe(SERIES)
def transposed_and_back(self, x):
    return self.encode(x).transpose(0, 1).sin().transpose(0, 1)


@safe(SERIES)
def merged_before_the_batch(self, x):
    h = x.transpose(0, 1)
    rows = self.encode(h.reshape(-1, 8))
    return rows.view(5, x.size(0), 6).transpose(0, 1)


@safe(SERIES)
def flattened_behind_time(self, x):
    """[T, B, C] to [T, B*C]: the elements of a sample stay together."""
    return self.encode(x).permute(1, 0, 2).flatten(1).sin()


@safe(SERIES)
def folded_heads(self, x):
    """Heads are merged behind the batch, as attention does it."""
    h = self.encode(x).view(-1, 5, 2, 3).transpose(1, 2).reshape(-1, 5, 3)
    h = torch.bmm(torch.bmm(h, h.transpose(1, 2)).softmax(-1), h)
    return h.view(x.size(0), 2, 5, 3).transpose(1, 2).flatten(2)


@safe(ROWS)
def repeated_samples(self, x):
    """Each sample twice, one beside the other."""
    return self.encode(x).repeat_interleave(2, dim=0)


@safe(ROWS, parts=lambda: {"token": torch.randn(1, 1, 6)})
def token_for_each(self, x):
    token = self.token.expand(x.size(0), -1, -1)
    return torch.cat([token, self.encode(x).unsqueeze(1)], 1)


@safe(SERIES)
def flipped_time(self, x):
    return self.encode(x).flip(1), x.roll(2, 1), x.flip(-1).cumsum(1)


@safe(ROWS)
def chunked_channels(self, x):
    left, right = self.encode(x).chunk(2, 1)
    return left * right.sigmoid()


@safe(SERIES)
def first_step(self, x):
    return self.encode(x)[:, 0], x[:, -1], x[:, ::2], x[..., 2:5]


@safe(ROWS)
def squeezed_column(self, x):
    return self.encode(x).unsqueeze(2).squeeze(2), x[:, :1].squeeze(1)


@safe(ROWS)
def unsqueezed_in_front(self, x):
    """The batch is dim 1, and then dim 0 again."""
    return self.encode(x).unsqueeze(0).squeeze(0).exp()


@safe("float32[B,1,8]")
def squeezed_one(self, x):
    return self.encode(x).squeeze(1)


@safe(IMAGES)
def shuffled_pixels(self, x):
    h = F.pixel_shuffle(x.sin(), 2)
    return F.interpolate(h, scale_factor=0.5), x.movedim(1, -1)


@safe(ROWS, careful="a quarter turn this way leaves the samples in order")
def rotated_features(self, x):
    """[C, B], with the features from behind."""
    return torch.rot90(self.encode(x), 1, (0, 1))


@safe(SERIES)
def windows_of_time(self, x):
    return self.encode(x).unfold(1, 2, 1).sum(-1)


@safe(ROWS)
def joined_channels(self, x):
    h = self.encode(x)
    return torch.cat([h, h.sin(), x], 1), torch.stack([h, h.cos()], 1)


@safe(ROWS)
def joined_and_split(self, x):
    h = self.encode(torch.cat([x, -x], 0))
    left, right = h.chunk(2, 0)
    return left * right


# ---------------------------------------------------------------------------
# Operators along other dims


@safe(ROWS)
def sums_of_features(self, x):
    h = self.encode(x)
    return h.sum(1), h.mean(-1), h.var(1), h.std(1), h.prod(1)


@safe(ROWS)
def extremes_of_features(self, x):
    h = self.encode(x)
    values, index = h.max(1)
    return values, index, h.amin(1), h.argmin(1), (h > 0.2).any(1)


@safe(ROWS)
def softmax_of_features(self, x):
    h = self.encode(x)
    return h.softmax(1), h.log_softmax(-1), h.logsumexp(1), h.norm(dim=1)


@safe(ROWS)
def order_of_features(self, x):
    h = self.encode(x)
    return (
        h.sort(1)[0],
        h.topk(2, 1)[0],
        h.kthvalue(2, 1)[0],
        h.median(1).values,
        h.cumsum(1),
        h.argsort(1),
    )


@safe(ROWS, "int64[B,3]{0:6}")
def gathered_features(self, x, index):
    h = self.encode(x)
    return h.gather(1, index), torch.zeros_like(h).scatter(1, index, h[:, :3])


@safe(ROWS, parts=lambda: {"index": torch.tensor([3, 0, 5])})
def indexed_features(self, x):
    h = self.encode(x)
    return h[:, self.index], h.index_select(1, self.index)


@safe(
    IMAGES,
    parts=lambda: {
        "norm": nn.BatchNorm2d(8),
        "conv": nn.Conv2d(8, 4, 3, padding=1),
        "group": nn.GroupNorm(2, 4),
        "instance": nn.InstanceNorm2d(4),
        "layer": nn.LayerNorm([6, 4]),
    },
)
def normalised(self, x):
    """Statistics that are there already, or of a sample each."""
    h = self.conv(self.norm(x))
    return self.group(h), self.instance(h), self.layer(h)


@safe(IMAGES, parts=lambda: {"norm": nn.InstanceNorm2d(8, track_running_stats=True)})
def instance_norm_eval(self, x):
    return self.norm(x.sin() + 1)


@safe(ROWS, ROWS)
def compared_pairs(self, x, y):
    """Each sample with its own partner."""
    left, right = self.encode(x), self.encode(y)
    return (
        F.cosine_similarity(left, right),
        F.pairwise_distance(left, right),
        (left * right).sum(1),
        torch.einsum("bi,bj->bij", left, right),
    )


@safe(SERIES)
def gram_of_each(self, x):
    h = self.encode(x)
    return h @ h.transpose(1, 2), torch.cdist(h, h), torch.einsum("bti,btj->bij", h, h)


@safe(SERIES, parts=lambda: {"attention": nn.MultiheadAttention(8, 2, batch_first=True)})
def attention_of_time(self, x):
    return self.attention(x, x, x)[0]


@safe(SERIES, "bool[B,5]")
def masked_series(self, x, mask):
    """A mask of its own for each sample."""
    h = self.encode(x).masked_fill(mask.unsqueeze(2), 0.5)
    score = h.sum(2).masked_fill(mask, -1e9).softmax(1)
    return torch.where(mask.unsqueeze(2), h, -h), (h * score.unsqueeze(2)).sum(1)


@safe(SERIES, "int64[B]{1:6}")
def masked_by_length(self, x, lengths):
    mask = torch.arange(x.size(1)) < lengths.unsqueeze(1)
    h = self.encode(x) * mask.unsqueeze(2)
    return h.sum(1) / lengths.unsqueeze(1), h


@safe("int64[B,5]{0:9}", parts=lambda: {"table": nn.Embedding(9, 8), "places": nn.Embedding(5, 8)})
def positions_of_time(self, ids):
    places = torch.arange(ids.size(1))
    return self.encode(self.table(ids) + self.places(places))


@safe(ROWS, "int64[B]{0:6}")
def losses_of_each(self, x, labels):
    h = self.encode(x)
    return (
        F.cross_entropy(h, labels, reduction="none"),
        F.mse_loss(h, x[:, :6], reduction="none").mean(1),
        F.one_hot(labels, 6) * h,
    )
