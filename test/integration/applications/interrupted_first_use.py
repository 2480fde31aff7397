"""Ctrl-C while the first compilation of a process still imports, and again from the history."""

# points: 7

import sys

PROGRAM = """
import os, signal, sys, time
import torch
from torch import nn
import koila

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()
x = torch.randn(512, 32)
parent, child = os.getpid(), os.fork()
if not child:
    time.sleep(float(sys.argv[1]))
    os.kill(parent, signal.SIGINT)
    os._exit(0)
try:
    koila.compile(model, x, budget="512KiB")
    os.waitpid(child, 0)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
small = koila.compile(model, x, budget="512KiB")
with torch.no_grad():
    torch.testing.assert_close(small(x), model(x))
step = koila.compile(model.train(), x, x[:, :4], loss="mse_loss", budget="1MiB")
assert step.train_step(x, x[:, :4]) > 0
print("right")
"""


def application(koila, app):
    program = app.folder / "program.py"
    program.write_text(PROGRAM)
    for seconds in (0.2, 0.7):
        done = app.command(seconds, program=[sys.executable, str(program)])
        last = done.stderr.strip().splitlines()[-1:]
        app.check(done.stdout.endswith("right\n"), f"after {seconds} s: {done.stdout}{last}")
