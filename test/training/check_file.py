"""Reads what koila-run said of a file with several methods that koila wrote.

    koila-run ... --json | check_file.py FILE.pt METHOD...

The prediction of the second program must be the measurement, below the first
one's, and the results equal; the file has a report for each METHOD, and
`koila/report.json` is that of the last one.
"""

import json
import sys
import zipfile

original, tiled = (report := json.load(sys.stdin))["programs"]
assert report["compare"]["equal"], report["compare"]
assert tiled["predicted_exact"], tiled
assert tiled["predicted_peak_bytes"] == tiled["measured_peak_bytes"], tiled
assert tiled["measured_peak_bytes"] < original["measured_peak_bytes"], report

with zipfile.ZipFile(sys.argv[1]) as archive:
    stored = {
        name.split("/extra/")[1]: archive.read(name)
        for name in archive.namelist()
        if "/extra/koila/" in name
    }
reports = [json.loads(stored[f"koila/{method}/report.json"]) for method in sys.argv[2:]]
assert [one["function"] for one in reports] == sys.argv[2:], reports
assert json.loads(stored["koila/report.json"]) == reports[-1]
