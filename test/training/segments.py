#!/usr/bin/env python3
"""Steps whose backward pass runs in segments leave what plain PyTorch leaves.

Usage: segments.py [NAME...]

Each case is a step in which samples are mixed on the way to the loss, compiled
in float64 with tiles of 2 and 4 and run at batches that tiles divide and that
they do not. The gradients of all weights and of one SGD step may be 1e-11 off,
relative to their L2 norm; running statistics and results as well, and counters
not at all. With every case runs a control that a reader may take for the same:
the step accumulated over tiles, which normalises and compares within each. It
has to be at least a thousand times further off.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import koila

BATCHES = (8, 13)
TILES = (2, 4)
ALLOWED = 1e-11
CASES: dict[str, Callable[[], tuple[nn.Module, Callable[[int], tuple[Tensor, ...]]]]] = {}


def case(make):
    CASES[make.__name__] = make
    return make


def images(*shape: int, classes: int = 0):
    """Makes a batch of images, each with a pattern of its own, and labels."""

    def draw(batch: int) -> tuple[Tensor, ...]:
        x = torch.randn(batch, *shape) * (1 + torch.rand(batch, *[1] * len(shape)))
        if not classes:
            return (x,)
        return x, torch.randint(classes, (batch,))

    return draw


class Classifier(nn.Module):
    """The cross-entropy of what ``model`` makes of the input."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.one = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.down is None else self.down(x)
        x = self.norms[0](self.one(x)).relu_()
        return (self.norms[1](self.two(x)) + kept).relu_()


@case
def residual_network():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8, 8),
        Residual(8, 12, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )
    return Classifier(model), images(3, 12, 12, classes=5)


@case
def wide_stem():
    """What is in front of the pooling takes more than all that is behind it."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 3),
        nn.Conv2d(16, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 5),
    )
    return Classifier(model), images(3, 24, 24, classes=5)


@case
def deep_supervision():
    """A loss behind each of three blocks: what mixes samples does so at three levels."""

    class Supervised(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Conv2d(i, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
                for i in (3, 6, 6)
            )
            self.heads = nn.ModuleList(nn.Linear(6, 5) for _ in range(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            losses = []
            for block, head in zip(self.blocks, self.heads, strict=True):
                x = block(x)
                losses.append(F.cross_entropy(head(x.mean((2, 3))), y))
            return 0.2 * losses[0] + 0.3 * losses[1] + losses[2]

    return Supervised(), images(3, 8, 8, classes=5)


class Pooled(nn.Module):
    """What is normalised goes into a pooling, and ``combine`` reads it once more."""

    def __init__(self, combine: Callable[[Pooled, Tensor, Tensor], Tensor], channels: int = 8):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.combine = combine
        self.last = nn.Linear(channels, 5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        v = self.norms[0](self.one(x))
        w = self.norms[1](self.two(F.max_pool2d(v, 3)))
        z = self.combine(self, v, F.interpolate(w, scale_factor=3.0))
        return F.cross_entropy(self.last(F.relu(z).mean((2, 3))), y)


@case
def pooled_and_added():
    return Pooled(lambda model, v, w: v + w), images(3, 12, 12, classes=5)


@case
def pooled_and_joined():
    return Pooled(lambda model, v, w: torch.cat([w, v], 1), 16), images(3, 12, 12, classes=5)


@case
def pooled_and_normalised():
    return Pooled(lambda model, v, w: w + model.norms[2](v)), images(3, 12, 12, classes=5)


@case
def pooled_and_averaged():
    def combine(model: Pooled, v: Tensor, w: Tensor) -> Tensor:
        return w - v.mean(0)

    return Pooled(combine), images(3, 12, 12, classes=5)


@case
def inverted_residuals():
    class Inverted(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(x)

    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1, bias=False),
        nn.BatchNorm2d(6, momentum=0.3),
        nn.ReLU6(),
        Inverted(
            nn.Conv2d(6, 12, 1, bias=False),
            nn.BatchNorm2d(12),
            nn.Hardswish(),
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False),
            nn.BatchNorm2d(12),
            nn.SiLU(),
            nn.Conv2d(12, 6, 1, bias=False),
            nn.BatchNorm2d(6, affine=False),
        ),
        nn.Flatten(),
        nn.Linear(6 * 25, 4),
    )
    return Classifier(model), images(3, 10, 10, classes=4)


@case
def shuffled_channels():
    """A part of what was shuffled goes on as it is, with gaps."""

    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = nn.Sequential(
                nn.Conv2d(4, 4, 1, bias=False),
                nn.BatchNorm2d(4),
                nn.ReLU(inplace=True),
                nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
                nn.BatchNorm2d(4),
            )

        def forward(self, x: Tensor) -> Tensor:
            one, two = x.chunk(2, dim=1)
            x = torch.cat((one, self.branch(two)), dim=1)
            batch, channels, height, width = x.size()
            x = x.view(batch, 2, channels // 2, height, width)
            return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        Shuffled(),
        Shuffled(),
        nn.Flatten(),
        nn.Linear(8 * 81, 4),
    )
    return Classifier(model), images(3, 9, 9, classes=4)


@case
def split_scales():
    """Each part of what is normalised goes its own way, and into the next (Res2Net)."""

    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
            self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4))

        def forward(self, x: Tensor) -> Tensor:
            one, two = torch.split(self.inner(x), 4, 1)
            two = self.branch(two + one)
            return torch.cat((one, two), 1) * torch.cat((two, one), 1)

    model = nn.Sequential(Scales(), nn.Flatten(), nn.Linear(8 * 81, 4))
    return Classifier(model), images(3, 9, 9, classes=4)


def freeze(layers: nn.Module) -> nn.Module:
    return layers.requires_grad_(False)


@case
def frozen_stem():
    """Layers in front that are not trained, wider than what is (fine-tuning)."""
    model = nn.Sequential(
        freeze(nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(inplace=True))),
        nn.Conv2d(32, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 81, 4),
    )
    return Classifier(model), images(3, 9, 9, classes=4)


@case
def frozen_layers_with_statistics():
    """The batch normalises in layers that are not trained as well, and both are joined."""

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = freeze(
                nn.Sequential(
                    nn.Conv2d(3, 16, 3, padding=1),
                    nn.BatchNorm2d(16),
                    nn.ReLU(),
                    nn.Conv2d(16, 16, 3, padding=1),
                    nn.BatchNorm2d(16),
                    nn.Tanh(),
                )
            )
            self.trained = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4))
            self.last = nn.Sequential(nn.Conv2d(20, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.cat([self.frozen(x), self.trained(x)], 1))

    model = nn.Sequential(Joined(), nn.Flatten(), nn.Linear(4 * 81, 4))
    return Classifier(model), images(3, 9, 9, classes=4)


@case
def frozen_extractor():
    """Nothing that is trained mixes samples: batch normalisations of frozen layers do."""
    frozen = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Conv2d(24, 4, 3, padding=1),
        nn.BatchNorm2d(4),
    )
    model = nn.Sequential(freeze(frozen), nn.Flatten(), nn.Linear(4 * 9, 8), nn.Linear(8, 4))
    return Classifier(model), images(3, 9, 9, classes=4)


@case
def dense_concatenation():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(
                    nn.BatchNorm2d(4 + 3 * i), nn.ReLU(), nn.Conv2d(4 + 3 * i, 3, 3, padding=1)
                )
                for i in range(3)
            )
            self.head = nn.Linear(13, 4)

        def forward(self, x: Tensor) -> Tensor:
            found = [x]
            for layer in self.layers:
                found.append(layer(torch.cat(found, 1)))
            return self.head(torch.cat(found, 1).mean((2, 3)))

    return Classifier(Dense()), images(4, 6, 6, classes=4)


@case
def norms_of_vectors_and_volumes():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.volume = nn.Sequential(
                nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4, momentum=None), nn.ELU()
            )
            self.line = nn.Sequential(nn.Conv1d(4, 5, 3), nn.BatchNorm1d(5), nn.GELU())
            self.rows = nn.Sequential(
                nn.Linear(5 * 14, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Tanh()
            )
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.line(self.volume(x).flatten(3).mean(2))
            return self.head(self.rows(x.flatten(1)))

    return Classifier(Both()), images(2, 3, 4, 4, classes=3)


@case
def norms_of_words():
    """All words of all samples are rows, of which views go back and forth."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.BatchNorm1d(8)])
            self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x = torch.sigmoid(x) + x
            between = x.new_zeros(())
            for norm, layer in zip(self.norms, self.layers, strict=True):
                x = layer(norm(x.flatten(0, 1)).view(x.shape))
                x = layer(x.reshape(-1, 8)).view(x.shape) + x
                between = between + 0.3 * x.square().mean()
            return F.cross_entropy(self.head(x.mean(1)), y) + between

    return Words(), images(10, 8, classes=3)


@case
def one_norm_called_twice():
    class Twice(nn.Module):
        """A discriminator of what is real and what is made."""

        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 1)
            )

        def forward(self, real: Tensor, made: Tensor) -> Tensor:
            right = F.softplus(-self.net(real)).mean()
            return right + F.softplus(self.net(made)).mean()

    def draw(batch: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, 6), 2 * torch.randn(batch, 6) + 1

    return Twice(), draw


@case
def frozen_and_trained_norms():
    frozen = nn.BatchNorm2d(6).eval()
    nn.init.uniform_(frozen.running_var, 0.5, 2)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        frozen,
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.GroupNorm(2, 6),
        nn.Flatten(),
        nn.Linear(6 * 36, 3),
    )
    step = Classifier(model)
    return step, images(3, 6, 6, classes=3)


class Contrastive(nn.Module):
    """Two views through one encoder, and a loss over all pairs."""

    def __init__(self, norm: bool):
        super().__init__()
        layers = [nn.Linear(10, 16), nn.BatchNorm1d(16)] if norm else [nn.Linear(10, 16)]
        self.encoder = nn.Sequential(*layers, nn.GELU(), nn.Linear(16, 6))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        one, other = F.normalize(self.encoder(a)), F.normalize(self.encoder(b))
        return self.loss(one, other)

    def loss(self, one: Tensor, other: Tensor) -> Tensor:
        logits = self.scale.exp() * one @ other.t()
        labels = torch.arange(one.shape[0])
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def views(batch: int) -> tuple[Tensor, ...]:
    x = torch.randn(batch, 10)
    return x + 0.2 * torch.randn(batch, 10), x + 0.2 * torch.randn(batch, 10)


@case
def clip_loss():
    return Contrastive(norm=False), views


@case
def info_nce_behind_norms():
    class OneSided(Contrastive):
        def loss(self, one: Tensor, other: Tensor) -> Tensor:
            both = torch.cat([one, other])
            likeness = both @ both.t() / 0.3
            likeness = likeness - 1e9 * torch.eye(both.shape[0], dtype=both.dtype)
            n = one.shape[0]
            target = torch.cat([torch.arange(n) + n, torch.arange(n)])
            return F.cross_entropy(likeness, target)

    return OneSided(norm=True), views


@case
def joined_crops():
    """Joined before a network with normalisations, and parted behind it."""

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            layers = nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 6)
            self.tower = nn.Sequential(*layers, nn.BatchNorm1d(6))

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            rows = F.normalize(self.tower(torch.cat([one, other])), dim=1)
            n = one.shape[0]
            likeness = rows @ rows.t() / 0.3
            likeness = likeness - 1e9 * torch.eye(2 * n, dtype=rows.dtype)
            target = torch.cat([torch.arange(n) + n, torch.arange(n)])
            return F.cross_entropy(likeness, target)

    return Joined(), views


@case
def barlow_twins():
    class Barlow(Contrastive):
        def loss(self, one: Tensor, other: Tensor) -> Tensor:
            one = (one - one.mean(0)) / one.std(0)
            other = (other - other.mean(0)) / other.std(0)
            c = one.t() @ other / one.shape[0]
            ones = torch.eye(6, dtype=c.dtype)
            return ((c - ones).square() * (0.1 + 0.9 * ones)).sum()

    return Barlow(norm=False), views


@case
def variance_and_covariance():
    class VicReg(Contrastive):
        def loss(self, one: Tensor, other: Tensor) -> Tensor:
            total = F.mse_loss(one, other)
            for z in (one, other):
                centred = z - z.mean(0)
                total = total + F.relu(1 - (centred.var(0) + 1e-4).sqrt()).mean()
                cov = centred.t() @ centred / (z.shape[0] - 1)
                total = total + (cov.square().sum() - cov.diagonal().square().sum()) / 6
            return total

    return VicReg(norm=False), views


@case
def hardest_triplets():
    class Triplets(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            z = self.net(x)
            gaps = (z[:, None] - z[None]).square().sum(-1)
            same = y[:, None] == y[None]
            far = gaps.masked_fill(~same, -1.0).amax(1)
            near = gaps.masked_fill(same, 1e9).amin(1)
            return F.softplus(far - near).mean()

    def draw(batch: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, 5), torch.arange(batch) % 3

    return Triplets(), draw


@case
def dice_over_the_batch():
    class Dice(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(1, 6, 3, padding=1),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.Conv2d(6, 1, 3, padding=1),
            )

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            p = self.net(x).sigmoid()
            return 1 - 2 * (p * y).sum() / (p.sum() + y.sum())

    def draw(batch: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, 1, 7, 7), (torch.rand(batch, 1, 7, 7) < 0.3).to(
            torch.get_default_dtype()
        )

    return Dice(), draw


@case
def attention_over_the_batch():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 8)
            self.outer = nn.Linear(8, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            h = self.inner(x).tanh()
            h = (h @ h.t() / 8**0.5).softmax(1) @ h + h
            return F.cross_entropy(self.outer(h), y)

    return Attention(), images(6, classes=3)


@case
def hard_examples():
    class Hard(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            each = F.cross_entropy(self.net(x), y, reduction="none")
            return each.topk(2).values.mean() + each.mean().log()

    return Hard(), images(6, classes=3)


@case
def weights_from_weights():
    class Standardised(nn.Module):
        """A weight that is standardised first, as in BiT."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 5))
            self.norm = nn.BatchNorm1d(6)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            w = self.weight - self.weight.mean(1, keepdim=True)
            w = w / w.norm(dim=1, keepdim=True)
            x = self.norm(F.linear(x, w)).relu()
            return F.cross_entropy(self.head(x), y) + 0.01 * w.square().mean()

    return Standardised(), images(5, classes=3)


def leave(step: nn.Module) -> dict[str, Tensor]:
    """What a step leaves in the module."""
    found = {f"gradient of {n}": p.grad for n, p in step.named_parameters() if p.grad is not None}
    return found | {n: b.clone() for n, b in step.named_buffers()}


def distance(found: dict[str, Tensor], plain: dict[str, Tensor]) -> float:
    """Of all gradients together, or of the furthest buffer; relative."""
    if found.keys() != plain.keys():
        return float("inf")
    gradients = [n for n in plain if n.startswith("gradient")]
    off = sum(float((found[n] - plain[n]).square().sum()) for n in gradients)
    worst = (off / sum(float(plain[n].square().sum()) for n in gradients)) ** 0.5
    for n in plain.keys() - set(gradients):
        if not plain[n].is_floating_point():
            if not torch.equal(found[n], plain[n]):
                return float("inf")
            continue
        # The variance of what does not vary is rounding.
        size = plain[n].norm().clamp(min=1e-12)
        worst = max(worst, float((found[n] - plain[n]).norm() / size))
    return worst


def accumulate(step: nn.Module, args: tuple[Tensor, ...], tile: int) -> None:
    """The step in tiles, each with its own statistics and its own pairs."""
    batch = args[0].shape[0]
    for number in range(batch // tile):
        # The last has what is left as well.
        last = batch if number == batch // tile - 1 else (number + 1) * tile
        part = [x[number * tile : last] for x in args]
        (step(*part) * (len(part[0]) / batch)).backward()


def prepare(name: str) -> tuple[nn.Module, Callable[[int], tuple[Tensor, ...]]]:
    """The case in float64, with layers of which each number is another one."""
    torch.manual_seed(1)
    step, draw = CASES[name]()
    step = step.double()
    for module in step.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
            if module.running_mean is not None:
                nn.init.normal_(module.running_mean)
    return step, draw


def check(name: str) -> bool:
    step, draw = prepare(name)
    worst, least = 0.0, float("inf")
    for tile in TILES:
        compiled_from = copy.deepcopy(step)
        example = draw(8)
        tiled = koila.compile(
            compiled_from,
            *example,
            mode="train",
            tile=tile,
            budget=None,
            recompute="auto",
            guard="raise",
        )
        for batch in BATCHES:
            args = draw(batch)
            plain = copy.deepcopy(step)
            loss = plain(*args)
            loss.backward()
            loss = loss.detach()
            compiled_from.load_state_dict(step.state_dict())
            compiled_from.zero_grad()
            found = tiled.train_step(*args)
            worst = max(worst, distance(leave(compiled_from), leave(plain)))
            worst = max(worst, abs(float(found) - float(loss)) / abs(float(loss)))
            other = copy.deepcopy(step)
            accumulate(other, args, 4)
            gap = distance(
                {n: t for n, t in leave(other).items() if n.startswith("gradient")},
                {n: t for n, t in leave(plain).items() if n.startswith("gradient")},
            )
            least = min(least, gap)
        # One step after the other: statistics move on.
        compiled_from.load_state_dict(step.state_dict())
        plain = copy.deepcopy(step)
        for _ in range(3):
            args = draw(8)
            plain.zero_grad()
            compiled_from.zero_grad()
            plain(*args).backward()
            tiled.train_step(*args)
            worst = max(worst, distance(leave(compiled_from), leave(plain)))
    right = worst <= ALLOWED and least >= 1000 * ALLOWED
    verdict = "right" if right else "WRONG"
    print(f"{name:30} {worst:.1e} off, in tiles of their own {least:.1e}: {verdict}")
    return right


def main() -> int:
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error")
    names = sys.argv[1:] or list(CASES)
    wrong = sum(not check(name) for name in names)
    print(f"{len(names)} steps, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
