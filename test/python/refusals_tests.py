"""What nobody should ask for: each gets a sentence of koila's own."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
import networks

X, Y = networks.batch()


def attempt(**options):
    return koila.compile(networks.mlp(), X, **{"tile": 8, **options})


@pytest.mark.parametrize(
    "option, values, text",
    [
        ("batch", ["64", 2.5, True, 0, -1, 10**30], "batch"),
        ("batch_dim", ["0", None, -1, True, 7], "batch_dim="),
        ("tile", [2.0, True, 3, 0, -8, "8"], "power of two"),
        ("threads", [0, -1, 10**10, "2", True, 1.5], "threads="),
        ("guard", [None, "maybe", 1], "guard="),
        ("random", [None, "yes"], "random="),
        ("batchnorm", [None, "batch"], "batchnorm="),
        ("grads", [None, "some"], "grads="),
        ("mode", ["test", 3], "mode="),
        ("optimizer", [torch.optim.SGD, 3], "optimizer= is a text"),
    ],
)
def test_options(option, values, text):
    attempt()
    for value in values:
        with pytest.raises(koila.CompileError, match=text):
            attempt(**{option: value})


def test_losses():
    for loss, way in [
        (nn.CrossEntropyLoss(), 'as "cross_entropy", not a CrossEntropyLoss'),
        (functional.mse_loss, 'as "mse_loss", not mse_loss'),
        (3, "not a int"),
    ]:
        with pytest.raises(koila.CompileError, match="loss= is a text") as caught:
            koila.compile(networks.mlp(), X, Y, loss=loss, tile=8)
        assert way in str(caught.value)
        with pytest.raises(koila.CompileError, match="loss= is a text"):
            koila.analyze(networks.mlp(), X, Y, mode="train", loss=loss)


def test_examples():
    warnings.simplefilter("ignore")
    for tensor, text in [
        (X.to_sparse(), "sparse"),
        (torch.nested.nested_tensor([X]), "nested"),
        (X.to("meta"), "without data"),
        (torch.quantize_per_tensor(X, 0.1, 0, torch.quint8), "quantized"),
        (X[:0], "no samples"),
    ]:
        for call in (koila.analyze, koila.compile, koila.max_batch):
            with pytest.raises(koila.CompileError, match=text):
                call(networks.mlp(), tensor)


def test_reports(tmp_path):
    report = koila.analyze(networks.mlp(), X)
    report.save(tmp_path / "good.json")
    assert koila.Report.load(tmp_path / "good.json").peak == report.peak
    whole = json.loads((tmp_path / "good.json").read_text())
    for name, text in [
        ("schema", '{"schema": 1}'),
        ("list", "[]"),
        ("cut", json.dumps(whole)[:100]),
        ("types", json.dumps({**whole, "timeline": 3})),
        ("binary", "\x00\x01"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(koila.KoilaError, match=name):
            koila.Report.load(tmp_path / name)
    for call in (
        lambda: report.diff(3),
        lambda: report.min_budget("10"),
        lambda: report.min_budget(True),
        lambda: report.min_budget(-1),
        lambda: report.max_batch("x"),
        lambda: report.max_batch(-1),
        lambda: report.max_batch(None),
        lambda: report.save(tmp_path / "none" / "x.json"),
        lambda: report.save(tmp_path),
        lambda: koila.Report.load(tmp_path),
    ):
        with pytest.raises(koila.KoilaError):
            call()


def test_files(tmp_path):
    compiled = attempt()
    for name in ("", "-", tmp_path, tmp_path / "none" / "x.pt", os.fsdecode(b"\xff.pt")):
        with pytest.raises(koila.KoilaError):
            compiled.save(name)
    with pytest.raises(koila.KoilaError):
        koila.analyze(os.fsdecode(b"\xff.pt"), "float32[B,64]")


def run(folder, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "koila", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        errors="replace",
    )


def test_command(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(networks.mlp()).save(tmp_path / "model.pt")
    before = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "link.pt").symlink_to("model.pt")
    (tmp_path / "ü.pt").write_bytes(before)
    (tmp_path / "-m.pt").write_bytes(before)
    inputs = ["--input", "float32[B,64]", "--batch", "64"]
    for arguments, text in [
        (["report", "model.pt", *inputs, "-o", "model.pt"], "is the model itself"),
        (["report", "model.pt", *inputs, "-o", "link.pt"], "is the model itself"),
        (["compile", "model.pt", *inputs, "--tile", "8", "-o", "./model.pt"], "the model itself"),
        (["compile", "model.pt", *inputs, "--tile", "8", "-o", ""], "-o needs the name"),
        (["compile", "model.pt", *inputs, "--tile", "8", "-o", "-"], "-o needs the name"),
        (["compile", "model.pt", *inputs, "--tile", "3", "-o", "out.pt"], "power of two"),
        (["run", "model.pt", *inputs, "--threads", "100000"], "more than 4096"),
        (["run", "model.pt", *inputs, "--method", "train_step"], "--mode train"),
        (["report", os.fsdecode(b"\xff.pt"), *inputs], "UTF-8"),
    ]:
        done = run(tmp_path, *arguments)
        assert done.returncode == 1
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "model.pt").read_bytes() == before
    assert not (tmp_path / "-").exists()
    done = run(tmp_path, "report", "ü.pt", *inputs, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    done = run(tmp_path, "report", *inputs, "--", "-m.pt")
    assert done.returncode == 0, done.stderr
    targets = ["--input", "float32[B,64]", "--input", "int64[B]{0:10}", "--batch", "64"]
    step = ["--loss", "cross_entropy"]
    done = run(tmp_path, "compile", "model.pt", *targets, *step, "--tile", "8", "-o", "step.pt")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path, "run", "model.pt", "step.pt", *targets, *step)
    assert done.returncode == 0, done.stderr
    assert "4 gradients" in done.stdout


VALUES = [None, True, -1, 0, 2.5, 10**30, "", "x", "0", [], {}, object(), X, nn.Identity()]


@pytest.mark.parametrize("name", ["analyze", "compile", "max_batch"])
def test_any_value_of_any_option(name):
    """Only errors of koila's own come out."""
    module = networks.mlp()
    options = {
        "analyze": "mode loss batch batch_dim optimizer grads threads",
        "compile": "budget tile loss mode batch batch_dim optimizer grads random batchnorm guard "
        "threads",
        "max_batch": "budget mode loss batch_dim optimizer grads threads",
    }[name].split()
    for option in options:
        for value in VALUES:
            arguments = (X, Y) if option == "loss" and value is not None else (X,)
            try:
                getattr(koila, name)(module, *arguments, **{option: value})
            except koila.KoilaError as error:
                assert str(error)
    for value in VALUES:
        try:
            getattr(koila, name)(module, value)
        except koila.KoilaError as error:
            assert str(error)
