"""Ctrl-C and SIGTERM, as of a batch system, while koila compile runs: nothing is half done."""

# points: 12, 7

import signal
import time

import torch
from torch import nn

ARGUMENTS = "-o", "small.pt", "--input=float32[B,32]", "--batch=1024", "--budget=64KiB"
MOMENTS = 0.2, 0.4, 0.6, 0.75, 0.9


def application(koila, app):
    torch.manual_seed(0)
    layers = [layer for _ in range(24) for layer in (nn.Linear(32, 32), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(32, 4)).eval()
    torch.jit.script(model).save(app.folder / "model.pt")
    target = app.folder / "small.pt"
    done = app.command("compile", "model.pt", *ARGUMENTS)
    app.check(not done.code and target.exists(), done.stderr)
    seconds = min(done.seconds, app.command("compile", "model.pt", *ARGUMENTS).seconds)
    heard = 0
    for before in (b"the file of yesterday", None):
        for sent in (signal.SIGINT, signal.SIGTERM):
            for moment in MOMENTS:
                target.unlink(missing_ok=True)
                if before is not None:
                    target.write_bytes(before)
                done = app.command(
                    "compile", "model.pt", *ARGUMENTS, interrupt=(sent, seconds * moment)
                )
                if not done.code:
                    continue  # too late
                heard += 1
                about = f"{sent.name} after {moment:.0%}"
                ends = (1,) if sent is signal.SIGINT else (1, -sent)
                app.check(done.code in ends, f"{about}: exit code {done.code}")
                if done.code == 1:
                    says = "interrupted" in done.stderr or "terminated" in done.stderr
                    app.check(says, f"{about}: says {done.stderr!r}")
                time.sleep(0.1)  # for what goes on behind its back
                found = target.read_bytes() if target.exists() else None
                app.check(found == before, f"{about}: the target is there all the same")
                names = {path.name for path in app.folder.iterdir()} - {"model.pt", "small.pt"}
                app.check(not names, f"{about}: left over: {names}")
    app.check(heard >= 2 * len(MOMENTS), f"only {heard} signals came in time")
    done = app.command("compile", "model.pt", *ARGUMENTS)
    app.check(not done.code, done.stderr)
