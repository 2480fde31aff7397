"""Hazards of operators that put samples in order, pick them by index, or join
tensors of samples."""

import torch
from torch.nn import functional as F

from hazard_registry import ROWS, hazard, hazard_that_adds_up

# ---------------------------------------------------------------------------
# Orders


@hazard(ROWS, barrier="sort")
def sorted_samples(self, x):
    values, index = self.encode(x).sort(0)
    return values, index


@hazard(ROWS, barrier="sort|ind")
def reordered_by_argsort(self, x):
    h = self.encode(x)
    return h[h[:, 0].argsort()]


@hazard(ROWS, barrier="topk")
def topk_of_batch(self, x):
    """Of one sample: there is one in every batch but the empty one."""
    return self.encode(x).topk(1, 0)[0]


@hazard(ROWS, barrier="kthvalue")
def kthvalue_of_batch(self, x):
    return self.encode(x).kthvalue(1, 0)[0]


@hazard(ROWS, barrier="median")
def median_of_batch(self, x):
    h = self.encode(x)
    return h - h.median(0).values


@hazard(ROWS, barrier="quantile")
def quantile_of_batch(self, x):
    return torch.quantile(self.encode(x), 0.3, dim=0)


@hazard(ROWS, "int64[B]{0:5}", barrier="unique", decided=True)
def unique_labels(self, x, labels):
    return self.encode(x), torch.unique(labels)


@hazard_that_adds_up(ROWS, "int64[B]{0:5}", barrier="bincount", decided=True)
def counted_labels(self, x, labels):
    """How many samples share a sample's label."""
    return self.encode(x) * torch.bincount(labels, minlength=5)[labels].unsqueeze(1)


@hazard_that_adds_up(ROWS, barrier="cumsum")
def cumsum_over_batch(self, x):
    return self.encode(x).cumsum(0)


@hazard(ROWS, barrier="cumprod")
def cumprod_over_batch(self, x):
    return (self.encode(x) + 1).cumprod(0)


@hazard(ROWS, barrier="cummax")
def cummax_over_batch(self, x):
    return self.encode(x).cummax(0)[0]


@hazard(ROWS, barrier="logcumsumexp")
def logcumsumexp_over_batch(self, x):
    return self.encode(x).logcumsumexp(0)


@hazard(ROWS, barrier="diff|slice")
def diff_over_batch(self, x):
    return self.encode(x).diff(dim=0)


@hazard(ROWS, barrier="roll")
def rolled(self, x):
    """Negatives from the sample beside."""
    h = self.encode(x)
    return (h * h.roll(1, 0)).sum(1)


@hazard(ROWS, barrier="roll")
def rolled_flat(self, x):
    """Without a dim: across the ends of the samples."""
    return self.encode(x).roll(1)


@hazard(ROWS, barrier="flip")
def mixed_up(self, x):
    """Mixup with a fixed share, with the batch from behind."""
    h = self.encode(x)
    return 0.7 * h + 0.3 * h.flip(0)


@hazard(ROWS, barrier="rot90|flip")
def rotated(self, x):
    """[C, B], with the samples from behind."""
    return torch.rot90(self.encode(x), -1, (0, 1))


@hazard(ROWS, barrier="fft")
def fourier_over_batch(self, x):
    return torch.fft.rfft(self.encode(x), dim=0).abs()


@hazard(ROWS, barrier="unfold|splits along")
def windows_of_samples(self, x):
    """Each sample with the two that follow."""
    h = torch.cat([self.encode(x), self.encode(-x)], 0)
    return h.unfold(0, 2, 1).sum(-1)


@hazard(ROWS, barrier="strided|strides")
def strided(self, x):
    h = self.encode(x)
    return h.as_strided((h.size(0), 3), (1, h.size(0))) * 2


# ---------------------------------------------------------------------------
# Samples by index


@hazard(ROWS, "int64[B]{0:B}", barrier="index_select")
def samples_selected(self, x, index):
    return self.encode(x).index_select(0, index)


@hazard(ROWS, "int64[B,6]{0:B}", barrier="gather|indices")
def gathered_from_batch(self, x, index):
    return self.encode(x).gather(0, index)


@hazard(ROWS, "int64[B]{0:B}", barrier="embedding|table that is read")
def embedded_in_batch(self, x, index):
    """The samples are the table."""
    return F.embedding(index, self.encode(x))


@hazard_that_adds_up(ROWS, "int64[B]{0:5}", barrier="index_add|rows of all samples")
def added_by_label(self, x, labels):
    """Sums of the samples of each class."""
    h = self.encode(x)
    return h.new_zeros(5, 6).index_add(0, labels, h)


@hazard_that_adds_up(ROWS, "int64[B,6]{0:4}", barrier="scatter|rows of all samples")
def scattered(self, x, index):
    h = self.encode(x)
    return h.new_zeros(4, 6).scatter_add(0, index, h)


@hazard(ROWS, "int64[B]{0:5}", barrier="index_put|rows of all samples")
def class_table_written(self, x, labels):
    """Which classes there are decides where the mean stands."""
    h = self.encode(x)
    table = h.new_zeros(5, 6)
    table[labels % 2] += h.mean(0)
    return table


@hazard(ROWS, barrier="take|table that is read")
def elements_taken(self, x):
    h = self.encode(x)
    return h.take(torch.tensor([0, 7, 1, 5]) % h.numel())


@hazard("float32[B,8]", "int64[2,4*B]{0:B}", barrier="ind")
def message_passing(self, x, edges):
    """A graph of all samples: its edges go anywhere."""
    h = self.encode(x)
    return h.index_add(0, edges[1], h[edges[0]])


@hazard_that_adds_up(ROWS, barrier="diagonal|diag|different dims")
def diagonal_of_pairs(self, x):
    """Of the matrix of all pairs, those of a sample with the next one."""
    h = self.encode(x)
    return (h @ h.t()).diagonal(1)


@hazard_that_adds_up(ROWS, barrier="tri|different dims")
def earlier_samples(self, x):
    """A causal mask over the batch."""
    h = self.encode(x)
    return (h @ h.t()).tril() @ h


@hazard_that_adds_up(ROWS, barrier="outer|different dims")
def outer_of_samples(self, x):
    h = self.encode(x)
    return torch.outer(h[:, 0], h[:, 1])


# ---------------------------------------------------------------------------
# Joined


@hazard(ROWS, ROWS, barrier="join|cat")
def joined_inputs(self, x, y):
    """First all of one, then all of the other."""
    return torch.cat([self.encode(x), y[:, :6]], 0)


@hazard(ROWS, ROWS, barrier="join|stack|cat")
def joined_vertically(self, x, y):
    return self.encode(torch.vstack([x, y]))


@hazard(ROWS, barrier="join|cat", parts=lambda: {"bank": torch.randn(5, 6)})
def memory_bank_joined(self, x):
    """As many more rows as the bank has."""
    return torch.cat([self.encode(x), self.bank], 0)


@hazard_that_adds_up(ROWS, barrier="join|cat", parts=lambda: {"bank": torch.randn(5, 6)})
def memory_bank_keys(self, x):
    """Keys of the batch and the bank: each query meets all of them."""
    h = self.encode(x)
    keys = torch.cat([h, self.bank], 0)
    return (h @ keys.t()).softmax(1)


@hazard(ROWS, barrier="join|cat", parts=lambda: {"token": torch.randn(1, 6)})
def sample_put_in_front(self, x):
    return torch.cat([self.token, self.encode(x)], 0)


@hazard(ROWS, "bool[B]", barrier="mask", decided=True)
def samples_by_mask(self, x, mask):
    return self.encode(x)[mask]


@hazard_that_adds_up(ROWS, "bool[B]", barrier="sum|mean")
def masked_mean(self, x, mask):
    """A mean over the samples that count."""
    weight = mask.float().unsqueeze(1)
    return (self.encode(x) * weight).sum(0) / (weight.sum() + 1)
