"""Uses the koila that `cmake --install` put below the folder in the argument."""

import os
import pathlib
import subprocess
import sys

import torch

prefix = pathlib.Path(sys.argv[1]).resolve()
(packages,) = prefix.glob("lib*/python*/site-packages")
sys.path.insert(0, str(packages))

import koila  # noqa: E402

assert pathlib.Path(koila.__file__).resolve().is_relative_to(prefix), koila.__file__
print("peak", koila.analyze(torch.nn.Linear(8, 8), "float32[B,8]", batch=4).peak)
for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
    assert "libKoila" not in line or str(prefix) in line, line
checked = subprocess.run(
    [sys.executable, "-m", "koila", "check-op", "aten::relu", "--calls", "4"],
    cwd=prefix,
    capture_output=True,
    text=True,
    env={**os.environ, "PYTHONPATH": str(packages)},
)
print("check-op:", checked.returncode, checked.stdout, checked.stderr)
file = prefix / "linear.pt"
torch.jit.script(torch.nn.Linear(8, 8)).save(file)
done = subprocess.run(
    [sys.executable, "-m", "koila", "run", file, "--input=float32[B,8]", "--batch", "4"],
    capture_output=True,
    text=True,
    env={**os.environ, "PYTHONPATH": str(packages)},
)
print("command:", done.returncode, done.stderr)
print(done.stdout)
