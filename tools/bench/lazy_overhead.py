#!/usr/bin/env python3
"""What recording costs: training steps through koila.lazy next to plain ones.

Usage: lazy_overhead.py [--steps N] [--models mlp resnet18] [--threads N] [--check]

Steps of plain PyTorch, of `koila.lazy` with memory for the whole batch, and of
plain PyTorch again take turns, a few of each at a time, after three of each: what
runs between finds the caches cold at first, which is not what a training loop
does, so that the first step of a turn does not count. Figures are medians; the
second plain one next to the first says how much is noise. *Recording* is the time
until `backward()` is called. With --check the exit
code is 1 if the MLP's overhead is above 1 ms, or the ResNet-18's above 1 % and
the noise.
"""

import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models")]

import torch
from torch import nn
from torch.nn import functional as F

import koila
from make_models import torchvision_model


def make_mlp():
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )
    return model, torch.randn(64, 28, 28), torch.randint(10, (64,))


def make_resnet18():
    return torchvision_model("resnet18"), torch.randn(32, 3, 224, 224), torch.randint(10, (32,))


# What makes them, steps that count, and steps in a turn.
MODELS = {"mlp": (make_mlp, 400, 20), "resnet18": (make_resnet18, 8, 2)}


def step(model, optimizer, inputs, labels, forward=None):
    """`forward` gets the seconds until the loss is there, or recorded."""
    optimizer.zero_grad()
    start = time.perf_counter()
    loss = F.cross_entropy(model(inputs), labels)
    if forward is not None:
        forward.append(time.perf_counter() - start)
    loss.backward()
    optimizer.step()
    return loss.item()


def measure(make, steps, turn):
    torch.manual_seed(0)
    model, inputs, labels = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def plain():
        return step(model, optimizer, inputs, labels)

    recording = []

    def lazy():
        samples, targets = koila.lazy(inputs, labels, batch=0)
        return step(model, optimizer, samples, targets, recording)

    kinds = {"plain": plain, "lazy": lazy, "again": plain}
    times = {name: [] for name in kinds}
    for run in kinds.values():
        for _ in range(3):
            run()
    while len(times["again"]) < steps:
        for name, run in kinds.items():
            run()
            for _ in range(turn):
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    times["recording"] = recording
    return {name: statistics.median(found) * 1e3 for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    failed = False
    for name in options.models:
        make, steps, turn = MODELS[name]
        found = measure(make, options.steps or steps, turn)
        overhead, noise = (found[kind] - found["plain"] for kind in ("lazy", "again"))
        print(
            f"{name}: plain {found['plain']:.3f} ms, lazy {overhead:+.3f} ms "
            f"({overhead / found['plain']:+.2%}), "
            f"recording {found['recording']:.3f} ms, plain again {noise:+.3f} ms "
            f"({noise / found['plain']:+.2%})",
            flush=True,
        )
        limit = 1 if name == "mlp" else 0.01 * found["plain"] + abs(noise)
        failed |= overhead > limit
    return options.check and failed


if __name__ == "__main__":
    sys.exit(main())
