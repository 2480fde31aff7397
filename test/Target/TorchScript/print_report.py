"""Prints the promise, and how random numbers are drawn, of a stored report.

Usage: print_report.py FILE.pt
"""

import json
import sys

import torch


def main():
    files = {"koila/report.json": ""}
    torch.jit.load(sys.argv[1], _extra_files=files)
    if not files["koila/report.json"]:
        sys.exit("the archive has no koila/report.json")
    report = json.loads(files["koila/report.json"])
    assert report["schema"] == 1
    if "random" in report:
        print(f"random: {report['random']}")
    promise = report["promise"]
    if promise is None:
        print("no promise")
        return
    print(
        f"promise: {promise['tile']} samples per tile within "
        f"{promise['budget_bytes']} bytes, {report['batch']['symbol']} from "
        f"{promise['holds_from']} to {promise['holds_to']}"
    )


if __name__ == "__main__":
    main()
