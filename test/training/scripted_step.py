"""A scripted network, whose class declares the bias of a convolution as optional:
its step and its forward in tiles.

    scripted_step.py KOILA-OPT FOLDER
"""

import pathlib
import subprocess
import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 4, 3, bias=False)
        self.last = nn.Linear(4, 5)

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.last(x.mean((2, 3)))


def run(tool, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Model().double()
    torch.jit.script(model).save(folder / "model.pt")

    def compile_model(name, *arguments):
        subprocess.run(
            [
                tool,
                folder / "model.pt",
                "--input=float64[B,3,8,8]",
                *arguments,
                "-o",
                folder / name,
            ],
            check=True,
        )
        return torch.jit.load(folder / name)

    x, target = torch.randn(9, 3, 8, 8).double(), torch.randint(5, (9,))
    tiled = compile_model("tiled.pt", "--koila-compile=tile=4")
    with torch.no_grad():
        torch.testing.assert_close(tiled(x), model(x))
    print("forward: equal")
    step = compile_model(
        "step.pt", "--input=int64[B]{0:5}", "--koila-compile=mode=train loss=cross_entropy tile=4"
    )
    loss = nn.functional.cross_entropy(model(x), target)
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(step.train_step(x, target), loss.detach())
    found = [weight.grad for weight in step.parameters()]
    torch.testing.assert_close(found, list(wanted))
    torch.testing.assert_close(step.grads(x, target)[1], list(wanted))
    print("step: equal")


if __name__ == "__main__":
    run(*sys.argv[1:])
