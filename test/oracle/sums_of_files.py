#!/usr/bin/env python3
"""Prints, of MLIR files, the peak of the report and the largest sum of the events.

Usage: sums_of_files.py KOILA-OPT FILE...
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from event_checks import check_events


def read(tool, path, options):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "out.json")
        run = f"--koila-peak-memory={options} floor=false batches=0 output={output}"
        subprocess.run([tool, path, "--koila-infer-shapes", run, "-o", "/dev/null"], check=True)
        return json.loads(output.read_text())


def main():
    tool, *paths = sys.argv[1:]
    for path in paths:
        text = pathlib.Path(path).read_text()
        mode = "mode=forward-with-grad" if "requires_grad" in text else ""
        report = read(tool, path, f"format=json {mode}")
        events = read(tool, path, f"format=events {mode}")["events"]
        found = check_events(events)
        exact = sum(event["exact"] for event in events)
        print(
            f"{pathlib.Path(path).name}: peak {report['peak_bytes']}, events "
            f"{found if isinstance(found, str) else found[0]}, {exact} of {len(events)} exact"
        )


if __name__ == "__main__":
    main()
