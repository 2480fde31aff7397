"""koila bench --calibrate, and plans by the times that it measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import koila
from koila._costs import describe_machine, find_table, table_path

TIMES = {
    "product": 40.0,
    "convolution": 40.0,
    "depthwise_convolution": 400.0,
    "pooling": 3000.0,
    "byte": 100.0,
    "call": 5e6,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "koila", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def write(text: str) -> str:
    """A table for the threads of this process."""
    path = table_path(torch.get_num_threads())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return path


def write_times(**times: float) -> None:
    table = {"schema": 1, "machine": "a machine", "picoseconds": {**TIMES, **times}}
    write(json.dumps(table))


class Block(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, wide, 3, padding=1)
        self.norm = nn.BatchNorm2d(wide)
        self.back = nn.Conv2d(wide, 8, 1)
        self.last = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.last(self.back(self.norm(self.conv(x)).relu()))


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(8 * wide) for wide in (1, 2, 4, 2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x).square().mean()


X = torch.randn(16, 8, 12, 12)


def compile_step(share: float = 0.45) -> Any:
    torch.manual_seed(0)
    step = Step().train()
    untiled = koila.analyze(step, X, mode="train", threads=1)
    assert untiled.peak is not None
    return koila.compile(step, X, mode="train", budget=int(share * untiled.peak), check=False)


def test_a_machine_is_measured_and_plans_go_by_it(cache: Path) -> None:
    threads = torch.get_num_threads()
    assert compile_step().report.data["costs"] == "estimates"
    done = bench("--calibrate", "--json", "--threads", threads)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    path = found["path"]
    assert Path(path).is_relative_to(cache) and find_table(threads) == path
    kept = json.loads(Path(path).read_text(encoding="utf-8"))
    assert kept["picoseconds"] == found["picoseconds"] and set(found["picoseconds"]) == set(TIMES)
    times = found["picoseconds"]
    # From a tenth to a thousand times what the processors of these years take.
    assert 0.1 < times["convolution"] < times["depthwise_convolution"] < 1e5
    assert 0.1 < times["product"] < times["call"] and 1 < times["byte"] < times["call"]
    # Each number of threads has its own.
    assert find_table(threads + 1) is None
    assert compile_step().report.data["costs"] == describe_machine(threads) == kept["machine"]


def test_what_is_said_for_people(cache: Path) -> None:
    done = bench("--calibrate", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(describe_machine(1))
    assert "ps  a multiplication (convolution)" in done.stdout
    assert done.stdout.rstrip().endswith(f"table: {table_path(1)}")


def code_of(step: Any, folder: Path) -> bytes:
    """What a saved step runs."""
    step.save(folder / "step.pt")
    with zipfile.ZipFile(folder / "step.pt") as file:
        names = [name for name in file.namelist() if name.endswith(".py")]
        return b"".join(map(file.read, names))


def test_other_times_give_another_plan(cache: Path) -> None:
    plans = []
    for times in ({"convolution": 4e5}, {"byte": 1e6, "convolution": 0.01}):
        write_times(**times)
        step = compile_step()
        # The same program, table and budget.
        assert code_of(step, cache) == code_of(compile_step(), cache)
        assert step.report.data["costs"] == "a machine"
        assert step.report.data["recomputed_share"] > 0
        plans.append(code_of(step, cache))
    assert plans[0] != plans[1]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({"schema": 2, "machine": "m", "picoseconds": TIMES}),
        json.dumps({"schema": 1, "machine": "m", "picoseconds": {**TIMES, "byte": -1}}),
        json.dumps({"schema": 1, "machine": "m", "picoseconds": {"byte": 1.0}}),
    ],
)
def test_a_table_that_is_none(cache: Path, text: str) -> None:
    """Steps are planned without it, and somebody hears of it."""
    path = write(text)
    with pytest.warns(koila.KoilaWarning, match="is no table of times") as caught:
        step = compile_step()
    assert path in str(caught[0].message) and "koila bench --calibrate" in str(caught[0].message)
    assert step.report.data["costs"] == "estimates"


@pytest.mark.parametrize(
    ("given", "name"),
    [(["model.pt"], "a model"), (["--batch", 4], "--batch"), (["--input", "none"], "--input")],
)
def test_what_calibrating_has_no_use_for(cache: Path, given: list[object], name: str) -> None:
    done = bench("--calibrate", *given)
    assert done.returncode == 1
    assert f"--calibrate measures the machine: leave out {name}" in done.stderr


def test_a_folder_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "koila").write_text("no folder")
    done = bench("--calibrate", "--threads", 1)
    assert done.returncode == 1 and "cannot write" in done.stderr
