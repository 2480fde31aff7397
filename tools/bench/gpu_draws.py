"""Random numbers of emitted files on a GPU: those of the untiled program.

Usage: gpu_draws.py prepare FOLDER [--build FOLDER] [--device CARD]
       gpu_draws.py run FOLDER --json FILE

*prepare* runs where koila is built, and needs no GPU: programs that draw, in training
mode, are traced and compiled for CARD with ``random=full-batch-masks``, in tiles of 64.
*run* needs PyTorch and a GPU, and nothing of koila. It calls the whole batch and the
tiles with the same seed, and notes for each file

    equal     values: whether all results have the same bits; a step: whether all gradients
              together are within 1e-5 of those of the whole batch (relative L2 distance)
    state     whether both leave the generator of the GPU in the same state

It fails where one of them is not so, and where a file whose tiles draw themselves
(``random=per-tile``) gives equal results: then nothing would have been seen. Without a GPU
nothing is measured.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATES = (0.1, 0.5)
# More elements than the threads of a large GPU draw for in one round.
BATCH, WIDTH = 1000, 3000
LIMIT = 1e-5


class Values(nn.Module):
    """Exact operations: equal draws give equal bits. Rows of four and of three dims, other
    orders of memory, other types, and an odd number of elements a row."""

    def __init__(self, rate):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))
        self.rate = rate

    def forward(self, x):
        h = F.dropout(x, self.rate, training=True)
        h = F.dropout((h * self.weight).relu(), self.rate, training=True)
        images = (h * 2).view(-1, 3, 10, 100)
        flat = F.dropout(images.permute(0, 2, 3, 1), self.rate, training=True)
        channels = F.dropout2d(images * 2, self.rate, training=True)
        odd = F.dropout(h[:, :2999] * 2, self.rate, training=True)
        half = F.dropout(h.half() * 2, self.rate, training=True)
        noise = torch.rand_like(odd) + torch.randn_like(odd)
        alpha = F.alpha_dropout(half.double(), self.rate, training=True)
        return flat, channels, odd + noise, half, alpha


class Step(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 2048), nn.ReLU(), nn.Dropout(rate),
            nn.Linear(2048, 2048), nn.GELU(), nn.Dropout(rate), nn.Linear(2048, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


def list_files():
    """Name, class, rate and how tiles draw."""
    for rate in RATES:
        for made in (Values, Step):
            yield f"{made.__name__.lower()}-{rate}", made, rate, "full-batch-masks"
    # The control.
    yield f"values-{RATES[0]}-per-tile", Values, RATES[0], "per-tile"


def prepare(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, made, rate, random in list_files():
        torch.manual_seed(0)
        source = options.folder / "source.pt"
        example = torch.randn(2, WIDTH)
        torch.jit.trace(made(rate), example, check_trace=False).save(str(source))
        mode = "mode=train loss=cross_entropy " if made is Step else ""
        labels = ["--input=int64[B]{0:10}"] if made is Step else []
        command = [
            str(options.build / "bin" / "koila-opt"), str(source),
            f"--input=float32[B,{WIDTH}]", *labels, "--batch", f"B={BATCH}",
            f"--koila-compile={mode}tile=64 random={random} device={options.device}",
            "-o", str(options.folder / f"draws-{name}.pt"),
        ]  # fmt: skip
        subprocess.run(command, check=True)
        source.unlink()


def call_twice(folder, name, is_step):
    """What the whole batch and the tiles give, each with the state of the generator."""
    module = torch.jit.load(str(folder / f"draws-{name}.pt"), map_location="cuda")
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).cuda()
    labels = torch.arange(BATCH, device="cuda") % 10

    def step(call):
        module.zero_grad(set_to_none=True)
        call()
        return [weight.grad.clone() for weight in module.parameters()]

    def infer(method):
        with torch.no_grad():
            return list(method(x))

    whole, tiles = (
        (
            lambda: step(lambda: F.cross_entropy(module(x), labels).backward()),
            lambda: step(lambda: module.train_step(x, labels)),
        )
        if is_step
        else (lambda: infer(module.forward_untiled), lambda: infer(module.forward))
    )
    pairs = []
    for call in (whole, tiles):
        torch.cuda.manual_seed(2)
        with warnings.catch_warnings():
            # The guard says so where it runs the untiled program.
            warnings.simplefilter("error")
            found = call()
        pairs.append((found, torch.cuda.get_rng_state()))
    return pairs


def check_file(folder, name, is_step):
    (wanted, before), (found, after) = call_twice(folder, name, is_step)
    if is_step:
        norm = sum(part.double().square().sum() for part in wanted).sqrt()
        off = sum((a - b).double().square().sum() for a, b in zip(wanted, found, strict=True))
        is_equal = bool(off.sqrt() <= LIMIT * norm)
    else:
        is_equal = all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    return {"name": name, "equal": is_equal, "state": torch.equal(before, after)}


def run(options):
    # It would make one operation of a product and a sum, in the tiles or in the whole batch.
    torch._C._jit_set_texpr_fuser_enabled(False)
    rows = []
    for name, made, _, random in list_files():
        row = check_file(options.folder, name, made is Step)
        row["expected"] = random == "full-batch-masks"
        rows.append(row)
        print(name, "equal" if row["equal"] else "other numbers", file=sys.stderr)
    options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    wrong = [
        row["name"]
        for row in rows
        if row["equal"] != row["expected"] or (row["expected"] and not row["state"])
    ]
    if wrong:
        sys.exit(f"draws on the GPU are not as expected: {', '.join(wrong)}")


def describe(file):
    """Lines of the page of gpu_checks.py."""
    rows = json.loads(file.read_text())["rows"]
    lines = [
        "",
        "## Random numbers",
        "",
        "| file | equal | the generator's state |",
        "|---|---|---|",
    ]
    for row in rows:
        state = "equal" if row["state"] else "another"
        lines.append(f"| `{row['name']}` | {'yes' if row['equal'] else 'no'} | {state} |")
    return [*lines, "", "Draws of `per-tile` are the control, and expected to differ."]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("prepare")
    part.add_argument("folder", type=pathlib.Path)
    part.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    part.add_argument("--device", default="h200", metavar="CARD")
    part.set_defaults(call=prepare)
    part = parts.add_parser("run")
    part.add_argument("folder", type=pathlib.Path)
    part.add_argument("--json", type=pathlib.Path, required=True)
    part.set_defaults(call=run)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
