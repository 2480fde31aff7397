#!/usr/bin/env python3
"""koila next to what else ends out of memory: toma, accelerate, Lightning.

Usage: batch_finders.py [--models NAME...] [--tools NAME...] [--rounds 3]
           [--threads N] [--percent 40] [--library FILE] [--json FILE]
       batch_finders.py --write FILE JSON...

Wants `pip install toma accelerate lightning`. Each tool trains the same model on
the same samples for two epochs, in batches whose step does not fit: PyTorch's
allocator hands out what weights, gradients and the optimizer's state take, and
--percent of what a step takes beyond them. In one process, the tools in turn,
each time from a new copy of the model. What they are given is what their
documentation shows; where they find a smaller batch, the loop accumulates
gradients over the batch that was asked for, and takes the mean. Gradients are
those of the first step, next to plain PyTorch's without the limit. A failed
trial is an allocation that was refused.

--json keeps a run, and --write makes docs/results/BatchFinders.md of several. Exits with
1 if koila had a failed trial or wrong gradients, or if plain PyTorch fits.
"""

import argparse
import contextlib
import copy
import ctypes
import gc
import json
import logging
import math
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / part) for part in ("corpus", "models")]

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

EPOCHS = 2
BATCH = 64
SAMPLES = 256
# Of float32 gradients that were added up in another order.
TOLERANCE = 1e-3


# ---------------------------------------------------------------------------
# Memory that ends


class Memory:
    """libkoila-capped-allocator.so (CappedAllocator.cpp)."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.koilaCapInstall()
        self.cap = None

    def set_cap(self, extra=None):
        """At most `extra` bytes more than now."""
        gc.collect()
        self.start = self.read()[0]
        self.cap = None if extra is None else self.start + extra
        most = (1 << 62) if self.cap is None else self.cap
        self.library.koilaCapSet(ctypes.c_int64(most))

    def read(self):
        values = [ctypes.c_int64() for _ in range(3)]
        self.library.koilaCapRead(*map(ctypes.byref, values))
        return [value.value for value in values]

    def free(self):
        return self.cap - self.read()[0]

    def peak(self):
        return self.read()[1] - self.start

    def failures(self):
        return self.read()[2]


# ---------------------------------------------------------------------------
# Models: the module, its samples, and the loss, also by koila's name


class LanguageModel(nn.Module):
    """A causal transformer; what it returns is [batch, words, tokens]."""

    def __init__(self, words=1000, tokens=64, width=128):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(tokens))

    def forward(self, text):
        x = self.word(text) + self.place
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(x).transpose(1, 2)


def make_resnet():
    import torchvision

    model = torchvision.models.resnet18(weights=None, num_classes=10)
    images = torch.randn(SAMPLES, 3, 64, 64)
    with torch.no_grad():
        model.train()(images[:BATCH])
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return model, images, torch.randint(10, (SAMPLES,)), "cross_entropy"


def make_vit():
    import torchvision

    model = torchvision.models.VisionTransformer(
        image_size=64,
        patch_size=8,
        num_layers=4,
        num_heads=4,
        hidden_dim=192,
        mlp_dim=768,
        num_classes=10,
    )
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return model, torch.randn(SAMPLES, 3, 64, 64), torch.randint(10, (SAMPLES,)), "cross_entropy"


def make_language_model():
    text = torch.randint(1, 1000, (SAMPLES, 65))
    targets = text[:, 1:].clone()
    # Texts of other lengths, longer ones first: the means of parts of a batch
    # are of other numbers of tokens.
    for index, length in enumerate(torch.linspace(64, 4, BATCH).long().repeat(SAMPLES // BATCH)):
        targets[index, length:] = -100
    return LanguageModel(), text[:, :-1].contiguous(), targets, "cross_entropy(ignore_index=-100)"


MODELS = {
    "ResNet-18, frozen BatchNorm": make_resnet,
    "ViT, 4 layers": make_vit,
    "language model, padded": make_language_model,
}


class Task:
    """What every tool is given."""

    def __init__(self, name, memory):
        torch.manual_seed(0)
        self.model, self.inputs, self.targets, self.loss = MODELS[name]()
        self.memory = memory
        self.limit = None

    def begin(self):
        """A new model and its optimizer, and the gradients of its first step."""
        # That of the last trial goes before.
        self.trained = self.optimizer = self.first = None
        self.trained = copy.deepcopy(self.model)
        self.optimizer = torch.optim.SGD(self.trained.parameters(), lr=1e-3, momentum=0.9)
        # Before a step there may be none: Lightning gives step() a closure.
        self.optimizer.register_step_post_hook(self.note)
        return self.trained, self.optimizer

    def note(self, *_):
        if self.first is None:
            # In memory of numpy, which does not count.
            self.first = [p.grad.numpy().astype("float64") for p in self.trained.parameters()]

    def criterion(self, output, target):
        return F.cross_entropy(output, target)

    def batches(self, size):
        return DataLoader(TensorDataset(self.inputs, self.targets), batch_size=size)


# ---------------------------------------------------------------------------
# Tools: each yields at the end of every epoch


def train_plain(task):
    model, optimizer = task.begin()
    for _ in range(EPOCHS):
        for x, y in task.batches(BATCH):
            optimizer.zero_grad()
            task.criterion(model(x), y).backward()
            optimizer.step()
        yield


def train_lazy(task):
    model, optimizer = task.begin()
    for _ in range(EPOCHS):
        for x, y in task.batches(BATCH):
            (x, y) = koila.lazy(x, y, batch=0)
            optimizer.zero_grad()
            task.criterion(model(x), y).backward()
            optimizer.step()
        yield


def train_compiled(task):
    model, optimizer = task.begin()
    x, y = next(iter(task.batches(BATCH)))
    step = koila.compile(model, x, y, loss=task.loss, optimizer="sgd(lr=1e-3,momentum=0.9)")
    for _ in range(EPOCHS):
        for x, y in task.batches(BATCH):
            optimizer.zero_grad()
            step.train_step(x, y)
            optimizer.step()
        yield


def accumulate(task, model, optimizer, size):
    """An epoch in batches of `size`, and a step after as many as asked for."""
    parts = max(BATCH // size, 1)
    for index, (x, y) in enumerate(task.batches(size)):
        (task.criterion(model(x), y) / parts).backward()
        if (index + 1) % parts == 0:
            optimizer.step()
            optimizer.zero_grad()


def train_again(task, decorate):
    """As often as `decorate` calls what it decorates with another size."""
    ends = []

    @decorate
    def train(size):
        model, optimizer = task.begin()
        ends.clear()
        for _ in range(EPOCHS):
            accumulate(task, model, optimizer, size)
            ends.append(time.perf_counter())

    train()
    yield from ends


def train_toma_batch(task):
    """Starts again with half the batch."""
    from toma import toma

    yield from train_again(task, toma.batch(initial_batchsize=BATCH))


def train_toma_chunked(task):
    """Goes on with half the chunk where one did not fit."""
    from toma import toma

    model, optimizer = task.begin()
    for _ in range(EPOCHS):
        for x, y in task.batches(BATCH):
            optimizer.zero_grad()

            @toma.execute.chunked(x, BATCH)
            def compute(chunk, start, end, x=x, y=y):
                loss = task.criterion(model(chunk), y[start:end])
                (loss * ((end - start) / len(x))).backward()

            optimizer.step()
        yield


def train_accelerate(task):
    """Starts again with nine tenths of the batch."""
    from accelerate.utils import find_executable_batch_size

    yield from train_again(task, find_executable_batch_size(starting_batch_size=BATCH))


def train_lightning(task):
    """Doubles the batch until it does not fit; then trains."""
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner

    ends = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.optimizer = task.begin()
            self.batch_size = 2

        def training_step(self, batch, _):
            return task.criterion(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return self.optimizer

        def train_dataloader(self):
            return task.batches(self.batch_size)

        def on_train_epoch_end(self):
            ends.append(time.perf_counter())

    quiet = dict(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        module = Module()
        trainer = pl.Trainer(max_epochs=1, default_root_dir=folder, **quiet)
        Tuner(trainer).scale_batch_size(module, max_val=BATCH)
        size = module.batch_size
        # What was found is trained from the start, with nothing left behind.
        del trainer, module
        task.trained = task.optimizer = None
        gc.collect()
        module = Module()
        module.batch_size = size
        ends.clear()
        pl.Trainer(
            max_epochs=EPOCHS,
            default_root_dir=folder,
            accumulate_grad_batches=max(BATCH // size, 1),
            **quiet,
        ).fit(module)
    yield from ends


TOOLS = {
    "plain PyTorch": train_plain,
    "koila.lazy": train_lazy,
    "koila.compile": train_compiled,
    "toma.batch": train_toma_batch,
    "toma.chunked": train_toma_chunked,
    "accelerate": train_accelerate,
    "Lightning": train_lightning,
}
OURS = ("koila.lazy", "koila.compile")


# ---------------------------------------------------------------------------
# Runs


def run(task, train, limit):
    """One tool under a limit, None for no limit."""
    task.memory.set_cap(limit)
    start = time.perf_counter()
    ends, failed = [], None
    try:
        for end in train(task):
            ends.append((end or time.perf_counter()) - start)
    except RuntimeError as error:
        failed = str(error).splitlines()[0]
    found = {
        "ends": ends,
        "failed": failed,
        "trials": task.memory.failures(),
        "peak": task.memory.peak(),
        "first": task.first,
    }
    task.trained = task.optimizer = task.first = None
    task.memory.set_cap()
    return found


def difference(found, wanted):
    size = math.sqrt(sum((g**2).sum() for g in wanted))
    return math.sqrt(sum(((f - g) ** 2).sum() for f, g in zip(found, wanted, strict=False))) / size


def measure(name, memory, options):
    task = Task(name, memory)
    free = run(task, train_plain, None)
    rest = sum(p.numel() * p.element_size() for p in task.model.parameters()) * 3
    rest += sum(b.numel() * b.element_size() for b in task.model.buffers())
    limit = rest + (free["peak"] - rest) * options.percent // 100
    rows = {tool: [] for tool in options.tools}
    rows["plain PyTorch, no limit"] = []
    for index in range(options.rounds):
        order = options.tools
        order = order[index % len(order) :] + order[: index % len(order)]
        for tool in ["plain PyTorch, no limit", *order]:
            found = run(task, TOOLS.get(tool, train_plain), limit if tool in TOOLS else None)
            first = found.pop("first")
            found["difference"] = None if first is None else difference(first, free["first"])
            rows[tool].append(found)
            print(f"{name}, {tool}: {found}", flush=True)
    return {
        "model": name,
        "limit": limit,
        "rest": rest,
        "untiled": free["peak"],
        "threads": torch.get_num_threads(),
        "percent": options.percent,
        "rows": rows,
    }


def is_right(found):
    return found["difference"] is not None and found["difference"] < TOLERANCE


def judge(result):
    for tool in OURS:
        for found in result["rows"].get(tool, []):
            if found["trials"] or found["failed"] or not is_right(found):
                yield f"{result['model']}, {tool}: {found}"
    for found in result["rows"].get("plain PyTorch", []):
        if not found["failed"]:
            yield f"{result['model']}: the limit does not bind"


# ---------------------------------------------------------------------------
# The page


def page(results):
    lines = [
        "# koila next to tools that retry",
        "",
        "<!-- Written by tools/dev/write_results.py batch-finders; do not edit. -->",
        "",
        f"Each trains the same model on {SAMPLES} samples for {EPOCHS} epochs, SGD with momentum, "
        f"in batches of {BATCH} whose step does not fit: PyTorch's allocator refuses what goes "
        "over the limit. *First epoch* is the time from the start to the end of the first epoch "
        "that finished, with compiling, failed trials and searches; *next epoch* is the one "
        "after it. *Failed* counts allocations that were refused. *Gradients* are those of the "
        "first step, relative to plain PyTorch's without the limit. Where a tool finds a smaller "
        "batch, the loop takes the mean of the gradients of as many as go into "
        f"{BATCH}, as accelerate's documentation does. Medians. On a GPU, the checkpoint that "
        "Lightning's finder restores would not be in the memory that is short; "
        "`toma.chunked` repeats no sample, but what a chunk that failed has added to the "
        "gradients stays there.",
        "",
    ]
    for result in results:
        mib = 1 << 20
        lines += [
            f"## {result['model']}",
            "",
            f"Limit {result['limit'] / mib:,.1f} MiB, of which weights, gradients and the "
            f"optimizer's state take {result['rest'] / mib:,.1f}; a whole step takes "
            f"{result['untiled'] / mib:,.1f}. {result['threads']} threads, "
            f"{max(map(len, result['rows'].values()))} rounds.",
            "",
            "| | first epoch, s | next epoch, s | failed | peak, MiB | gradients |",
            "|---|---:|---:|---:|---:|---|",
        ]
        for tool, rows in sorted(result["rows"].items(), key=lambda row: "no limit" not in row[0]):
            peak = max(found["peak"] for found in rows) / mib
            trials = statistics.median(found["trials"] for found in rows)
            if any(found["failed"] for found in rows):
                lines.append(f"| {tool} | out of memory | | {trials:g} | {peak:,.1f} | |")
                continue
            first = statistics.median(found["ends"][0] for found in rows)
            later = statistics.median(found["ends"][1] - found["ends"][0] for found in rows)
            error = max(found["difference"] for found in rows)
            right = "right" if all(map(is_right, rows)) else "**wrong**"
            lines.append(
                f"| {tool} | {first:.2f} | {later:.2f} | {trials:g} | {peak:,.1f} "
                f"| {right}, {error:.1e} |"
            )
        lines.append("")
    return "\n".join(lines)


@contextlib.contextmanager
def silence():
    for name in (
        "lightning",
        "lightning.pytorch",
        "lightning.pytorch.utilities.rank_zero",
        "lightning.pytorch.accelerators.cuda",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What koila says stays to be seen.
        warnings.simplefilter("always", koila.KoilaWarning)
        yield


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--percent", type=int, default=40)
    parser.add_argument(
        "--library",
        type=pathlib.Path,
        default=ROOT / "build" / "lib" / "libkoila-capped-allocator.so",
    )
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    if options.write:
        options.write.write_text(
            page([result for path in options.results for result in json.loads(path.read_text())])
        )
        return 0
    import make_programs

    make_programs.prepare_libraries()
    torch.set_num_threads(options.threads)
    memory = Memory(options.library)
    # As it reads a GPU's: the cap is in PyTorch's allocator, not in Linux.
    koila.memory.free = lambda device="cpu": memory.free()
    with silence():
        results = [measure(name, memory, options) for name in options.models]
    if options.json:
        options.json.write_text(json.dumps(results))
    wrong = [line for result in results for line in judge(result)]
    for line in wrong:
        print("wrong:", line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
