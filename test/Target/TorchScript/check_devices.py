"""Programs that run where their weights and inputs are.

Usage: check_devices.py --koila-opt PATH --koila-run PATH --folder FOLDER

Traced on the CPU, and as if traced and saved on a GPU (places of storages and
literal devices rewritten), a file is compiled without one. What comes out names
no device, is right on the CPU, and runs as a whole on another device, which stands
in for a GPU (test/python/stand_in_device.py) and refuses tensors of the CPU, with
the same results. Devices that a script names stay, or are refused. Tensors on several
devices are named before anything runs.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import subprocess
import sys
import warnings
import zipfile

import torch
from torch import Tensor, nn

import koila

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from stand_in_device import DEVICE

SPECS = ["--input=float32[B,16]", "--batch=B=12"]


class Makes(nn.Module):
    """Makes tensors in the ways that tracing writes a device down for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)
        self.inner = Inner()
        self.register_buffer("shift", torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + self.shift
        y = y + torch.zeros(x.shape[0], 32) + torch.arange(32, device=x.device) / 32
        y = y * torch.full((1, 32), 1.5, dtype=x.dtype, device=x.device)
        y = y + torch.tensor([0.25] * 32) + torch.zeros_like(y) + y.new_ones(32)
        y = y + torch.eye(32).to(y.device, y.dtype).sum(0)
        return self.inner((y * 0.3).tanh().to("cpu"))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(8).cumsum(0)
        return self.layer(x.sigmoid()) * mask


class Named(nn.Module):
    """A script, which says itself where something is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(8, device="cpu", dtype=torch.float32).sum()
        return torch.relu(self.layer(x)) * steps


class Wrapped(nn.Module):
    """A trace around a script."""

    def __init__(self) -> None:
        super().__init__()
        self.named = torch.jit.script(Named())

    def forward(self, x: Tensor) -> Tensor:
        return self.named(x + torch.zeros(16))


def move(source: pathlib.Path, target: pathlib.Path, device: str, records=("data.pkl",)) -> None:
    """As if a file had been saved on another device, and traced there."""
    text = device.encode()
    length = len(text).to_bytes(4, "little")
    edited = set()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = before = old.read(entry)
            name = entry.filename.split("/", 1)[-1]
            if name in records:
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X" + length + text)
            elif name.startswith("code/") and name.endswith(".py"):
                data = data.replace(b'torch.device("cpu")', b'torch.device("' + text + b'")')
            if data != before:
                edited.add(name)
            new.writestr(entry.filename, data)
    assert records[0] in edited, edited


def code_of(path: pathlib.Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        return "\n".join(archive.read(name).decode() for name in names)


class Checker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: pathlib.Path = options.folder
        self.folder.mkdir(exist_ok=True)

    def compile(self, source: pathlib.Path, *more: str, how: str = "tile=4") -> pathlib.Path:
        output = source.with_name(f"{source.stem}_tiled.pt")
        command = [self.options.koila_opt, source, *SPECS, *more]
        subprocess.run([*command, f"--koila-compile={how} threads=1", "-o", output], check=True)
        return output

    def refuse(self, source: pathlib.Path, text: str) -> None:
        command = [self.options.koila_opt, source, *SPECS, "--koila-compile=tile=4", "-o"]
        output = source.with_suffix(".out.pt")
        done = subprocess.run([*command, output], capture_output=True, text=True)
        assert done.returncode == 1 and text in done.stderr, done.stderr
        assert not output.exists()

    def compare(self, *files: pathlib.Path) -> None:
        command = [self.options.koila_run, *files, *SPECS, "--threads=1", "--repeat=1"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "compare: equal" in done.stdout, done.stdout + done.stderr


def run(program: torch.jit.ScriptModule, x: Tensor) -> tuple[Tensor, list[str]]:
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = program(x)
    return result, [str(warning.message) for warning in seen]


def on_device(path: pathlib.Path) -> torch.jit.ScriptModule:
    return torch.jit.load(path, map_location=DEVICE)


def check_follows(path: pathlib.Path, expected: Tensor, x: Tensor) -> None:
    """The file runs on the CPU, and all of it on another device."""
    assert "device(" not in code_of(path).replace("prim.device(", ""), code_of(path)
    found, said = run(torch.jit.load(path), x)
    assert not said, said
    torch.testing.assert_close(found, expected)
    assert found.std(0).min() > 1e-3, "samples are told apart"
    there = on_device(path)
    for method in ("forward", "forward_untiled"):
        result, said = run(getattr(there, method), x.to(DEVICE))
        assert result.device == DEVICE and not said, (result.device, said)
        torch.testing.assert_close(result.cpu(), expected)


def check_traced(checker: Checker) -> None:
    model, x = Makes().eval(), torch.randn(12, 16)
    expected = model(x).detach()
    source = checker.folder / "traced.pt"
    torch.jit.trace(model, torch.randn(5, 16), check_trace=False).save(str(source))
    # The control: the trace itself cannot run elsewhere.
    assert code_of(source).count('torch.device("cpu")') >= 8
    try:
        on_device(source)(x.to(DEVICE))
        raise AssertionError("the trace ran on another device")
    except RuntimeError as error:
        assert "same device" in str(error), error
    for how in ("tile=4", "budget=5KiB"):
        tiled = checker.compile(source, how=how)
        check_follows(tiled, expected, x)
        checker.compare(source, tiled)
    for device in ("cuda:0", "cuda:1", "xpu:0"):
        saved = checker.folder / f"traced_{device.replace(':', '')}.pt"
        move(source, saved, device, ("data.pkl", "constants.pkl", "traced_inputs.pkl"))
        tiled = checker.compile(saved)
        check_follows(tiled, expected, x)
        checker.compare(saved, tiled)
        checker.compare(source, tiled)
    print("traced: right")


def check_named(checker: Checker) -> None:
    """What the program says itself stays."""
    x = torch.randn(12, 16)
    for name, made in (
        ("named", torch.jit.script(Named().eval())),
        ("wrapped", torch.jit.trace(Wrapped().eval(), torch.randn(5, 16), check_trace=False)),
    ):
        source = checker.folder / f"{name}.pt"
        made.save(str(source))
        expected = made(x).detach()
        tiled = checker.compile(source)
        assert code_of(tiled).count('torch.device("cpu")') >= 1
        found, said = run(torch.jit.load(tiled), x)
        torch.testing.assert_close(found, expected)
        assert not said and found.std(0).max() > 1e-3
    # Saved on a GPU, where it says so.
    saved = checker.folder / "named_cuda.pt"
    move(checker.folder / "named.pt", saved, "cuda:0")
    checker.refuse(saved, "the program itself names device 'cuda:0'")
    print("named: right")


def check_mixed(checker: Checker) -> None:
    tiled = checker.folder / "traced_tiled.pt"
    x = torch.randn(12, 16)
    program = on_device(tiled)
    try:
        _, said = run(program, x)
    except RuntimeError:
        # PyTorch refuses what follows; the words came before.
        said = collect(program, x)
    assert f"is on {DEVICE}, and argument 'x' on cpu; running the untiled program" in said[0], said
    raises = checker.compile(checker.folder / "traced.pt", how="tile=4 guard=raise")
    program = on_device(raises)
    try:
        run(program, x)
        raise AssertionError("weights elsewhere")
    except torch.jit.Error as error:
        assert f"koila: weight 'inner.layer.bias' is on {DEVICE}" in str(error), error
    print("mixed: right")


def collect(program: torch.jit.ScriptModule, x: Tensor) -> list[str]:
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with contextlib.suppress(RuntimeError):
            program(x)
    return [str(warning.message) for warning in seen if "koila:" in str(warning.message)]


def check_several(checker: Checker) -> None:
    """Weights on two devices cannot all be on one."""
    source = checker.folder / "traced.pt"
    one, two = checker.folder / "one.pt", checker.folder / "two.pt"
    move(source, one, "cuda:0", ("data.pkl",))
    move(one, two, "cuda:1", ("constants.pkl",))
    checker.refuse(two, "holds tensors on cuda:0 and cuda:1, and koila's programs run on one")
    move(source, two, "meta")
    checker.refuse(two, "holds tensors on 'meta', which are not read")
    # So cannot they on one and the CPU.
    module, half = Named().eval(), checker.folder / "half.pt"
    module.layer.weight = nn.Parameter(module.layer.weight.to(DEVICE))
    torch.jit.script(module).save(str(half))
    checker.refuse(half, f"holds tensors on cpu and {DEVICE}, and koila's programs run on one")
    # Constants of a trace may have stayed on the CPU.
    checker.compile(one)
    print("several: right")


def check_python(checker: Checker) -> None:
    saved, source = checker.folder / "traced_cuda0.pt", checker.folder / "traced.pt"
    x = torch.randn(12, 16)
    with torch.no_grad():
        expected = torch.jit.load(source)(x)
        compiled = koila.compile(saved, x, tile=4)
        assert compiled.tile == 4
        torch.testing.assert_close(compiled(x), expected)
    output = checker.folder / "python.pt"
    compiled.save(output)
    check_follows(output, expected, x)
    report = koila.analyze(saved, x)
    assert report.peak == koila.analyze(source, x).peak
    assert report.measure(saved, x).data["measured"]["peak_bytes"] == report.peak
    try:
        koila.compile(checker.folder / "named_cuda.pt", x, tile=4)
        raise AssertionError("a device that the program names")
    except koila.CompileError as error:
        assert "the program itself names device 'cuda:0'" in str(error), error
    print("python: right")


class Draws(nn.Module):
    """Dropouts of an argument, of a result and of a view of one; other draws between. Of
    these rates PyTorch's CPU has the factor of a GPU's kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.dropout(x, 0.5, training=True) * self.weight
        y = nn.functional.dropout(y.sigmoid(), 0.1, training=True)
        y = y + torch.rand_like(y)
        return nn.functional.dropout(y.view(-1, 4, 4).transpose(1, 2) * 2, 0.5, training=True)


def draw(method, *inputs: Tensor) -> tuple[Tensor, Tensor, list[str]]:
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = method(*inputs)
    return result.detach().cpu(), torch.get_rng_state(), [str(item.message) for item in seen]


def check_draws(checker: Checker) -> None:
    """What is compiled for a GPU draws there as the untiled program does, and elsewhere
    gives way to it. The device that stands in takes dropout for one kernel, too."""
    source, x = checker.folder / "draws.pt", torch.randn(12, 16)
    torch.jit.trace(Draws(), torch.randn(5, 16), check_trace=False).save(str(source))
    said = "koila: random numbers for the whole batch are those of"
    elsewhere = {"cuda": "a GPU, and", "cpu": "the CPU, and"}
    for target, words in elsewhere.items():
        how = f"tile=4 random=full-batch-masks device={target}"
        tiled = checker.compile(source, how=how)
        for place in ("cpu", DEVICE):
            program = torch.jit.load(tiled, map_location=place)
            with torch.no_grad():
                wanted, state, _ = draw(program.forward_untiled, x.to(place))
                found, after, seen = draw(program.forward, x.to(place))
            assert torch.equal(found, wanted) and torch.equal(after, state), (target, place)
            is_there = (target == "cpu") == (place == "cpu")
            assert (seen == []) if is_there else f"{said} {words}" in seen[0], (target, place, seen)
    # The control: tiles that draw themselves.
    tiled = checker.compile(source, how="tile=4 random=per-tile device=cuda")
    program = on_device(tiled)
    with torch.no_grad():
        wanted, *_ = draw(program.forward_untiled, x.to(DEVICE))
        found, *_ = draw(program.forward, x.to(DEVICE))
    assert not torch.equal(found, wanted)
    # A step: its masks are those of the untiled one if its gradients are.
    step = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    torch.jit.trace(step, torch.randn(5, 16), check_trace=False).save(str(source))
    how = "mode=train loss=cross_entropy tile=4 random=full-batch-masks device=cuda"
    program = on_device(checker.compile(source, "--input=int64[B]{0:3}", how=how))
    inputs = x.to(DEVICE), (torch.arange(12) % 3).to(DEVICE)
    gradients = []
    for call in (untiled_step(program), program.train_step):
        program.zero_grad(set_to_none=True)
        _, state, seen = draw(call, *inputs)
        assert not seen, seen
        gradients.append(([weight.grad.cpu() for weight in program.parameters()], state))
    (wanted, before), (found, after) = gradients
    torch.testing.assert_close(found, wanted)
    assert torch.equal(before, after)
    print("draws: right")


def untiled_step(program: torch.jit.ScriptModule):
    def step(x: Tensor, labels: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(program(x), labels)
        loss.backward()
        return loss

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--koila-opt", required=True)
    parser.add_argument("--koila-run", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    checker = Checker(parser.parse_args())
    torch.manual_seed(0)
    check_traced(checker)
    check_named(checker)
    check_mixed(checker)
    check_several(checker)
    check_python(checker)
    check_draws(checker)


if __name__ == "__main__":
    main()
