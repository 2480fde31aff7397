"""What a tiled step does where it is not what it was tiled for: what the step of
the module itself does, after a warning that names the fact.

    step_guards.py make MODEL.pt
    step_guards.py clash MODEL.pt METHOD
    step_guards.py check TILED.pt [raise]
    step_guards.py spoil TILED.pt SPOILT.pt
"""

import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 5)
        self.second.bias.requires_grad_(False)

    def forward(self, x, t):
        return F.mse_loss(self.second(torch.tanh(self.first(x))), t)


def make(path):
    torch.manual_seed(1)
    torch.jit.trace(Model().double(), make_batch(3)).save(path)


def clash(path, name):
    """A module with a method of that name."""
    twice = {name: lambda self, x, t: self.forward(x, t) * 2}
    model = type("Clash", (Model,), twice)().double()
    torch.jit.trace_module(model, {"forward": make_batch(3), name: make_batch(3)}).save(path)


def make_batch(samples):
    torch.manual_seed(samples)
    return (torch.randn(samples, 6).double(), torch.randn(samples, 5).double())


def run(compute, module, *inputs):
    """The loss and all gradients, or the exception; and what was warned."""
    module.zero_grad()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loss = compute(module, *inputs)
        except Exception as error:
            return type(error), [str(entry.message) for entry in caught]
    gradients = {
        name: value.grad for name, value in module.named_parameters() if value.grad is not None
    }
    return (loss, gradients), [str(entry.message) for entry in caught]


def step_plainly(module, *inputs):
    loss = module.forward(*inputs)
    loss.backward()
    return loss.detach()


def step_tiled(module, *inputs):
    return module.train_step(*inputs)


def step_by_grads(module, *inputs):
    """As step_tiled, of what grads() returns."""
    loss, gradients = module.grads(*inputs)
    assert all(value.grad is None for value in module.parameters())
    trained = [value for value in module.parameters() if value.requires_grad]
    # Those that required a gradient when the file was written.
    if len(trained) == len(gradients):
        for value, gradient in zip(trained, gradients, strict=True):
            value.grad = gradient
    return loss


def check(path, guard="warn"):
    def compare(what, warned, *inputs, prepare=lambda module: None):
        modules = torch.jit.load(path), torch.jit.load(path)
        for module in modules:
            prepare(module)
        wanted, _ = run(step_plainly, modules[0], *inputs)
        if guard == "raise" and warned:
            found, _ = run(step_tiled, modules[1], *inputs)
            assert isinstance(found, type), f"{what}: not raised"
            return
        # Which weights it returns gradients of was decided with the file.
        steps = [step_tiled] if "weight is" in what else [step_tiled, step_by_grads]
        for step in steps:
            found, messages = run(step, modules[1], *inputs)
            if warned:
                assert any(warned in text for text in messages), (what, messages)
            else:
                assert not any("koila" in text for text in messages), messages
            if isinstance(wanted, type):
                assert found is wanted, (what, found, wanted)
            else:
                assert not isinstance(found, type), (what, found)
                torch.testing.assert_close(found, wanted, equal_nan=True)
        print(f"{what}: the same")

    def freeze(module):
        module.first.weight.requires_grad_(False)

    def free(module):
        module.second.bias.requires_grad_(True)

    x, t = make_batch(7)
    compare("as compiled", "", x, t)
    compare("one sample", "", *make_batch(1))
    compare("no samples", "", x[:0], t[:0])
    compare("a weight is frozen", "'first.weight' requires no gradient", x, t, prepare=freeze)
    compare("a weight is trained", "'second.bias' requires a gradient", x, t, prepare=free)
    compare(
        "an argument has a gradient",
        "other arguments require a gradient",
        x.clone().requires_grad_(),
        t,
    )
    compare("fewer targets", "extent of dim 0 is not B", x, t[:1])
    compare(
        "float32",
        "dtype is not float64",
        x.float(),
        t.float(),
        prepare=lambda module: module.float(),
    )
    with torch.no_grad():
        compare("no grad mode", "", x, t)
    # A list without it would belong to other weights.
    frozen = torch.jit.load(path)
    freeze(frozen)
    for values in ((x, t), make_batch(1)):
        found, _ = run(lambda module, *inputs: module.grads(*inputs), frozen, *values)
        assert isinstance(found, type), "grads() of a frozen weight"


def spoil(path, spoilt_path):
    module = torch.jit.load(path)
    with torch.no_grad():
        module.second.bias += 1e-3
    module.save(spoilt_path)


if __name__ == "__main__":
    commands: dict = {"make": make, "clash": clash, "check": check, "spoil": spoil}
    commands[sys.argv[1]](*sys.argv[2:])
