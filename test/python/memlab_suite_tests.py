"""pytorch_memlab's own tests, of its source package, with koila's modules.

They are fetched from the package index, and skipped where there is none. Without a GPU
`.cuda()` leaves tensors on the CPU. What that leaves untested is GPU memory itself: in
test_courtesy.py both tests move nothing, and test_line_report_profile_set_gpu has one
device.
"""

import pathlib
import subprocess
import sys
import tarfile

import pytest

import koila

VERSION = "0.3.2"
BUILD = pathlib.Path(koila.__file__).parents[2]


def fetch():
    """The folder of its tests."""
    target = BUILD / "test" / "memlab"
    name = f"pytorch_memlab-{VERSION}"
    archive = target / f"{name}.tar.gz"
    if not archive.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--no-build-isolation", "--no-binary=:all:", "--disable-pip-version-check"]
        pip += ["--retries=0", "--timeout=10", "--dest", str(target)]
        try:
            subprocess.run([*pip, f"pytorch-memlab=={VERSION}"], check=True, timeout=60)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pytest.skip(f"pytorch_memlab {VERSION} is not on the package index")
    with tarfile.open(archive) as file:
        file.extractall(target, filter="data")
    return target / name / "test"


def run(*arguments):
    folder = fetch()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "memlab_suite_plugin",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, "-rA", "--import-mode=importlib", "-W", "ignore", *arguments, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**__import__("os").environ, "PYTHONPATH": ":".join(sys.path)},
    )


PASSED = """
test_courtesy_context test_display test_line_report test_line_report_decorator
test_line_report_method test_line_report_profile test_line_report_profile_set_gpu
test_readable_size_with_nan test_readable_size_with_symbolic_byte_size test_reporter
test_reporter_LSTM test_reporter_device test_reporter_sparse_tensor
test_reporter_tie_weight test_reporter_with_optimizer test_reporter_without_model
"""


def test_its_tests_pass():
    done = run(
        "--deselect",
        "test_line_profiler.py::test_line_report_profile_interrupt",
        "-k",
        "not interrupt",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = {
        line.rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("PASSED")
    }
    assert passed == set(PASSED.split()), done.stdout
    assert "17 passed, 1 deselected" in done.stdout, done.stdout


def test_its_interrupted_test_prints():
    """It ends itself by KeyboardInterrupt."""
    done = run("-k", "interrupt")
    assert done.returncode == 2 and "KeyboardInterrupt" in done.stdout
    assert "## test_line_report_profile_interrupt.<locals>.work\n" in done.stdout
    assert "39.45K" in done.stdout, done.stdout
