"""Random training steps in which samples are mixed on the way to the loss.

``make_step(seed)`` gives a module that returns its loss, and what draws its inputs:
networks of images, of sequences or of vectors, of normalisations, residuals, downsampling,
dropout and reductions over the batch, under losses of single samples, of pairs and of
statistics. At least one part of each mixes samples; of those of ``make_deep_step(seed)``,
which have more of them, none does.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3
Draw = Callable[[int], tuple[Tensor, ...]]


class RandomStep(NamedTuple):
    module: nn.Module
    draw: Draw
    # In the order in which data runs through them.
    parts: list[str]
    drops: bool


class Parts:
    """What is taken from: a seed decides."""

    def __init__(self, seed: str, apart: bool = False):
        self.random = random.Random(seed)
        self.apart = apart  # nothing mixes samples
        self.names: list[str] = []
        self.mixes = self.drops = False

    def choose(self, *choices):
        return self.random.choice(choices)

    def norm(self, rank: int, channels: int) -> nn.Module:
        kinds = ("frozen", "group", "none")
        kind = self.choose(*(() if self.apart else ("batch",) * 3), *kinds)
        if kind == "group":
            return nn.GroupNorm(1 if channels % 2 else self.choose(1, 2), channels)
        if kind == "none":
            return nn.Identity()
        make = (nn.BatchNorm1d, nn.BatchNorm2d)[rank - 1]
        layer = make(
            channels,
            momentum=self.choose(0.1, 0.1, 0.3, None),
            affine=self.choose(True, True, True, False),
            track_running_stats=self.apart or self.choose(True, True, True, False),
        )
        if layer.affine:
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
        if layer.running_mean is not None:
            nn.init.normal_(layer.running_mean)
        if kind == "frozen" and layer.track_running_stats:
            return Frozen(layer)
        self.mixes = True
        return layer

    def act(self) -> nn.Module:
        makers = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Hardswish, nn.LeakyReLU, nn.Identity)
        inplace = self.choose(True, False)
        make = self.choose(*makers, nn.ReLU)
        return nn.ReLU(inplace) if make is nn.ReLU else make()

    def depths(self, most: int) -> range:
        """So many layers as are drawn, up to ``most``."""
        return range(self.random.randint(4, 10) if self.apart else self.random.randint(1, most))

    def kinds(self, *kinds: str) -> str:
        """One of them, none that mixes samples if these are apart."""
        mixing = ("over batch", "batch attention")
        return self.choose(*(kind for kind in kinds if not self.apart or kind not in mixing))

    def dropout(self) -> nn.Module:
        self.drops = True
        return nn.Dropout(self.choose(0.1, 0.5))


class Frozen(nn.Module):
    """A layer that keeps its statistics, whatever train() says."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer
        self.train()

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.layer.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Add(nn.Module):
    def __init__(self, body: nn.Module, other: nn.Module, after: nn.Module):
        super().__init__()
        self.body, self.other, self.after = body, other, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.body(x) + self.other(x))


class Concatenate(nn.Module):
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


class Twice(nn.Module):
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.body(x))


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int):
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.inner(F.adaptive_avg_pool2d(x, 1)))


class Several(nn.Module):
    """Made of several results of one operation."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        if half == 0:
            return x
        if self.kind == "variance":
            variance, mean = torch.var_mean(x, 1, keepdim=True)
            return 0.5 * x + variance - mean
        if self.kind == "unbind":
            first, *rest = x.unbind(1)
            return torch.stack([first, *(part + first for part in rest)], 1)
        first, rest = x.split([half, x.shape[1] - half], 1)
        if self.kind == "gate":
            return torch.cat([first * rest[:, :half].sigmoid(), rest], 1)
        if self.kind == "orders":
            return torch.cat([rest, first], 1) + torch.cat([first, rest], 1)
        return torch.cat([first, rest + first.mean(1, keepdim=True)], 1)


class Places(nn.Module):
    """Adds two weights that are as large as one sample."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.first.unsqueeze(0) + self.second.unsqueeze(0)


class OverBatch(nn.Module):
    """Subtracts, divides by or weighs with something of all samples."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "centre":
            return x - x.mean(0)
        if self.kind == "scale":
            return x / (x.std(0) + 0.5)
        if self.kind == "softmax":
            return x * torch.softmax(x, 0) * x.shape[0]
        if self.kind == "detached":
            return x * x.detach().abs().mean(0)
        if self.kind == "largest":
            return x - 0.1 * x.amax(0, keepdim=True)
        return 0.7 * x + 0.3 * x.flip(0)


class BatchAttention(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.query, self.value = nn.Linear(features, 4), nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x)
        return x + torch.softmax(q @ q.t() / 2, 1) @ self.value(x)


class TokenAttention(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.inner = nn.MultiheadAttention(features, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x, x, x, need_weights=False)[0]


class ChannelsFirst(nn.Module):
    """Of sequences (B, T, C)."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.transpose(1, 2)).transpose(1, 2)


def over_batch(parts: Parts) -> nn.Module:
    parts.mixes = True
    return OverBatch(parts.choose("centre", "scale", "softmax", "detached", "largest", "flip"))


def several(parts: Parts) -> nn.Module:
    return Several(parts.choose("variance", "unbind", "gate", "orders", "chain"))


def make_images(parts: Parts) -> tuple[nn.Module, tuple[int, ...], int]:
    channels, size = parts.choose(1, 3), parts.choose(6, 8, 9)
    shape = (channels, size, size)
    layers: list[nn.Module] = []

    def convolve(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
        kernel = parts.choose(1, 3, 3)
        conv = nn.Conv2d(
            inputs,
            outputs,
            kernel,
            stride,
            kernel // 2,
            groups=parts.choose(1, 1, 1, inputs) if outputs % inputs == 0 else 1,
            bias=parts.choose(True, False),
        )
        return [conv, parts.norm(2, outputs)]

    for _ in parts.depths(4):
        kind = parts.kinds(
            "conv", "conv", "residual", "residual", "down", "dense", "pool", "twice", "gate",
            "dropout", "over batch", "several", "several", "places",
        )  # fmt: skip
        parts.names.append(kind)
        outputs = parts.choose(4, 6)
        if kind == "conv":
            layers += [*convolve(channels, outputs), parts.act()]
            channels = outputs
        elif kind == "residual":
            body = [*convolve(channels, channels), parts.act(), *convolve(channels, channels)]
            layers.append(Add(nn.Sequential(*body), nn.Identity(), parts.act()))
        elif kind == "down":
            body = [*convolve(channels, outputs, 2), parts.act(), *convolve(outputs, outputs)]
            other = nn.Sequential(*convolve(channels, outputs, 2))
            layers.append(Add(nn.Sequential(*body), other, parts.act()))
            channels, size = outputs, (size + 1) // 2
        elif kind == "dense":
            body = [parts.norm(2, channels), parts.act(), nn.Conv2d(channels, 3, 3, padding=1)]
            layers.append(Concatenate(nn.Sequential(*body)))
            channels += 3
        elif kind == "pool" and size > 3:
            layers.append(parts.choose(nn.MaxPool2d, nn.AvgPool2d)(2))
            size //= 2
        elif kind == "twice":
            layers.append(Twice(nn.Sequential(*convolve(channels, channels), parts.act())))
        elif kind == "gate":
            layers.append(Gate(channels))
        elif kind == "dropout":
            layers.append(parts.dropout())
        elif kind == "over batch":
            layers.append(over_batch(parts))
        elif kind == "several":
            layers += [parts.norm(2, channels), several(parts)]
        elif kind == "places":
            layers.append(Places((channels, size, size)))
    if parts.choose(True, False):
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers), shape, channels
    return nn.Sequential(*layers, nn.Flatten()), shape, channels * size * size


def make_vectors(parts: Parts) -> tuple[nn.Module, tuple[int, ...], int]:
    features = parts.choose(5, 8)
    shape = (features,)
    layers: list[nn.Module] = []
    for _ in parts.depths(4):
        kind = parts.kinds(
            "linear", "linear", "residual", "dropout", "over batch", "batch attention", "several",
            "places",
        )  # fmt: skip
        parts.names.append(kind)
        outputs = parts.choose(6, 8)
        if kind == "linear":
            layers += [nn.Linear(features, outputs), parts.norm(1, outputs), parts.act()]
            features = outputs
        elif kind == "residual":
            body = [nn.Linear(features, features), parts.norm(1, features), parts.act()]
            layers.append(Add(nn.Sequential(*body), nn.Identity(), nn.LayerNorm(features)))
        elif kind == "dropout":
            layers.append(parts.dropout())
        elif kind == "over batch":
            layers.append(over_batch(parts))
        elif kind == "several":
            layers += [parts.norm(1, features), several(parts)]
        elif kind == "places":
            layers.append(Places((features,)))
        else:
            parts.mixes = True
            layers.append(BatchAttention(features))
    return nn.Sequential(*layers), shape, features


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def make_sequences(parts: Parts) -> tuple[nn.Module, tuple[int, ...], int]:
    features, steps = 4, parts.choose(*((24, 40) if parts.apart else (3, 5)))
    shape = (steps, features)
    layers: list[nn.Module] = []
    for _ in parts.depths(3):
        kind = parts.kinds(
            "linear",
            "norm",
            "attention",
            "convolution",
            "dropout",
            "over batch",
            "several",
            "places",
        )
        parts.names.append(kind)
        if kind == "linear":
            layers += [nn.Linear(features, features), parts.act()]
        elif kind == "norm":
            layers.append(ChannelsFirst(parts.norm(1, features)))
        elif kind == "attention":
            layers += [TokenAttention(features), nn.LayerNorm(features)]
        elif kind == "convolution":
            body = [nn.Conv1d(features, features, 3, padding=1), parts.norm(1, features)]
            layers.append(ChannelsFirst(nn.Sequential(*body)))
        elif kind == "dropout":
            layers.append(parts.dropout())
        elif kind == "several":
            layers += [ChannelsFirst(parts.norm(1, features)), several(parts)]
        elif kind == "places":
            layers.append(Places(shape))
        else:
            layers.append(over_batch(parts))
    if parts.choose(True, False):
        return nn.Sequential(*layers, Mean()), shape, features
    return nn.Sequential(*layers, nn.Flatten()), shape, features * steps


# Losses of what a network makes of the samples, and of labels.


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y)


def smoothed_cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y, label_smoothing=0.1, reduction="sum")


def squares(z: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(z, F.one_hot(y, CLASSES).to(z.dtype))


def dice(z: Tensor, y: Tensor) -> Tensor:
    p, t = torch.softmax(z, 1), F.one_hot(y, CLASSES).to(z.dtype)
    return 1 - 2 * (p * t).sum() / (p.sum() + t.sum())


def supervised_contrast(z: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(z, dim=1)
    logits = z @ z.t() / 0.5
    own = torch.eye(z.shape[0], dtype=torch.bool)
    logits = logits.masked_fill(own, -1e9)
    same = (y[:, None] == y[None, :]) & ~own
    log = logits - logits.logsumexp(1, keepdim=True)
    return -(log * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def hard_triplets(z: Tensor, y: Tensor) -> Tensor:
    d = (z[:, None] - z[None, :]).square().sum(2)
    same = y[:, None] == y[None, :]
    near = d.masked_fill(same, 1e3).min(1).values
    far = (d * same).max(1).values
    return F.softplus(far - near).mean()


def root_of_mean(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y).add(0.1).sqrt()


def log_of_mean(z: Tensor, y: Tensor) -> Tensor:
    return (z.exp().mean() + 1).log() + F.nll_loss(F.log_softmax(z, 1), y)


def hardest(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y, reduction="none").topk(3).values.mean()


def auc(z: Tensor, y: Tensor) -> Tensor:
    positive = (y == 0).to(z.dtype)
    pairs = torch.sigmoid(z[:, 0][None, :] - z[:, 0][:, None])
    weights = positive[:, None] * (1 - positive)[None, :]
    return (pairs * weights).sum() / (weights.sum() + 1)


def spread(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y) + F.relu(1 - (z.var(0) + 1e-2).sqrt()).mean()


# Losses of two views.


def clip(a: Tensor, b: Tensor) -> Tensor:
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    logits = a @ b.t() * 2
    labels = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def contrast(a: Tensor, b: Tensor) -> Tensor:
    z = F.normalize(torch.cat([a, b]), dim=1)
    logits = z @ z.t() / 0.5
    n = a.shape[0]
    logits = logits.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    return F.cross_entropy(logits, torch.cat([torch.arange(n) + n, torch.arange(n)]))


def barlow(a: Tensor, b: Tensor) -> Tensor:
    a = (a - a.mean(0)) / (a.std(0) + 0.1)
    b = (b - b.mean(0)) / (b.std(0) + 0.1)
    c = a.t() @ b / a.shape[0]
    eye = torch.eye(c.shape[0], dtype=c.dtype)
    return ((c - eye).square() * (eye + 0.01 * (1 - eye))).sum()


def vicreg(a: Tensor, b: Tensor) -> Tensor:
    a0, b0 = a - a.mean(0), b - b.mean(0)
    ca = a0.t() @ a0 / (a.shape[0] - 1)
    cb = b0.t() @ b0 / (b.shape[0] - 1)
    off = ca.square().sum() - ca.diagonal().square().sum()
    off = off + cb.square().sum() - cb.diagonal().square().sum()
    hinge = F.relu(1 - (a.var(0) + 0.01).sqrt()).mean()
    return F.mse_loss(a, b) + hinge + 0.04 * off


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """As of BYOL and SimSiam: of each sample alone."""
    return -F.cosine_similarity(a, b.detach(), dim=1).mean()


OF_SAMPLES = (cross_entropy, smoothed_cross_entropy, squares)
OF_BATCH = (
    dice, supervised_contrast, hard_triplets, root_of_mean, log_of_mean, hardest, auc, spread,
)  # fmt: skip
OF_VIEWS = (clip, contrast, barlow, vicreg)


class Labelled(nn.Module):
    def __init__(self, network: nn.Module, head: nn.Module, loss: Callable):
        super().__init__()
        self.network, self.head, self.loss = network, head, loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.head(self.network(x)), y)


class Views(nn.Module):
    def __init__(self, network: nn.Module, head: nn.Module, loss: Callable):
        super().__init__()
        self.network, self.head, self.loss = network, head, loss

    def encode(self, x: Tensor) -> Tensor:
        return self.head(self.network(x))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.encode(x), self.encode(y))


class ViewsOfOne(Views):
    """Made of one batch, by what both share."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x * 1.5 + 0.1
        return super().forward(x + 0.5 * y, x.flip(-1))


class WithTarget(Views):
    """Next to a network that no gradient flows through, as that of BYOL."""

    def __init__(self, network: nn.Module, head: nn.Module, loss: Callable):
        super().__init__(network, head, loss)
        self.target = copy.deepcopy(nn.Sequential(network, head)).requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.encode(x), self.encode(y)
        with torch.no_grad():
            c, d = self.target(y), self.target(x)
        return self.loss(a, c) + self.loss(b, d)


def make_deep_step(seed: str) -> RandomStep:
    """A step of this seed of which nothing mixes samples."""
    return make_step(seed, apart=True)


def make_step(seed: str, apart: bool = False) -> RandomStep:
    """The step of this seed: in training mode, in the default type."""
    parts = Parts(seed, apart)
    torch.manual_seed(parts.random.randrange(1 << 31))
    # Of a vector weights are more than what is saved.
    kind = parts.choose("images", "images", "sequences" if apart else "vectors", "sequences")
    parts.names.append(kind)
    make = {"images": make_images, "vectors": make_vectors, "sequences": make_sequences}[kind]
    network, shape, features = make(parts)
    views = parts.choose(True, False, False)
    single = apart or (parts.mixes and parts.choose(True, False))
    head: nn.Module = nn.Linear(features, CLASSES)
    if parts.choose(True, False, False):
        head = nn.Sequential(
            nn.Linear(features, 6), parts.norm(1, 6), parts.act(), nn.Linear(6, CLASSES)
        )
    if views:
        loss = cosine if single else parts.choose(*OF_VIEWS)
    else:
        loss = parts.choose(*OF_SAMPLES) if single else parts.choose(*OF_BATCH)
    parts.names.append(loss.__name__)

    def draw(batch: int) -> tuple[Tensor, ...]:
        def sample() -> Tensor:
            # Each with a scale of its own.
            return torch.randn(batch, *shape) * (1 + torch.rand(batch, *[1] * len(shape)))

        return (sample(), sample() if views else torch.randint(CLASSES, (batch,)))

    kind = parts.choose(Views, Views, ViewsOfOne, WithTarget) if views else Labelled
    if parts.choose(True, False, False, False):
        # Layers in front that are not trained.
        layers = list(network.children())
        for layer in layers[: parts.random.randint(1, max(len(layers) // 2, 1))]:
            layer.requires_grad_(False)
        parts.names.append("frozen")
    module = kind(network, head, loss)
    return RandomStep(module.train(), draw, parts.names, parts.drops)
