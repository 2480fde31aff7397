"""Files that people take for TorchScript: each is named as what it is, with the way out."""

# points: 12

import json
import os
import pathlib
import zipfile

import torch
from torch import nn

INPUT = "--input=float32[B,32]", "--batch=128"
COMPILE = *INPUT, "--budget=64KiB"


def write_safetensors(path):
    data = torch.zeros(4).numpy().tobytes()
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_onnx(path):
    """The beginning of what torch.onnx.export writes: a version and a producer."""
    path.write_bytes(
        b"\x08\x08\x12\x07pytorch\x1a\x062.13.0:\x10\n\x0e\n\x01x\x12\x01y\x22\x04Relu"
    )


def write_archive(path):
    """torch-model-archiver's."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", '{"model": {"modelName": "m"}}')
        archive.writestr("model.pt", b"x" * 100)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4)).eval()


def write_optimised(path):
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    torch.jit.optimize_for_inference(torch.jit.script(conv)).save(path)


FILES = {
    "model.safetensors": (write_safetensors, ("safetensors",)),
    "model.onnx": (write_onnx, ("ONNX",)),
    "model.mar": (write_archive, ("TorchServe",)),
    "page.pt": (lambda path: path.write_text("<!DOCTYPE html>\n<html>404</html>"), ("HTML",)),
    "pointer.pt": (
        lambda path: path.write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
        ),
        ("LFS", "git lfs pull"),
    ),
    "optimised.pt": (write_optimised, ("optimize_for_inference",)),
    "weights.pt": (lambda path: torch.save(make_model().state_dict(), path), ("state_dict",)),
    "whole.pt": (lambda path: torch.save(make_model(), path), ("torch.save", "torch.jit")),
    "exported.pt2": (
        lambda path: torch.export.save(
            torch.export.export(make_model(), (torch.randn(4, 32),)), path
        ),
        ("torch.export",),
    ),
}


def application(koila, app):
    for name, (write, words) in FILES.items():
        write(app.folder / name)
        done = app.command("compile", name, "-o", "out.pt", *COMPILE)
        app.check(done.code == 1, f"{name} is accepted")
        app.check(name in done.stderr, f"{name} is not named: {done.stderr}")
        for word in words:
            app.check(word.lower() in done.stderr.lower(), f"{name}: no '{word}': {done.stderr}")
        app.check(done.stderr.count("\n") <= 6, f"{name}: {done.stderr}")
    app.check(not (app.folder / "out.pt").exists(), "out.pt is there")

    torch.jit.script(make_model()).save(app.folder / "model.pt")
    done = app.command("compile", "model.pt", "-o", "small.pt", *COMPILE)
    app.check(not done.code, done.stderr)
    done = app.command("compile", "small.pt", "-o", "smaller.pt", *COMPILE)
    named = "tiled already" in done.stderr and "small.pt" in done.stderr
    app.check(done.code == 1 and named, f"of a tiled file it says {done.stderr}")

    # A suffix that nobody knows is an error, and the same one in both tools.
    tool = pathlib.Path(os.environ["KOILA_BUILD"]) / "bin" / "koila-opt"
    for suffix in ("onnx", "safetensors", "ptx", "txt"):
        output = f"other.{suffix}"
        options = "--koila-compile=budget=64KiB", "--input=float32[B,32]", "--batch=B=128"
        errors = []
        for done in (
            app.command("compile", "model.pt", "-o", output, *COMPILE),
            app.command("model.pt", "-o", output, *options, program=[str(tool)]),
        ):
            app.check(done.code == 1, f"-o {output} ends with {done.code}")
            errors += [line for line in done.stderr.splitlines() if output in line][:1]
            app.check(not (app.folder / output).exists(), f"{output} is there")
            (app.folder / output).unlink(missing_ok=True)
        texts = {error.partition("error: ")[2] for error in errors}
        app.check(len(texts) == 1, f"-o {output}: {sorted(texts)}")
