#!/usr/bin/env python3
"""Checks that the layers of the C++ library depend downwards only.

    check_layers.py includes --build BUILD
    check_layers.py symbols --build BUILD
    check_layers.py headers --build BUILD [--every N] [HEADER ...]

includes   every #include of a layer names a file of that layer or of one that
           it declares (koila_add_layer in lib/**/CMakeLists.txt), and no file
           reads a private header of another layer
symbols    every undefined symbol of a layer's objects is defined in that layer
           or in one that it declares
headers    every public header compiles by itself. A header that a source of the
           library includes first was compiled so by the build, but for headers
           of MLIR and LibTorch, which are precompiled; with --every, each Nth of
           those is compiled, and all others are

What lib/KnownViolations.txt lists is let pass; what it lists and is gone is an
error, so that the list shrinks. Prints a line for each violation and exits with
1 if there are any.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

_ROOT = pathlib.Path(__file__).resolve().parents[2]
Flags = Callable[[str], list[str]]
_KNOWN = "lib/KnownViolations.txt"
_INCLUDE = re.compile(r'^\s*#?\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    folder: str  # of the sources, from the root
    depends: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

    @property
    def headers(self) -> str:
        """The folder of the public headers."""
        return "include/koila/" + self.folder.removeprefix("lib/")


@dataclasses.dataclass(frozen=True, order=True)
class Violation:
    check: str
    source: str
    target: str
    why: str = dataclasses.field(compare=False)

    @property
    def key(self) -> str:
        return f"{self.check} {self.source} {self.target}"


def read_layers(build: pathlib.Path) -> list[Layer]:
    """What CMake wrote of koila_add_layer."""
    layers = json.loads((build / "lib" / "layers.json").read_text())
    return [
        Layer(
            layer["name"],
            layer["folder"],
            tuple(filter(None, layer["depends"].split(";"))),
            # A precompiled header is among them.
            tuple(x for x in layer["objects"].split(";") if x.endswith(".o")),
        )
        for layer in layers
    ]


def close(layers: Iterable[Layer]) -> dict[str, set[str]]:
    """Of each layer, what it may use: itself, what it declares, and theirs."""
    closed: dict[str, set[str]] = {}
    for layer in layers:
        closed[layer.name] = {layer.name}
        for name in layer.depends:
            if name not in closed:
                raise SystemExit(f"layer {layer.name} depends on {name}, which is not below it")
            closed[layer.name] |= closed[name]
    return closed


class Owners:
    """Which layer a file belongs to."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        folders = [(folder, x.name) for x in layers for folder in (x.folder, x.headers)]
        self._folders = sorted(folders, key=lambda entry: -len(entry[0]))

    def find(self, path: str) -> str | None:
        for folder, name in self._folders:
            if path.startswith(folder + "/"):
                return name
        return None


def resolve(path: str, include: str, files: Mapping[str, str]) -> str | None:
    """The file of the tree that an #include names; none for others'."""
    if include.startswith("koila/"):
        name = f"include/{include}"
        # What TableGen writes belongs to its source.
        name = re.sub(r"\.(h|cpp)\.inc$", ".td", name)
    else:
        name = os.path.normpath(os.path.join(os.path.dirname(path), include))
    return name if name in files else None


def check_includes(layers: list[Layer], files: Mapping[str, str]) -> list[Violation]:
    """Of {path from the root: text}."""
    allowed, owners = close(layers), Owners(layers)
    found = set()
    for path, text in files.items():
        layer = owners.find(path)
        if layer is None:
            continue
        for include in _INCLUDE.findall(text):
            target = resolve(path, include, files)
            owner = owners.find(target) if target else None
            if target is None or owner is None or owner == layer:
                continue
            if owner not in allowed[layer]:
                why = f"{layer} does not depend on {owner}"
            elif target.startswith("lib/"):
                why = f"a private header of {owner}"
            else:
                continue
            found.add(Violation("includes", path, target, why))
    return sorted(found)


def read_symbols(objects: Iterable[str]) -> dict[str, tuple[set[str], set[str]]]:
    """Of each object, the symbols that it defines and those that it leaves to others."""
    symbols: dict[str, tuple[set[str], set[str]]] = {}
    for path in objects:
        text = subprocess.run(
            ["nm", "--format=posix", path], check=True, capture_output=True, text=True
        ).stdout
        defined, undefined = set(), set()
        for line in text.splitlines():
            name, kind = line.split()[:2]
            (undefined if kind in "Uvw" else defined).add(name)
        symbols[path] = (defined, undefined)
    return symbols


def check_symbols(
    layers: list[Layer], symbols: Mapping[str, tuple[set[str], set[str]]]
) -> list[Violation]:
    """A symbol that several layers define, an inline function, is nobody's."""
    allowed = close(layers)
    homes: dict[str, set[str]] = collections.defaultdict(set)
    for layer in layers:
        for path in layer.objects:
            for name in symbols[path][0]:
                homes[name].add(layer.name)
    found = set()
    for layer in layers:
        for path in layer.objects:
            for name in symbols[path][1]:
                home = homes.get(name, set())
                if not home or home & allowed[layer.name]:
                    continue
                source = re.sub(r"^.*\.dir/(\./)?", f"{layer.folder}/", path).removesuffix(".o")
                target = min(home)
                found.add(Violation("symbols", source, target, f"uses {name} of {target}"))
    return sorted(found)


def read_flags(build: pathlib.Path, folder: str) -> list[str]:
    """Those of the sources in `folder`, without what is of one source or precompiled."""
    commands = json.loads((build / "compile_commands.json").read_text())
    command = next(x for x in commands if f"/{folder}/" in x["file"])
    words, flags = shlex.split(command["command"]), []
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-include", "-c"):
            skip = word != "-c"
        elif word != command["file"] and word != "-Winvalid-pch":
            flags.append(word)
    return [words[0], *flags]


def check_headers(find_flags: Flags, headers: Iterable[str]) -> list[Violation]:
    def compile_alone(header: str) -> Violation | None:
        flags = find_flags(header)
        name = header.removeprefix("include/")
        done = subprocess.run(
            [*flags, "-fsyntax-only", "-x", "c++", "-"],
            input=f'#include "{name}"\n#include "{name}"\n',
            capture_output=True,
            text=True,
        )
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        if not done.returncode:
            return None
        return Violation("headers", header, "-", errors[0] if errors else "does not compile")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted(filter(None, pool.map(compile_alone, headers)))


def find_first_includes(files: Mapping[str, str]) -> set[str]:
    """The public headers that a source includes before anything else."""
    found = set()
    for path, text in files.items():
        first = re.search(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.MULTILINE)
        if path.endswith(".cpp") and first:
            found.add(f"include/{first[1]}")
    return found


def choose_headers(headers: list[str], files: Mapping[str, str], every: int) -> list[str]:
    """Those that the build has not compiled first, and each Nth of the others."""
    built = find_first_includes(files)
    rest = [header for header in headers if header in built]
    return sorted((set(headers) - built) | set(rest[::every]))


def read_tree(root: pathlib.Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for folder in ("lib", "include")
        for path in (root / folder).rglob("*")
        if path.suffix in (".h", ".cpp", ".td", ".inc") and path.is_file()
    }


def compare(found: list[Violation], known: set[str], checks: set[str]) -> list[str]:
    """Lines about what is new, and about what is listed and gone."""
    lines = [f"{x.source}: {x.target}: {x.why}" for x in found if x.key not in known]
    keys = {violation.key for violation in found}
    lines += [
        f"{_KNOWN}: '{key}' is gone; remove the line"
        for key in sorted(known - keys)
        if key.split()[0] in checks
    ]
    return lines


def read_known(text: str) -> set[str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", choices=("includes", "symbols", "headers"))
    parser.add_argument("headers", nargs="*", metavar="HEADER")
    parser.add_argument("--build", type=pathlib.Path, default=_ROOT / "build")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--list", action="store_true", help="print every violation's key")
    options = parser.parse_args()
    layers = read_layers(options.build)
    if options.check == "includes":
        found = check_includes(layers, read_tree(_ROOT))
    elif options.check == "symbols":
        objects = [path for layer in layers for path in layer.objects]
        found = check_symbols(layers, read_symbols(objects))
    else:
        public = (_ROOT / "include").rglob("*.h")
        headers = options.headers or choose_headers(
            sorted(str(x.relative_to(_ROOT)) for x in public), read_tree(_ROOT), options.every
        )
        # Those of targets read LibTorch, and throw.
        core = read_flags(options.build, "lib/Support")
        targets = read_flags(options.build, "lib/Target/TorchScript")
        found = check_headers(lambda x: targets if "/Target/" in x else core, headers)
    if options.list:
        print("\n".join(sorted({violation.key for violation in found})))
        return 0
    known = _ROOT / _KNOWN
    listed = read_known(known.read_text()) if known.exists() else set()
    lines = compare(found, listed, set() if options.headers else {options.check})
    for line in lines:
        print(f"error: {line}")
    if not lines:
        print(f"{options.check}: {len(layers)} layers, {len(found)} known violations, no other")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
