"""Programs that return more than the loss, and what koila says of them."""

import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, HIDDEN, CLASSES, STEPS = 6, 8, 5, 3


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


@dataclasses.dataclass
class Case:
    """A module, its inputs, and a part of the error if there is no step."""

    make: typing.Callable
    inputs: list
    refused: str = ""
    loss: str = ""
    random: str = "refuse"
    # Whether the bytes that a step needs are known.
    exact: bool = True
    # Without AVX-512 an upper bound is known: of channels-last convolutions.
    bound_with_avx2: bool = False
    scripted: bool = False


CASES = {}
X = f"x=FLOAT[B,{FEATURES}]"
LABELS = f"t=int64[B]{{0:{CLASSES}}}"
VALUES = f"t=FLOAT[B,{CLASSES}]"


def case(inputs, **more):
    """Registers a function of the module and its inputs, or a module."""

    def register(what):
        def make():
            return what() if isinstance(what, type) else Headed(what)

        CASES[what.__name__] = Case(make, inputs, **more)
        return what

    return register


class Headed(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = Body()
        self.extra = nn.Linear(CLASSES, CLASSES)
        self.head = head

    def forward(self, x, t):
        return self.head(self, x, t)


def squares(y, t):
    return (y - t).pow(2).mean()


# Further results.


@case([X, VALUES])
def numbers(model, x, t):
    """A number that the loss divides by as well has no say in the type of what is not of
    the loss."""
    y = model.body(x)
    return squares(y / 0.9, t), (x[:, :CLASSES] > 0) / 0.9


@case([X, LABELS])
def classes(model, x, t):
    """Logits, predictions, a loss for each sample, how many are right."""
    y = model.body(x)
    each = F.cross_entropy(y, t, reduction="none")
    found = y.argmax(1)
    right = (found == t).to(y)
    return each.mean(), y, found, each, right.sum(), right.mean(), y.max(0)[0]


@case([X, LABELS])
def barriers(model, x, t):
    """Samples meet in what is not of the loss, and tiles go on with it."""
    y = model.body(x)
    shares = y.softmax(0)
    return (
        F.cross_entropy(y, t),
        shares,
        y.sort(0)[0],
        y @ y.t(),
        shares * 2 + y / y.abs().max(),
        y - y.mean(0),
    )


@case([X, LABELS])
def parts(model, x, t):
    """What the loss is made of, and what is made of it."""
    y = model.body(x)
    first, second = F.cross_entropy(y, t), y.pow(2).mean()
    loss = first + 0.3 * second
    return loss, first, second, loss.exp(), loss


@case([X, LABELS])
def branch(model, x, t):
    """Layers whose weights get no gradient."""
    y = model.body(x)
    z = torch.tanh(model.extra(torch.tanh(model.extra(y))))
    return F.cross_entropy(y, t), z, z - z.mean(0), z.sum()


@case([X, LABELS])
def regularised(model, x, t):
    y = model.body(x)
    weight = model.body.first.weight
    rest = weight.pow(2).sum()
    return (F.cross_entropy(y, t) + 0.1 * rest, rest, weight.abs().max(), y, torch.ones(2))


@case([X, LABELS])
def views(model, x, t):
    y = model.body(x)
    return (F.cross_entropy(y, t), y[:, 0], y.t(), y.flatten(), y, y, y.unsqueeze(0), x)


@case([X, LABELS])
def lists(model, x, t):
    """Parts of one tensor, of which the loss needs one."""
    a, b = model.body(x).split([2, 3], 1)
    return (
        F.cross_entropy(b, t % 3),
        a.softmax(0),
        torch.cat([b, a], 1),
        torch.stack([a.sum(1), b.sum(1)]),
    )


@case([X, LABELS], random="full-batch-masks")
def dropped(model, x, t):
    """Draws of the loss and of others, one after the other."""
    x = F.dropout(x, 0.25)
    y = model.body(x)
    z = F.dropout(y, 0.5)
    y = F.dropout(y, 0.5)
    return F.cross_entropy(y, t), z, y, F.dropout(z, 0.5).softmax(0)


@case([f"x=FLOAT[{STEPS},B,{FEATURES}]", LABELS])
def second_dim(model, x, t):
    y = model.body(x)
    return F.cross_entropy(y[-1], t), y, y.softmax(1), y.argmax(2)


@case([X, LABELS])
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x, t):
        y = self.body(x)
        return Results(F.cross_entropy(y, t), y)


class Results(typing.NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


@case([X, LABELS])
def alone(model, x, t):
    return (F.cross_entropy(model.body(x), t),)


@case([X, VALUES], scripted=True, exact=False)
class Scripted(nn.Module):
    """Branches, loops and lists, of the loss and of others."""

    def __init__(self):
        super().__init__()
        self.body = Body()
        self.layers = nn.ModuleList(nn.Linear(CLASSES, CLASSES) for _ in range(2))

    def forward(self, x, t):
        y = self.body(x)
        z = y
        for layer in self.layers:
            z = torch.tanh(layer(z))
        found: typing.List[torch.Tensor] = []
        for factor in range(3):
            found.append(y * float(factor))
        w = y
        if x.size(1) == 6:
            w = y.sigmoid()
        return (y - t).pow(2).mean(), z, torch.stack(found, 1), w


# What is written in place, and what the loss reads of it.


@case([X, VALUES])
def written_apart(model, x, t):
    y = model.body(x)
    z = y.clone()
    z.mul_(2)
    z[:, 0] = 0
    return squares(y, t), z, y


@case([X, VALUES], exact=False)
def written_before(model, x, t):
    """The loss is made of what others read before, and after."""
    y = model.body(x)
    before = y.sum(1)
    y.mul_(2)
    return squares(y, t), before, y.sum(1), y


@case([X, VALUES], exact=False)
def written_after(model, x, t):
    y = model.body(x)
    loss = y.sum() + t.sum()
    y.mul_(2)
    return loss, y


@case([X, VALUES], exact=False)
def written_hidden(model, x, t):
    """type_as() and dropout() hand on what they get; no schema says so."""
    y = model.body(x)
    z = F.dropout(y.type_as(x), 0.5, False)
    z.mul_(2)
    return squares(y, t), z, z.softmax(0)


# Gradients of arguments.


@case([X + "@grad", LABELS])
def inputs(model, x, t):
    y = model.body(x)
    return F.cross_entropy(y, t), y, y.softmax(0), x * 2, (x > 0).sum()


@case([X + "@grad", LABELS])
def inputs_alone(model, x, t):
    return F.cross_entropy(model.body(x), t)


@case([X + "@grad", VALUES + "@grad"])
def targets(model, x, t):
    """Both get the same gradient of a sum."""
    return (squares(model.body(x), t) + (x[:, :CLASSES] + t).sum(), t.sort(0)[0])


@case([X + "@grad", VALUES])
def masked(model, x, t):
    """What is divided by is there before the tiles that differentiate."""
    return (model.body(x) - t).pow(2).sum() / (x > 0).sum(), x.softmax(0)


@case([X + "@grad", LABELS], random="full-batch-masks")
def dropped_inputs(model, x, t):
    return F.cross_entropy(model.body(F.dropout(x, 0.3)), t), x


@case([f"x=FLOAT[{STEPS},B,{FEATURES}]@grad", LABELS])
def second_dim_inputs(model, x, t):
    return F.cross_entropy(model.body(x)[-1], t), x[0]


@case([X, f"t=FLOAT[{FEATURES}]@grad"])
def scale(model, x, t):
    """Without batch: the sum over the tiles."""
    return (model.body(x * torch.tanh(t)).pow(2).mean() + t.pow(2).sum(), t * 2)


@case([X + "@grad", "t=FLOAT[]@grad"])
def factor(model, x, t):
    return model.body(x).pow(2).sum() * t, t


@case([X + "@grad", LABELS])
class Fooled(nn.Module):
    """No weight is trained."""

    def __init__(self):
        super().__init__()
        self.body = Body().requires_grad_(False)

    def forward(self, x, t):
        y = self.body(x)
        return F.cross_entropy(y, t), y


@case(["x=FLOAT[B,3,6,6]@channels_last@grad", LABELS], bound_with_avx2=True)
class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, CLASSES, 3)

    def forward(self, x, t):
        y = self.convolution(x)
        return F.cross_entropy(y.mean((2, 3)), t), y


class Outputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x):
        return self.body(x)


CASES["named_loss"] = Case(
    Outputs, [X + "@grad", f"target=FLOAT[B,{CLASSES}]@grad"], loss="mse_loss(reduction=sum)"
)


# What is refused.


@case([X, LABELS], refused="not a loss, or a tuple of a loss and further")
def in_a_dict(model, x, t):
    y = model.body(x)
    return F.cross_entropy(y, t), {"logits": y}


@case([X, LABELS], refused="only of one element there is a gradient")
def loss_behind(model, x, t):
    y = model.body(x)
    return y, F.cross_entropy(y, t)


CASES["named_loss_of_two"] = Case(
    lambda: Headed(lambda model, x, t: (model.body(x), t)),
    [X, VALUES, f"target=FLOAT[B,{CLASSES}]"],
    loss="mse_loss",
    refused="not one tensor, of which loss= could be taken",
)


@case([X, VALUES + "@grad"], refused="the loss does not depend on it")
def unused(model, x, t):
    return model.body(x).sum(), t * 2


@case([X, VALUES + "@grad"], refused="the loss does not depend on it")
def only_classes(model, x, t):
    return F.cross_entropy(model.body(x), t.argmax(1))


@case([X + "@grad", VALUES])
def centred(model, x, t):
    return squares(model.body(x - x.mean(0)), t), x


@case([X + "@grad", VALUES], refused="writes in place, for the whole batch")
def written_input(model, x, t):
    return squares(model.body(x.mul_(2)), t), x
