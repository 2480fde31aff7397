"""Runs programs before and after koila-opt with upstream passes, and compares
results, arguments and state bit by bit.

Usage: same_effects.py [--drop-marks] FOLDER KOILA_OPT NAME...

--drop-marks removes koila.reads and koila.writes from the text first.
"""

import pathlib
import subprocess
import sys

import torch

PASSES = ["--canonicalize", "--cse", "--loop-invariant-code-motion"]


def run(path):
    module = torch.jit.load(path)
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    seen = []
    for _ in range(2):
        result = module(x)
        result = result if isinstance(result, tuple) else (result,)
        seen.append([part.clone() for part in result])
    state = [tensor.clone() for tensor in module.state_dict().values()]
    return [("result", [t for parts in seen for t in parts]), ("argument", [x]), ("state", state)]


def main():
    drop = sys.argv[1] == "--drop-marks"
    folder, koila_opt, *names = sys.argv[1 + drop :]
    folder = pathlib.Path(folder)
    failed = False
    for name in names:
        source = str(folder / f"{name}.pt")
        text = str(folder / f"{name}.mlir")
        out = str(folder / f"{name}.out.pt")
        subprocess.run([koila_opt, source, "-o", text], check=True)
        if drop:
            words = pathlib.Path(text).read_text()
            for mark in ("koila.reads", "koila.writes"):
                words = (
                    words.replace(f", {mark}", "")
                    .replace(f"{mark}, ", "")
                    .replace(f" {{{mark}}}", "")
                )
            pathlib.Path(text).write_text(words)
        subprocess.run([koila_opt, text, *PASSES, "-o", out], check=True)
        for (what, before), (_, after) in zip(run(source), run(out), strict=True):
            same = len(before) == len(after) and all(
                torch.equal(lhs, rhs) for lhs, rhs in zip(before, after, strict=True)
            )
            if not same:
                print(f"{name}: {what} differs")
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
