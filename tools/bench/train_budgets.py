#!/usr/bin/env python3
"""What training in less memory costs, next to plain PyTorch, checkpoints, and GradCache.

Usage: train_budgets.py [--models NAME...] [--shares 0.5 0.4...] [--batch N] [--threads N]
                        [--rounds N] [--default-heap] [--kept FILE] [--write FILE]

Each model takes a step plainly, in koila's tiles within shares of what that takes, and with
`torch.utils.checkpoint` on as many blocks as reach the memory of each share, or on all. CLIP is
put next to GradCache in place of checkpoints, in the largest chunks that need no more than
koila's step does, and in the largest that need no more than the share. In each
round all of them run one after the other, between two plain steps: times are medians of CPU
seconds relative to the mean of these two, and the noise is by how much the two differ. The heap
stays warm (glibc keeps what is freed), since a fresh one charges page faults to the step that
takes most; --default-heap leaves it as it is.

Gradients are compared with those of the plain step; in float32 they differ by rounding. Those of
CLIP, which has no kinks and no statistics, are compared in float64 too, and must agree there.

With --kept, models of earlier runs are taken from that file, and others added to it.
"""

import argparse
import copy
import dataclasses
import functools
import json
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models"), str(ROOT / "test" / "oracle")]

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import koila
from counter import Counter
from koila._costs import WARM_HEAP
from make_models import torchvision_model

MIB = 1 << 20
# By how much gradients of float64 may be off.
MOST_OFF = 1e-11


class Classify(nn.Module):
    """Images of 224 x 224 and their classes."""

    def __init__(self, name, **options):
        super().__init__()
        torchvision_model("alexnet")  # imports torchvision
        import torchvision

        self.model = getattr(torchvision.models, name)(weights=None, **options)

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images), labels)

    def draw(self, batch):
        return torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))


class SimClr(Classify):
    """Two views of each image, 112 x 112, under NT-Xent; the batch is of views."""

    def __init__(self):
        super().__init__("resnet18", num_classes=128)

    def forward(self, one, two):
        z = F.normalize(torch.cat([self.model(one), self.model(two)]), dim=1)
        count = one.shape[0]
        likeness = (z @ z.t() / 0.5).masked_fill(torch.eye(2 * count, dtype=torch.bool), -1e9)
        places = torch.arange(count)
        return F.cross_entropy(likeness, torch.cat([places + count, places]))

    def draw(self, batch):
        return tuple(torch.randn(batch // 2, 3, 112, 112) for _ in range(2))


class Layer(nn.Module):
    def __init__(self, width, heads, is_causal=True):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.projection, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x):
        batch, tokens, width = x.shape
        parts = self.projection(self.norms[0](x)).view(
            batch, tokens, 3, self.heads, width // self.heads
        )
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Gpt2Medium(nn.Module):
    """GPT-2 medium's shape: 24 layers of 1,024, 1,024 tokens; without dropout."""

    def __init__(self, width=1024, tokens=1024, words=50257):
        super().__init__()
        self.words, self.tokens = words, tokens
        self.embedding, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(Layer(width, 16) for _ in range(24))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def draw(self, batch):
        return tuple(torch.randint(self.words, (batch, self.tokens)) for _ in range(2))


class Images(nn.Module):
    """A small vision transformer: images of 64 x 64 in patches of 8 x 8."""

    def __init__(self, width, depth, features):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.places = nn.Parameter(0.02 * torch.randn(64, width))
        self.layers = nn.Sequential(*(Layer(width, 4, is_causal=False) for _ in range(depth)))
        self.norm, self.projection = nn.LayerNorm(width), nn.Linear(width, features, bias=False)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.projection(self.norm(self.layers(x)).mean(1))


class Texts(nn.Module):
    """A small transformer over 32 tokens, read off where the number of the token is largest."""

    def __init__(self, width, depth, features, words=8192, tokens=32):
        super().__init__()
        self.words, self.tokens = words, tokens
        self.embedding = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(depth)))
        self.norm, self.projection = nn.LayerNorm(width), nn.Linear(width, features, bias=False)

    def forward(self, ids):
        x = self.norm(self.layers(self.embedding(ids) + self.places))
        return self.projection(x[torch.arange(ids.shape[0]), ids.argmax(1)])


class Clip(nn.Module):
    """Two towers without batch normalisation under the symmetric InfoNCE of all pairs."""

    def __init__(self, width=128, depth=3, features=128):
        super().__init__()
        self.images, self.texts = Images(width, depth, features), Texts(width, depth, features)
        self.temperature = nn.Parameter(torch.tensor(1 / 0.07).log())

    def contrast(self, images, texts):
        images, texts = F.normalize(images, dim=1), F.normalize(texts, dim=1)
        likeness = self.temperature.exp() * images @ texts.t()
        places = torch.arange(images.shape[0])
        return (F.cross_entropy(likeness, places) + F.cross_entropy(likeness.t(), places)) / 2

    def forward(self, images, ids):
        return self.contrast(self.images(images), self.texts(ids))

    def draw(self, batch):
        return (
            torch.randn(batch, 3, 64, 64),
            torch.randint(self.texts.words, (batch, self.texts.tokens)),
        )


def step_with_cache(step, args, chunk):
    """A step of CLIP as GradCache has it (Gao et al. 2021): embeddings without a graph, their
    gradients from the loss of all pairs, then chunk by chunk those of the towers."""
    towers = list(zip((step.images, step.texts), [arg.split(chunk) for arg in args], strict=True))
    with torch.no_grad():
        embeddings = [torch.cat([tower(part) for part in parts]) for tower, parts in towers]
    for embedding in embeddings:
        embedding.requires_grad_()
    loss = step.contrast(*embeddings)
    loss.backward()
    for (tower, parts), embedding in zip(towers, embeddings, strict=True):
        for part, gradient in zip(parts, embedding.grad.split(chunk), strict=True):
            tower(part).backward(gradient)
    return loss.detach()


def blocks_of(step):
    """What people checkpoint."""
    if isinstance(step, Gpt2Medium):
        return list(step.layers)
    model = step.model
    if hasattr(model, "encoder"):
        return list(model.encoder.layers)
    if hasattr(model, "layer1"):
        return [block for number in "1234" for block in getattr(model, f"layer{number}")]
    return list(model.features)[1:-1]


@dataclasses.dataclass(frozen=True)
class Model:
    make: Callable[[], Any]
    batch: int
    shares: tuple[float, ...] = (0.5, 0.4, 0.25, 0.15)
    # Whether two towers meet in the loss alone.
    has_towers: bool = False


MODELS = {
    "resnet18": Model(lambda: Classify("resnet18"), 32),
    "resnet50": Model(lambda: Classify("resnet50"), 32),
    "mobilenet_v2": Model(lambda: Classify("mobilenet_v2"), 32),
    "simclr": Model(SimClr, 64),
    "clip": Model(Clip, 256, (0.1,), has_towers=True),
    "vit_l_16": Model(lambda: Classify("vit_l_16"), 1),
    "gpt2_medium": Model(Gpt2Medium, 1),
}


def with_checkpoints(step, count):
    """A copy on the same weights, with checkpoints around its first ``count`` blocks."""
    weights = {id(t): t for t in [*step.parameters(), *step.buffers()]}
    copied = copy.deepcopy(step, weights)
    for block in blocks_of(copied)[:count]:
        run = block.forward
        block.forward = lambda *args, run=run: checkpoint(run, *args, use_reentrant=False)
    return copied


def name_of(share):
    return f"{100 * share:g}%"


def run(step, args):
    step(*args).backward()


def zero(step):
    for weight in step.parameters():
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.zero_()


def distance(step, wanted):
    found = [weight.grad for weight in step.parameters()]
    off = sum(float((a - b).double().square().sum()) for a, b in zip(found, wanted, strict=True))
    return (off / sum(float(b.double().square().sum()) for b in wanted)) ** 0.5


def find_checkpoints(step, args, counter, most):
    """The fewest blocks whose checkpoints need at most ``most`` bytes; all if none do."""
    low, high = 1, len(blocks_of(step))
    while low < high:
        middle = (low + high) // 2
        candidate = with_checkpoints(step, middle)
        if counter.measure(run, (candidate, args))[0] <= most:
            high = middle
        else:
            low = middle + 1
    return high


def find_chunk(step, args, counter, most):
    """The largest power of two whose chunks need at most ``most`` bytes; 1 if none does."""
    chunk = 1 << (len(args[0]).bit_length() - 1)
    while chunk > 1 and counter.measure(step_with_cache, (step, args, chunk))[0] > most:
        chunk //= 2
    return chunk


def compile_step(step, args, budget, options):
    return koila.compile(
        step, *args, mode="train", budget=budget, threads=options.threads, check=False,
        random="full-batch-masks",
    )  # fmt: skip


def compare_doubles(step, args, counter, shares, chunks, options):
    """How far gradients in float64 are off, by the name of the way."""
    step = copy.deepcopy(step).double()
    args = [arg.double() if arg.is_floating_point() else arg for arg in args]
    zero(step)
    untiled = counter.measure(run, (step, args))[0]
    wanted = [weight.grad.clone() for weight in step.parameters()]
    ways = {}
    for share in shares:
        tiled = compile_step(step, args, int(share * untiled), options)
        ways[name_of(share)] = functools.partial(tiled.train_step, *args)
    for label, chunk in chunks.items():
        ways[label] = functools.partial(step_with_cache, step, args, chunk)
    found = {}
    for way, take in ways.items():
        zero(step)
        take()
        found[way] = distance(step, wanted)
    return found


def measure(name, options):
    torch.manual_seed(0)
    model = MODELS[name]
    batch = options.batch or model.batch
    step = model.make().train()
    args = step.draw(batch)
    counter = Counter(ROOT / "build/lib/libkoila-counter.so")
    zero(step)
    run(step, args)
    zero(step)
    torch.manual_seed(1)
    untiled = counter.measure(run, (step, args))[0]
    wanted = [weight.grad.clone() for weight in step.parameters()]
    ways: dict[str, Callable[[], Any]] = {}
    rows: list[dict[str, Any]] = []
    refused: dict[str, int] = {}
    chunks: dict[str, int] = {}
    shares = []

    def take(way):
        """Its bytes and the error of its gradients."""
        for _ in range(3):  # the executor is done with what it changes
            zero(step)
            ways[way]()
        zero(step)
        torch.manual_seed(1)  # the same masks
        return {"peak": counter.measure(ways[way])[0], "error": distance(step, wanted)}

    for share in options.shares or model.shares:
        way, start = name_of(share), time.monotonic()
        try:
            tiled = compile_step(step, args, int(share * untiled), options)
        except koila.BudgetError as error:
            refused[way] = error.smallest_budget
            continue
        planning = time.monotonic() - start
        shares.append(share)
        ways[way] = functools.partial(tiled.train_step, *args)
        row = {"way": way, "planning": planning, "predicted": tiled.report.peak, **take(way)}
        rows.append(row)
        others = {}
        if model.has_towers:
            for most in (row["peak"], int(share * untiled)):
                chunk = find_chunk(step, args, counter, most)
                label = f"GradCache, chunks of {chunk}"
                chunks[label] = chunk
                others[label] = functools.partial(step_with_cache, step, args, chunk)
        else:
            found = find_checkpoints(step, args, counter, tiled.report.peak)
            label = f"checkpoint on {found} of {len(blocks_of(step))}"
            others[label] = functools.partial(run, with_checkpoints(step, found), args)
        for label, other in others.items():
            if label not in ways:
                ways[label] = other
                rows.append({"way": label, **take(label)})
    if model.has_towers:
        doubles = compare_doubles(step, args, counter, shares, chunks, options)
        for row in rows:
            row["double"] = doubles[row["way"]]
    times = {way: [] for way in ("before", *ways, "after")}
    plain = {"before": lambda: run(step, args), "after": lambda: run(step, args)}
    for number in range(options.rounds):
        for way, seconds in times.items():
            zero(step)
            start = time.process_time()
            (ways | plain)[way]()
            seconds.append(time.process_time() - start)
        print(f"{name}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    means = [(a + b) / 2 for a, b in zip(times["before"], times["after"], strict=True)]
    noise = median(
        abs(a - b) / m
        for a, b, m in zip(*[times[w] for w in ("before", "after")], means, strict=True)
    )
    for row in rows:
        row["time"] = median(t / m for t, m in zip(times[row["way"]], means, strict=True))
    return {
        "batch": batch, "untiled": untiled, "seconds": median(means), "noise": noise, "rows": rows,
        "refused": refused,
    }  # fmt: skip


def describe(found):
    for way, smallest in found["refused"].items():
        yield f"{way:24} refused: the smallest is {smallest / found['untiled']:.1%}"
    for row in found["rows"]:
        exact = ""
        if "predicted" in row:
            same = row["predicted"] == row["peak"]
            exact = ", as predicted" if same else f", {row['predicted']:,} B predicted"
        yield (
            f"{row['way']:24} {row['peak'] / MIB:8.1f} MiB, {row['peak'] / found['untiled']:.1%}"
            f"{exact}, {row['time']:.2f} of the time, {row['error']:.1e} off"
            + (f", {row['double']:.1e} in float64" if "double" in row else "")
        )


def page(models, options):
    lines = [
        "# Training in less memory: what it costs",
        "",
        "<!-- Written by tools/dev/write_results.py train-budgets; do not edit. -->",
        "",
        "A step in float32 within a share of what the untiled step takes above weights, inputs and "
        "gradients that are there, and the same with `torch.utils.checkpoint` on the fewest blocks "
        "that need no more; CLIP as GradCache has it, in the largest chunks (powers of two) that "
        "need no more than koila's step, and than the share. "
        f"{options.threads} thread{'s' * (options.threads > 1)}, "
        f"{'the default' if options.default_heap else 'a warm'} heap, medians of {options.rounds} "
        "rounds of CPU seconds relative to untiled steps before and after; *noise* is by how much "
        "these two differ. *Error* is the distance of all gradients together from those of the "
        "untiled step, which in float32 are off by rounding themselves; in brackets, in float64.",
    ]
    for name, found in models.items():
        lines += [
            "",
            f"**{name}**, batch {found['batch']}: untiled {found['untiled'] / MIB:.1f} MiB, "
            f"{found['seconds']:.1f} s, noise {found['noise']:.0%}.",
            "",
            "| how | measured | of the untiled peak | predicted | time | planning | error |",
            "|---|---:|---:|---|---:|---:|---:|",
        ]
        for way, smallest in found["refused"].items():
            share = smallest / found["untiled"]
            lines.append(f"| {way}: refused, the smallest is {share:.1%} | | | | | | |")
        for row in found["rows"]:
            predicted, planning = "", ""
            if "predicted" in row:
                planning = f"{row['planning']:.1f} s"
                same = row["predicted"] == row["peak"]
                predicted = "to the byte" if same else f"{row['predicted'] / MIB:.1f} MiB"
            lines.append(
                f"| {row['way']} | {row['peak'] / MIB:.1f} MiB | "
                f"{row['peak'] / found['untiled']:.1%} | {predicted} | {row['time']:.2f} | "
                f"{planning} | {row['error']:.1e}"
                + (f" ({row['double']:.1e}) |" if "double" in row else " |")
            )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--shares", nargs="*", type=float, help="in place of each model's own")
    parser.add_argument("--batch", type=int, help="in place of each model's own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--default-heap", action="store_true")
    parser.add_argument("--kept", type=pathlib.Path, help="results of earlier runs, as JSON")
    parser.add_argument("--write", type=pathlib.Path, help="a page of results")
    options = parser.parse_args()
    if not options.default_heap and any(os.environ.get(n) != v for n, v in WARM_HEAP.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WARM_HEAP})
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    models = {}
    kept = options.kept
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for name in options.models:
        if name not in known:
            known[name] = measure(name, options)
            if kept is not None:
                kept.write_text(json.dumps(known))
        found = models[name] = known[name]
        print(
            f"{name}, batch {found['batch']}: {found['untiled'] / MIB:.1f} MiB, "
            f"{found['seconds']:.1f} s, noise {found['noise']:.0%}"
        )
        for line in describe(found):
            print(f"  {line}", flush=True)
        over = [
            row["way"]
            for row in found["rows"]
            if "predicted" in row and row["peak"] > row["predicted"]
        ]
        if over:
            print(f"wrong: more than predicted at {', '.join(over)}")
            return 1
        off = [row["way"] for row in found["rows"] if not row.get("double", 0) <= MOST_OFF]
        if off:
            print(f"wrong: gradients in float64 are off at {', '.join(off)}")
            return 1
    if options.write:
        options.write.write_text(page(models, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
