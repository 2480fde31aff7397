"""What optimizers hold, by koila and by PyTorch.

Usage: optimizer_memory.py --counter LIBRARY --koila-opt PATH --folder FOLDER

Two small networks are trained by each optimizer; the weights of the second have
one dim, two, three and four, as Adafactor tells them apart. The whole step,
forward, backward and step(), runs under a counter of the allocator: the first
one, where gradients and state are made, and later ones, with gradients that
stay. koila-opt predicts the same from the file. Exits with 1 where a byte
differs.
"""

import argparse
import functools
import itertools
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))

import torch

from counter import Counter

OPTIMIZERS: dict[str, tuple[type, dict]] = {
    "sgd(lr=0.1)": (torch.optim.SGD, dict(lr=0.1)),
    "sgd(lr=0.1,weight_decay=0.1)": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.1)),
    "sgd(lr=0.1,momentum=0.9)": (torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
    "sgd(lr=0.1,momentum=0.9,nesterov=true)": (
        torch.optim.SGD,
        dict(lr=0.1, momentum=0.9, nesterov=True),
    ),
    "sgd(lr=0.1,momentum=0.9,foreach=true)": (
        torch.optim.SGD,
        dict(lr=0.1, momentum=0.9, foreach=True),
    ),
    "sgd(weight_decay=0.1,foreach=true)": (torch.optim.SGD, dict(weight_decay=0.1, foreach=True)),
    "sgd(momentum=0.9,nesterov=true,foreach=true)": (
        torch.optim.SGD,
        dict(momentum=0.9, nesterov=True, foreach=True),
    ),
    "sgd(momentum=0.9,weight_decay=0.1,foreach=true)": (
        torch.optim.SGD,
        dict(momentum=0.9, weight_decay=0.1, foreach=True),
    ),
    "adam": (torch.optim.Adam, {}),
    "adam(betas=(0.9,0.99),foreach=true)": (
        torch.optim.Adam,
        dict(betas=(0.9, 0.99), foreach=True),
    ),
    "adamw(lr=1e-3)": (torch.optim.AdamW, dict(lr=1e-3)),
    "adamw(foreach=true)": (torch.optim.AdamW, dict(foreach=True)),
    "rmsprop": (torch.optim.RMSprop, {}),
    "rmsprop(foreach=true)": (torch.optim.RMSprop, dict(foreach=True)),
    "sgd(momentum=0.9,weight_decay=0.1)": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.1)),
    "sgd(momentum=0.9,nesterov=true,weight_decay=0.1)": (
        torch.optim.SGD,
        dict(momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "sgd(momentum=0.9,nesterov=true,weight_decay=0.1,foreach=true)": (
        torch.optim.SGD,
        dict(momentum=0.9, nesterov=True, weight_decay=0.1, foreach=True),
    ),
    "adam(weight_decay=0.1)": (torch.optim.Adam, dict(weight_decay=0.1)),
    "adam(weight_decay=0.1,foreach=true)": (torch.optim.Adam, dict(weight_decay=0.1, foreach=True)),
    "adamw(weight_decay=0)": (torch.optim.AdamW, dict(weight_decay=0)),
    "rmsprop(weight_decay=0.1)": (torch.optim.RMSprop, dict(weight_decay=0.1)),
    "rmsprop(weight_decay=0.1,foreach=true)": (
        torch.optim.RMSprop,
        dict(weight_decay=0.1, foreach=True),
    ),
    "adagrad(weight_decay=0.1)": (torch.optim.Adagrad, dict(weight_decay=0.1)),
    "adagrad(weight_decay=0.1,foreach=true)": (
        torch.optim.Adagrad,
        dict(weight_decay=0.1, foreach=True),
    ),
    "adagrad": (torch.optim.Adagrad, {}),
    "adagrad(foreach=true)": (torch.optim.Adagrad, dict(foreach=True)),
    "adafactor": (torch.optim.Adafactor, {}),
    "adafactor(weight_decay=0.01)": (torch.optim.Adafactor, dict(weight_decay=0.01)),
    "adafactor(lr=0.1,beta2_decay=-0.5,d=2,eps=(None,1e-2))": (
        torch.optim.Adafactor,
        dict(lr=0.1, beta2_decay=-0.5, d=2, eps=(None, 1e-2)),
    ),
    "adafactor(foreach=true)": (torch.optim.Adafactor, dict(foreach=True)),
    "adafactor(eps=(1e-30,1e-3),weight_decay=0.01,foreach=true)": (
        torch.optim.Adafactor,
        dict(eps=(1e-30, 1e-3), weight_decay=0.01, foreach=True),
    ),
}
# Few samples, so that the optimizer holds the peak, and many, so that it does
# not.
BATCHES = {"network": [2, 200], "convolutions": [2]}


def make_programs():
    """The first has a matrix in front, the second a vector."""
    from torch import nn

    return {
        "network": nn.Sequential(
            nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 30), nn.Tanh(), nn.Linear(30, 5)
        ),
        "convolutions": nn.Sequential(
            nn.LayerNorm(20),
            nn.Unflatten(1, (1, 4, 5)),
            nn.Conv2d(1, 16, (3, 2)),
            nn.ReLU(),
            nn.Flatten(2),
            nn.Conv1d(16, 12, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(72, 5),
        ),
    }


def measure(file, batch, make, counter):
    """Of the first step and of a later one the peak, and what step() alone
    holds; and the bytes of the state."""
    x, target = torch.randn(batch, 20), torch.randint(5, (batch,))

    def prepare():
        program = torch.jit.load(file)
        return program, make(program.parameters())

    def backward(program):
        torch.nn.functional.cross_entropy(program(x), target).backward()

    def step():
        loss = torch.nn.functional.cross_entropy(program(x), target)
        loss.backward()
        optimizer.step()
        return loss

    program, optimizer = prepare()
    first = counter.measure(step)[0]
    counter.measure(step)
    later = counter.measure(step)[0]
    state = sum(
        value.nbytes
        for entry in optimizer.state.values()
        for value in entry.values()
        if torch.is_tensor(value)
    )
    program, optimizer = prepare()
    backward(program)
    first_held = counter.measure(optimizer.step)[0]
    backward(program)
    later_held = counter.measure(optimizer.step)[0]
    return {"absent": (first, first_held), "present": (later, later_held)}, state


def predict(options, file, batch):
    """The reports by optimizer and gradients, all of one run."""
    kinds = list(itertools.product(OPTIMIZERS, ("absent", "present")))
    paths = [options.folder / f"report{place}.json" for place in range(len(kinds))]
    done = subprocess.run(
        [
            options.koila_opt,
            file,
            "--input=float32[B,20]",
            "--input=int64[B]{0:5}",
            "--batch",
            f"B={batch}",
            "--koila-infer-shapes",
            *(
                "--koila-peak-memory=mode=train loss=cross_entropy threads=1 "
                f"optimizer={optimizer} grads={grads} format=json output={path}"
                for (optimizer, grads), path in zip(kinds, paths, strict=True)
            ),
            "-o",
            "/dev/null",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return {kind: json.loads(path.read_text()) for kind, path in zip(kinds, paths, strict=True)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch._C._jit_set_profiling_mode(False)
    counter = Counter(options.counter)
    options.folder.mkdir(parents=True, exist_ok=True)
    wrong, peaks = 0, 0
    torch.manual_seed(0)
    for name, program in make_programs().items():
        file = str(options.folder / f"{name}.pt")
        torch.jit.trace(program, torch.randn(2, 20)).save(file)
        reports = {batch: predict(options, file, batch) for batch in BATCHES[name]}
        for optimizer, batch in itertools.product(OPTIMIZERS, BATCHES[name]):
            kind, arguments = OPTIMIZERS[optimizer]
            measured, state = measure(file, batch, functools.partial(kind, **arguments), counter)
            for grads, (peak, held) in measured.items():
                report = reports[batch][optimizer, grads]
                last = report["timeline"][-1]
                found = (report["peak_bytes"], last["transient_bytes"], report["optimizer_bytes"])
                peaks += report["peak_bytes"] == (last["live_bytes"] + last["transient_bytes"])
                if not report["exact"] or found != (peak, held, state):
                    wrong += 1
                    print(
                        f"{name}, {optimizer}, batch {batch}, "
                        f"grads={grads}: predicted {found}, measured "
                        f"{(peak, held, state)}, {report['inexact'][:1]}"
                    )
    print(f"{len(OPTIMIZERS)} optimizers, {peaks} peaks in step(), {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
