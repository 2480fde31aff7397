#!/usr/bin/env python3
"""Steps of which one sample takes too much run in parts, and leave what plain PyTorch leaves.

Usage: parts.py COUNTER [NAME...]

Steps without anything that mixes samples are compiled for the smallest budget that works, for
some above it, and refused below it; of one sample, where nothing is left to tile, and of
several. In float64 gradients may be 1e-11 off relative to their norm, and the measured peak is
the predicted one, to the byte, and within the budget. The smallest budget is one that no tile
reaches with recompute=never. The control is a step that loses what comes to its first half from
its second, as a cut without its gradient would.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import koila
import segments

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "test" / "oracle")]
from counter import Counter

Draw = Callable[[int], tuple[Tensor, ...]]
SHARES = (1.0, 1.15, 1.5)
BATCHES = (1, 6)
WIDTH, TOKENS, CLASSES = 24, 20, 11


class Attention(nn.Module):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.projection = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        heads = self.projection(self.norms[0](x)).view(batch, tokens, 3, 2, width // 2)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Language(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, WIDTH)
        self.places = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Attention() for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        # Of the next word, as people write it: of one sample nothing is copied.
        logits, targets = logits[:, :-1].contiguous(), targets[:, 1:].contiguous()
        return F.cross_entropy(logits.view(-1, CLASSES), targets.view(-1))


class Vision(nn.Module):
    """A class token of one row, which is made as long as the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.ModuleList(Attention() for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x[:, 0]), targets)


class Plain(nn.Module):
    """Convolutions, and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(6):
            layers += [nn.Conv2d(8 if index else 3, 8, 3, padding=1), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 256, CLASSES))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), targets)


class Skips(nn.Module):
    """What the way down makes the way up reads: several tensors cross each cut."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(self.make_level(8 if index else 3) for index in range(3))
        self.up = nn.ModuleList(self.make_level(16) for _ in range(3))
        self.out = nn.Conv2d(8, CLASSES, 1)

    @staticmethod
    def make_level(channels: int) -> nn.Module:
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [nn.Conv2d(8 if index else channels, 8, 3, padding=1), nn.Tanh()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
        for level in self.up:
            x = level(torch.cat([x, kept.pop()], 1))
        return F.cross_entropy(self.out(x), targets)


class Gates(nn.Module):
    """Weights that are made of others, chunks, and values of which several are made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            parametrizations.weight_norm(nn.Linear(WIDTH, 2 * WIDTH)) for _ in range(5)
        )
        self.shared = nn.Parameter(torch.randn(WIDTH, WIDTH) / 5)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        for layer in self.layers:
            value, gate = layer(x).chunk(2, -1)
            mixed = value @ self.shared.t()
            x = x + torch.sigmoid(gate) * mixed + torch.sin(mixed)
        return F.cross_entropy(self.head(x.mean(1)), targets)


class Shaped(nn.Module):
    """Tensors that are read for their sizes alone have no gradient from there."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(5))
        self.narrow = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(5))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        first: Tensor | None = None
        for wide, narrow in zip(self.wide, self.narrow, strict=True):
            change = narrow(F.gelu(wide(x)))
            if first is not None:
                change = change.mean(1, keepdim=True).expand_as(first)
            x = x + change
            first = change if first is None else first
        return F.cross_entropy(self.head(x).mean(1), targets)


class Frozen(Language):
    """The first block and the embedding are not trained."""

    def __init__(self) -> None:
        super().__init__()
        for module in (self.tokens, self.places, self.blocks[0]):
            module.requires_grad_(False)


class Drops(nn.Module):
    """Masks that are drawn."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(6):
            layers += [nn.Linear(WIDTH, 4 * WIDTH), nn.GELU()]
            layers += [nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.3)]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x).mean(1), targets)


def draw_tokens(batch: int) -> tuple[Tensor, ...]:
    return torch.randint(CLASSES, (batch, TOKENS)), torch.randint(CLASSES, (batch, TOKENS))


def draw_images(batch: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 3, 16, 16), torch.randint(CLASSES, (batch,))


def draw_maps(batch: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 3, 16, 16), torch.randint(CLASSES, (batch, 16, 16))


def draw_rows(batch: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, TOKENS, WIDTH), torch.randint(CLASSES, (batch,))


CASES: dict[str, tuple[Callable[[], nn.Module], Draw]] = {
    "language": (Language, draw_tokens),
    "vision": (Vision, draw_images),
    "in_place": (Plain, draw_images),
    "skips": (Skips, draw_maps),
    "gates": (Gates, draw_rows),
    "shaped": (Shaped, draw_rows),
    "frozen": (Frozen, draw_tokens),
    "drops": (Drops, draw_rows),
}


def run_plain(module: nn.Module, args: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The gradients of a step."""
    plain = copy.deepcopy(module)
    torch.manual_seed(5)
    plain(*args).backward()
    return segments.leave(plain)


def lose(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what comes to the first half of the weights."""
    names = [name for name in gradients if name.startswith("gradient")]
    lost = dict.fromkeys(names[: len(names) // 2])
    return {
        name: torch.zeros_like(found) if name in lost else found
        for name, found in gradients.items()
    }


def find_least(module: nn.Module, args: tuple[Tensor, ...], options: dict[str, Any]) -> int:
    """The smallest budget, in bytes, as a refusal names it."""
    try:
        koila.compile(copy.deepcopy(module), *args, budget=1, **options)
    except koila.BudgetError as error:
        assert error.smallest_budget is not None
        return error.smallest_budget
    raise AssertionError("one byte is no budget")


def check(name: str, batch: int, counter: Counter) -> bool:
    make, draw = CASES[name]
    torch.manual_seed(1)
    module = make().train()
    args = draw(batch)
    options: dict[str, Any] = {"mode": "train", "guard": "raise", "threads": 1, "check": False}
    if name == "drops":
        options["random"] = "full-batch-masks"
    plain = run_plain(module, args)
    least = find_least(module, args, options)
    tiles = find_least(module, args, options | {"recompute": "never"})
    right, worst, peaks = least < tiles, 0.0, []
    right &= segments.distance(lose(plain), plain) > 1e-3
    for share in SHARES:
        budget = int(least * share)
        source = copy.deepcopy(module)
        tiled = koila.compile(source, *args, budget=budget, **options)
        right &= (tiled.report.data.get("recompute") == "auto") == (budget < tiles)
        # The second call finds gradients that are there.
        for _ in range(2):
            for weight in source.parameters():
                if weight.grad is not None:
                    weight.grad.zero_()
            torch.manual_seed(5)
            measured = counter.measure(tiled.train_step, args)[0]
            worst = max(worst, segments.distance(segments.leave(source), plain))
        right &= measured == tiled.report.peak <= budget
        peaks.append(measured)
    right &= worst <= segments.ALLOWED
    verdict = "right" if right else "WRONG"
    figures = f"{peaks} of {least} and more, tiles {tiles}"
    print(f"{name:10} {batch} {worst:.1e} off, {figures}: {verdict}")
    return right


def main() -> int:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", koila.KoilaWarning)
    counter = Counter(Path(sys.argv[1]))
    names = sys.argv[2:] or list(CASES)
    wrong = sum(not check(name, batch, counter) for name in names for batch in BATCHES)
    print(f"{len(names) * len(BATCHES)} steps, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
