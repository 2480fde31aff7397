"""Takes the smallest budget that a refusal names, and holds koila to it.

Usage: smallest_budget.py STDERR.txt MODEL.pt OPTIONS...

It must compile with exactly that many bytes, and not with one less.
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def compiles(budget, model, options):
    with tempfile.TemporaryDirectory() as folder:
        return (
            subprocess.run(
                [
                    "koila-opt",
                    model,
                    *options,
                    f"--koila-compile=budget={budget}",
                    "-o",
                    f"{folder}/out.pt",
                ],
                capture_output=True,
            ).returncode
            == 0
        )


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    model, options = sys.argv[2], sys.argv[3:]
    match = re.search(r"smallest budget[^\n]*?([\d,]+) bytes", text)
    if not match:
        sys.exit(f"no smallest budget in: {text}")
    budget = int(match[1].replace(",", ""))
    if not compiles(budget, model, options):
        sys.exit(f"does not compile with the smallest budget, {budget}")
    if compiles(budget - 1, model, options):
        sys.exit(f"{budget} is not the smallest: one byte less does as well")
    print(f"smallest budget: {budget} bytes")


if __name__ == "__main__":
    main()
