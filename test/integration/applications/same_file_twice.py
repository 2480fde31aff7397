"""A registry of models that goes by checksums: the same module gives the same bytes."""

# points: 9

import multiprocessing
import os
import tempfile
import zipfile

import torch
from torch import nn


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 4))


def build(koila, path, temporary=None):
    if temporary is not None:
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        os.chdir(temporary)
    model, x, y = make_model(), torch.randn(128, 32), torch.randn(128, 4)
    koila.compile(model.eval(), x, budget=64 << 10).save(f"{path}-calls.pt")
    koila.compile(model.train(), x, y, loss="mse_loss", budget=128 << 10).save(f"{path}-steps.pt")


def application(koila, app):
    fork = multiprocessing.get_context("fork")
    for name in "ab":
        target = app.folder / name
        process = fork.Process(target=build, args=(koila, target, app.folder / f"tmp-{name}"))
        process.start()
        process.join()
        app.check(process.exitcode == 0, f"process {name} ended with {process.exitcode}")
    for name in "cd":
        build(koila, app.folder / name)
    small = koila.compile(make_model().eval(), torch.randn(128, 32), budget=64 << 10)
    small.save(app.folder / "e-calls.pt")
    small.save(app.folder / "f-calls.pt")
    for kind in ("calls", "steps"):
        files = sorted(app.folder.glob(f"?-{kind}.pt"))
        first = files[0].read_bytes()
        for file in files[1:]:
            app.check(file.read_bytes() == first, f"{file.name} is not {files[0].name}")
        with zipfile.ZipFile(files[0]) as archive:
            for record in archive.namelist():
                data = archive.read(record)
                for path in (tempfile.gettempdir(), str(app.folder), "/koila-"):
                    app.check(path.encode() not in data, f"{kind}: '{path}' is in {record}")
