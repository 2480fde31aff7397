"""Runs a command that must refuse, and prints what it says.

Usage: refused.py COMMAND... with {out} where the output file's name goes

Fails unless the exit code is 1, nothing is printed on stdout, something is
said on stderr, a file that was there before is untouched, and no temporary one is
beside it. Each third command, by a checksum, also runs where no file was, and
must leave none; with KOILA_TEST_LONG, as --long sets it, each.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zlib


def run(folder, command):
    out = os.path.join(folder, "out.pt")
    command = [part.replace("{out}", out) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    sys.stdout.write(done.stderr)
    if done.returncode != 1:
        sys.exit(f"exit code {done.returncode}, not 1")
    if not done.stderr.strip():
        sys.exit("refused without a word")
    if "{out}" in " ".join(sys.argv) and done.stdout:
        sys.exit(f"printed on stdout: {done.stdout[:200]}")


def main():
    command = sys.argv[1:]
    # Without folders, which are those of a machine.
    name = " ".join(part.rpartition("/")[2] for part in command)
    if os.environ.get("KOILA_TEST_LONG") or zlib.crc32(name.encode()) % 3 == 0:
        with tempfile.TemporaryDirectory() as folder:
            run(folder, command)
            left = os.listdir(folder)
            if left:
                sys.exit(f"files left: {left}")
    with tempfile.TemporaryDirectory() as folder:
        old = pathlib.Path(folder, "out.pt")
        old.write_text("what was there before")
        run(folder, command)
        if os.listdir(folder) != ["out.pt"] or (old.read_text() != "what was there before"):
            sys.exit("the file that was there before is touched")


if __name__ == "__main__":
    main()
