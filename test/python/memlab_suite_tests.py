"""pytorch_memlab's own tests, of its source package, with koila's modules.

They are fetched from the package index, and skipped where there is none. Without a GPU
`.cuda()` leaves tensors on the CPU. What that leaves untested is GPU memory itself: in
test_courtesy.py both tests move nothing, and test_line_report_profile_set_gpu has one
device.
"""

import atexit
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import pytest
import torch

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
    """Exit code and output of pytest, in a fork that ends as the interpreter does."""
    folder = fetch()
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if not child:
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
                # Its threads are not the child's.
                torch.set_num_threads(1)
                os.chdir(folder)
                options = ["-p", "memlab_suite_plugin", "-p", "no:cacheprovider", "-W", "ignore"]
                code = pytest.main([*options, "-rA", "--import-mode=importlib", *arguments, "."])
                atexit._run_exitfuncs()
                sys.stdout.flush()
                os._exit(code)
            finally:
                os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        return code, out.read()


PASSED = """
test_courtesy_context test_display test_line_report test_line_report_decorator
test_line_report_method test_line_report_profile test_line_report_profile_set_gpu
test_readable_size_with_nan test_readable_size_with_symbolic_byte_size test_reporter
test_reporter_LSTM test_reporter_device test_reporter_sparse_tensor
test_reporter_tie_weight test_reporter_with_optimizer test_reporter_without_model
"""
# Large for a CPU: in long runs.
SLOW = "test_reporter_LSTM test_reporter_device"


def test_its_tests_pass():
    slow = [] if os.environ.get("KOILA_TEST_LONG") else SLOW.split()
    code, out = run("-k", " and ".join(f"not {name}" for name in ["interrupt", *slow]))
    assert code == 0, out
    passed = {line.rpartition("::")[2] for line in out.splitlines() if line.startswith("PASSED")}
    assert passed == set(PASSED.split()) - set(slow), out
    assert f"{17 - len(slow)} passed, {1 + len(slow)} deselected" in out, out


def test_its_interrupted_test_prints():
    """It ends itself by KeyboardInterrupt."""
    code, out = run("-k", "interrupt")
    assert code == 2 and "KeyboardInterrupt" in out
    assert "## test_line_report_profile_interrupt.<locals>.work\n" in out
    assert "39.45K" in out, out
