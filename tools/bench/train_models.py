#!/usr/bin/env python3
"""torchvision's classification models in training mode, compiled for half their memory.

Usage: train_models.py [--models NAME...] [--most-mib 2048] [--one NAME]

A step of each model of lazy_models.py, in training mode, runs plainly and through
`koila.compile`: at half of what the whole batch needs, and at the least that koila can do
and a quarter more. The batch is doubled until the step takes ten times the largest weight, or
the next would take more than --most-mib.

In float64 all gradients together, relative to their L2 norm, may be 1e-11 off plain
PyTorch's; in float32 they may be three times as far from those as plain PyTorch's are, and
running statistics twice. Counters of batches are equal, the measured peak is what was
predicted and within the budget. Exits with 1 otherwise. In float32 one ReLU that turns at
another sign is 1e-3 of all gradients: read the errors of one step as drawn.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models"), str(ROOT / "test" / "oracle")]

import torch
from torch import nn
from torch.nn import functional as F

import koila
from counter import Counter
from lazy_models import CLASSES, MODELS, make_model

TIMEOUT = 3000
MIB = 1 << 20
ALLOWED = 1e-11


class Step(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images), labels)


def make_batch(name, batch, dtype):
    torch.manual_seed(2)
    size = MODELS[name]
    images = torch.randn(batch, 3, size, size, dtype=torch.float64)
    # Samples that differ in more than noise.
    images = images * torch.linspace(0.5, 2, batch, dtype=torch.float64).view(-1, 1, 1, 1)
    return images.to(dtype), torch.randint(CLASSES, (batch,))


def prepare(name, dtype):
    """The model with normalisations that matter, and gradients that are there."""
    model = make_model(name, torch.float64)
    torch.manual_seed(4)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model = model.to(dtype).train()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return model


def leave(model):
    """Gradients in float64 as one vector, statistics as another, and counters."""
    gradients = [p.grad.double().flatten() for p in model.parameters()]
    statistics = [b.double().flatten() for b in model.buffers() if b.is_floating_point()]
    counters = [int(b) for b in model.buffers() if b.dtype == torch.int64 and b.ndim == 0]
    return torch.cat(gradients), torch.cat([*statistics, torch.ones(1).double()]), counters


def distance(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def run(model, inputs, counter):
    """The bytes and the seconds of a step."""

    def step():
        images, labels = inputs
        F.cross_entropy(model(images), labels).backward()

    torch.manual_seed(1)
    start = time.process_time()
    peak = counter.measure(step)[0]
    return peak, time.process_time() - start


def run_compiled(model, inputs, budget, counter):
    """The bytes and seconds of a second step, the seconds of compilation, and the step."""
    state = copy.deepcopy(model.state_dict())
    start = time.monotonic()
    step = koila.compile(
        Step(model),
        *inputs,
        mode="train",
        budget=budget,
        threads=1,
        guard="raise",
        check=False,
        random="full-batch-masks" if draws(model) else "refuse",
    )
    compiled = time.monotonic() - start
    for _ in range(2):
        model.load_state_dict(state)
        for weight in model.parameters():
            weight.grad.zero_()
        torch.manual_seed(1)
        start = time.process_time()
        peak = counter.measure(step.train_step, inputs)[0]
        seconds = time.process_time() - start
    return peak, seconds, compiled, step


def draws(model):
    from torchvision.ops import StochasticDepth

    kinds = (nn.modules.dropout._DropoutNd, StochasticDepth)
    return any(isinstance(m, kinds) and m.p > 0 for m in model.modules())


def choose_batch(name, most):
    """The first power of two whose step takes ten times the largest weight."""
    model = prepare(name, torch.float32)
    largest = max(p.numel() * 4 for p in model.parameters())
    batch = 8
    while True:
        inputs = make_batch(name, batch, torch.float32)
        peak = koila.analyze(Step(model), *inputs, mode="train", threads=1).peak
        if peak >= 10 * largest or 2 * peak > most:
            return batch, peak / largest
        batch *= 2


def run_one(name, most):
    torch.set_num_threads(1)
    counter = Counter(ROOT / "build/lib/libkoila-counter.so")
    batch, times = choose_batch(name, most)
    exact = {}
    rows = []
    for dtype in (torch.float64, torch.float32):
        inputs = make_batch(name, batch, dtype)
        plain = prepare(name, dtype)
        start = copy.deepcopy(plain)
        run(plain, inputs, counter)
        wanted = leave(plain)
        exact.setdefault("gradients", wanted[0])
        exact.setdefault("statistics", wanted[1])
        report = koila.analyze(Step(start), *inputs, mode="train", threads=1)
        floor = report.data["floor_bytes"]
        budgets = {"half": report.peak // 2}
        if floor is not None:
            budgets["floor"] = floor + floor // 4
        untiled = run(plain, inputs, counter)[1]
        for which, budget in budgets.items():
            model = copy.deepcopy(start)
            for weight in model.parameters():
                weight.grad = torch.zeros_like(weight)
            row = {
                "dtype": str(dtype).removeprefix("torch."),
                "which": which,
                "budget": budget,
                "untiled": report.peak,
            }
            rows.append(row)
            try:
                peak, seconds, compiled, step = run_compiled(model, inputs, budget, counter)
            except koila.KoilaError as error:
                row["refused"] = str(error).splitlines()[0]
                continue
            gradients, statistics, counters = leave(model)
            row.update(
                {
                    "tiles": batch // step.tile if step.tile else 1,
                    "predicted": step.report.peak if step.report.exact else None,
                    "error": distance(gradients, exact["gradients"]),
                    "plain": distance(wanted[0], exact["gradients"]),
                    "statistics": distance(statistics, exact["statistics"]),
                    "plain statistics": distance(wanted[1], exact["statistics"]),
                    "counters": counters == wanted[2],
                    "peak": peak,
                    "time": seconds / untiled,
                    "compiled": compiled,
                }
            )
    return {"batch": batch, "times": times, "rows": rows}


def judge(name, found):
    wrong = []
    for row in found["rows"]:
        where = f"{name}, {row['dtype']}, {row['which']}"
        if "refused" in row:
            wrong.append(f"{where}: {row['refused']}")
            continue
        if row["dtype"] == "float64" and not row["error"] <= ALLOWED:
            wrong.append(f"{where}: gradients {row['error']:.1e} off")
        if row["dtype"] == "float32" and not row["error"] <= 3 * row["plain"]:
            wrong.append(f"{where}: gradients {row['error']:.1e} off, plain {row['plain']:.1e}")
        eps = torch.finfo(getattr(torch, row["dtype"])).eps
        if not row["statistics"] <= 2 * row["plain statistics"] + eps:
            wrong.append(
                f"{where}: statistics {row['statistics']:.1e} off, "
                f"plain {row['plain statistics']:.1e}"
            )
        if not row["counters"]:
            wrong.append(f"{where}: counters differ")
        if row["peak"] > row["budget"]:
            wrong.append(f"{where}: {row['peak']:,} bytes, the budget is {row['budget']:,}")
        if row["predicted"] not in (None, row["peak"]):
            wrong.append(f"{where}: {row['peak']:,} bytes, predicted {row['predicted']:,}")
    return wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--most-mib", type=int, default=2048)
    parser.add_argument("--one", help="this model alone, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, options.most_mib * MIB)))
        return 0
    models, wrong = 0, []
    for name in options.models:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, "--most-mib", str(options.most_mib)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            wrong.append(f"{name}: failed")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        models += 1
        problems = judge(name, found)
        wrong += problems
        for row in found["rows"]:
            if "refused" in row:
                continue
            exact = "exact" if row["predicted"] else "bound"
            print(
                f"{name} {row['dtype']} {row['which']} batch {found['batch']}: {row['tiles']} "
                f"tiles, {row['peak'] / row['untiled']:.1%} of the untiled peak ({exact}), "
                f"{row['error']:.1e} off, {row['time']:.2f} of the time, compiled in "
                f"{row['compiled']:.0f} s",
                flush=True,
            )
        for line in problems:
            print("wrong:", line, flush=True)
    print(f"{models} models, {len(wrong)} problems")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
