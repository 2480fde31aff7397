"""Hazards of operators that look at all samples at once: statistics, products
of samples with samples, orders, and what picks or joins samples."""

import torch
from torch import nn
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES, hazard, hazard_that_adds_up

# ---------------------------------------------------------------------------
# Normalisations


@hazard(
    ROWS,
    barrier="batch_norm",
    refused="batch_norm",
    training=True,
    parts=lambda: {"norm": nn.BatchNorm1d(6)},
)
def batch_norm_training(self, x):
    """Also its buffers: they change once, by all samples."""
    return self.norm(self.encode(x))


@hazard(
    ROWS,
    barrier="batch_norm",
    refused="batch_norm",
    training=True,
    scripted=True,
    parts=lambda: {"norm": nn.BatchNorm1d(6)},
)
def batch_norm_training_scripted(self, x):
    return self.norm(self.encode(x))


@hazard(
    "float32[B,8,4,5]",
    barrier="batch_norm",
    parts=lambda: {"norm": nn.BatchNorm2d(8, track_running_stats=False)},
)
def batch_norm_without_statistics(self, x):
    """In eval mode, too, it has no other statistics than the batch's."""
    return self.norm(x.sin()).relu()


@hazard(ROWS, barrier="batch_norm")
def batch_norm_function(self, x):
    return F.batch_norm(self.encode(x), None, None, training=True)


@hazard(
    "float32[B,8,7]",
    barrier="norm",
    refused="norm",
    training=True,
    parts=lambda: {"norm": nn.InstanceNorm1d(8, track_running_stats=True)},
)
def instance_norm_statistics(self, x):
    """Results are of each sample, running statistics of all."""
    return self.norm(x.sin() + 1)


@hazard(ROWS, barrier="norm")
def group_norm_of_one(self, x):
    """[1, B, C]: the samples are taken for channels of one group."""
    return F.group_norm(self.encode(x).unsqueeze(0), 1).squeeze(0)


@hazard(ROWS, barrier="norm|layer")
def layer_norm_over_batch(self, x):
    h = self.encode(x).t()
    return F.layer_norm(h, [h.size(1)]).t()


@hazard_that_adds_up(ROWS)
def normalized_columns(self, x):
    return F.normalize(self.encode(x), dim=0)


# ---------------------------------------------------------------------------
# Reductions


@hazard_that_adds_up(ROWS, barrier="sum")
def sum_over_batch(self, x):
    return self.encode(x).sum(0)


@hazard_that_adds_up(ROWS, barrier="mean")
def mean_subtracted(self, x):
    h = self.encode(x)
    return h - h.mean(0, keepdim=True)


@hazard_that_adds_up(ROWS, barrier="mean")
def mean_of_all(self, x):
    return self.encode(x).mean()


@hazard_that_adds_up(ROWS, barrier="max")
def max_with_index(self, x):
    values, index = self.encode(x).max(0)
    return values, index


@hazard_that_adds_up(ROWS, barrier="max")
def first_of_equals(self, x):
    values, index = (self.encode(x) * 2).round().max(0)
    return values, index


@hazard_that_adds_up("float32[2*B,8]", barrier="min")
def place_of_not_a_number(self, x):
    """The first NaN is the least; two rows are a sample."""
    values, index = torch.log(self.encode(x) + 0.5).min(0)
    return torch.nan_to_num(values), index


@hazard_that_adds_up(ROWS, barrier="var")
def variance_far_from_zero(self, x):
    """The mean is large beside the deviations from it, which are exact."""
    return ((self.encode(x) * 256).round() / 256 + 3000).var(0)


@hazard_that_adds_up(ROWS, barrier="std")
def deviations_out_of_range(self, x):
    """Their squares are no numbers of float32."""
    h = self.encode(x)
    return (h * 1e25).std(0), (h * 1e-25).std()


@hazard_that_adds_up(ROWS, barrier="var|std")
def moments_of_complex_numbers(self, x):
    h = torch.complex(self.encode(x), self.encode(x) * 2 + 1)
    return h.var(0), h.std()


@hazard_that_adds_up(ROWS, barrier="min")
def min_over_batch(self, x):
    return self.encode(x).min(0).values


@hazard_that_adds_up(ROWS, barrier="amax|amin")
def range_of_batch(self, x):
    h = self.encode(x)
    return (h - h.amin(0)) / (h.amax(0) - h.amin(0) + 0.5)


@hazard_that_adds_up(ROWS, barrier="argmax")
def argmax_over_batch(self, x):
    h = self.encode(x)
    return h, h.argmax(0)


@hazard_that_adds_up(ROWS, barrier="any|all")
def any_and_all(self, x):
    h = self.encode(x)
    return h, (h > 0.4).any(0), (h > -0.6).all(0)


@hazard_that_adds_up(ROWS, barrier="norm")
def norm_over_batch(self, x):
    return self.encode(x).norm(dim=0)


@hazard_that_adds_up(ROWS, barrier="logsumexp")
def logsumexp_over_batch(self, x):
    return self.encode(x).logsumexp(0)


@hazard_that_adds_up(ROWS, barrier="prod")
def prod_over_batch(self, x):
    return (self.encode(x) + 1.5).prod(0)


@hazard_that_adds_up(ROWS, barrier="var|std")
def standardised(self, x):
    h = self.encode(x)
    return (h - h.mean(0)) / (h.std(0, unbiased=False) + 0.1)


@hazard_that_adds_up(ROWS, barrier="var")
def var_unbiased(self, x):
    """Of a single sample it is not a number."""
    return self.encode(x).var(0)


@hazard_that_adds_up(SERIES, barrier="var")
def var_mean_of_channels(self, x):
    """Over batch and time, as a batch norm by hand."""
    h = self.encode(x)
    var, mean = torch.var_mean(h, (0, 1), unbiased=False)
    return (h - mean) * (var + 0.1).rsqrt()


@hazard_that_adds_up(ROWS, barrier="softmax")
def softmax_over_batch(self, x):
    return self.encode(x).softmax(0)


@hazard_that_adds_up(ROWS, barrier="softmax")
def log_softmax_over_batch(self, x):
    return F.log_softmax(self.encode(x), dim=0)


# ---------------------------------------------------------------------------
# Samples with samples


@hazard_that_adds_up(ROWS, barrier="matmul|mm|contract|sums over")
def gram(self, x):
    h = self.encode(x)
    return h.t() @ h


@hazard_that_adds_up(ROWS, barrier="einsum|contract|sums over|bmm")
def gram_einsum(self, x):
    return torch.einsum("bi,bj->ij", self.encode(x), x)


@hazard_that_adds_up(ROWS, barrier="cov|mean|matmul|different dims")
def covariance(self, x):
    return torch.cov(self.encode(x).t())


@hazard_that_adds_up(ROWS, barrier="matmul|different dims")
def similarity(self, x):
    h = self.encode(x)
    return h @ h.t()


@hazard_that_adds_up(ROWS, barrier="matmul|different dims")
def attention_between_samples(self, x):
    h = self.encode(x)
    return (h @ h.t()).softmax(1) @ h


@hazard_that_adds_up(ROWS, barrier="cdist")
def distances(self, x):
    h = self.encode(x)
    return torch.cdist(h, h).sum(1)


@hazard_that_adds_up(ROWS, barrier="pdist")
def distances_of_pairs(self, x):
    h = self.encode(x)
    return h, F.pdist(h)


@hazard_that_adds_up(ROWS, barrier="different dims|every other")
def differences_of_pairs(self, x):
    h = self.encode(x)
    return (h.unsqueeze(0) - h.unsqueeze(1)).square().sum(-1).mean(1)


@hazard_that_adds_up(ROWS, ROWS, barrier="matmul|different dims")
def clip_loss(self, image, text):
    """Both rows and columns are classified."""
    left = F.normalize(self.encode(image), dim=-1)
    right = F.normalize(self.encode(text), dim=-1)
    logits = left @ right.t() / 0.1
    labels = torch.arange(logits.size(0))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@hazard_that_adds_up(ROWS, ROWS, barrier="join|cat")
def simclr_loss(self, first, second):
    h = F.normalize(torch.cat([self.encode(first), self.encode(second)]), dim=1)
    n = first.size(0)
    logits = (h @ h.t() / 0.5).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    labels = torch.arange(2 * n).roll(n)
    return F.cross_entropy(logits, labels)


@hazard_that_adds_up(ROWS, ROWS, barrier="number of samples is computed with")
def barlow_twins_loss(self, first, second):
    left, right = self.encode(first), self.encode(second)
    left = (left - left.mean(0)) / (left.std(0, unbiased=False) + 0.1)
    right = (right - right.mean(0)) / (right.std(0, unbiased=False) + 0.1)
    product = left.t() @ right / first.size(0)
    return (product - torch.eye(6)).square().sum()


@hazard(
    SERIES,
    barrier="attention.*samples? meets",
    parts=lambda: {"attention": nn.MultiheadAttention(8, 2)},
)
def attention_of_wrong_dim(self, x):
    """Without batch_first, the samples are the sequence."""
    return self.attention(x, x, x, need_weights=False)[0]


@hazard(SERIES, barrier="lstm|recurrent", parts=lambda: {"lstm": nn.LSTM(8, 6)})
def lstm_of_wrong_dim(self, x):
    """Without batch_first, the state passes from sample to sample."""
    return self.lstm(x.sin())[0]


@hazard("float32[B,B]", ROWS, refused="batch in two dims")
def adjacency(self, weights, x):
    return weights.softmax(1) @ self.encode(x)


@hazard(ROWS, barrier="attention", parts=lambda: {"ask": torch.randn(4, 6)})
def attention_over_samples(self, x):
    """Keys and values are the samples: their weights sum to one."""
    h = self.encode(x).unsqueeze(0)
    return F.scaled_dot_product_attention(self.ask.unsqueeze(0), h, h * 2)


@hazard_that_adds_up(ROWS, barrier="amax")
def largest_integers(self, x):
    return (self.encode(x) * 90).to(torch.int64).amax(0)
