"""Hazards of chance, of what data decide, and of what is written: streams of
random numbers, branches, attributes, buffers, arguments.

Random programs draw twice: the stream of a single dropout happens to be the
same in tiles, and then there would be nothing for the control to catch.
"""

from typing import List

import torch
from torch import nn
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES, hazard, hazard_that_adds_up

# ---------------------------------------------------------------------------
# Chance


@hazard(ROWS, refused="random", training=True)
def dropouts(self, x):
    h = F.dropout(self.encode(x), 0.5, self.training)
    return F.dropout(h.sin() + 1, 0.3, self.training)


@hazard(
    ROWS,
    refused="random",
    training=True,
    scripted=True,
    parts=lambda: {"first": nn.Dropout(0.5), "second": nn.Dropout(0.3)},
)
def dropouts_scripted(self, x):
    return self.second(self.first(self.encode(x)) + 1)


@hazard(
    "float32[B,8,4,5]",
    refused="random",
    training=True,
    parts=lambda: {"first": nn.Dropout2d(0.5), "second": nn.Dropout2d()},
)
def dropouts_of_channels(self, x):
    return self.second(self.first(x).cos())


@hazard(ROWS, refused="random")
def noise_drawn(self, x):
    h = self.encode(x)
    h = h + torch.randn(h.size(0), 6)
    return h * torch.rand(h.size(0), 1)


@hazard(ROWS, refused="random")
def noise_alike(self, x):
    """The sample of a variational autoencoder, and a second one."""
    h = self.encode(x)
    return h + torch.randn_like(h), h - torch.rand_like(h)


@hazard(ROWS, refused="random")
def noise_in_place(self, x):
    h = self.encode(x)
    return h + torch.empty_like(h).uniform_(), h * torch.empty_like(h).normal_()


@hazard(ROWS, refused="random")
def bernoullis(self, x):
    p = self.encode(x).sigmoid()
    return torch.bernoulli(p) + 2 * torch.bernoulli(p)


@hazard(ROWS, refused="random")
def shuffled(self, x):
    return self.encode(x)[torch.randperm(x.size(0))]


@hazard(ROWS, refused="random")
def drawn_classes(self, x):
    p = self.encode(x).softmax(1)
    return torch.multinomial(p, 2), F.gumbel_softmax(p)


@hazard(
    ROWS,
    refused="random",
    training=True,
    parts=lambda: {"first": nn.RReLU(), "second": nn.AlphaDropout()},
)
def random_activations(self, x):
    return self.second(self.first(self.encode(x)))


@hazard(
    SERIES,
    refused="random",
    training=True,
    parts=lambda: {"lstm": nn.LSTM(8, 6, 3, batch_first=True, dropout=0.5)},
)
def lstm_dropout(self, x):
    return self.lstm(x)[0]


@hazard(SERIES, refused="random", scripted=True)
def attention_dropout(self, x):
    h = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    return F.scaled_dot_product_attention(h, h, h, dropout_p=0.5)


# ---------------------------------------------------------------------------
# Data decide


@hazard_that_adds_up(ROWS, scripted=True, decided=True)
def branch_on_mean(self, x):
    h = self.encode(x)
    if float(h.mean()) > -0.03:
        h = h * 2
    return h + h.mean()


@hazard_that_adds_up(ROWS, barrier="max", scripted=True)
def scaled_by_item(self, x):
    h = self.encode(x)
    return h / float(h.abs().max())


@hazard(
    SERIES, "int64[B]{1:6}", barrier="max", refused="not known before it is computed", scripted=True
)
def cut_to_longest(self, x, lengths):
    """The longest sample decides how long the others are."""
    return self.encode(x)[:, : int(lengths.max())]


@hazard_that_adds_up(ROWS, scripted=True, decided=True)
def branch_on_any(self, x):
    """One outlier changes what is done to all."""
    h = self.encode(x)
    if bool((h > 0.9).any()):
        return h.clamp(max=0.9) * 3
    return h


@hazard(ROWS, barrier="max|control flow|effects", scripted=True, decided=True)
def loop_until_small(self, x):
    h = self.encode(x)
    while bool(h.abs().max() > 0.25):
        h = h * 0.8
    return h


@hazard(ROWS, barrier="nonzero|not zero", decided=True)
def places_of_positives(self, x):
    h = self.encode(x)
    return h, (h > 0.3).nonzero()


@hazard(ROWS, barrier="mask|select", decided=True)
def positives(self, x):
    h = self.encode(x)
    return h, h[h > 0.3]


@hazard(ROWS, barrier="mask|select|not zero|nonzero|ind", decided=True)
def routed(self, x):
    """A mixture of experts: rows go to an expert and come back."""
    h = self.encode(x)
    place = (h[:, 0] > 0).nonzero().flatten()
    return h.index_add(0, place, h[place].sin() * place.size(0))


@hazard_that_adds_up(ROWS, barrier="sum|mean|item|control flow|effects", scripted=True)
def raises_on_mean(self, x):
    """Raises for the batch of some samples, not for those of others."""
    h = self.encode(x)
    if float(h.sum()) > 1000.0:
        raise ValueError("too much")
    return h + h.sum()


# ---------------------------------------------------------------------------
# Attributes and buffers


@hazard(ROWS, exact=True, scripted=True, parts=lambda: {"calls": 1})
def calls_counted(self, x):
    """A call of the program is one call, of however many tiles."""
    self.calls += 1
    return self.encode(x) * self.calls


@hazard(
    ROWS,
    barrier="attribute|effects|number of samples",
    scripted=True,
    parts=lambda: {"seen": torch.zeros((), dtype=torch.int64)},
)
def samples_counted(self, x):
    self.seen += x.size(0)
    return self.encode(x) / self.seen


@hazard_that_adds_up(ROWS, barrier="mean|in place", parts=lambda: {"average": torch.zeros(6)})
def running_average(self, x):
    """Once for the batch: a second time is another average."""
    h = self.encode(x)
    self.average.mul_(0.9).add_(h.mean(0), alpha=0.1)
    return h - self.average


@hazard_that_adds_up(ROWS, barrier="mean", scripted=True, parts=lambda: {"average": torch.zeros(6)})
def running_average_set(self, x):
    """By another tensor in place of the buffer."""
    h = self.encode(x)
    self.average = self.average * 0.9 + h.mean(0) * 0.1
    return h


@hazard(
    ROWS,
    barrier="attribute|effects",
    scripted=True,
    parts=lambda: {"last": torch.zeros(1, 6)},
)
def last_batch_kept(self, x):
    h = self.encode(x)
    self.last = h
    return h * 2


@hazard(
    ROWS,
    barrier="effects|number of samples|order",
    scripted=True,
    parts=lambda: {"queue": torch.zeros(8, 6), "place": 0},
)
def queue_written(self, x):
    """A queue of keys: the batch is put in, and the next call goes on."""
    h = self.encode(x)
    for row in h.unbind(0):
        self.queue[self.place % 8] = row
        self.place += 1
    return h @ self.queue.t()


@hazard_that_adds_up(ROWS, barrier="effects|order", parts=lambda: {"scale": torch.ones(6)})
def buffer_written(self, x):
    """What is written does not depend on the batch, but how often does."""
    self.scale.mul_(0.5)
    return self.encode(x) * self.scale


# ---------------------------------------------------------------------------
# Arguments and tensors from elsewhere


@hazard_that_adds_up(ROWS, "float32[6]", barrier="effects|order")
def argument_written(self, x, scale):
    """An argument that all samples share."""
    scale.mul_(0.5)
    return self.encode(x) * scale


@hazard(ROWS, "float32[6]", barrier="sum|in place", scripted=True)
def sum_in_argument(self, x, total):
    h = self.encode(x)
    total += h.sum(0)
    return h * total


@hazard(ROWS, barrier="effects|order|sum|writes in place", scripted=True)
def sums_written(self, x):
    """A fresh tensor for all samples, and one sum after the other."""
    h = self.encode(x)
    total = torch.zeros(6)
    for column in range(6):
        total[column] += h[:, column].sum()
    return total


@hazard(ROWS, barrier="effects|select", scripted=True)
def first_sample_written(self, x):
    h = self.encode(x)
    h[0] = 10.0
    return h


@hazard(ROWS, barrier="effects|select|slice|order")
def first_sample_written_traced(self, x):
    h = self.encode(x)
    h[0].mul_(2)
    h[1:].add_(1)
    return h


@hazard(
    ROWS,
    barrier="effects|select|list|control flow",
    refused="list|control flow|loop",
    scripted=True,
)
def states_collected(self, x):
    """A list of what was so far, over the batch."""
    h = self.encode(x)
    states: List[torch.Tensor] = []
    for index in range(h.size(0)):
        before = states[-1] if len(states) > 0 else torch.zeros(6)
        states.append(before * 0.5 + h[index])
    return torch.cat([torch.zeros(1, 6), torch.stack(states)])
