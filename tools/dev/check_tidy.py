#!/usr/bin/env python3
"""Runs clang-tidy over koila's C++, as .clang-tidy says.

    check_tidy.py [--build BUILD] [--jobs N]            all sources
    check_tidy.py --changed [BASE]                      those that changed
    check_tidy.py FILE ...                              these

Sources are those of BUILD/compile_commands.json, which need a build: they
include generated headers. A header is read with the sources that include it;
named by itself, with one of them. `--changed` takes what differs from BASE, and
files that git does not know yet. BASE is where the branch left origin/main, or
the last commit but one where nothing did.

Prints each finding once, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FOLDERS = ("include", "lib", "python", "test", "tools")
_FINDING = re.compile(r"^(/[^:\n]+:\d+:\d+: )(?:warning|error): ", re.MULTILINE)


def clang_command(command: dict[str, str]) -> dict[str, str]:
    """The same for Clang: without GCC's precompiled header, of which Clang can
    make nothing. Sources include what they need, so that it is not missed."""
    words = iter(shlex.split(command["command"]))
    kept = []
    for word in words:
        if word == "-include":
            header = next(words)
            if not header.endswith("cmake_pch.hxx"):
                kept += [word, header]
        elif word != "-Winvalid-pch":
            kept.append(word)
    # Some of GCC's are unknown to it.
    kept.insert(1, "-Wno-unknown-warning-option")
    return {**command, "command": shlex.join(kept)}


def read_commands(build: pathlib.Path) -> dict[str, dict[str, str]]:
    """By source, from the root; none of what the build generates."""
    file = build / "compile_commands.json"
    if not file.exists():
        sys.exit(f"check_tidy.py: no {file}; build koila first")
    commands: dict[str, dict[str, str]] = {}
    for command in json.loads(file.read_text()):
        source = pathlib.Path(command["file"])
        if source.is_relative_to(_ROOT) and not source.is_relative_to(build):
            commands.setdefault(source.relative_to(_ROOT).as_posix(), clang_command(command))
    return commands


def git(*arguments: str) -> list[str]:
    """The lines of the answer; none where git knows of no such thing."""
    done = subprocess.run(["git", *arguments], cwd=_ROOT, text=True, capture_output=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(base: str) -> list[str]:
    if not base:
        fork, head = git("merge-base", "origin/main", "HEAD"), git("rev-parse", "HEAD")
        base = fork[0] if fork and fork != head else "HEAD~1"
    if not git("rev-parse", "--verify", f"{base}^{{commit}}"):
        sys.exit(f"check_tidy.py: git knows no commit {base}")
    changed = git("diff", "--name-only", "--diff-filter=d", base, "--", *_FOLDERS)
    new = git("ls-files", "--others", "--exclude-standard", "--", *_FOLDERS)
    return sorted({name for name in (*changed, *new) if name.endswith((".cpp", ".h"))})


def find_reader(header: str, sources: Iterable[str]) -> str | None:
    """A source that includes it, that of the same name if there is one."""
    name = pathlib.PurePath(header).name
    include = re.compile(rf'^\s*#\s*include\s+"(?:[^"]*/)?{re.escape(name)}"', re.MULTILINE)
    readers = [source for source in sources if include.search((_ROOT / source).read_text())]
    stem = pathlib.PurePath(header).stem
    readers.sort(key=lambda source: (pathlib.PurePath(source).stem != stem, source))
    return readers[0] if readers else None


def find_sources(files: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    for file in files:
        source = find_reader(file, known) if file.endswith(".h") else file
        if source in known:
            yield source
        else:
            print(f"{file}: not checked, no source of the build is or includes it")


def run_tidy(tidy: str, folder: str, source: str) -> tuple[list[str], float]:
    """What is found, a text each, and the seconds it took."""
    start = time.monotonic()
    ours = f"^{re.escape(str(_ROOT))}/({'|'.join(_FOLDERS)})/"
    done = subprocess.run(
        [tidy, "--quiet", f"-p={folder}", f"--header-filter={ours}", str(_ROOT / source)],
        text=True,
        capture_output=True,
    )
    starts = [match.start() for match in _FINDING.finditer(done.stdout)]
    found = [
        done.stdout[first:last].rstrip().replace(f"{_ROOT}/", "")
        for first, last in itertools.pairwise([*starts, len(done.stdout)])
    ]
    if done.returncode != 0 and not found:
        found.append(f"{source}: clang-tidy failed: {done.stderr.strip()[-1000:]}")
    return found, time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--changed", nargs="?", const="", metavar="BASE")
    parser.add_argument("--build", type=pathlib.Path, default=_ROOT / "build")
    parser.add_argument("--clang-tidy", help="default: that of BUILD/venv")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.files and options.changed is not None:
        parser.error("either --changed or files")

    build = options.build.resolve()
    tidy = options.clang_tidy or str(build / "venv" / "bin" / "clang-tidy")
    commands = read_commands(build)
    if options.changed is not None:
        names = changed_files(options.changed)
    else:
        names = [
            pathlib.Path(os.path.abspath(name)).relative_to(_ROOT).as_posix()
            for name in options.files
        ]
    whole = options.changed is None and not options.files
    sources = list(commands) if whole else list(dict.fromkeys(find_sources(names, commands)))

    seen: set[str] = set()
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        database = pathlib.Path(folder) / "compile_commands.json"
        database.write_text(json.dumps(list(commands.values())))
        tasks = {pool.submit(run_tidy, tidy, folder, source): source for source in sources}
        for count, task in enumerate(concurrent.futures.as_completed(tasks), 1):
            found, seconds = task.result()
            # Those of a header come with each source that includes it.
            fresh = [text for text in found if text.split("\n")[0] not in seen]
            seen.update(text.split("\n")[0] for text in fresh)
            print(f"[{count}/{len(sources)}] {tasks[task]}: {seconds:.0f} s", file=sys.stderr)
            for text in fresh:
                print(text, flush=True)
    print(f"{len(sources)} sources: {len(seen)} findings")
    sys.exit(bool(seen))


if __name__ == "__main__":
    main()
