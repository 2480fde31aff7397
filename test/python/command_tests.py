import json
import re
import subprocess
import sys
import warnings

import networks
import pytest
import torch

INPUT = ["--input", "float32[B,64]"]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(networks.mlp()).save(path)
    return path


def koila(*arguments, folder, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "koila", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done


def test_report(model, tmp_path):
    done = koila("report", model, *INPUT, "--batch", 64, "--budget", "100KiB", folder=tmp_path)
    assert "128.00 KiB (131,072 bytes)" in done.stdout
    assert "largest batch within 100KiB: 50" in done.stdout
    assert '"peak_bytes": 131072' in (tmp_path / "model.html").read_text()
    assert done.stderr == ""
    done = koila(
        "report",
        model,
        "--input",
        "float32[N,64]",
        "--batch",
        64,
        "--json",
        "-o",
        "page.html",
        folder=tmp_path,
    )
    assert json.loads(done.stdout)["peak_bytes"] == 131072
    assert (tmp_path / "page.html").is_file()


def test_report_of_a_step(model, tmp_path):
    done = koila(
        "report",
        model,
        *INPUT,
        "--input",
        "int64[B]{0:10}",
        "--batch",
        64,
        "--loss",
        "cross_entropy",
        "--json",
        folder=tmp_path,
    )
    assert json.loads(done.stdout)["mode"] == "train"


def test_compile_and_run(model, tmp_path):
    done = koila(
        "compile",
        model,
        "-o",
        "small.pt",
        *INPUT,
        "--batch",
        64,
        "--budget",
        "40KiB",
        folder=tmp_path,
    )
    assert "written: small.pt" in done.stdout
    done = koila("run", model, "small.pt", *INPUT, "--batch", 64, "--json", folder=tmp_path)
    found = json.loads(done.stdout)
    assert found["compare"]["equal"]
    assert found["programs"][1]["measured_peak_bytes"] <= 40 * 1024
    # A file of koila's says what it needs.
    done = koila("report", "small.pt", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["peak_bytes"] <= 40 * 1024


def test_bench(model, tmp_path):
    done = koila("bench", model, *INPUT, "--batch", 4, "--json", folder=tmp_path)
    rows = json.loads(done.stdout)["rows"]
    assert [row["tile"] for row in rows] == [None, 4, 2, 1]
    assert all(row["measured_peak_bytes"] == row["predicted_peak_bytes"] for row in rows)
    assert "whole" in koila("bench", model, *INPUT, "--batch", 2, folder=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["report", "nope.pt"], "nope.pt"),
        (["report", "model.pt"], "add:\n  --input"),
        (["report", "model.pt", *INPUT, "--batch", "0"], "no number of at least 1"),
        (["report", "model.pt", *INPUT, "--budget", "much"], "budget='much'"),
        (["compile", "model.pt", "-o", "o.pt", *INPUT], "--batch 64"),
        (
            ["compile", "model.pt", "-o", "o.pt", *INPUT, "--batch", "64", "--budget", "1KiB"],
            r"smallest budget that works is 4\.50 KiB",
        ),
        (["run", "model.pt", *INPUT], "--batch 64"),
        (["run", "model.pt", "nope.pt", *INPUT, "--batch", "4"], "nope.pt"),
        (["bench", "model.pt", *INPUT], "--batch 64"),
        ([], "required: COMMAND"),
        (["compute"], "invalid choice"),
    ],
)
def test_errors(model, tmp_path, arguments, why):
    done = koila(*arguments, folder=tmp_path, code=1)
    assert re.search(why, done.stderr), done.stderr
    assert "error: " in done.stderr
    assert not (tmp_path / "o.pt").exists()


def test_help(tmp_path):
    for command in ("report", "compile", "run", "bench"):
        done = koila(command, "--help", folder=tmp_path)
        assert f"koila {command} model.pt" in done.stdout
        assert "float32[B,3,224,224]" in done.stdout
