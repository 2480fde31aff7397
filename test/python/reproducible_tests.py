"""Equal inputs give equal files, which do not say where they were made."""

import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from typing import NamedTuple

import pytest
import torch
from torch import nn

import koila


class Result(NamedTuple):
    scores: torch.Tensor
    hidden: torch.Tensor


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.norm = nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        return Result(nn.functional.dropout(self.last(hidden), 0.5, self.training), hidden)


class Classifier(Network):
    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def make_module(kind):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "traced":
            return torch.jit.trace(Network().eval(), torch.ones(2, 8))
    return Classifier() if kind == "step" else Network().eval()


def save(kind, *paths):
    options: dict = {"loss": "cross_entropy", "batchnorm": "per-tile"} if kind == "step" else {}
    target = [torch.zeros(16, dtype=torch.int64)] if kind == "step" else []
    for path in paths:
        module = make_module(kind)
        koila.compile(module, torch.ones(16, 8), *target, tile=4, **options).save(path)


def check_places(path, folder):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            assert str(folder).encode() not in data, name
            assert b"koila-" not in data, name


@pytest.mark.parametrize("kind", ["scripted", "traced", "step"])
def test_saved_modules(kind, tmp_path):
    first, second, other = (tmp_path / name for name in ("first.pt", "second.pt", "other.pt"))
    # Another process orders sets otherwise, and has numbered other classes.
    program = """
import sys
import torch
import koila
import reproducible_tests as tests
if sys.argv[1] == "2":
    torch.jit.script(tests.nn.Sequential(tests.nn.Linear(2, 2), tests.nn.Linear(2, 2)))
tests.save(*sys.argv[2:])
"""
    for seed, paths in ("1", [first, second]), ("2", [other]):
        subprocess.run(
            [sys.executable, "-c", program, seed, kind, *paths],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=os.path.dirname(__file__),
        )
    check_places(first, tmp_path)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() == other.read_bytes()


def test_files(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    script = torch.jit.script(make_module("scripted"))
    script.save(tmp_path / "model.pt")
    shutil.copy(tmp_path / "model.pt", folder / "copy.pt")
    spec = "--input=float32[B,8]"

    def compile(model, output, cwd):
        tool = os.environ["KOILA_OPT"]
        command = [tool, model, spec, "--batch=B=16", "--koila-compile=tile=4", "-o", output]
        subprocess.run(command, check=True, cwd=cwd)
        command = [sys.executable, "-m", "koila", "compile", model, spec, "--batch=16"]
        command += ["--tile=4", "-o", f"cli_{output}"]
        subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.DEVNULL)

    compile(str(tmp_path / "model.pt"), "one.pt", tmp_path)
    compile("copy.pt", "two.pt", folder)
    for prefix in ("", "cli_"):
        check_places(tmp_path / f"{prefix}one.pt", tmp_path)
        assert (tmp_path / f"{prefix}one.pt").read_bytes() == (
            folder / f"{prefix}two.pt"
        ).read_bytes()
    # What the file carries is that of the file.
    done = subprocess.run(
        [os.environ["KOILA_OPT"], "one.pt"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert '#koila.archive<path = "one.pt"' in done.stdout
