"""Ends koila-opt by each signal while LibTorch does not come back: both of its
processes must be gone, and the exit code must tell the signal. Then at moments
of a whole run: the output must be there whole if the exit code says so, and as
it was before if not.

Usage: interrupted.py KOILA_OPT HANGING_ARCHIVE MODEL
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def get_children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def is_alive(pid):
    try:
        return (
            pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        )
    except OSError:
        return False


def wait_until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def interrupt_anywhere(tool, model, suffix, number):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "out" + suffix)
        arguments = [tool, model, "--input=float32[B,64]", "--koila-compile=tile=8", "-o", output]
        start = time.monotonic()
        subprocess.run(arguments, check=True)
        whole = time.monotonic() - start
        codes = set()
        for point in range(POINTS):
            output.write_bytes(b"before")
            process = subprocess.Popen(
                arguments, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
            )
            time.sleep(whole * point / POINTS)
            process.send_signal(number)
            code = process.wait(20)
            codes.add(code)
            assert code in (0, -number), code
            assert (output.read_bytes() == b"before") == (code != 0), code
            assert os.listdir(folder) == [output.name], os.listdir(folder)
        assert -number in codes


POINTS = 20


def main():
    tool, archive, model = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [tool, archive, "--allow-setstate", "-o", f"{folder}/out.pt"],
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            assert wait_until(lambda process=process: get_children(process.pid))
            (child,) = get_children(process.pid)
            # Into LibTorch.
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(number)
            code = process.wait(20)
            assert code == -number, f"{number!r}: exit code {code}"
            assert wait_until(lambda child=child: not is_alive(child)), f"{number!r}"
            assert not os.listdir(folder), os.listdir(folder)
    for suffix in (".pt", ".mlir"):
        for number in (signal.SIGINT, signal.SIGTERM):
            interrupt_anywhere(tool, model, suffix, number)


if __name__ == "__main__":
    main()
