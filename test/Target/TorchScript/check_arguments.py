"""Compiles programs with optional arguments, numbers, flags and texts, with a
budget that needs tiles and with one that does not.

For the described call the prediction must be the measured peak, within the
budget, and the results those of the original. For other calls the compiled file
must give what the original gives, after a warning that names the argument.
"""

import argparse
import json
import pathlib
import subprocess
import warnings
from typing import Optional

import torch
from torch import Tensor, nn

BATCH = 16


class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None):
        y = self.layer(x)
        if mask is not None:
            y = y * mask
        return torch.relu(y)


class Flags(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.last = nn.Linear(64, 8)

    def forward(self, x: Tensor, deep: bool = False, kind: str = "relu"):
        h = self.first(x)
        if kind == "relu":
            h = torch.relu(h)
        else:
            h = torch.tanh(h)
        if deep:
            h = torch.sigmoid(h) + h
        return self.last(h)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(4)])

    def forward(self, x: Tensor, upto: int = -1):
        for index, layer in enumerate(self.layers):
            if index == upto:
                return x
            x = torch.relu(layer(x))
        return x


class Turns(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor, turns: int = 3):
        last = torch.relu(x)
        for turn in range(turns):
            before = x
            x = torch.tanh(self.layer(last))
            if turn > 0:
                x = x * 2
            last = before + x
        return x + last


class Selected(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"first": nn.Linear(32, 32), "second": nn.Linear(32, 32)})

    def forward(self, x: Tensor, which: str = "first"):
        for name, layer in self.layers.items():
            if name == which:
                x = torch.relu(layer(x))
        return x


class Width(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor, width: Optional[int] = None, scale: float = 1.0):
        y = self.layer(x)
        if width is None:
            width = y.size(1) // 2
        return y.narrow(1, 0, width) * scale


class Cache(nn.Module):
    cache: Optional[Tensor]

    def __init__(self, cache: Optional[Tensor]):
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.cache = cache

    def forward(self, x: Tensor, use: bool = True):
        y = self.layer(x)
        cache = self.cache
        if use and cache is not None:
            y = y + cache
        return torch.relu(y)


class Placed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor, device: Optional[torch.device] = None):
        places = torch.arange(x.size(1), device=x.device, dtype=x.dtype)
        zeros = torch.zeros(x.size(0), 1, device=x.device)
        if device is not None:
            x = x.to(device)
        y = torch.relu(self.layer(x + places))
        return y + zeros.to(y.device).to(y.dtype)


X = "float32[B,32]"


def cases():
    x, mask = torch.randn(BATCH, 32), torch.rand(BATCH, 32)
    yield "mask_left_out", Mask(), [X], [x], [[x, mask]]
    yield "mask_given", Mask(), [X, f"mask={X}"], [x, mask], [[x]]
    yield (
        "flags_given",
        Flags(),
        [X, "deep=true", "kind='tanh'"],
        [x, True, "tanh"],
        [[x], [x, False, "tanh"]],
    )
    yield "layers", Layers(), [X], [x], [[x, 2], [x, 0]]
    yield "turns", Turns(), [X], [x], [[x, 0], [x, 5]]
    yield "turns_given", Turns(), [X, "turns=1"], [x, 1], [[x]]
    yield "selected", Selected(), [X], [x], [[x, "second"], [x, "none"]]
    yield "width", Width(), [X], [x], [[x, 7], [x, 7, 2.0]]
    yield "width_given", Width(), [X, "width=24", "scale=2.0"], [x, 24, 2.0], [[x], [x, 8, 2.0]]
    yield "cache", Cache(torch.rand(32)), [X], [x], [[x, False]]
    cpu = torch.device("cpu")
    yield "placed", Placed(), [X], [x], [[x, cpu]]
    yield "placed_given", Placed(), [X, "device='cpu'"], [x, cpu], [[x]]
    yield "cache_empty", Cache(None), [X], [x], []


class Checker:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.folder.mkdir(exist_ok=True)

    def run(self, files, specs):
        command = [
            self.options.koila_run,
            *files,
            *specs,
            f"--batch=B={BATCH}",
            "--threads=1",
            "--repeat=1",
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def check_described(self, source, budget, specs):
        output = source.with_name(f"{source.stem}_{budget}.pt")
        subprocess.run(
            [
                self.options.koila_opt,
                source,
                *specs,
                f"--batch=B={BATCH}",
                f"--koila-compile=budget={budget} threads=1",
                "-o",
                output,
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        found = self.run([source, output], specs)
        assert found["compare"]["equal"], found
        for program in found["programs"]:
            assert program["predicted_peak_bytes"] == program["measured_peak_bytes"], program
        assert program["measured_peak_bytes"] <= budget, program
        return output

    def check_calls(self, source, output, described, others):
        for inputs in [described, *others]:
            original, compiled = torch.jit.load(source), torch.jit.load(output)
            with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.testing.assert_close(compiled(*inputs), original(*inputs))
            texts = [str(warning.message) for warning in seen]
            if inputs is described:
                assert not texts, texts
            else:
                assert len(texts) == 1, texts
                assert texts[0].startswith("koila: argument '"), texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--koila-opt", required=True)
    parser.add_argument("--koila-run", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    checker = Checker(parser.parse_args())
    torch.manual_seed(0)
    for name, module, specs, described, others in cases():
        source = checker.folder / f"{name}.pt"
        torch.jit.script(module.eval()).save(source)
        specs = [f"--input={spec}" for spec in specs]
        peak = checker.run([source], specs)["programs"][0]
        for budget in (peak["measured_peak_bytes"] * 4 // 5, 1 << 20):
            try:
                output = checker.check_described(source, budget, specs)
                checker.check_calls(source, output, described, others)
            except AssertionError as error:
                raise AssertionError(f"{name}, budget {budget}") from error


if __name__ == "__main__":
    main()
