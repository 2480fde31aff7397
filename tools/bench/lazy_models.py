#!/usr/bin/env python3
"""The classification models of torchvision, trained through koila.lazy.

Usage: lazy_models.py [--models NAME...] [--batch 8] [--write FILE] [--one NAME]

Each model runs one training step plainly and one through `koila.lazy` with one
byte less than the whole batch needs, in float32 and float64: in training mode,
and with batch normalisation, dropout and stochastic depth in eval mode. Equal is
what docs/user/Reports.md says of koila-run: float64 decides, and float32 is no further
from it than twice the plain step. Where statistics of the batch are taken float64 alone
decides: one ReLU that turns at another sign moves all gradients, and train_models.py
compares float32 over several batches. Random layers draw from the same seed.

Exits with 1 if gradients differ, or if a model was not split.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "models")]

import torch
from torch import nn
from torch.nn import functional as F

import koila
from make_models import torchvision_model

# Those of which koila 0.1.1 trained none.
MODELS = {
    "alexnet": 64,
    "vgg11": 64,
    "vgg11_bn": 64,
    "resnet18": 64,
    "resnet50": 64,
    "resnext50_32x4d": 64,
    "densenet121": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "squeezenet1_0": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_large": 64,
    "shufflenet_v2_x1_0": 64,
    "mnasnet1_0": 64,
    "regnet_y_400mf": 64,
    "efficientnet_b0": 64,
    "convnext_tiny": 64,
    "vit_b_16": 64,
    "swin_t": 64,
}
OPTIONS: dict[str, dict] = {
    "vit_b_16": {"image_size": 64},
    # Their heads for images of other sizes have no place in small ones.
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
}
CLASSES = 10
WHOLE = "1TiB"
TIMEOUT = 1500


def make_model(name, dtype):
    torchvision_model("alexnet")  # imports torchvision
    import torchvision

    torch.manual_seed(0)
    options = {"num_classes": CLASSES, **OPTIONS.get(name, {})}
    return getattr(torchvision.models, name)(weights=None, **options).to(dtype)


def freeze(model):
    """Puts what mixes samples or draws into eval mode, with the statistics of
    one pass: with those of a new model outputs are almost nothing."""
    from torchvision.ops import StochasticDepth

    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, StochasticDepth)
    for module in model.modules():
        if isinstance(module, kinds):
            module.eval()
            if hasattr(module, "p"):
                module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0


def set_statistics(model, images):
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
    with torch.no_grad():
        model.train()(images)
    for norm in norms:
        norm.momentum = 0.1


def step(model, images, labels):
    """The loss and the gradients of one step."""
    model.zero_grad(set_to_none=False)
    torch.manual_seed(1)
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return {"loss": torch.as_tensor(loss.item(), dtype=torch.float64), **gradients}


def lazy_step(model, images, labels, budget):
    """The same, and how it ran."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", koila.KoilaWarning)
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("always", koila.KoilaWarning)
        found = step(model, *koila.lazy(images, labels, batch=0, budget=budget))
    said = [entry for entry in caught if issubclass(entry.category, koila.KoilaWarning)]
    return found, koila.last(), said


def is_equal(found, wanted, exact):
    """By the definition of koila-run, for float32 results."""
    eps = torch.finfo(torch.float32).eps
    for name, value in exact.items():
        size = value.norm()
        ours, theirs = ((part[name].double() - value).norm() for part in (found, wanted))
        if not ours <= 2 * theirs + 8 * eps * size:
            return False
    return True


def has_norms(name):
    model = make_model(name, torch.float32)
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())


def run_mode(name, mode, batch):
    size = MODELS[name]
    torch.manual_seed(2)
    images = torch.randn(batch, 3, size, size, dtype=torch.float64)
    # Samples that differ in more than noise.
    images = images * torch.linspace(0.5, 2, batch, dtype=torch.float64).view(-1, 1, 1, 1)
    labels = torch.randint(CLASSES, (batch,))
    result = {}
    for dtype in (torch.float64, torch.float32):
        model = make_model(name, dtype)
        set_statistics(model, images.to(dtype))
        model.train()
        if mode == "eval":
            freeze(model)
        # Steps move the statistics of batch normalisation; gradients do not
        # depend on them.
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        wanted = step(model, images.to(dtype), labels)
        whole, how, said = lazy_step(model, images.to(dtype), labels, WHOLE)
        assert how.tile is None, how
        budget = 1 << 20 if how.peak_bytes is None else how.peak_bytes - 1
        found, how, said = lazy_step(model, images.to(dtype), labels, budget)
        result[dtype] = wanted, found, how, said, whole
    wide, narrow = result[torch.float64], result[torch.float32]
    vacuous = not any(value.norm() > 1e-6 for value in wide[0].values())
    close = all(
        torch.allclose(wide[1][key], value, rtol=1e-7, atol=1e-7)
        and torch.allclose(wide[4][key], value, rtol=1e-7, atol=1e-7)
        for key, value in wide[0].items()
    )
    takes_statistics = mode == "train" and has_norms(name)
    is_alike = takes_statistics or is_equal(narrow[1], narrow[0], wide[0])
    equal = close and not vacuous and is_alike
    # Biases before a norm have no gradient but rounding.
    largest = max(value.norm() for value in wide[0].values())
    error, plain = (
        max(
            ((found[key].double() - value).norm() / value.norm()).item()
            for key, value in wide[0].items()
            if value.norm() > 1e-6 * largest
        )
        for found in (narrow[1], narrow[0])
    )
    how = narrow[2]
    said = [
        f"{pathlib.Path(entry.filename).name}:{entry.lineno}: {entry.message}"
        for entry in narrow[3]
    ]
    return {
        "tiles": batch // how.tile if how.tile else 1,
        "equal": equal,
        "error": error,
        "plain": plain,
        "said": said,
        "peak": how.peak_bytes,
        "budget": how.budget_bytes,
    }


def run_one(name, batch):
    torch.set_num_threads(1)
    return {mode: run_mode(name, mode, batch) for mode in ("train", "eval")}


def shorten(said):
    """The reason and the line, without folders."""
    if not said:
        return ""
    text = said[0].split("runs whole: ")[-1].split("protects it: ")[-1]
    return re.sub(r"/[^\s(]*/site-packages/", "", " ".join(text.split())).replace("|", "\\|")


def table(rows, mode):
    yield "| model | tiles | gradients | error | plain | announced |"
    yield "|---|---:|---|---:|---:|---|"
    for name, row in rows.items():
        part = row[mode]
        equal = "equal" if part["equal"] else "**differ**"
        yield (
            f"| {name} | {part['tiles']} | {equal} | {part['error']:.1e} | "
            f"{part['plain']:.1e} | {shorten(part['said'])} |"
        )


def page(rows, batch):
    lines = [
        "# torchvision's classification models through `koila.lazy`",
        "",
        "<!-- Written by tools/dev/write_results.py lazy-models; do not edit. -->",
        "",
        f"One training step of {batch} images of 64 × 64 (inception_v3: 96 × 96; vit_b_16 built "
        f"for 64 × 64; {CLASSES} classes) with one byte less than the whole batch needs. *Error* "
        "is the largest relative difference of the gradient of a weight, in float32, from that of "
        "plain "
        "PyTorch in float64, and *plain* that of plain PyTorch in float32: deep networks with "
        "random weights have gradients that are mostly rounding. *Equal* is the definition of "
        "`koila-run`: in float64 both agree, and in float32 koila is no further off than twice "
        "plain PyTorch. Of batch normalisation in training mode float64 alone decides, since one "
        "ReLU that turns at another sign moves all gradients ([float32 over several "
        "batches](TrainModels.md)). "
        "koila 0.1.1 trained none of these models.",
        "",
        "With batch normalisation, dropout and stochastic depth in eval mode:",
        "",
        *table(rows, "eval"),
        "",
        "In training mode:",
        "",
        *table(rows, "train"),
    ]
    return "\n".join(lines) + "\n"


def judge(name, row):
    wrong = []
    for mode, part in row.items():
        if not part["equal"]:
            wrong.append(f"{name} ({mode}): gradients differ")
        if part["tiles"] < 2:
            wrong.append(f"{name} ({mode}): ran whole {part['said']}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, options.batch)))
        return 0
    rows, wrong = {}, []
    for name in options.models:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, "--batch", str(options.batch)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            wrong.append(f"{name}: failed")
            continue
        row = rows[name] = json.loads(done.stdout.splitlines()[-1])
        wrong += judge(name, row)
        for mode, part in row.items():
            print(
                f"{name} {mode}: {part['tiles']} tiles, "
                f"{'equal' if part['equal'] else 'DIFFERENT'}, {part['error']:.1e} "
                f"{shorten(part['said'])}",
                flush=True,
            )
    for line in wrong:
        print("wrong:", line, file=sys.stderr)
    if options.write and not wrong:
        options.write.write_text(page(rows, options.batch))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
