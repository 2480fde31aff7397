"""A batch system that limits sizes of files (ulimit -f): commands say so, and leave no trace."""

# points: 8, 12

import re
import resource
import tempfile

import torch
from torch import nn

INPUT = "--input=float32[B,64]", "--batch=64", "--budget=100KiB"


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10)).eval()
    torch.jit.script(model).save(app.folder / "model.pt")
    target = app.folder / "small.pt"
    done = app.command("compile", "model.pt", "-o", target, *INPUT)
    app.check(not done.code, done.stderr)
    before = target.read_bytes()
    names = sorted(path.name for path in app.folder.iterdir())
    for limit in (2 << 10, 20 << 10, 100 << 10, 250 << 10):
        limits = {resource.RLIMIT_FSIZE: limit}
        done = app.command("compile", "model.pt", "-o", target, *INPUT, limits=limits)
        about = f"a limit of {limit:,} bytes"
        app.check(done.code == 1, f"{about}: exit code {done.code}")
        app.check("error: " in done.stderr, f"{about}: no error: {done.stderr}")
        folders = str(app.folder), tempfile.gettempdir()
        says = any(folder in done.stderr for folder in folders)
        says = says and re.search(r"\d (bytes|[KM]iB)", done.stderr)
        app.check(says, f"{about}: names no folder and bytes: {done.stderr}")
        app.check(target.read_bytes() == before, f"{about}: the target is another")
        found = sorted(path.name for path in app.folder.iterdir())
        app.check(found == names, f"{about}: left over: {set(found) - set(names)}")
    # The page of a report is large, too.
    done = app.command("report", "model.pt", *INPUT[:2], limits={resource.RLIMIT_FSIZE: 4 << 10})
    app.check(done.code == 1 and "model.html" in done.stderr, f"report: {done.stderr}")
    app.check(not (app.folder / "model.html").exists(), "half a page is left over")
    # A disk without room, which is a device here.
    for command in (("compile", "model.pt", *INPUT), ("report", "model.pt", *INPUT[:2])):
        done = app.command(*command, "-o", "/dev/full")
        says = "/dev/full" in done.stderr and "No space left" in done.stderr
        app.check(done.code == 1 and says, f"{command[0]} to a full disk: {done.stderr!r}")
