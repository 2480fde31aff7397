"""Compares a page of docs/results with what a run of today makes of it.

Usage: compare_page.py PAGE MADE [--columns NAME...] [--part]

By default the text must be the same. With --columns only these cells of the tables
of programs must be, as well as the title, the heads of the tables and which
programs there are: for pages with figures that depend on the machine. With --part
MADE may have fewer programs. Exits with 1 and names what differs.
"""

import argparse
import collections
import pathlib
import sys

MOST = 20


def cells(line):
    """Of `| a | b \\| c |`."""
    text = line.strip().strip("|").replace("\\|", "\0")
    return [cell.strip().replace("\0", "\\|") for cell in text.split("|")]


def read_tables(text):
    """The heads and, by program, the rows of the tables of programs."""
    heads, rows, head = [], collections.defaultdict(list), None
    for line in text.splitlines():
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells(line)
            if head[0] == "program":
                heads.append(head)
        elif head[0] == "program" and not line.startswith("|---"):
            row = dict(zip(head, cells(line), strict=True))
            rows[row["program"]].append(row)
    return heads, rows


def compare_tables(page, made, columns, part):
    """Sentences about what differs."""
    (old_heads, old), (new_heads, new) = read_tables(page), read_tables(made)
    if page.splitlines()[0] != made.splitlines()[0]:
        yield "the title differs"
    if not new:
        yield "there is no table of programs"
    if old_heads != new_heads:
        yield f"the columns are {new_heads}, in the page {old_heads}"
        return
    if missing := [name for name in columns if not any(name in head for head in new_heads)]:
        yield f"there is no column '{missing[0]}'"
        return
    for program in new.keys() - old.keys():
        yield f"{program} is not in the page"
    for program in () if part else old.keys() - new.keys():
        yield f"{program} is in the page only"
    for program, rows in new.items():
        for before, now in zip(old.get(program, []), rows, strict=False):
            for name in columns:
                if before.get(name) != now.get(name):
                    yield f"{program}, {name}: {now.get(name)}; in the page {before.get(name)}"


def compare_texts(page, made):
    old, new = page.splitlines(), made.splitlines()
    if len(old) != len(new):
        yield f"{len(new)} lines, in the page {len(old)}"
    for number, (before, now) in enumerate(zip(old, new, strict=False), 1):
        if before != now:
            yield f"line {number}: {now}\n    in the page: {before}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("made", type=pathlib.Path)
    parser.add_argument("--columns", nargs="*", metavar="NAME")
    parser.add_argument("--part", action="store_true")
    options = parser.parse_args()
    page, made = options.page.read_text(), options.made.read_text()
    if options.columns is None and not options.part:
        found = list(compare_texts(page, made))
    else:
        columns = options.columns
        if columns is None:
            columns = dict.fromkeys(name for head in read_tables(made)[0] for name in head)
        found = sorted(compare_tables(page, made, columns, options.part))
    for sentence in found[:MOST]:
        print(f"{options.made.name}: {sentence}", file=sys.stderr)
    if found:
        sys.exit(f"{options.page.name} is stale in {len(found)} places: tools/dev/write_results.py")


if __name__ == "__main__":
    main()
