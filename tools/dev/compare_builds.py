#!/usr/bin/env python3
"""Says where two builds of koila-opt give different figures.

Usage: compare_builds.py BEFORE AFTER COMMAND...

BEFORE and AFTER are two programs koila-opt. COMMAND runs once; where it says
`{koila-opt}`, a program stands that is AFTER to it. Each of its calls that writes
JSON (`output=`) is given to BEFORE as well, and the files are compared, entry by
entry. Differences are printed as `call: key: before -> after`, equal ones once,
with how often they were seen; the last line has the counts. Exit code 1 if there is a
difference, or if nothing was compared.

For a change that must not change figures:

  git worktree add ../before HEAD~1    # and build koila-opt there
  build/venv/bin/python tools/dev/compare_builds.py ../before/build/bin/koila-opt \\
      build/bin/koila-opt build/venv/bin/python test/oracle/memory_oracle.py \\
      --koila-opt {koila-opt} --counter build/lib/libkoila-counter.so --legal 2
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Times, and paths of the files that a call reads, differ from call to call.
UNSTABLE = {"seconds", "file", "source", "version"}
# Lists whose equal entries may come in another order.
UNORDERED = (".live_at_peak", ".by_line", ".by_module", ".by_kind", ".inexact", ".storages")
OUTPUT = re.compile(r"(?<=\boutput=)[^ }]+")


def call(before: str, after: str, log: pathlib.Path, arguments: list[str]) -> int:
    """What stands for koila-opt: AFTER, and on the side BEFORE."""
    done = subprocess.run([after, *arguments])
    outputs = [m for argument in arguments for m in OUTPUT.findall(argument)]
    if not outputs or done.returncode:
        return done.returncode
    other = outputs[0] + ".before"
    changed = [OUTPUT.sub(other, argument) for argument in arguments]
    earlier = subprocess.run([before, *changed], capture_output=True, text=True)
    entry: dict[str, object] = {"call": " ".join(a for a in arguments if a.startswith("--k"))}
    if earlier.returncode:
        entry["failed"] = earlier.stderr.strip().splitlines()[-1:]
    else:
        entry["differences"] = compare(pathlib.Path(other), pathlib.Path(outputs[0]))
    pathlib.Path(other).unlink(missing_ok=True)
    with log.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    return 0


def compare(before: pathlib.Path, after: pathlib.Path) -> list[tuple[str, str, str]]:
    texts = [path.read_text() for path in (before, after)]
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        # One document a line.
        values = [[json.loads(line) for line in text.splitlines()] for text in texts]
    differences: list[tuple[str, str, str]] = []

    def walk(key: str, one: object, other: object) -> None:
        if isinstance(one, dict) and isinstance(other, dict):
            for name in sorted({*one, *other} - UNSTABLE):
                walk(f"{key}.{name}", one.get(name), other.get(name))
        elif isinstance(one, list) and isinstance(other, list) and key.endswith(UNORDERED):
            left = collections.Counter(json.dumps(entry, sort_keys=True) for entry in one)
            right = collections.Counter(json.dumps(entry, sort_keys=True) for entry in other)
            differences.extend((key.lstrip("."), entry, "-") for entry in (left - right).elements())
            differences.extend((key.lstrip("."), "-", entry) for entry in (right - left).elements())
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            for index, (first, second) in enumerate(zip(one, other, strict=True)):
                walk(f"{key}[{index}]", first, second)
        elif one != other:
            differences.append((key.lstrip("."), json.dumps(one), json.dumps(other)))

    walk("", *values)
    return differences


def main() -> int:
    if len(sys.argv) > 3 and sys.argv[1] == "--call":
        return call(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5:])
    if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help") else 2
    before, after, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        # Beside it, as beside AFTER, the libraries.
        log, shim = pathlib.Path(folder, "log"), pathlib.Path(folder, "bin", "koila-opt")
        shim.parent.mkdir()
        pathlib.Path(folder, "lib").symlink_to(pathlib.Path(after).resolve().parents[1] / "lib")
        words = [sys.executable, os.path.abspath(__file__), "--call", before, after, str(log)]
        shim.write_text("#!/bin/sh\nexec " + " ".join(f"'{w}'" for w in words) + ' "$@"\n')
        shim.chmod(0o755)
        done = subprocess.run([word.replace("{koila-opt}", str(shim)) for word in command])
        entries = (
            [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        )
    seen: collections.Counter[str] = collections.Counter()
    failed = 0
    for entry in entries:
        failed += "failed" in entry
        for key, one, other in entry.get("differences", []):
            seen[f"{re.sub(r'[0-9]+', 'N', key)}: {one[:160]} -> {other[:160]}"] += 1
    for text, count in seen.most_common():
        print(f"{count:6} {text}")
    differ = sum(bool(entry.get("differences")) for entry in entries)
    print(
        f"{len(entries)} calls compared, {differ} with differences, "
        f"{failed} that the earlier build refuses; the command ended with {done.returncode}"
    )
    return int(not entries or differ > 0 or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
