"""Compares the files that a page quotes with what is there: quoted.py ROOT PAGE.md

A quotation is a comment with the path from the root, and the block after it.
"""

import pathlib
import re
import sys


def main():
    root, page = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = re.findall(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```$", page.read_text(), re.M | re.S)
    for path, text in found:
        if (root / path).read_text() != text:
            raise SystemExit(f"{page}: the block is not what is in {path}")
    print(f"{len(found)} files are quoted")


if __name__ == "__main__":
    main()
