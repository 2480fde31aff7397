"""Trains ResNet-18 in an ordinary optimizer loop, with `train_step` and without.

    optimizer_loop.py make MODEL.pt
    optimizer_loop.py compare MODEL.pt TILED.pt COUNTER.so

BatchNorm is in eval mode, with statistics of data. Both train on the same
batches in float64; losses and weights have to agree. Then one step of a large
batch, and the bytes at its peak.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oracle"))
from counter import Counter
from make_models import torchvision_model

SIZE, CLASSES = 32, 10


def make(path):
    model = torchvision_model("resnet18")
    model.fc = torch.nn.Linear(model.fc.in_features, CLASSES)
    with torch.no_grad():
        # Otherwise the outputs are next to nothing.
        model.train()(torch.randn(16, 3, SIZE, SIZE))
    model = model.eval().double()
    torch.jit.trace(model, torch.randn(2, 3, SIZE, SIZE).double()).save(path)


def make_batch(step, samples):
    torch.manual_seed(step)
    return (torch.randn(samples, 3, SIZE, SIZE).double(), torch.randint(CLASSES, (samples,)))


def train(module, compute, steps=3):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, target = make_batch(step, samples=7)
        optimizer.zero_grad()
        losses.append(compute(module, x, target).item())
        optimizer.step()
    return losses


def step_plainly(module, x, target):
    loss = torch.nn.functional.cross_entropy(module(x), target)
    loss.backward()
    return loss.detach()


def step_tiled(module, x, target):
    return module.train_step(x, target)


def compare(path, tiled_path, counter_path):
    plain, tiled = torch.jit.load(path), torch.jit.load(tiled_path)
    losses = train(plain, step_plainly), train(tiled, step_tiled)
    torch.testing.assert_close(*map(torch.tensor, losses))
    assert len(set(losses[0])) == len(losses[0]), "no step changed the loss"
    weights = plain.state_dict(), tiled.state_dict()
    assert list(weights[0]) == list(weights[1])
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value)
    print("losses", *(f"{loss:.6f}" for loss in losses[1]))
    counter = Counter(counter_path)
    peaks = []
    for module, compute in (plain, step_plainly), (tiled, step_tiled):
        batch = make_batch(9, samples=32)
        compute(module, *batch)
        peaks.append(counter.measure(compute, (module, *batch))[0])
    assert peaks[1] < 0.6 * peaks[0], peaks
    print(f"peak {peaks[0]} -> {peaks[1]} bytes")


if __name__ == "__main__":
    commands: dict = {"make": make, "compare": compare}
    commands[sys.argv[1]](*sys.argv[2:])
