"""Modules whose forward returns a loss, and what becomes of their steps."""

import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, HIDDEN, CLASSES, STEPS = 6, 8, 5, 3


class Body(nn.Module):
    """Two layers whose gradients differ from sample to sample."""

    def __init__(self, outputs=CLASSES):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, outputs)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


@dataclasses.dataclass
class Case:
    """A module, its inputs, and a part of the error if it cannot be tiled."""

    make: typing.Callable
    inputs: list
    loss: str = ""
    refused: str = ""
    # Whether the mean of the tiles' losses is another loss: the control must
    # be caught.
    control: bool = False
    random: str = "refuse"
    # Whether it mixes samples: it runs in segments, and is refused, with
    # `refused`, where they are not to be used.
    segments: bool = False
    # Smaller ones are refused, and smaller batches run untiled.
    least_tile: int = 1


CASES = {}
X = f"x=FLOAT[B,{FEATURES}]"
LABELS = f"t=int64[B]{{0:{CLASSES}}}"
VALUES = f"t=FLOAT[B,{CLASSES}]"
PARTS = f"t=FLOAT[B,{CLASSES}]{{0:1}}"
TOKENS = f"x=FLOAT[B,{STEPS},{FEATURES}]"


def case(inputs, **more):
    """Registers a function of the body's outputs, or a module."""

    def register(what):
        def make():
            if isinstance(what, type):
                return what()
            return Headed(what)

        CASES[what.__name__] = Case(make, inputs, **more)
        return what

    return register


class Headed(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = Body()
        self.head = head

    def forward(self, x, t):
        return self.head(self.body(x), t)


# Sums and means.


@case([X, VALUES])
def squared_mean(y, t):
    return F.mse_loss(y, t)


@case([X, VALUES])
def targets_first(y, t):
    return F.mse_loss(t, y) + F.l1_loss(t, y)


@case([X, VALUES], control=True)
def squared_sum(y, t):
    return F.mse_loss(y, t, reduction="sum")


@case([X, VALUES])
def none_then_mean(y, t):
    return F.smooth_l1_loss(y, t, reduction="none").mean()


@case([X, VALUES], control=True)
def by_hand(y, t):
    return ((y - t) ** 2).sum(1).sum(0) / y.size(0) + 0.5 * y.abs().sum()


@case([X, PARTS])
def binary_with_logits(y, t):
    return F.binary_cross_entropy_with_logits(
        y, t, pos_weight=torch.tensor([1.0, 2.0, 3.0, 0.5, 1.0]).to(y)
    )


@case([X, PARTS])
def divergence_of_batch(y, t):
    return F.kl_div(y.log_softmax(1), t.softmax(1), reduction="batchmean")


# Classes.


@case([X, LABELS], control=True)
def classes_mean(y, t):
    return F.cross_entropy(y, t, ignore_index=1)


@case([X, LABELS])
def classes_plain(y, t):
    return F.cross_entropy(y, t)


WEIGHTS = torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0])


@case([X, LABELS], control=True)
def classes_weighted(y, t):
    return F.cross_entropy(y, t, weight=WEIGHTS.to(y))


@case([X, LABELS])
def classes_smoothed(y, t):
    return F.cross_entropy(y, t, label_smoothing=0.1)


@case([X, LABELS], control=True)
def classes_all(y, t):
    return F.cross_entropy(y, t, weight=WEIGHTS.to(y), ignore_index=2, label_smoothing=0.2)


@case([X, PARTS], control=True)
def probabilities(y, t):
    return F.cross_entropy(y, t, reduction="sum")


@case([X, LABELS], control=True)
def likelihood(y, t):
    return F.nll_loss(y.log_softmax(1), t, weight=WEIGHTS.to(y), ignore_index=0)


# Tokens.


@case([TOKENS, f"t=int64[B,{STEPS}]{{0:{CLASSES}}}"], control=True)
def tokens_ignored(y, t):
    return F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=0)


@case([TOKENS, f"t=int64[B,{STEPS}]{{0:{CLASSES}}}"], control=True)
def tokens_masked(y, t):
    mask = (t != 0).to(y)
    each = F.cross_entropy(y.transpose(1, 2), t, reduction="none")
    return (each * mask).sum() / mask.sum()


# Several losses.


@case([X, LABELS], control=True)
def several_added(y, t):
    return F.cross_entropy(y, t, ignore_index=3) + 0.3 * y.pow(2).mean()


@case([X, LABELS])
class Auxiliary(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.aux = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, t):
        hidden = torch.tanh(self.body.first(x))
        return F.cross_entropy(self.body.second(hidden), t) + 0.4 * F.cross_entropy(
            self.aux(hidden), t
        )


@case([X, LABELS], control=True)
class Regularised(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x, t):
        squares = (self.body.first.weight**2).sum()
        return F.cross_entropy(self.body(x), t, reduction="sum") + 0.01 * squares


@case([X, VALUES])
class Uncertain(nn.Module):
    """Losses weighed by what is learned."""

    def __init__(self):
        super().__init__()
        self.body = Body()
        self.logs = nn.Parameter(torch.tensor([0.3, -0.2]))

    def forward(self, x, t):
        y = self.body(x)
        scale = torch.exp(-self.logs)
        return scale[0] * F.mse_loss(y, t) + scale[1] * F.l1_loss(y, t) + self.logs.sum()


@case([X, VALUES], control=True)
def stacked(y, t):
    parts = [F.mse_loss(y, t), y.abs().sum(), y.pow(2).mean()]
    return torch.stack(parts).sum()


@case([X, VALUES])
def added_in_place(y, t):
    loss = F.mse_loss(y, t)
    loss += 0.1 * y.abs().mean()
    loss *= 3
    return loss


@case([X, LABELS], control=True)
def balanced(y, t):
    """Weights of the classes by how often they are in the batch."""
    shares = F.one_hot(t, CLASSES).to(y).mean(0)
    return (F.cross_entropy(y, t, reduction="none") / shares[t]).mean()


# Weights.


@case([f"x=int64[B,{STEPS}]{{0:{CLASSES}}}", f"t=int64[B,{STEPS}]{{0:{CLASSES}}}"], control=True)
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, HIDDEN)
        self.output = nn.Linear(HIDDEN, CLASSES, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x, t):
        y = self.output(torch.tanh(self.embedding(x)))
        return F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=4)


@case([X, LABELS])
class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.body.first.requires_grad_(False)

    def forward(self, x, t):
        return F.cross_entropy(self.body(x), t)


@case([X, VALUES])
class Normalised(nn.Module):
    """Each tile makes the weight again that it differentiates."""

    def __init__(self):
        super().__init__()
        self.direction = nn.Parameter(torch.randn(CLASSES, FEATURES))
        self.length = nn.Parameter(torch.rand(CLASSES, 1) + 0.5)

    def forward(self, x, t):
        weight = self.length * self.direction / self.direction.norm(dim=1, keepdim=True)
        return F.mse_loss(F.linear(x, weight), t)


@case([X, LABELS])
class EvaluatedBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.norm = nn.BatchNorm1d(CLASSES)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x, t):
        return F.cross_entropy(self.norm(self.body(x)), t)


@case(["x=FLOAT[B,3,4,4]", LABELS], least_tile=2)
class Patches(nn.Module):
    """Where PyTorch's gradients of a single sample are wrong; see
    single_sample.py."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, HIDDEN, 2)
        self.norm = nn.BatchNorm2d(HIDDEN)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.output = nn.Linear(HIDDEN, CLASSES)
        self.eval()

    def forward(self, x, t):
        tokens = self.norm(self.patches(x)).flatten(2).transpose(1, 2)
        tokens = torch.tanh(F.layer_norm(tokens, (HIDDEN,)))
        return F.cross_entropy(self.output(tokens).mean(1), t)


@case([f"x=FLOAT[{STEPS},B,{FEATURES}]", VALUES])
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN)
        self.output = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, t):
        return F.mse_loss(self.output(self.lstm(x)[0][-1]), t)


@case([X, VALUES], random="full-batch-masks")
class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x, t):
        y = F.dropout(self.body(F.dropout(x, 0.25)), 0.5)
        return F.mse_loss(y, t)


# Losses by name.


class Outputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x):
        return self.body(x)


CASES["named_classes"] = Case(
    Outputs,
    [X, f"target=int64[B]{{0:{CLASSES}}}"],
    loss="cross_entropy(label_smoothing=0.1,ignore_index=3)",
    control=True,
)
CASES["named_values"] = Case(Outputs, [X, f"target=FLOAT[B,{CLASSES}]"], loss="mse_loss")
CASES["named_sum"] = Case(
    Outputs,
    [X, f"target=FLOAT[B,{CLASSES}]"],
    loss="huber_loss(delta=0.5,reduction=sum)",
    control=True,
)


# What tiles of one pass cannot do, and why; segments may.


@case([X, VALUES], refused="depends on the loss of the whole batch", segments=True, control=True)
def root_of_mean(y, t):
    return F.mse_loss(y, t).sqrt()


@case([X, VALUES], refused="depends on the loss of the whole batch", segments=True, control=True)
def product_of_losses(y, t):
    return F.mse_loss(y, t) * F.l1_loss(y, t)


@case([X, VALUES], refused="depends on the loss of the whole batch", segments=True, control=True)
def largest_of_sums(y, t):
    """Where they are, each tile would say anew."""
    return ((y - t) ** 2).sum(0).sort()[0][2:].sum()


@case([X, VALUES], refused="made of what the tiles compute", segments=True, control=True)
def doubled_if_large(y, t):
    loss = F.mse_loss(y, t)
    return torch.where(loss > 1.22, 2 * loss, loss)


@case([X, VALUES], refused="and its gradient flows to the samples", segments=True, control=True)
def contrastive(y, t):
    logits = y @ t.t()
    return (logits.logsumexp(1) - logits.diagonal()).mean()


@case([X, VALUES], refused="and its gradient flows to the samples", segments=True, control=True)
def centred(y, t):
    return F.mse_loss(y - y.mean(0), t)


@case([X, VALUES], refused="after eval() it would use the ones", segments=True, control=True)
class TrainedBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.norm = nn.BatchNorm1d(CLASSES)

    def forward(self, x, t):
        return F.mse_loss(self.norm(self.body(x)), t)


@case([X, VALUES], refused="made of what the tiles compute", segments=True, control=True)
def divided_by_outputs(y, t):
    return ((y - t) ** 2).sum() / y.detach().abs().sum()


@case([X, VALUES], refused="made of what the tiles compute", segments=True, control=True)
def centred_without_gradient(y, t):
    return F.mse_loss(y - y.detach().mean(0), t)


@case([X, VALUES], refused="made of what the tiles compute", segments=True, control=True)
class ScaledByMean(nn.Module):
    """A mean of one branch, detached, in the other."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, CLASSES)
        self.second = nn.Linear(FEATURES, CLASSES)

    def forward(self, x, t):
        scale = self.second(x).mean(0).detach()
        return F.mse_loss(self.first(x) * scale, t)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, FEATURES))
        self.more = nn.Parameter(torch.randn(CLASSES, FEATURES))


@case([X, VALUES], refused="again for its gradient")
class WrittenWeight(Weighted):
    """What is repeated in each tile must not have been written before."""

    def forward(self, x, t):
        weight = self.weight.clone()
        weight[0] = 0
        return F.mse_loss(F.linear(x, weight * 1.5 * 2), t)


@case([X, VALUES], refused="again for its gradient")
class BuiltWeight(Weighted):
    def forward(self, x, t):
        weight = torch.zeros_like(self.weight)
        weight[:, :3] = self.weight[:, :3]
        weight[:, 3:] = self.more[:, 3:] * 2
        return F.mse_loss(F.linear(x, torch.tanh(weight) * 2), t)


@case([X, VALUES], refused="again for its gradient", random="full-batch-masks")
class DrawnWeight(Weighted):
    def forward(self, x, t):
        weight = self.weight * torch.bernoulli(torch.sigmoid(self.more))
        return F.mse_loss(F.linear(x, weight * 2), t)


@case([X, VALUES], refused="again for its gradient", random="per-tile")
class DroppedWeight(Weighted):
    def forward(self, x, t):
        return F.mse_loss(F.linear(x, F.dropout(self.weight, 0.5) * 2), t)


@case([f"x=int64[B,{STEPS}]{{0:{CLASSES}}}", VALUES], refused="scale_grad_by_freq")
class ScaledByFrequency(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, CLASSES, scale_grad_by_freq=True)

    def forward(self, x, t):
        return F.mse_loss(self.embedding(x).mean(1), t)


@case([X, "t=FLOAT[B]"], refused="name a loss of it")
def for_each_sample(y, t):
    return (y.mean(1) - t) ** 2


@case([X, VALUES], refused="draws random numbers")
def dropped_by_default(y, t):
    return F.mse_loss(F.dropout(y), t)


@case([X, X.replace("x=", "t=")], refused="the loss has no gradient")
class Constant(nn.Module):
    def forward(self, x, t):
        return F.mse_loss(x, t)
