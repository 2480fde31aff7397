#!/usr/bin/env python3
"""Compares the schemas of the dialect with the generators of the oracles.

Usage: check_generators.py OPERATIONS.json [--drop SCHEMA]

The argument is what `llvm-tblgen --dump-json` makes of KoilaAllOps.td. A schema
needs a generator in python/koila/_generators, which may draw its in-place twin as well, or a line
in without_generator.txt that says why no oracle calls it. --drop leaves a generator
out, so that the check can be seen to fail.
"""

import argparse
import json
import pathlib
import re
import sys

from koila._generators import load_generators

WITHOUT = pathlib.Path(__file__).with_name("without_generator.txt")


def read_schemas(path):
    """Names with overload: of each operator, that of its in-place twin or none."""
    records = json.loads(pathlib.Path(path).read_text())
    twins = {}
    for name in records["!instanceof"]["Koila_TorchOp"]:
        text = records[name]["baseDeclaration"]
        own, twin = (
            re.search(method + r'\(\) \{ return "([^"(]*)', text)[1]
            for method in ("getTorchSchema", "getInPlaceSchema")
        )
        twins[own] = twin or None
    return twins


def read_reasons():
    reasons = {}
    for line in WITHOUT.read_text().splitlines():
        name, _, reason = line.partition(" ")
        if name and not name.startswith("#"):
            reasons[name] = reason.strip()
    return reasons


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operations")
    parser.add_argument("--drop", metavar="SCHEMA")
    arguments = parser.parse_args()
    twins, reasons = read_schemas(arguments.operations), read_reasons()
    schemas = set(twins)
    generated = set(load_generators()) - {arguments.drop}
    problems = [f"{name}: no generator" for name in sorted(schemas - generated - set(reasons))]
    problems += [
        f"{name}: no such schema" for name in sorted(generated - schemas - set(twins.values()))
    ]
    problems += [
        f"{name}: has a generator, or is gone; take it out of {WITHOUT.name}"
        for name in sorted(set(reasons) & generated | set(reasons) - schemas)
    ]
    problems += [f"{name}: no reason" for name, reason in sorted(reasons.items()) if not reason]
    print("\n".join(problems))
    print(f"{len(schemas)} schemas, {len(reasons)} without a generator, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
