"""Runs every program of a file through every pipeline: whatever it says, the
tool must end by itself, with 0 or 1, within a few seconds, and no pass may
leave invalid IR behind."""

import subprocess
import sys
import tempfile

PIPELINES = [
    ["--verify-roundtrip"],
    ["--koila-peak-memory"],
    ["--koila-infer-shapes", "--koila-verify-stage=stage=inferred",
     "--koila-peak-memory=format=json"],
    ["--koila-compile=tile=4"],
    ["--koila-infer-shapes", "--koila-tile-batch=budget=20KiB"],
    ["--koila-infer-shapes", "--koila-tile-batch=tile=4", "--canonicalize",
     "--cse", "--loop-invariant-code-motion", "--koila-peak-memory"],
]
# What the verifier says after a pass, and never the parser or a pass.
INVALID = ["does not dominate", "type mismatch at", "along control flow edge"]


def main():
    tool, path = sys.argv[1:]
    programs = [text.strip() for text in open(path).read().split("// -----")]
    failures = 0
    for program in programs:
        title = program.splitlines()[0]
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(program + "\n")
            file.flush()
            for pipeline in PIPELINES:
                command = [tool, "--allow-unregistered-dialect", file.name]
                try:
                    result = subprocess.run(
                        command + pipeline, stdin=subprocess.DEVNULL,
                        capture_output=True, text=True, timeout=10)
                    problem = ""
                    if result.returncode not in (0, 1):
                        problem = f"exit code {result.returncode}"
                    for text in INVALID:
                        if text in result.stderr:
                            problem = result.stderr.splitlines()[0]
                except subprocess.TimeoutExpired:
                    problem = "no end within 10 s"
                if problem:
                    failures += 1
                    print(f"{title}\n  {' '.join(pipeline)}: {problem}")
                    break
    print(f"{len(programs)} programs, {failures} fail")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
