#!/usr/bin/env python3
"""What recording costs: training steps through koila.lazy next to plain ones.

Usage: lazy_overhead.py [--steps N] [--models mlp resnet18] [--threads N] [--check]

Steps of plain PyTorch, of `koila.lazy` with memory for the whole batch, and of
plain PyTorch again take turns, after three of each. Figures are medians; the
second plain one next to the first says how much is noise. With --check the exit
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
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512),
                          nn.ReLU(), nn.Linear(512, 10))
    return model, torch.randn(64, 28, 28), torch.randint(10, (64,))


def make_resnet18():
    return torchvision_model("resnet18"), torch.randn(32, 3, 224, 224), torch.randint(10, (32,))


MODELS = {"mlp": (make_mlp, 300), "resnet18": (make_resnet18, 8)}


def step(model, optimizer, inputs, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def measure(make, steps):
    torch.manual_seed(0)
    model, inputs, labels = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    plain = lambda: step(model, optimizer, inputs, labels)
    lazy = lambda: step(model, optimizer, *koila.lazy(inputs, labels, batch=0))
    kinds = {"plain": plain, "lazy": lazy, "again": plain}
    times = {name: [] for name in kinds}
    for index in range(steps + 3):
        for name, run in kinds.items():
            start = time.perf_counter()
            run()
            if index >= 3:
                times[name].append(time.perf_counter() - start)
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
        make, steps = MODELS[name]
        found = measure(make, options.steps or steps)
        overhead, noise = (found[kind] - found["plain"] for kind in ("lazy", "again"))
        print(f"{name}: plain {found['plain']:.3f} ms, lazy {overhead:+.3f} ms "
              f"({overhead / found['plain']:+.2%}), plain again {noise:+.3f} ms "
              f"({noise / found['plain']:+.2%})", flush=True)
        limit = 1 if name == "mlp" else 0.01 * found["plain"] + abs(noise)
        failed |= overhead > limit
    return options.check and failed


if __name__ == "__main__":
    sys.exit(main())
