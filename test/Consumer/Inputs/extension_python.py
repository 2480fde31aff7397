"""koila.load_extension, with the koila that was installed below FOLDER/prefix:
extension_python.py FOLDER CXX LLVM-INCLUDE"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

import torch
from torch import nn

folder, compiler, llvm = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
(packages,) = (folder / "prefix").glob("lib*/python*/site-packages")
sys.path.insert(0, str(packages))

import koila  # noqa: E402

assert pathlib.Path(koila.__file__).is_relative_to(folder), koila.__file__
extension = folder / "mylib.so"
operators = folder / "operators.so"
torch.manual_seed(0)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 256), nn.Linear(256, 4)

    def forward(self, x):
        return self.last(torch.ops.mylib.scaled_gelu(self.first(x), 1.5))


class Chosen(Network):
    """A call may have the operator."""

    def forward(self, x, has: bool):
        y = self.first(x)
        if has:
            y = torch.ops.mylib.scaled_gelu(y, 1.5)
        return self.last(y)


def raises(kind, function, *parts):
    try:
        function()
    except kind as error:
        for part in parts:
            assert str(part) in str(error), (part, str(error))
        return
    raise AssertionError(f"nothing was raised: {parts}")


def in_child(function):
    """What a process loads it keeps."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException as error:
            print("in a child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def refuse_another_schema():
    """The operation says what the operator of this process is not."""
    library = torch.library.Library("mylib", "DEF")
    library.define("scaled_gelu(Tensor x, float factor) -> Tensor")
    koila.load_extension(extension)
    raises(
        koila.CompileError,
        lambda: koila.analyze(torch.jit.script(Network().eval()), "float32[B,16]", batch=8),
        "'mylib.scaled_gelu' says mylib::scaled_gelu(Tensor x, float scale) -> Tensor, "
        "LibTorch has mylib::scaled_gelu(Tensor x, float factor) -> Tensor",
    )


in_child(refuse_another_schema)
torch.ops.load_library(operators)
network, x = Network().eval(), torch.randn(512, 16)

# Before: nothing is known of the operator, and what rests on that is refused.
before = koila.analyze(network, x)
assert not before.exact
assert any("mylib::scaled_gelu" in entry["op"] for entry in before.data["inexact"])
raises(koila.CompileError, lambda: koila.compile(network, x, budget="300KiB"), "scaled_gelu")


def make_stub(name, info):
    """A library that says something else of how it was built."""
    source = folder / f"{name}.cpp"
    source.write_text(
        "#include <llvm/Config/llvm-config.h>\n"
        "struct Info { unsigned version; const char *llvm; const void *first, *second; };\n"
        f"static Info info = {{{info}}};\n"
        'extern "C" const Info *koilaGetExtensionInfo() { return &info; }\n'
        'extern "C" void mlirGetDialectPluginInfo() {}\n'
    )
    made = folder / f"{name}.so"
    command = [compiler, "-shared", "-fPIC", "-isystem", llvm, source, "-o", made]
    subprocess.run(command, check=True)
    return made


# What is refused, with the path and the reason; nothing of it is there afterwards.
text = folder / "text.so"
text.write_text("no library")
undefined = folder / "undefined.cpp"
undefined.write_text("void missing(); void call() { missing(); }")
command = [compiler, "-shared", "-fPIC", undefined, "-o", folder / "undefined.so"]
subprocess.run(command, check=True)
newer = make_stub("newer", "99, LLVM_VERSION_STRING, nullptr, nullptr")
older = make_stub("older", '1, "21.1.0", nullptr, nullptr')
copies = make_stub("copies", "1, LLVM_VERSION_STRING, nullptr, nullptr")
for path, *reasons in (
    (folder / "nothing.so", "No such file"),
    (folder, "it is a folder"),
    (text, "cannot be loaded", "file too short"),
    (folder / "undefined.so", "cannot be loaded", "undefined symbol", "missing"),
    (operators, "is no extension", "torch.ops.load_library"),
    (folder / "prefix" / "lib" / "KoilaPlugin.so", "a dialect plugin of MLIR and no extension"),
    (newer, "was built with version 99 of koila's interfaces, and this koila has version 1"),
    (older, "was built with LLVM 21.1.0, and this koila with "),
    (copies, "is linked to copies of koila or MLIR of its own"),
):
    raises(koila.KoilaError, lambda path=path: koila.load_extension(path), f"'{path}'", *reasons)
raises(TypeError, lambda: koila.load_extension(5))
assert not koila.analyze(network, x).exact

# A call that could not be split stays whole, and is split once the rules are there.
chosen = Chosen().eval()
grown = koila.compile(chosen, x[:4], False, budget="300KiB")
with warnings.catch_warnings(), torch.no_grad():
    warnings.simplefilter("ignore")
    whole = grown(x, True)
    assert grown.tile is None

    # Twice, and by another name of the file, is once.
    koila.load_extension(extension)
    koila.load_extension(str(extension))
    (folder / "link.so").symlink_to(extension)
    koila.load_extension(folder / "link.so")

    torch.testing.assert_close(grown(x, True), whole)
    assert grown.tile is not None and grown.tile < 512

# A second library with the same dialect is another one.
shutil.copy(extension, folder / "twin.so")
raises(
    koila.KoilaError,
    lambda: koila.load_extension(folder / "twin.so"),
    f"'{folder / 'twin.so'}' has a dialect 'mylib', and there is another one",
    f"of '{extension}'",
)

# Figures are exact, and those that are measured.
torch.jit.script(network).save(folder / "network.pt")
target = torch.randn(512, 4)
for mode, options, more in (
    ("inference", {}, ()),
    ("forward-with-grad", {}, ()),
    ("train", {"loss": "mse_loss"}, (target,)),
):
    report = koila.analyze(network, x, *more, mode=mode, **options)
    assert report.exact, report.data["inexact"]
    command = [folder / "prefix" / "bin" / "koila-run", folder / "network.pt", "--json"]
    command += ["--load-library", operators, "--load-dialect-plugin", extension]
    command += ["--input=float32[B,16]", "--batch", "B=512", "--mode", mode]
    command += ["--threads", str(torch.get_num_threads()), "--repeat", "1"]
    if more:
        command += ["--loss", "mse_loss", "--input=target=float32[B,4]"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (program,) = json.loads(done.stdout)["programs"]
    assert report.peak == program["measured_peak_bytes"], (mode, report.peak, program)
    assert report.peak == program["predicted_peak_bytes"], (mode, report.peak, program)

# So does the command.
command = [sys.executable, "-m", "koila", "run", folder / "network.pt", "--batch", "512"]
command += ["--input=float32[B,16]", "--load-library", operators, "--load-extension", extension]
environment = {**os.environ, "PYTHONPATH": str(packages)}
for name in ("run", "report"):
    command[3] = name
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = "equal to the measured one" if name == "run" else "1,572,876 bytes"
    assert expected in done.stdout and "not exact" not in done.stdout, done.stdout

# It runs in tiles, with the same results and gradients.
network, x, target = network.double(), x.double(), target.double()
small = koila.compile(network, x, budget="300KiB")
assert small.tile is not None and small.tile < 512
assert "mylib::scaled_gelu" in str(small.script.inlined_graph)
with torch.no_grad():
    torch.testing.assert_close(small(x), network(x))
step = koila.compile(network, x, target, loss="mse_loss", budget="700KiB")
assert step.tile is not None and step.tile < 512
loss = nn.functional.mse_loss(network(x), target)
expected = torch.autograd.grad(loss, list(network.parameters()))
found, gradients = step.grads(x, target)
torch.testing.assert_close(found, loss.detach())
torch.testing.assert_close(gradients, list(expected))
assert all(gradient.abs().max() > 0 for gradient in gradients)

# What was written runs in a process that has the operators, and no koila.
small.save(str(folder / "small.pt"))
torch.save((x, network(x).detach()), folder / "values.pt")
plain = (
    "import sys, torch; torch.ops.load_library(sys.argv[1]); "
    "x, y = torch.load(sys.argv[3]); "
    "torch.testing.assert_close(torch.jit.load(sys.argv[2])(x), y); "
    "assert 'koila' not in sys.modules"
)
arguments = [operators, folder / "small.pt", folder / "values.pt"]
subprocess.run([sys.executable, "-c", plain, *arguments], check=True)
print("checks passed")
