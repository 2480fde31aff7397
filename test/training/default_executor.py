"""Steps in a fresh process as PyTorch starts it, with its profiling executor.

    default_executor.py make MODEL.pt
    default_executor.py measure ORIGINAL.pt STEP.pt COUNTER.so

Three calls of `train_step`, and of `grads`, need the same bytes, which for
`train_step` are those of the report in the file. The control is the original
in a step that TorchScript compiles: from its second call on it needs others.
"""

import json
import pathlib
import sys
import zipfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oracle"))
from counter import Counter

BATCH, FEATURES, CALLS = 16, 32, 3


class Model(torch.nn.Module):
    """Gates and norms, which the executor has derivatives of its own for."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(FEATURES, FEATURES) for _ in range(4))
        self.norm = torch.nn.LayerNorm(FEATURES)

    def forward(self, x):
        for layer in self.layers:
            y = self.norm(layer(x))
            x = y * torch.sigmoid(y) + torch.tanh(x) * x.softmax(-1)
        return x


def make(path):
    torch.manual_seed(0)
    torch.jit.trace(Model(), torch.randn(2, FEATURES)).save(path)


class Step(torch.nn.Module):
    """What train_step does, as anybody would write it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, target):
        loss = torch.nn.functional.cross_entropy(self.model(x), target)
        loss.backward()
        return loss.detach()


def measure(original, path, library):
    counter = Counter(library)
    values = (torch.randn(BATCH, FEATURES), torch.randint(FEATURES, (BATCH,)))

    def peaks(module, function, arguments):
        for weight in module.parameters():
            weight.grad = torch.zeros_like(weight)
        return [counter.measure(function, arguments)[0] for _ in range(CALLS)]

    module = torch.jit.load(path)
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("koila/report.json"))
        report = json.loads(archive.read(name))
    step = peaks(module, module.train_step, values)
    assert set(step) == {report["peak_bytes"]}, (step, report["peak_bytes"])
    assert len(set(peaks(module, module.grads, values))) == 1
    plain = Step(torch.jit.load(original))
    control = peaks(plain, torch.jit.script(plain), values)
    assert len(set(control)) > 1, control
    print(f"{CALLS} steps of {step[0]} bytes, executor {report['executor']}")


if __name__ == "__main__":
    commands: dict = {"make": make, "measure": measure}
    commands[sys.argv[1]](*sys.argv[2:])
