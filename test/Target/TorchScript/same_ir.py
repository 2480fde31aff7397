"""Compares two modules as text, without the archive they came from.

Usage: same_ir.py A.mlir B.mlir
"""

import difflib
import re
import sys

ARCHIVE = re.compile(r"koila\.archive = #koila\.archive<[^>]*>(, )?")


def lines(path):
    with open(path) as file:
        return [ARCHIVE.sub("", line.rstrip()) for line in file]


def main():
    a, b = map(lines, sys.argv[1:])
    difference = list(difflib.unified_diff(a, b, "A", "B", lineterm="", n=0))
    if difference:
        sys.exit("modules differ:\n" + "\n".join(difference[:20]))
    if not any("koila." in line for line in a):
        sys.exit("vacuous: no koila operation in these modules")


if __name__ == "__main__":
    main()
