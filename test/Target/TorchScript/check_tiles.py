"""One file, any tile.

Usage: check_tiles.py --koila-opt PATH --koila-run PATH --folder FOLDER

The tile of a compiled file is its attribute `koila_tile`. At tiles of the table
that the file has, results (gradients, for a step) must be those of the original,
and the peak that the allocator counts that of the table, to the byte; koila's
analysis of the file with that tile must say the same, and so must a program that is
compiled for it. Phases that need less memory run in tiles of their own, by the
table. What is no tile is refused by
the file itself, and by koila-opt. The same holds of each of several plans of a file,
which `koila_plan` names.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import zipfile
from typing import Any

import torch
from torch import Tensor, nn

BATCH = 48


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 8)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Phases(nn.Module):
    """Wide before samples are mixed, and narrow behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(16, 256)
        self.narrow = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.exp(self.wide(x) / 4).mean(1, keepdim=True)
        mixed = torch.softmax(x * mean, 0)
        return torch.tanh(self.narrow(mixed * x.shape[0]).exp())


class Pairs(nn.Module):
    """Of its normalisation PyTorch may give wrong gradients for a single sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten())
        self.last = nn.Linear(8 * 14, 5)

    def train(self, mode: bool = True) -> Pairs:
        super().train(mode)
        self.layers[1].eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x))


class Deep(nn.Module):
    """Its smallest tile keeps much for the backward pass, unless that runs in parts."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(6):
            layers += [nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(20 * 24, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Checker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: pathlib.Path = options.folder
        self.folder.mkdir(exist_ok=True)

    def opt(self, *arguments: Any) -> subprocess.CompletedProcess[str]:
        command = [self.options.koila_opt, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    def run(self, *arguments: Any) -> dict[str, Any]:
        command = [self.options.koila_run, *map(str, arguments), "--threads=1", "--repeat=1"]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def compile(self, source: pathlib.Path, output: pathlib.Path, *arguments: str) -> None:
        *given, how = arguments
        done = self.opt(source, *given, f"--koila-compile={how} threads=1", "-o", output)
        assert done.returncode == 0, done.stderr

    def find_faults(
        self, source: pathlib.Path, tiled: pathlib.Path, row: dict[str, Any], *given: str
    ) -> list[str]:
        """What is wrong with a file that has the tile of `row`."""
        found = self.run(source, tiled, *given)
        _, figures = found["programs"]
        wanted = row["peak_bytes"]
        faults = [
            f"{figure} is {figures.get(figure)}, not {wanted}"
            for figure in ("measured_peak_bytes", "predicted_peak_bytes")
            if figures.get(figure) != wanted
        ]
        if not found["compare"]["equal"]:
            faults.append("results differ")
        if row["budget_bytes"] < wanted:
            faults.append("the budget is less than the peak")
        return faults

    def check(self, name: str, module: nn.Module, specs: list[str], how: str, step: bool) -> None:
        """All tiles of a file."""
        source, tiled = self.folder / f"{name}.pt", self.folder / f"{name}_tiled.pt"
        module.train(step)
        torch.jit.script(module).save(str(source))
        given = [*(f"--input={spec}" for spec in specs), f"--batch=B={BATCH}"]
        mode = ["--mode=train", "--loss=cross_entropy"] if step else []
        options = "mode=train loss=cross_entropy " if step else ""
        self.compile(source, tiled, *given, options + how)
        program = torch.jit.load(tiled)
        table = json.loads(program.koila_tiles)
        report = report_of(tiled)
        assert table["batch"]["value"] == BATCH and table["by_tile"] == report["by_tile"]
        rows = table["by_tile"]
        (own,) = [row for row in rows if row["tile"] == program.koila_tile]
        assert own["peak_bytes"] == report["peak_bytes"], (own, report["peak_bytes"])
        # The least, the most, and one between which the file was not compiled for.
        least, most = rows[0], rows[-1]
        between = next(row for row in rows[2:-1] if row is not own)
        for row in (least, between, most):
            other = self.folder / f"{name}_{row['tile']}.pt"
            save_with_tile(tiled, other, row["tile"])
            faults = self.find_faults(source, other, row, *given, *mode)
            assert not faults, (name, row, faults)
        # Other batches, the second of them in tiles that are never full.
        other = self.folder / f"{name}_{between['tile']}.pt"
        for batch in (BATCH - 11, between["tile"] // 2 + 1)[: 1 if step else 2]:
            found = self.run(source, other, *given[:-1], f"--batch=B={batch}", *mode)
            assert found["compare"]["equal"], (name, between, batch, found)
            taken = found["programs"][1]["measured_peak_bytes"]
            assert taken <= between["budget_bytes"], (name, between, batch, taken)
        # A file that was compiled for a tile says the same of all: where phases differ, of
        # its own.
        apart = any(len(set(row["phases"])) > 1 for row in rows)
        assert apart == (name == "phases"), rows
        fresh = self.folder / f"{name}_fresh.pt"
        self.compile(source, fresh, *given, f"{options}tile={least['tile']}")
        report = report_of(fresh)
        assert report["peak_bytes"] == report["by_tile"][0]["peak_bytes"], report["by_tile"]
        if not apart:
            assert report["by_tile"] == rows, (report["by_tile"], rows)
        for there, row in zip(report["by_tile"], rows, strict=True):
            # Of its own tile, phases have grown up to the budget.
            assert row is own or there["budget_bytes"] >= row["budget_bytes"], (there, row)
        assert len({row["peak_bytes"] for row in rows}) > 2, rows
        print(f"{name}: {len(rows)} tiles")

    def check_plans(self) -> None:
        """All plans of a file, which share its weights."""
        source, tiled = self.folder / "plans.pt", self.folder / "plans_tiled.pt"
        torch.jit.script(Deep()).save(str(source))
        given = ["--input=float32[B,20,24]", "--input=int64[B]{0:4}", "--batch=B=6"]
        mode = ["--mode=train", "--loss=cross_entropy"]
        how = "mode=train loss=cross_entropy budget=150KiB"
        self.compile(source, tiled, *given, f"{how} plans=4")
        single = self.folder / "plans_single.pt"
        self.compile(source, single, *given, how)
        program = torch.jit.load(tiled)
        plans = json.loads(program.koila_tiles)["plans"]
        assert len(plans) > 2 and plans == report_of(tiled)["plans"], plans
        assert program.koila_plan == 0 and len(set(map(json.dumps, plans))) == len(plans)
        assert weights_of(tiled) == weights_of(single) == weights_of(source)
        others = []
        for place, plan in enumerate(plans):
            for row in (plan["by_tile"][0], plan["by_tile"][-1]):
                other = self.folder / f"plans_{place}_{row['tile']}.pt"
                save_with(tiled, other, {"koila_plan": place, "koila_tile": row["tile"]})
                faults = self.find_faults(source, other, row, *given, *mode)
                assert not faults, (place, row, faults)
            others.append((other, row))
        # The control: with the figure of another plan.
        faults = self.find_faults(source, others[0][0], others[1][1], *given, *mode)
        assert [fault.split(" is ")[0] for fault in faults][:2] == [
            "measured_peak_bytes",
            "predicted_peak_bytes",
        ], faults
        # Written again, the file has the same plans, and the one that was chosen.
        again = self.folder / "plans_again.pt"
        done = self.opt(others[1][0], "--function=train_step", "-o", again)
        assert done.returncode == 0, done.stderr
        program = torch.jit.load(again)
        assert (program.koila_plan, program.koila_tile) == (1, others[1][1]["tile"])
        faults = self.find_faults(source, again, others[1][1], *given, *mode)
        assert not faults, faults
        for wrong in (-1, len(plans)):
            bad = self.folder / "plans_bad.pt"
            save_with(tiled, bad, {"koila_plan": wrong})
            done = self.opt(bad, "--function=train_step", "-o", self.folder / "bad.mlir")
            words = f"koila_plan is {wrong}; it is the place of a plan, 0 to {len(plans) - 1}"
            assert done.returncode == 1 and words in done.stderr, done.stderr
            try:
                torch.jit.load(bad).train_step(torch.randn(6, 20, 24), torch.arange(6) % 4)
                raise AssertionError(f"ran with plan {wrong}")
            except torch.jit.Error as error:
                assert f"koila: {words}" in str(error), error
        for options, words in (
            ("budget=1MiB plans=5", "plans=5 is no number from 1 to 4"),
            ("tile=2 plans=2", "plans=2 belongs to budget=BYTES; leave it out, or give a budget"),
        ):
            done = self.opt(source, *given[::2], f"--koila-compile={options}", "-o", bad)
            assert done.returncode == 1 and words in done.stderr, done.stderr
        print(f"plans: {len(plans)}")

    def check_controls(self) -> None:
        """With what another tile takes, and with another table in the program, the checks
        above fail."""
        source, tiled = self.folder / "phases.pt", self.folder / "phases_1.pt"
        rows = json.loads(torch.jit.load(tiled).koila_tiles)["by_tile"]
        given = ["--input=float32[B,16]", f"--batch=B={BATCH}"]
        wrong = {**rows[0], "peak_bytes": rows[-1]["peak_bytes"]}
        faults = self.find_faults(source, tiled, wrong, *given)
        assert any(fault.startswith("measured") for fault in faults), faults
        assert any(fault.startswith("predicted") for fault in faults), faults
        changed = self.folder / "changed.pt"
        change_table(tiled, changed)
        faults = self.find_faults(source, changed, rows[0], *given)
        assert [fault.split(" is ")[0] for fault in faults] == [
            "measured_peak_bytes",
            "predicted_peak_bytes",
        ], faults
        print("controls: right")

    def check_refusals(self) -> None:
        source, tiled = self.folder / "layers.pt", self.folder / "layers_tiled.pt"
        torch.jit.script(Layers().eval()).save(str(source))
        batch = f"--batch=B={BATCH}"
        self.compile(source, tiled, "--input=float32[B,16]", batch, "tile=8")
        for tile in (24, 0, -4, 64, 1 << 62):
            program = torch.jit.load(tiled)
            program.koila_tile = tile
            words = (
                f"koila: koila_tile is {tile}; it is the samples per tile, a power of two and 32 "
                "at most; compile with a larger batch for larger tiles"
            )
            try:
                program(torch.randn(4, 16))
                raise AssertionError(f"ran with tile {tile}")
            except torch.jit.Error as error:
                assert words in str(error), error
            if tile not in (24, 64):
                continue
            other = self.folder / "bad.pt"
            save_with_tile(tiled, other, tile)
            done = self.opt(other, "-o", self.folder / "bad.mlir")
            assert done.returncode == 1 and words.removeprefix("koila: ") in done.stderr, (
                done.stderr
            )
        # Without a batch nothing was planned, and nothing is too large.
        free = self.folder / "free.pt"
        self.compile(source, free, "--input=float32[B,16]", "tile=4")
        program = torch.jit.load(free)
        assert not hasattr(program, "koila_tiles")
        x = torch.randn(40, 16)
        with torch.no_grad():
            expected = program.forward_untiled(x)
            for tile in (1, 64, 1 << 40, 1 << 62):
                program.koila_tile = tile
                torch.testing.assert_close(program(x), expected)
        print("refusals: right")

    def check_names(self) -> None:
        """Two methods of a file have a tile each; a name of the user's is left alone."""
        source, first = self.folder / "layers.pt", self.folder / "layers_tiled.pt"
        both = self.folder / "both.pt"
        given = ["--input=float32[B,16]", "--input=int64[B]{0:8}", f"--batch=B={BATCH}"]
        train = "mode=train loss=cross_entropy"
        self.compile(first, both, *given, f"{train} tile=2")
        program = torch.jit.load(both)
        names = (program.koila_tile, program.koila_tile_train_step)
        assert names == (torch.jit.load(first).koila_tile, 2), names
        tables = [json.loads(program.koila_tiles), json.loads(program.koila_tile_train_steps)]
        assert [table["function"] for table in tables] == ["forward", "train_step"], tables
        # Each is known again with the tile that it has.
        save_with_tile(both, both, 16, "koila_tile_train_step")
        found = self.run(source, both, *given, "--mode=train", "--loss=cross_entropy")
        (row,) = [row for row in tables[1]["by_tile"] if row["tile"] == 16]
        _, figures = found["programs"]
        assert figures["measured_peak_bytes"] == row["peak_bytes"] and found["compare"]["equal"]

        class Taken(Layers):
            def __init__(self) -> None:
                super().__init__()
                self.koila_tile = 3

            def forward(self, x: Tensor) -> Tensor:
                return self.layers(x) * self.koila_tile

        source = self.folder / "taken.pt"
        torch.jit.script(Taken().eval()).save(str(source))
        out = self.folder / "taken_tiled.pt"
        done = self.opt(source, given[0], given[2], "--koila-compile=tile=4", "-o", out)
        assert done.returncode == 1 and not out.exists()
        assert "the module has an attribute 'koila_tile'" in done.stderr, done.stderr
        print("names: right")


def report_of(path: pathlib.Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/koila/report.json")]
        report: dict[str, Any] = json.loads(archive.read(name))
        return report


def weights_of(path: pathlib.Path) -> int:
    """Bytes."""
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist() if "/data/" in entry.filename)


def save_with_tile(
    source: pathlib.Path, target: pathlib.Path, tile: int, attribute: str = "koila_tile"
) -> None:
    save_with(source, target, {attribute: tile})


def save_with(source: pathlib.Path, target: pathlib.Path, values: dict[str, int]) -> None:
    """As plain PyTorch does it, with what koila put into the file."""
    with zipfile.ZipFile(source) as archive:
        names = [name.split("/", 1)[1] for name in archive.namelist()]
    files = {name.removeprefix("extra/"): "" for name in names if name.startswith("extra/")}
    program = torch.jit.load(source, _extra_files=files)
    for attribute, value in values.items():
        setattr(program, attribute, value)
    torch.jit.save(program, target, _extra_files=files)


def change_table(source: pathlib.Path, target: pathlib.Path) -> None:
    """The tiles of a phase that has its own are the largest for each of the program."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        count = 0
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".py"):
                data, changes = re.subn(rb"\[\d+(, \d+){5}\]", b"[32, 32, 32, 32, 32, 32]", data)
                count += changes
            new.writestr(entry.filename, data)
    assert count == 1, count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--koila-opt", required=True)
    parser.add_argument("--koila-run", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    checker = Checker(parser.parse_args())
    torch.manual_seed(0)
    inputs = ["float32[B,16]"]
    labels = "int64[B]{0:8}"
    checker.check("phases", Phases(), inputs, "budget=9KiB", step=False)
    checker.check("step", Layers(), [*inputs, labels], "tile=4", step=True)
    pairs = ["float32[B,4,16]", "int64[B]{0:5}"]
    checker.check("pairs", Pairs(), pairs, "tile=4", step=True)
    checker.check_plans()
    checker.check_controls()
    checker.check_refusals()
    checker.check_names()


if __name__ == "__main__":
    main()
