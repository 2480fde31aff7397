"""A disk that fills at many points of what koila does, each followed by a right run."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings

import pytest
import torch
from torch import nn

import koila

X = torch.randn(64, 64)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 64)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Traced(Network):
    """TorchScript has no ``*args``."""

    def forward(self, *inputs):
        return super().forward(inputs[0])


def check_inference(compiled):
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), compiled.original(X))


def compile_inference(module, target):
    check_inference(koila.compile(module.eval(), X, tile=8))


def compile_step(module, target):
    step = koila.compile(module, X, X, loss="mse_loss", tile=8)
    loss = nn.functional.mse_loss(module(X), X)
    wanted = torch.autograd.grad(loss, list(module.parameters()))
    torch.testing.assert_close(step.grads(X, X)[1], list(wanted))


def analyze(module, target):
    assert koila.analyze(module, X).peak == 2 * 64 * 512 * 4
    assert koila.max_batch(module, X, budget="1MiB") == 256


def save(module, target):
    koila.compile(module.eval(), X, tile=8, check=False).save(target)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.jit.load(target)(X), module(X))


WORK = [compile_inference, compile_step, analyze, save]
# Of a result of two samples, of weights and of programs.
POINTS = [0, 100, 600, 4000, 40_000, 140_000, 270_000, 290_000]
# More of them, evenly by their size, where time allows.
if more := int(os.environ.get("POINTS", 0)):
    first, last = POINTS[1], POINTS[-1]
    POINTS = [0] + [round(first * (last / first) ** (i / (more - 2))) for i in range(more - 1)]


@contextlib.contextmanager
def limited(size):
    """As ``ulimit -f``; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def filled(folder, left):
    """A file that leaves so many bytes of the disk, by the page."""
    state = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(bytes(max(0, state.f_bavail * state.f_bsize - left)))
    try:
        yield
    finally:
        filler.unlink()


def run_at_points(folder, fill, work, kind):
    """How often it was refused."""
    target = folder / "target.pt"
    target.write_bytes(b"before")
    refused = 0
    for point in POINTS:
        module = kind()
        with fill(point):
            try:
                work(module, target)
            except koila.KoilaError as error:
                # A folder and bytes.
                assert re.search(rf"'{folder}/.*[0-9] bytes", str(error)), error
                refused += 1
                assert target.read_bytes() == b"before"
        target.write_bytes(b"before")
        # PyTorch makes a folder when it is first imported as a whole.
        left = {path.name for path in folder.iterdir() if "torchinductor" not in path.name}
        assert left == {"target.pt"}
        work(module, target)
        target.write_bytes(b"before")
    return refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Network, Traced])
@pytest.mark.parametrize("work", WORK)
def test_limits_of_files(work, kind, tmp_path, monkeypatch):
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    refused = run_at_points(tmp_path, limited, work, kind)
    # An analysis writes results down only where they may not fit into memory.
    assert refused or work is analyze


MOUNTED = """
import pathlib, sys, tempfile, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import disk_tests
folder = pathlib.Path(sys.argv[2])
tempfile.tempdir = str(folder)
for work in disk_tests.WORK:
    for kind in (disk_tests.Network, disk_tests.Traced):
        refused = disk_tests.run_at_points(
            folder, lambda left: disk_tests.filled(folder, left), work, kind
        )
        print(work.__name__, kind.__name__, refused)
"""


def can_mount():
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(command, capture_output=True).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="a small disk cannot be mounted here")
def test_a_full_disk(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MOUNTED)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, disk, sys.executable, script]
    command += [pathlib.Path(__file__).parent, disk]
    # Others' caches are elsewhere.
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert not done.returncode, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("analyze ") for line in lines if line.endswith(" 0")), lines


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_reports(name, tmp_path):
    report = koila.analyze(Network(), X)
    path = tmp_path / name
    path.write_text("before")
    with limited(600), pytest.raises(koila.KoilaError, match=rf"'{path}' \([0-9,]+ bytes\)"):
        report.save(path)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link.html"
    link.symlink_to(path)
    report.save(link)
    assert link.is_symlink() and len(path.read_text()) > 600
    with pytest.raises(koila.KoilaError, match=r"'/dev/full' .* No space left"):
        report.save("/dev/full")
    with pytest.raises(koila.KoilaError, match="No such file or directory"):
        report.save(tmp_path / "missing" / name)


def test_no_folder_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(koila.KoilaError, match=r"no folder for temporary files.*missing"):
        koila.compile(Network().eval(), X, tile=8)
