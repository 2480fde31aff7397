"""Hazards of losses: a mean of means is another number, and weights, ignored
targets and label smoothing change what is divided by."""

import torch
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES
from hazard_registry import hazard_that_adds_up as loss

LABELS = "int64[B]{0:6}"
TARGETS = "float32[B,6]"
PROBABILITIES = "float32[B,6]{0:1}"


@loss(ROWS, LABELS, barrier="cross_entropy")
def cross_entropy_mean(self, x, labels):
    return F.cross_entropy(self.encode(x), labels)


@loss(ROWS, LABELS, barrier="cross_entropy")
def cross_entropy_sum(self, x, labels):
    return F.cross_entropy(self.encode(x), labels, reduction="sum")


@loss(ROWS, LABELS, barrier="cross_entropy", parts=lambda: {"weight": torch.rand(6) + 0.1})
def cross_entropy_weighted(self, x, labels):
    return F.cross_entropy(self.encode(x), labels, self.weight)


@loss(ROWS, LABELS, barrier="cross_entropy")
def cross_entropy_ignored(self, x, labels):
    return F.cross_entropy(self.encode(x), labels, ignore_index=2)


@loss(ROWS, LABELS, barrier="cross_entropy")
def cross_entropy_smoothed(self, x, labels):
    return F.cross_entropy(self.encode(x), labels, label_smoothing=0.1)


@loss(ROWS, LABELS, barrier="cross_entropy", parts=lambda: {"weight": torch.rand(6) + 0.1})
def cross_entropy_of_all_kinds(self, x, labels):
    return F.cross_entropy(self.encode(x), labels, self.weight, ignore_index=2, label_smoothing=0.1)


@loss(ROWS, PROBABILITIES, barrier="cross_entropy")
def cross_entropy_soft(self, x, target):
    return F.cross_entropy(self.encode(x), target)


@loss(SERIES, "int64[B,5]{0:6}", barrier="cross_entropy|nll")
def cross_entropy_of_tokens(self, x, labels):
    """All positions of all samples in one dim, as language models do it."""
    return F.cross_entropy(self.encode(x).reshape(-1, 6), labels.reshape(-1), ignore_index=0)


@loss("float32[B,8,4]", "int64[B,4]{0:8}", barrier="cross_entropy|nll")
def cross_entropy_of_pixels(self, x, labels):
    return F.cross_entropy(x.tanh(), labels, ignore_index=1)


@loss(ROWS, LABELS, barrier="nll")
def nll_mean(self, x, labels):
    return F.nll_loss(self.encode(x).log_softmax(1), labels)


@loss(ROWS, TARGETS, barrier="mse_loss")
def mse_mean(self, x, target):
    return F.mse_loss(self.encode(x), target)


@loss(ROWS, TARGETS, barrier="mean")
def mse_by_hand(self, x, target):
    return (self.encode(x) - target).square().mean()


@loss(ROWS, TARGETS, barrier="mean")
def mse_then_mean(self, x, target):
    """Not reduced by the loss, but right after it."""
    return F.mse_loss(self.encode(x), target, reduction="none").mean()


@loss(ROWS, TARGETS, barrier="l1_loss")
def l1_sum(self, x, target):
    return F.l1_loss(self.encode(x), target, reduction="sum")


@loss(ROWS, TARGETS, barrier="huber_loss")
def huber_mean(self, x, target):
    return F.huber_loss(self.encode(x), target, delta=0.5)


@loss(ROWS, TARGETS, barrier="smooth_l1_loss")
def smooth_l1_mean(self, x, target):
    return F.smooth_l1_loss(self.encode(x), target)


@loss(ROWS, PROBABILITIES, barrier="binary_cross_entropy")
def bce_mean(self, x, target):
    return F.binary_cross_entropy(self.encode(x).sigmoid(), target)


@loss(ROWS, PROBABILITIES, "float32[B,6]{0:2}", barrier="binary_cross_entropy")
def bce_weighted(self, x, target, weight):
    """The weights do not change what is divided by."""
    return F.binary_cross_entropy(self.encode(x).sigmoid(), target, weight)


@loss(
    ROWS, PROBABILITIES, barrier="binary_cross_entropy", parts=lambda: {"weight": torch.rand(6) * 3}
)
def bce_with_logits(self, x, target):
    return F.binary_cross_entropy_with_logits(self.encode(x), target, pos_weight=self.weight)


@loss(ROWS, PROBABILITIES, barrier="kl_div|sum|number of samples")
def kl_div_batchmean(self, x, target):
    return F.kl_div(self.encode(x).log_softmax(1), target, reduction="batchmean")


@loss(ROWS, TARGETS, barrier="kl_div")
def kl_div_of_logs(self, x, target):
    return F.kl_div(
        self.encode(x).log_softmax(1), target.log_softmax(1), reduction="mean", log_target=True
    )


@loss(
    "float32[12,B,8]",
    "int64[B,4]{1:6}",
    "int64[B]{10:13}",
    "int64[B]{1:5}",
    barrier="ctc_loss",
    decided=True,
)
def ctc_mean(self, x, targets, lengths, target_lengths):
    """Each sample by its length, then a mean."""
    return F.ctc_loss(self.encode(x).log_softmax(2), targets, lengths, target_lengths)


@loss(ROWS, ROWS, ROWS, barrier="triplet|mean")
def triplet_mean(self, anchor, positive, negative):
    return F.triplet_margin_loss(self.encode(anchor), self.encode(positive), self.encode(negative))


@loss(ROWS, ROWS, "int64[B]{0:2}", barrier="cosine_embedding|mean")
def cosine_embedding_mean(self, left, right, same):
    return F.cosine_embedding_loss(self.encode(left), self.encode(right), 2 * same - 1)


@loss(ROWS, "int64[B,6]{0:2}", barrier="soft_margin|mean")
def soft_margin_mean(self, x, labels):
    return F.soft_margin_loss(self.encode(x), 2 * labels - 1)


@loss(ROWS, TARGETS, "float32[B,6]{0:2}", barrier="mean")
def gaussian_nll_mean(self, x, target, var):
    return F.gaussian_nll_loss(self.encode(x), target, var + 0.1)


@loss(ROWS, PROBABILITIES, barrier="poisson|mean")
def poisson_nll_mean(self, x, target):
    return F.poisson_nll_loss(self.encode(x), target)


@loss(ROWS, TARGETS, "bool[B]", barrier="sum")
def masked_loss(self, x, target, mask):
    """By the number of samples that count, at least one."""
    each = (self.encode(x) - target).square().mean(1)
    return (each * mask).sum() / mask.sum().clamp(min=1)


@loss(ROWS, LABELS, barrier="mean|sum")
def accuracy(self, x, labels):
    h = self.encode(x)
    return h, (h.argmax(1) == labels).float().mean()
