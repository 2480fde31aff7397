"""A build that compiles the same file on two machines, and compares what comes out."""

# points: 9, 12

import shutil
import zipfile

import torch
from torch import nn

INPUT = "--input=float32[B,32]", "--batch=128"


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 4)).eval()
    outputs = {}
    for machine in ("first", "second"):
        folder = app.folder / machine / "checkout"
        (folder / "tmp").mkdir(parents=True)
        # The same bytes, which torch.jit.save itself does not give twice.
        if machine == "first":
            torch.jit.script(model).save(folder / "model.pt")
        else:
            shutil.copy(app.folder / "first" / "checkout" / "model.pt", folder)
        environment = {"TMPDIR": str(folder / "tmp")}
        given = folder / "model.pt" if machine == "first" else f"{machine}/checkout/model.pt"
        done = app.command(
            "compile", given, "-o", folder / "small.pt", *INPUT, "--budget=64KiB", "--json",
            environment=environment,
        )  # fmt: skip
        app.check(not done.code, done.stderr)
        page = app.command(
            "report", given, "-o", folder / "report.html", *INPUT, "--json",
            environment=environment,
        )  # fmt: skip
        app.check(not page.code, page.stderr)
        outputs[machine] = {
            "the file": (folder / "small.pt").read_bytes(),
            "what compile prints": done.stdout.encode(),
            "the page": (folder / "report.html").read_bytes(),
            "what report prints": page.stdout.encode(),
        }
        left = list((folder / "tmp").iterdir())
        app.check(not left, f"left over: {left}")
    for name, data in outputs["first"].items():
        app.check(data == outputs["second"][name], f"{name} is another on the second machine")
        app.check(str(app.folder).encode() not in data, f"{name} has the path of the folder")
    with zipfile.ZipFile(app.folder / "first" / "checkout" / "small.pt") as archive:
        for record in archive.namelist():
            found = str(app.folder).encode() in archive.read(record)
            app.check(not found, f"{record} of the file has the path of the folder")
