"""Ctrl-C in the first compilation of a process, which imports, and the same line again."""

# points: 7

import sys

PROGRAM = """
import signal, sys
import torch
from torch import nn
import koila

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()
x = torch.randn(512, 32)
sys.meta_path.insert(0, Impatient())
try:
    koila.compile(model, x, budget="512KiB")
except KeyboardInterrupt:
    print("interrupted")
# What others import later is theirs.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Impatient)]
small = koila.compile(model, x, budget="512KiB")
with torch.no_grad():
    torch.testing.assert_close(small(x), model(x))
step = koila.compile(model.train(), x, x[:, :4], loss="mse_loss", budget="1MiB")
assert step.train_step(x, x[:, :4]) > 0
print("right")
"""
# That PyTorch imports late, in the order in which it does.
MODULES = "sympy.printing.repr", "torch.onnx._internal.exporter"


def application(koila, app):
    program = app.folder / "program.py"
    program.write_text(PROGRAM)
    for module in MODULES:
        done = app.command(module, program=[sys.executable, str(program)])
        last = done.stderr.strip().splitlines()[-1:]
        app.check(done.stdout.endswith("right\n"), f"while {module} is imported: {last}")
