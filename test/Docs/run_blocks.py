"""Runs the fenced blocks of a page in order, in an empty folder.

run_blocks.py PAGE.md
"""

import pathlib
import re
import subprocess
import sys
import tempfile

RUNNERS = {"python": [sys.executable], "sh": ["bash", "-eu"]}


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    if not blocks:
        raise SystemExit("the page has no blocks")
    with tempfile.TemporaryDirectory() as folder:
        for language, code in blocks:
            subprocess.run(RUNNERS[language], input=code, text=True, cwd=folder, check=True)
    print(f"{len(blocks)} blocks ran")


if __name__ == "__main__":
    main()
