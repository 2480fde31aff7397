"""Runs every program of a file through every pipeline: whatever it says, the
tool must end by itself, with 0 or 1, and no pass may leave invalid IR behind.

One run takes all programs. Only if something is wrong with it, each is run
alone, to say which it is.
"""

import subprocess
import sys
import tempfile

PIPELINES = [
    ["--verify-roundtrip"],
    ["--koila-peak-memory"],
    [
        "--koila-infer-shapes",
        "--koila-verify-stage=stage=inferred",
        "--koila-peak-memory=format=json",
    ],
    ["--koila-compile=tile=4"],
    ["--koila-infer-shapes", "--koila-tile-batch=budget=20KiB"],
    [
        "--koila-infer-shapes",
        "--koila-tile-batch=tile=4",
        "--canonicalize",
        "--cse",
        "--loop-invariant-code-motion",
        "--koila-peak-memory",
    ],
]
# What the verifier says after a pass, and never the parser or a pass.
INVALID = ["does not dominate", "type mismatch at", "along control flow edge"]
# Of one program, and of all of them, in seconds: on a busy machine, too.
TIMEOUT, TIMEOUT_OF_ALL = 60, 240
MARK = "// -----"


def run(tool, text, pipeline, timeout):
    """(what is wrong, or an empty string; what the tool said)"""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text + "\n")
        file.flush()
        try:
            result = subprocess.run(
                [tool, "--allow-unregistered-dialect", "--split-input-file", file.name, *pipeline],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {timeout} s", ""
    if result.returncode not in (0, 1):
        return f"exit code {result.returncode}", ""
    for line in result.stderr.splitlines():
        if any(part in line for part in INVALID):
            return line, ""
    return "", result.stdout + result.stderr


def main():
    tool, path = sys.argv[1:]
    with open(path) as file:
        text = file.read()
    programs = [part.strip() for part in text.split(MARK)]
    failures = set()
    for pipeline in PIPELINES:
        problem, said = run(tool, text, pipeline, TIMEOUT_OF_ALL)
        if not problem and said:
            continue
        alone = {}
        for number, program in enumerate(programs):
            problem_alone, _ = run(tool, program, pipeline, TIMEOUT)
            if problem_alone:
                alone[number] = problem_alone
        for number, found in alone.items():
            print(f"{programs[number].splitlines()[0]}\n  {' '.join(pipeline)}: {found}")
        if not alone:
            print(
                f"all programs in one run\n  {' '.join(pipeline)}: {problem or 'nothing was said'}"
            )
        failures |= alone.keys() or {-1}
    print(f"{len(programs)} programs, {len(failures)} fail")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
