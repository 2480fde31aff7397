#!/usr/bin/env python3
"""Checks that a test expects every diagnostic of the passes.

    check_diagnostics.py [--list]

A site is a call in the sources below that makes a diagnostic, or a part of one:
emitError, emitWarning, attachNote, a helper such as fail() or refuse(). Its text
is what its string literals say; values between them are left open. A test expects
it if one of its expected texts (expected-error and its like, a line of FileCheck,
a literal of a Python or C++ test) says that in this order. Where a test leaves out
the beginning or end of a message, at least half of the literals has to be there.

test/UntestedDiagnostics.txt lists the sites that no input reaches, with the
reason. A line there that no untested site has is an error. Prints a line for
each violation, with --list one for each site, and exits with 1 if there are
violations.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import pathlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_KNOWN = "test/UntestedDiagnostics.txt"
# Rules of single operators, lib/Dialect/Koila/IR/Shapes, are left out:
# test/oracle compares what they refuse with what PyTorch does.
_SOURCES = (
    "lib/Allocators",
    "lib/Analysis",
    "lib/Device",
    "lib/Dialect/Koila/IR/*.cpp",
    "lib/Dialect/Koila/IR/Ops",
    "lib/Dialect/Koila/IR/Utils",
    "lib/Dialect/Koila/Transforms",
    "lib/InputSpec",
    "lib/Interfaces",
    "lib/KernelModels/ATen/Optimizer.cpp",
    "lib/KernelModels/WorkspaceTable.cpp",
    "lib/Support",
)
_LITERAL = r'"(?:[^"\\\n]|\\.)*"'
# Comments, so that they go, beside literals, in which they do not begin.
_COMMENT = re.compile(rf"({_LITERAL})|//[^\n]*")
_MAKES = re.compile(
    r"\b(?:emit(?:Error|OpError|Warning|Remark)|errorAt|attachNote|createStringError"
    r"|makeError|fail|refuse\w*|barriers\.push_back)\s*\("
    r"|\b(?:problem|reason) = |\b(?:error|warning|note)(?:\(\))?\s*<<"
    # A reason that a function gives.
    r'|\breturn (?="(?:[^" ]+ ){3})'
)
# The choices of a conditional expression are values.
_CHOICES = re.compile(rf"\?[^?:;]*?{_LITERAL}[^:;]*?:\s*(?:{_LITERAL}\s*)*")
_STATEMENT = re.compile(rf"{_LITERAL}|'(?:[^'\\]|\\.)+'|[^;{{}}]")
_EXPECTED = re.compile(r"expected-(?:error|warning|remark|note)[^{\n]*\{\{(.*)\}\}")
_FILECHECK = re.compile(r"^\s*(?://|#)?\s*[A-Z][A-Z0-9_-]*?(-SAME)?:\s?(.*)$")


@dataclasses.dataclass(frozen=True)
class Site:
    file: str
    line: int
    parts: tuple[str, ...]  # what the literals say

    @property
    def text(self) -> str:
        return " ... ".join(self.parts)

    def is_in(self, expected: str) -> bool:
        """Whether `expected` says it, perhaps without its beginning and end."""
        if len(self.parts) == 1 and expected in self.text:
            return len(expected) * 2 >= len(self.text)
        said = place = 0
        for index, part in enumerate(self.parts):
            found = expected.find(part, place)
            length = len(part)
            if found < 0 and index == 0:
                found, length = 0, _overlap(part, expected, 0)
            if (found < 0 or not length) and index == len(self.parts) - 1:
                length = _overlap(expected, part, place)
                found = len(expected) - length
            if found < 0 or not length:
                return False
            said += length
            place = found + length
        return said * 2 >= sum(map(len, self.parts))


def _overlap(left: str, right: str, start: int) -> int:
    """Characters at the end of `left` with which `right` begins; 0 if but a few."""
    few = 4
    place = left.find(right[:few], start)
    while 0 <= place <= len(left) - few:
        if right.startswith(left[place:]):
            return len(left) - place
        place = left.find(right[:few], place + 1)
    return 0


def _simplify(text: str) -> str:
    """Without the marks that a regular expression or a literal needs."""
    return " ".join(re.sub(r"\\n|\\", " ", re.sub(r"\\([^n])", r"\1", text)).split())


def _get_parts(statement: str) -> tuple[str, ...]:
    """Parts of a message in program order, without values and marks at their ends."""
    # Adjacent literals are one; two that << or + joins are one, too.
    joined = re.sub(r'"\s*(?:<<|\+)?\s*"', "", _CHOICES.sub(" ", statement))
    literals = (_simplify(x[1:-1]) for x in re.findall(_LITERAL, joined))
    parts = (re.sub(r"^\W+|\W+$", "", x) for x in literals)
    return tuple(x for x in parts if x)


def find_sites(file: str, source: str) -> Iterator[Site]:
    source = _COMMENT.sub(lambda found: found[1] or "", source)
    end = 0
    for call in _MAKES.finditer(source):
        # A helper in the statement of another call.
        if call.start() < end:
            continue
        end = call.end()
        while found := _STATEMENT.match(source, end):
            end = found.end()
        if parts := _get_parts(source[call.end() : end]):
            yield Site(file, source.count("\n", 0, call.start()) + 1, parts)


def find_expected(name: str, text: str) -> Iterator[str]:
    """What the test `name` expects somewhere."""
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield _simplify(node.value)
    elif name.endswith(".cpp"):
        for literal in re.findall(_LITERAL, re.sub(r'"\s*"', "", text)):
            yield _simplify(literal[1:-1])
    else:
        yield from (_simplify(x) for x in _EXPECTED.findall(text))
        lines: list[str] = []
        for line in text.splitlines():
            if found := _FILECHECK.match(line):
                if found[1] and lines:
                    lines[-1] += " " + found[2]
                else:
                    lines.append(re.sub(r"^.*?\b(?:error|warning|remark|note): ", "", found[2]))
        yield from map(_simplify, lines)


def check(sites: Iterable[Site], expected: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """`known` has "FILE: TEXT" of sites that no input reaches."""
    together = [x for x in set(expected) if x]
    unused = set(known)
    for site in sites:
        if any(site.is_in(x) for x in together):
            continue
        key = f"{site.file}: {site.text}"
        if key in known:
            unused.discard(key)
        else:
            yield f"{site.file}:{site.line}: no test expects: {site.text}"
    yield from (f"{_KNOWN}: no untested site is: {key}" for key in sorted(unused))


def read_known(text: str) -> set[str]:
    """Entries "FILE: TEXT", in blocks that begin with the reason as a comment."""
    known: set[str] = set()
    for block in text.split("\n\n"):
        entries = [x for x in block.splitlines() if not x.startswith("#")]
        if entries and not block.startswith("#"):
            raise SystemExit(f"{_KNOWN}: no reason above: {entries[0]}")
        known.update(entries)
    return known - {""}


def _read(root: pathlib.Path, places: Iterable[str], suffixes: set[str]) -> dict[str, str]:
    files = (x for place in places for x in root.glob(place))
    paths = (y for x in files for y in (sorted(x.rglob("*")) if x.is_dir() else [x]))
    return {
        str(x.relative_to(root)): x.read_text(encoding="utf-8")
        for x in paths
        if x.suffix in suffixes
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every site")
    parser.add_argument("--root", type=pathlib.Path, default=_ROOT)
    arguments = parser.parse_args()
    root = arguments.root
    sources = _read(root, _SOURCES, {".cpp", ".h"})
    sites = [x for file, source in sources.items() for x in find_sites(file, source)]
    if arguments.list:
        for site in sites:
            print(f"{site.file}:{site.line}: {site.text}")
        return 0
    tests = _read(root, ["test"], {".mlir", ".test", ".py", ".cpp"})
    expected = (x for name, text in tests.items() for x in find_expected(name, text))
    known = read_known((root / _KNOWN).read_text(encoding="utf-8"))
    violations = list(check(sites, expected, known))
    print("\n".join(violations) or f"{len(sites)} diagnostics are expected by tests")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
