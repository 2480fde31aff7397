"""Ends koila-opt by each signal while LibTorch does not come back: both of its
processes must be gone, and the exit code must tell the signal.

Usage: interrupted.py KOILA_OPT ARCHIVE
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
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(
            ")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def main():
    tool, archive = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [tool, archive, "--allow-setstate", "-o", f"{folder}/out.pt"],
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                 signal.SIG_DFL))
            assert wait_until(lambda: get_children(process.pid))
            child, = get_children(process.pid)
            # Into LibTorch.
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(number)
            code = process.wait(20)
            assert code == -number, f"{number!r}: exit code {code}"
            assert wait_until(lambda: not is_alive(child)), f"{number!r}"
            assert not os.listdir(folder), os.listdir(folder)


if __name__ == "__main__":
    main()
