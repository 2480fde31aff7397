"""Compares a report of koila-run on an original step and one within a budget.

Usage: step_budget.py REPORT.json MIB
"""

import json
import sys

with open(sys.argv[1]) as file:
    report = json.load(file)
original, tiled = report["programs"]
for program in (original, tiled):
    assert program["predicted_exact"], program
    assert program["predicted_peak_bytes"] == program["measured_peak_bytes"], program
budget = int(sys.argv[2]) << 20
assert original["measured_peak_bytes"] > budget >= tiled["measured_peak_bytes"]
assert report["compare"]["equal"], report["compare"]
print("measured as predicted, within the budget")
