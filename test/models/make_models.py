"""Makes the model files of the tests and of the demo.

Usage: make_models.py --output FOLDER NAME...     (or --list)

A file that was made by the same text of this script and the same PyTorch is
left alone, and then PyTorch is not even imported. Weights are random with a
fixed seed. NAME.pt is written for a model, the name itself for a file that is
bad on purpose.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import os
import pathlib
import sys
import zipfile

MODELS = {}
BAD_FILES = {}


def model(function):
    """Registers a function which returns a ScriptModule."""
    MODELS[function.__name__] = function
    return function


def bad_file(name):
    """Registers a function which writes a file that koila must refuse."""

    def register(function):
        BAD_FILES[name] = function
        return function

    return register


# ----------------------------------------------------------------------------
# Small models


def mlp_layers(nn, inplace=False, dropout=0.0):
    layers = [nn.Linear(64, 128), nn.ReLU(inplace)]
    if dropout:
        layers.append(nn.Dropout(dropout))
    layers += [nn.Linear(128, 128), nn.ReLU(inplace), nn.Linear(128, 10)]
    return nn.Sequential(*layers).eval()


def trace(module, *inputs):
    # With grad mode on: under no_grad some modules record a fast path that has
    # no derivative.
    import torch

    return torch.jit.trace(module, inputs, check_trace=False)


@model
def mlp():
    import torch

    return trace(mlp_layers(torch.nn), torch.randn(8, 64))


@model
def taken_name():
    """Has a method of a name that koila gives to methods."""
    import torch

    class TakenName(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp_layers(torch.nn)

        def forward(self, x):
            return self.layers(x)

        @torch.jit.export
        def forward_untiled(self, x):
            return x

    return torch.jit.script(TakenName())


@model
def mlp_f64():
    """The float64 copy of mlp, to compare roundings with."""
    import torch

    return trace(mlp_layers(torch.nn).double(), torch.randn(8, 64, dtype=torch.float64))


@model
def mlp_changed():
    """mlp with one weight changed: a comparison with it must fail."""
    import torch

    layers = mlp_layers(torch.nn)
    with torch.no_grad():
        layers[0].weight[3, 5] += 0.25
    return trace(layers, torch.randn(8, 64))


@model
def mlp_inplace():
    import torch

    return trace(mlp_layers(torch.nn, inplace=True), torch.randn(8, 64))


@model
def mlp_dropout():
    import torch

    return trace(mlp_layers(torch.nn, dropout=0.5), torch.randn(8, 64))


@model
def mlp_flatten():
    import torch

    module = torch.nn.Sequential(torch.nn.Flatten(), *mlp_layers(torch.nn))
    return trace(module.eval(), torch.randn(8, 8, 8))


@model
def mlp_view():
    import torch

    class View(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp_layers(torch.nn)

        def forward(self, x):
            return self.layers(x.view(x.size(0), -1))

    return trace(View().eval(), torch.randn(8, 8, 8))


@model
def frozen_params():
    import torch

    layers = mlp_layers(torch.nn)
    layers[0].weight.requires_grad_(False)
    layers[2].bias.requires_grad_(False)
    return trace(layers, torch.randn(8, 64))


@model
def scripted_mlp():
    import torch

    return torch.jit.script(mlp_layers(torch.nn))


@model
def attributes():
    """What a module may hold beside parameters, and a second method."""
    import torch

    class Attributes(torch.nn.Module):
        scale: float
        names: list[str]

        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 10)
            self.scale = 0.5
            self.names = ["a", "b"]
            self.register_buffer("offset", torch.randn(10))
            self.register_buffer("scratch", torch.randn(3), persistent=False)

        def forward(self, x):
            return self.fc(x) * self.scale + self.offset

        @torch.jit.export
        def describe(self, index: int) -> str:
            return self.names[index]

    return torch.jit.script(Attributes().eval())


@model
def tied():
    import torch

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(32, 32)
            self.b = torch.nn.Linear(32, 32)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    return trace(Tied().eval(), torch.randn(8, 32))


@model
def tuple_out():
    import torch

    class TupleOut(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(64, 128)
            self.head = torch.nn.Linear(128, 10)

        def forward(self, x):
            features = torch.relu(self.body(x))
            return self.head(features), features

    return trace(TupleOut().eval(), torch.randn(8, 64))


@model
def two_inputs():
    import torch

    class TwoInputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)
            self.out = torch.nn.Linear(32, 32)

        def forward(self, x, y):
            return self.out(torch.relu(self.fc(x)) + y)

    return trace(TwoInputs().eval(), torch.randn(8, 64), torch.randn(8, 32))


@model
def squeezed():
    """A squeeze() that drops the dim of a single sample."""
    import torch

    class Squeezed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)

        def forward(self, x):
            return torch.tanh(torch.relu(self.fc(x)).squeeze()) + 1

    return trace(Squeezed().eval(), torch.randn(8, 64))


@model
def spectrum():
    """Raises for no samples: no library transforms them."""
    import torch

    class Spectrum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)

        def forward(self, x):
            return torch.fft.rfft(self.fc(x)).abs() + 1

    return trace(Spectrum().eval(), torch.randn(8, 64))


@model
def lookup():
    """Integers in; a part of the result has the default dtype."""
    import torch

    class Lookup(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(20, 8)

        def forward(self, x):
            return self.table(x).sum(1) + torch.ones(8).cumsum(0)

    return torch.jit.script(Lookup().eval())


@model
def unpacked():
    """A list of one tensor, unpacked after what is returned before it."""
    import torch

    class Unpacked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)

        def forward(self, x):
            h = torch.sigmoid(self.fc(x))
            sums = h.cumsum(0)
            (places,) = torch.ops.aten.nonzero_numpy(h.sum(1))
            return sums, places + 1

    return trace(Unpacked().eval(), torch.randn(8, 64))


@model
def maybe():
    """An argument that may be None, by a script."""
    from typing import Optional

    import torch

    class Maybe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)

        def forward(self, x, bias: Optional[torch.Tensor] = None):
            y = torch.relu(self.fc(x))
            if bias is not None:
                y = y + bias
            return y * 2

    return torch.jit.script(Maybe().eval())


@model
def maybe_first():
    """Only an argument that may be None has the batch."""
    from typing import Optional

    import torch

    class MaybeFirst(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 32)

        def forward(self, x: Optional[torch.Tensor]):
            if x is None:
                return torch.zeros(1)
            return torch.relu(self.fc(x)) * 2

    return torch.jit.script(MaybeFirst().eval())


# ----------------------------------------------------------------------------
# Scripted models whose tensors live longer than their folded graphs say


@model
def folded_branch():
    """PyTorch keeps `y` until the branch that an attribute decides is over."""
    import torch

    class FoldedBranch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.residual = False

        def forward(self, x):
            y = x.sin()
            if self.residual:
                return y + y.exp().tan().cos()
            else:
                return y.exp().tan().cos()

    return torch.jit.script(FoldedBranch().eval())


@model
def unused_result():
    """`kept` lives until the call returns."""
    import torch

    class UnusedResult(torch.nn.Module):
        def run(self, x):
            kept = x.cos()
            return x.sin().tan().sin(), kept

        def forward(self, x):
            return self.run(x)[0]

    return torch.jit.script(UnusedResult().eval())


@model
def loss_and_path():
    """The loss needs nothing of the path, which is what takes memory."""
    import torch

    class LossAndPath(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(1024, 8)

        def run(self, x):
            scores = self.linear(x)
            return scores.pow(2).mean(), scores.exp().repeat(1, 1024).argmax(1)

        def forward(self, x):
            return self.run(x)[0]

    return torch.jit.script(LossAndPath().eval())


@model
def dict_in_tuple():
    """What is read of a dict that came in a tuple."""
    import torch

    class DictInTuple(torch.nn.Module):
        def run(self, x):
            return {"exp": x.exp(), "double": x * 2}, x.relu().argmax(1)

        def forward(self, x):
            found, _ = self.run(x)
            return found["double"].repeat(2, 1)

    return torch.jit.script(DictInTuple().eval())


@model
def loss_and_sum():
    """As loss_and_path, with a result beside the loss."""
    import torch

    class LossAndSum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(1024, 8)

        def run(self, x):
            scores = self.linear(x)
            return scores.pow(2).mean(), scores.exp().argmax(1)

        def forward(self, x):
            return self.run(x)[0], x.sum()

    return torch.jit.script(LossAndSum().eval())


@model
def dead_part():
    """Nothing reads what the write computes."""
    import torch

    class DeadPart(torch.nn.Module):
        def forward(self, x):
            left, right = (x + 1).chunk(2, 1)
            left.mul_(right.exp().repeat(1, 1))
            return right.sum()

    return torch.jit.script(DeadPart().eval())


@model
def adds_nothing():
    """PyTorch's executor would drop the sum, but that it does not know the number."""
    import torch

    class AddsNothing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = 0

        def forward(self, x):
            return (x.sin() + self.offset).cos()

    return torch.jit.script(AddsNothing().eval())


@model
def harmless_branch():
    """What the branch reads last is its last operation."""
    import torch

    class HarmlessBranch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU(inplace=True)

        def forward(self, x):
            return self.act(x.sin()).cos()

    return torch.jit.script(HarmlessBranch().eval())


@model
def listed_numbers():
    """Lists of numbers and of bools decide what is computed."""
    import torch

    class ListedNumbers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = [0.5, 2.0]
            self.doubled = [True, False]
            # Never equal to itself: such a list is read in each call.
            self.unlike = [float("nan"), 2.0]

        def forward(self, x):
            for i, doubled in enumerate(self.doubled):
                x = torch.cat([x, x.sin()], 1) if doubled else x * self.scales[i]
            return x * self.scales[0] + self.unlike[1]

    return torch.jit.script(ListedNumbers().eval())


# ----------------------------------------------------------------------------
# Models that must not be tiled


@model
def softmax_batch():
    import torch

    class SoftmaxBatch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 10)

        def forward(self, x):
            return torch.softmax(self.fc(x), 0)

    return trace(SoftmaxBatch().eval(), torch.randn(8, 64))


@model
def mean_batch():
    import torch

    class MeanBatch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.fc(x).mean(0)

    return trace(MeanBatch().eval(), torch.randn(8, 64))


@model
def unknown_op():
    """i0e works on each sample alone, but koila has no operation for it."""
    import torch

    class UnknownOp(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 128)
            self.out = torch.nn.Linear(128, 10)

        def forward(self, x):
            return self.out(torch.special.i0e(torch.tanh(self.fc(x)) * 0.5))

    return trace(UnknownOp().eval(), torch.randn(8, 64))


# ----------------------------------------------------------------------------
# Real models


def torchvision_model(name):
    import torch

    # torchvision's compiled operators are not used; importing it asks for two.
    if "torchvision" not in sys.modules:
        for operator in ("nms", "qnms"):
            torch.library.define(
                "torchvision::" + operator,
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
    import torchvision

    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None)


def make_sensitive(module, *inputs):
    """Sets BatchNorm's statistics by one pass in train mode. With those of a
    new module the outputs shrink to almost nothing, and any comparison
    passes."""
    import torch

    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    momentum = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the plain mean of what it sees
    module.train()
    with torch.no_grad():
        module(*inputs)
    for norm, value in zip(norms, momentum, strict=True):
        norm.momentum = value
    return module.eval()


def sensitive_resnet18():
    import torch

    return make_sensitive(torchvision_model("resnet18"), torch.randn(8, 3, 224, 224))


@model
def resnet18():
    import torch

    return trace(sensitive_resnet18(), torch.randn(2, 3, 224, 224))


@model
def resnet18_train():
    import torch

    return trace(sensitive_resnet18().train(), torch.randn(2, 3, 64, 64))


@model
def resnet18_f64():
    import torch

    return trace(sensitive_resnet18().double(), torch.randn(2, 3, 224, 224, dtype=torch.float64))


# ----------------------------------------------------------------------------
# Files that are bad on purpose


def rewrite_archive(source, target, edit):
    """Copies an archive; edit(name, data) gives the new data of a record."""
    import torch

    reader = torch._C.PyTorchFileReader(str(source))
    writer = torch._C.PyTorchFileWriter(str(target))
    for name in reader.get_all_records():
        if name in ("version", ".data/serialization_id"):
            continue  # the writer makes these itself
        data = edit(name, reader.get_record(name))
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()


@bad_file("empty.pt")
def empty(path, folder):
    path.write_bytes(b"")


@bad_file("not_an_archive.pt")
def not_an_archive(path, folder):
    path.write_text("These are not the weights you are looking for.\n" * 10)


@bad_file("other_archive.pt")
def other_archive(path, folder):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "a zip file without a program\n")


@bad_file("truncated.pt")
def truncated(path, folder):
    data = (folder / "mlp.pt").read_bytes()
    path.write_bytes(data[: len(data) // 2])


@bad_file("state_dict.pt")
def state_dict(path, folder):
    import torch

    torch.save(mlp_layers(torch.nn).state_dict(), path)


@bad_file("state_dict_legacy.pt")
def state_dict_legacy(path, folder):
    import torch

    torch.save(mlp_layers(torch.nn).state_dict(), path, _use_new_zipfile_serialization=False)


@bad_file("pickled_module.pt")
def pickled_module(path, folder):
    import torch

    torch.save(mlp_layers(torch.nn), path)


@bad_file("exported.pt2")
def exported(path, folder):
    import torch

    batch = torch.export.Dim("B", min=2)
    program = torch.export.export(
        mlp_layers(torch.nn), (torch.randn(8, 64),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(program, path)


@bad_file("cuda_baked.pt")
def cuda_baked(path, folder):
    """A trace that makes a tensor on another device than that of its weights."""
    import torch

    class Baked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.fc(x) + torch.ones(10, device=torch.device("cpu"))

    source = folder / ".cuda_baked_source.pt"
    trace(Baked().eval(), torch.randn(8, 64)).save(str(source))

    edited = []

    def edit(name, data):
        new = data.replace(b'torch.device("cpu")', b'torch.device("cuda:0")')
        if new != data:
            edited.append(name)
        return new

    rewrite_archive(source, path, edit)
    assert edited
    source.unlink()


# Bad files that are made from a model file.
NEEDS = {"truncated.pt": "mlp"}


def make(name, folder):
    import torch

    torch.manual_seed(0)
    # Under its own name in another folder: the archive records the name.
    temporary = folder / ".new" / (name + ".pt" if name in MODELS else name)
    temporary.parent.mkdir(exist_ok=True)
    if name in MODELS:
        MODELS[name]().save(str(temporary))
    else:
        BAD_FILES[name](temporary, folder)
    os.replace(temporary, folder / temporary.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join([*MODELS, *BAD_FILES]))
        return
    names = []
    for name in arguments.names:
        if name not in MODELS and name not in BAD_FILES:
            sys.exit(f"make_models.py: unknown model '{name}' (see --list)")
        if name in NEEDS:
            names.append(NEEDS[name])
        names.append(name)

    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    key.update(importlib.metadata.version("torch").encode())
    key = key.hexdigest()
    # Tests run side by side and ask for the same models.
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in dict.fromkeys(names):
            stamp = folder / f".{name}.key"
            if stamp.exists() and stamp.read_text() == key:
                continue
            make(name, folder)
            stamp.write_text(key)


if __name__ == "__main__":
    main()
