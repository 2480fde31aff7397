"""Hazards of views and of integers: shapes that take the batch apart, samples
that are picked, and the number of samples as a value."""

import torch
from torch import nn
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES, hazard, hazard_that_adds_up

# ---------------------------------------------------------------------------
# The batch dim taken apart, merged and moved


@hazard(SERIES, barrier="softmax")
def merged_then_softmax(self, x):
    """Rows of all samples in one dim are all normalised together."""
    return self.encode(x).flatten(0, 1).softmax(0)


@hazard(ROWS, barrier="apart")
def split_across_samples(self, x):
    """Two halves of everything; half a sample may be in each."""
    return self.encode(x).reshape(2, -1).mean(1)


@hazard(ROWS, barrier="apart")
def merged_and_cut_otherwise(self, x):
    """Rows of three: their number follows the batch, but the second of them
    is of the first sample only because six is a multiple of three."""
    return self.encode(x).reshape(3, -1).t()


@hazard(SERIES, barrier="apart|inner|before|merge")
def preceding_dim_merged(self, x):
    """[T, B, C] to [T*B, C]: a sample's rows are B apart."""
    return self.encode(x).transpose(0, 1).reshape(-1, 6).tanh()


@hazard("float32[5,B,8]", barrier="apart|inner|before|merge")
def time_major_merged(self, x):
    """What packs time steps for a layer of rows, and does not unpack."""
    return self.encode(x).view(-1, 6)


@hazard(ROWS, barrier="unfold|splits along")
def raveled_windows(self, x):
    """Windows over one line of all samples."""
    return self.encode(x).flatten().unfold(0, 4, 3).sum(1)


@hazard("float32[2*B,8]", barrier="split|chunk|apart")
def pairs_by_halves(self, x):
    """The two views of SimCLR: the second half belongs to the first one."""
    first, second = self.encode(x).chunk(2, 0)
    return (first * second).sum(1)


@hazard("float32[2*B,8]", barrier="apart|merge")
def pairs_by_view(self, x):
    """The same by a view with the two in front."""
    return self.encode(x).view(2, -1, 6).prod(0)


@hazard_that_adds_up(ROWS, barrier="different dims|expand|samples")
def expanded_to_pairs(self, x):
    """Each sample beside each other."""
    h = self.encode(x)
    n = h.size(0)
    return (h.unsqueeze(1).expand(n, n, 6) - h.unsqueeze(0).expand(n, n, 6)).abs().sum(1)


@hazard(ROWS, barrier="repeat")
def repeated(self, x):
    """[x; x]: the second time around comes after all samples."""
    return self.encode(x).repeat(2, 1)


@hazard(ROWS, barrier="tile|repeat")
def tiled_twice(self, x):
    return torch.tile(self.encode(x), (2, 1)) * 2


@hazard(ROWS, barrier="stack|join|dim|apart")
def stacked_in_front(self, x):
    """[2, B, C] to [2*B, C]."""
    h = self.encode(x)
    return torch.stack([h, h.sin()]).flatten(0, 1)


# ---------------------------------------------------------------------------
# Samples that are picked


@hazard(ROWS, barrier="select|apart")
def first_sample(self, x):
    h = self.encode(x)
    return h - h[0]


@hazard(ROWS, barrier="select|apart")
def last_sample(self, x):
    h = self.encode(x)
    return h * h[-1]


@hazard(ROWS, barrier="slice")
def first_two_samples(self, x):
    return self.encode(x)[:2].exp()


@hazard(ROWS, barrier="slice")
def neighbours(self, x):
    """Differences of samples that follow each other."""
    h = self.encode(x)
    return h[1:] - h[:-1]


@hazard(ROWS, barrier="slice")
def every_second_sample(self, x):
    return self.encode(x)[::2].sin()


@hazard(ROWS, barrier="narrow|slice|number of samples|batch rule")
def without_the_last(self, x):
    h = self.encode(x)
    return h.narrow(0, 0, h.size(0) - 1) * 2


@hazard(ROWS, barrier="split|chunk")
def chunks_of_batch(self, x):
    """Each sample twice, and the halves of all that are compared."""
    h = self.encode(x).repeat_interleave(2, dim=0)
    left, right = h.chunk(2, 0)
    return left - right


@hazard(ROWS, barrier="split|list|control flow", scripted=True)
def split_of_batch(self, x):
    """Groups of two samples, each with a mean of its own."""
    h = self.encode(x)
    return torch.stack([part.mean(0) for part in h.split(2, 0)])


@hazard(ROWS, barrier="unbind|list|control flow", scripted=True)
def loop_over_samples(self, x):
    """A recurrence through the batch."""
    state = torch.zeros(6)
    for row in self.encode(x).unbind(0):
        state = 0.5 * state + row
    return state


@hazard("float32[B,8]", "int64[B]{0:B}", barrier="ind")
def permuted_by_input(self, x, order):
    return self.encode(x)[order]


# ---------------------------------------------------------------------------
# Dims of one


@hazard(ROWS, barrier="squeeze", parts=lambda: {"head": nn.Linear(6, 1)})
def squeezed(self, x):
    """One sample has no dims, seven have one."""
    return self.head(self.encode(x)).squeeze()


@hazard(ROWS, barrier="squeeze")
def squeezed_batch(self, x):
    """`squeeze(0)` is for a single sample only."""
    return self.encode(x).squeeze(0).cumsum(-1)


@hazard(ROWS, barrier="squeeze")
def squeezed_then_reduced(self, x):
    """Dim 0 of what is left: the features of a single sample, else samples."""
    h = self.encode(x)
    return h, h.unsqueeze(1).squeeze().sum(0)


@hazard(ROWS, barrier="conv", parts=lambda: {"kernel": torch.randn(6, 6, 3)})
def convolved_over_batch(self, x):
    """[1, C, B]: the samples are a signal."""
    h = self.encode(x).t().unsqueeze(0)
    return F.conv1d(h, self.kernel, padding=1)[0].t()


@hazard(ROWS, barrier="pool")
def pooled_over_batch(self, x):
    h = self.encode(x)
    return F.avg_pool1d(h.t().unsqueeze(0), 3, 1, 1).squeeze(0).t() - h


@hazard(ROWS, barrier="pad")
def padded_batch(self, x):
    """One empty sample before all others."""
    return F.pad(self.encode(x), (0, 0, 1, 0))


# ---------------------------------------------------------------------------
# A batch that tracing made a literal


@hazard(ROWS, barrier="baked", refused="baked")
def baked_view(self, x):
    return self.encode(x).view(int(x.shape[0]), -1).sum(1)


@hazard(ROWS, barrier="baked", refused="baked")
def baked_split(self, x):
    """Two rows for each sample of the example."""
    return self.encode(x).reshape(2 * int(x.shape[0]), -1).mean(1)


@hazard(ROWS, barrier="slice|baked")
def baked_slice(self, x):
    """The first samples, as many as the example had."""
    return self.encode(x)[: int(x.shape[0])].exp()


@hazard_that_adds_up(ROWS, barrier="sum")
def baked_divisor(self, x):
    return self.encode(x).sum(0) / int(x.shape[0])


# ---------------------------------------------------------------------------
# The number of samples as a value


@hazard_that_adds_up(ROWS, barrier="number of samples")
def divided_by_samples(self, x):
    return self.encode(x) / x.size(0)


@hazard_that_adds_up(ROWS, barrier="number of samples", scripted=True)
def divided_by_samples_scripted(self, x):
    return self.encode(x) / x.size(0)


@hazard_that_adds_up(ROWS, barrier="number of samples")
def divided_by_elements(self, x):
    return self.encode(x) / x.numel()


@hazard_that_adds_up(ROWS, barrier="number of samples|Float", scripted=True)
def scaled_by_root(self, x):
    return self.encode(x) * float(x.size(0)) ** -0.5


@hazard(ROWS, barrier="number of samples", parts=lambda: {"table": torch.randn(16, 6)})
def positions_of_samples(self, x):
    """Position ids over the batch, as in a model for [T, C]."""
    return self.encode(x) + self.table[torch.arange(x.size(0)) % 16]


@hazard(ROWS, barrier="number of samples")
def position_added(self, x):
    return self.encode(x) + torch.arange(x.size(0)).unsqueeze(1)


@hazard(ROWS, barrier="number of samples")
def fractions_of_batch(self, x):
    h = self.encode(x)
    return h * torch.linspace(0, 1, h.size(0)).unsqueeze(1)


@hazard(ROWS, barrier="number of samples|cross_entropy|samples")
def labels_by_position(self, x):
    """Labels of a contrastive loss: sample i belongs to column i."""
    labels = torch.arange(x.size(0)) % 6
    return F.cross_entropy(self.encode(x), labels, reduction="none")


@hazard(ROWS, barrier="number of samples|eye|different dims|samples")
def identity_of_batch(self, x):
    h = self.encode(x)
    return (torch.eye(h.size(0), dtype=h.dtype) + 0.1) @ h


@hazard(ROWS, barrier="number of samples")
def tensor_of_size(self, x):
    """The size as a tensor, which tracing makes of every size."""
    return self.encode(x) * torch.full((), x.size(0))


@hazard(ROWS, barrier="number of samples|batch rule")
def first_half(self, x):
    h = self.encode(x)
    return h[h.size(0) // 2 :] + 1


@hazard(ROWS, exact=True, scripted=True)
def size_returned(self, x):
    """Known from the argument, before any tile."""
    return self.encode(x), x.size(0)


@hazard(ROWS, barrier="control flow|number of samples", scripted=True)
def branch_on_batch(self, x):
    h = self.encode(x)
    if x.size(0) > 5:
        h = h * 2
    return h


@hazard(ROWS, barrier="control flow|number of samples", scripted=True)
def loop_to_batch(self, x):
    h = self.encode(x)
    for step in range(x.size(0)):
        h = h * 0.9 + 0.1
    return h


@hazard(ROWS, "bfloat16[B,6]", barrier="softmax over dim 0")
def narrow_rows_written_later(self, x, rows):
    """Written in place, in its own type, after a phase that reads it."""
    rows = rows.clone()
    h = self.encode(x) + rows
    return h, rows.mul_(h.softmax(0))
