"""A Python with PyTorch alone, which calls emitted files as a user does.

One serves all cases, since importing PyTorch takes longer than most calls; after
a case that ends it the next one gets another.
"""

import subprocess
import sys
import tempfile
import threading

TIMEOUT = 600
# `call` is what a test gives.
LOOP = """
for line in sys.stdin:
    call(*line.rstrip("\\n").split("|"))
    print(flush=True)
"""


class PlainPython:
    def __init__(self, code):
        """`code` defines `call`, which takes paths."""
        self.code, self.process = code + LOOP, None

    def start(self):
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def run(self, requests):
        """Calls for each list of paths; (whether all went well, stderr)."""
        if self.process is None:
            self.start()
        position = self.errors.seek(0, 2)
        timer = threading.Timer(TIMEOUT, self.process.kill)
        timer.start()
        try:
            good = all(map(self.answer, requests))
        finally:
            timer.cancel()
        if not good:
            self.process.kill()
            self.process.wait()
            self.process = None
        self.errors.seek(position)
        return good, self.errors.read()

    def answer(self, paths):
        """Whether it returned."""
        try:
            print(*paths, sep="|", file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return False
        return self.process.stdout.readline() == "\n"
