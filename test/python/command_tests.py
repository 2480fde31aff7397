import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import pytest
import torch

import networks
from koila import _cli, _outputs

INPUT = ["--input", "float32[B,64]"]
# At how many points of a command a signal arrives.
POINTS = int(os.environ.get("POINTS", "6"))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(networks.mlp()).save(path)
    return path


def koila(*arguments, folder, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "koila", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done


def test_report(model, tmp_path):
    done = koila("report", model, *INPUT, "--batch", 64, "--budget", "100KiB", folder=tmp_path)
    assert "128.00 KiB (131,072 bytes)" in done.stdout
    assert "largest batch within 100KiB: 50" in done.stdout
    assert '"peak_bytes": 131072' in (tmp_path / "model.html").read_text()
    assert done.stderr == ""
    done = koila(
        "report",
        model,
        "--input",
        "float32[N,64]",
        "--batch",
        64,
        "--json",
        "-o",
        "page.html",
        folder=tmp_path,
    )
    assert json.loads(done.stdout)["peak_bytes"] == 131072
    assert (tmp_path / "page.html").is_file()


def test_report_of_a_step(model, tmp_path):
    done = koila(
        "report",
        model,
        *INPUT,
        "--input",
        "int64[B]{0:10}",
        "--batch",
        64,
        "--loss",
        "cross_entropy",
        "--json",
        folder=tmp_path,
    )
    assert json.loads(done.stdout)["mode"] == "train"


def test_compile_and_run(model, tmp_path):
    done = koila(
        "compile",
        model,
        "-o",
        "small.pt",
        *INPUT,
        "--batch",
        64,
        "--budget",
        "40KiB",
        folder=tmp_path,
    )
    assert "written: small.pt" in done.stdout
    done = koila("run", model, "small.pt", *INPUT, "--batch", 64, "--json", folder=tmp_path)
    found = json.loads(done.stdout)
    assert found["compare"]["equal"]
    assert found["programs"][1]["measured_peak_bytes"] <= 40 * 1024
    # A file of koila's says what it needs.
    done = koila("report", "small.pt", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["peak_bytes"] <= 40 * 1024


def test_bench(model, tmp_path):
    done = koila("bench", model, *INPUT, "--batch", 4, "--json", folder=tmp_path)
    rows = json.loads(done.stdout)["rows"]
    assert [row["tile"] for row in rows] == [None, 4, 2, 1]
    assert all(row["measured_peak_bytes"] == row["predicted_peak_bytes"] for row in rows)
    assert "whole" in koila("bench", model, *INPUT, "--batch", 2, folder=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["report", "nope.pt"], "nope.pt"),
        (["report", "model.pt"], "add:\n  --input"),
        (["report", "model.pt", *INPUT, "--batch", "0"], "no number of at least 1"),
        (["report", "model.pt", *INPUT, "--budget", "much"], "budget='much'"),
        (["compile", "model.pt", "-o", "o.pt", *INPUT], "--batch 64"),
        (
            ["compile", "model.pt", "-o", "o.pt", *INPUT, "--batch", "64", "--budget", "1KiB"],
            r"smallest budget that works is 4\.50 KiB",
        ),
        (
            ["compile", "model.pt", "-o", "o.onnx", *INPUT, "--batch", "64", "--tile", "8"],
            r"'o\.onnx' must end in \.pt or \.pth, for TorchScript, or in \.mlir",
        ),
        (
            ["compile", "model.pt", "-o", "o.mlir", *INPUT, "--batch", "64", "--tile", "8"],
            "MLIR is written by koila-opt",
        ),
        (["report", "model.pt", *INPUT, "-o", "o.pt"], r"'o\.pt' must end in \.html"),
        (["run", "model.pt", *INPUT], "--batch 64"),
        (["run", "model.pt", "nope.pt", *INPUT, "--batch", "4"], "nope.pt"),
        (["bench", "model.pt", *INPUT], "--batch 64"),
        ([], "required: COMMAND"),
        (["compute"], "invalid choice"),
    ],
)
def test_errors(model, tmp_path, arguments, why, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    assert run_fork(arguments, 0, None, log) == 1
    said = log.read_text()
    assert re.search(why, said), said
    assert "error: " in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("o.*"))


def test_an_error_of_the_command(model, tmp_path):
    done = koila("report", "nope.pt", folder=tmp_path, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")


def test_help(tmp_path):
    for command in ("report", "compile", "run", "bench"):
        done = koila(command, "--help", folder=tmp_path)
        assert f"koila {command} model.pt" in done.stdout
        assert "float32[B,3,224,224]" in done.stdout


SCRIPT = """\
import sys
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        h = x * 2
        return h.relu()

def main(count):
    return [Net()(torch.ones(1000)) for _ in range(count)]

held = main(int(sys.argv[1]))
print(__name__, sys.argv[1:], [sys.modules["__main__"].held is held])
del held[0]
if len(sys.argv) > 2:
    sys.exit(sys.argv[2] if sys.argv[2] != "3" else 3)
raise ValueError("an end")
"""


def test_profile(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = koila("profile", "-o", "page.html", script, 3, "--stop", folder=tmp_path, code=1)
    assert done.stderr == "--stop\n"
    said, _, tables = done.stdout.partition("## <module>")
    assert said == "__main__ ['3', '--stop'] [True]\n"
    # 4,000 bytes for each result; what a call holds inside is gone.
    assert re.search(r"19.53K +11.72K +12 +held = main", tables)
    assert re.search(r"11.72K +-3.91K +14 +del held", tables)
    assert re.search(r"## Net.forward|## forward", tables)
    # Measured, predicted and measured of a call, what it adds.
    assert re.search(r"11.72K +3.92K +3.92K +3.91K +3.91K +6 +h = x \* 2", tables)
    page = (tmp_path / "page.html").read_text()
    assert "held = main(int(sys.argv[1]))" in page and "background" in page
    done = koila("profile", "--measure-only", script, 1, 3, folder=tmp_path, code=3)
    assert done.stderr == "" and "predicted" not in done.stdout
    assert re.search(r"3.91K +6 +h = x \* 2", done.stdout)
    (tmp_path / "wrong.py").write_text("no Python\n")
    for wrong, expected in (("no.py", "No such file"), ("wrong.py", "invalid syntax")):
        done = koila("profile", wrong, folder=tmp_path, code=1)
        assert re.fullmatch(rf"error: cannot run '{wrong}': {expected}.*\n", done.stderr)


def test_profile_of_a_script_that_raises(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "koila", "profile", "script.py", "1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith('Traceback (most recent call last):\n  File "script.py", line 17')
    assert "koila" not in done.stderr
    assert "held = main" in done.stdout


def run_fork(arguments, delay, number, log):
    """The command in a fork, which has imported torch; its exit code. Signal
    `number`, if any, arrives after a delay."""
    # Not before the command has set its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, [number] if number else [])
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = _outputs.end_by_signals

        def handle_and_unblock():
            handle()
            signal.pthread_sigmask(signal.SIG_SETMASK, [])

        _outputs.end_by_signals = handle_and_unblock
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.dup2(1, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))
        code = 3
        try:
            code = _cli.main([str(argument) for argument in arguments])
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    time.sleep(delay)
    if number:
        os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_interruption_of_a_new_folder(tmp_path, monkeypatch):
    """A signal in the moment in which a temporary folder is made."""
    make = tempfile.mkdtemp

    def make_and_interrupt(*arguments, **options):
        folder = make(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_interrupt)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for work in (lambda: _outputs.apart(int), lambda: write_beside(tmp_path / "output")):
            with pytest.raises(KeyboardInterrupt):
                work()
            assert os.listdir(tmp_path) == []
    finally:
        signal.signal(signal.SIGTERM, before)


def write_beside(path):
    with _outputs.replacing(str(path)):
        raise AssertionError("interrupted before")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["compile", "report"])
def test_interruption(model, tmp_path, command, number, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = tmp_path / "output"
    folder.mkdir()
    output, log = (
        folder / ("output.pt" if command == "compile" else "output.html"),
        tmp_path / "log",
    )
    arguments = [command, model, "-o", output, *INPUT, "--batch", 64]
    arguments += ["--tile", 8] if command == "compile" else []
    start = time.monotonic()
    assert run_fork(arguments, 0, None, log) == 0
    whole = time.monotonic() - start
    codes = []
    for point in range(POINTS):
        output.write_text("before")
        codes.append(run_fork(arguments, whole * point / POINTS, number, log))
        said = log.read_text()
        if codes[-1] == 0:
            assert output.read_bytes() != b"before"
        else:
            assert codes[-1] == 1, said
            assert said.endswith("error: interrupted\n")
            assert output.read_bytes() == b"before"
        assert os.listdir(folder) == [output.name]
        assert os.listdir(temporary) == []
    assert 1 in codes
