#!/usr/bin/env python3
"""koila-opt, but every peak that it reports is one byte too high."""

import json
import os
import pathlib
import re
import subprocess
import sys

code = subprocess.run([os.environ["KOILA_OPT"], *sys.argv[1:]]).returncode
for argument in sys.argv[1:]:
    if found := re.search(r"output=(\S+)", argument):
        path = pathlib.Path(found[1])
        report = json.loads(path.read_text())
        report["peak_bytes"] += 1
        path.write_text(json.dumps(report))
sys.exit(code)
