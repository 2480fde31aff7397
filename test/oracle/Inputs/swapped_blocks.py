#!/usr/bin/env python3
"""koila-opt, but of the first two blocks of each line the bytes are exchanged: what
is there at the worst moment stays the same. In a training step those of its backward
pass."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys


def swap(events):
    lines = collections.defaultdict(list)
    backward = [event for event in events if event["op"].endswith(" (backward)")]
    for event in backward or events:
        if event["action"] == "alloc":
            lines[json.dumps(event["location"])].append(event)
    sizes = {}
    for blocks in lines.values():
        if len(blocks) > 1:
            first, second = blocks[:2]
            sizes[first["id"]], sizes[second["id"]] = second["bytes"], first["bytes"]
    for event in events:
        event["bytes"] = sizes.get(event["id"], event["bytes"])


code = subprocess.run([os.environ["KOILA_OPT"], *sys.argv[1:]]).returncode
for argument in sys.argv[1:]:
    if found := re.search(r"output=(\S+)", argument):
        path = pathlib.Path(found[1])
        report = json.loads(path.read_text())
        swap(report.get("events", []))
        path.write_text(json.dumps(report))
sys.exit(code)
