#!/usr/bin/env python3
"""Runs programs as people write them with koila.lazy, and judges them.

Usage: run_scripts.py [NAME...] [--budgets fits,half,quarter] [--controls]
           [--check] [--isolate] [--timeout 120] [--json FILE] [--verbose]
       run_scripts.py --list

NAME is a script of test/integration/scripts without its .py, a pattern of such
names, or a path; without any all run. Each runs in plain PyTorch first, which
says what it needs; then with koila in 1 TiB (fits), in half and in a quarter of
that need. Verdicts are explained in judge.py.

--controls  fakes that lose samples or do nothing have to be caught, too
--check     also whether the scripts are fit to judge by (check.py)
--isolate   each script in a process of its own: one that hangs or ends the
            process does not take the others with it
--timeout   of one run of a script, 120 s by default
--json      what was found, for programs

Exits with 1 below the bar: of the scripts that tiles can do 95 % right and
within, at half and at a quarter of the need; none wrong, silent, refused or
crashed; nothing kept, no false warnings, and all controls caught.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import instruction_set

# Before PyTorch is loaded: what is measured must not depend on the processors.
os.environ["OMP_NUM_THREADS"] = "1"
instruction_set.limit()

if TYPE_CHECKING:
    from study import Report

FOLDER = pathlib.Path(__file__).resolve().parent / "scripts"
# Runs of a script: rounded and plain ones, controls, budgets.
_MOST_RUNS = 10


def find_scripts(names: list[str]) -> list[pathlib.Path]:
    scripts = sorted(FOLDER.glob("*.py"))
    if not names:
        return scripts
    found: dict[pathlib.Path, None] = {}
    for name in names:
        path = pathlib.Path(name)
        if path.suffix == ".py" and path.exists():
            found[path.resolve()] = None
            continue
        chosen = [script for script in scripts if fnmatch.fnmatch(script.stem, name)]
        if not chosen:
            raise SystemExit(f"no script {name} in {FOLDER}")
        found.update(dict.fromkeys(chosen))
    return list(found)


def study_here(script: pathlib.Path, options: argparse.Namespace) -> Report:
    import study

    return study.study(
        script,
        options.memory,
        options.budgets,
        controls=options.controls,
        checks=options.check,
        timeout=options.timeout,
    )


def study_apart(script: pathlib.Path, options: argparse.Namespace) -> Report:
    """In a process of its own; what ends it is the verdict."""
    from study import Report

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        command = [sys.executable, "-X", "faulthandler", __file__, str(script), "--json", str(file)]
        command += ["--budgets", ",".join(options.budgets), "--timeout", str(options.timeout)]
        command += ["--controls"] * options.controls + ["--check"] * options.check
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.timeout * _MOST_RUNS
            )
            end = f"exit code {done.returncode}: {_last_words(done.stderr, script)}"
        except subprocess.TimeoutExpired:
            end = f"took longer than {options.timeout * _MOST_RUNS:g} s"
        if file.exists():
            return Report.of(json.loads(file.read_text())[0])
    return _lost(script, end)


def _last_words(text: str, script: pathlib.Path) -> str:
    """Of a process: why it ended, and the line of the script, which faulthandler
    names among many others."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("Fatal") or str(script) in line]
    return " / ".join(told or lines[-8:])


def _lost(script: pathlib.Path, end: str) -> Report:
    """Of a script whose process did not come back."""
    from judge import Verdict
    from study import BUDGETS, Report, header

    report = Report(script.stem, (header(script.read_text()) or "tiles") == "tiles")
    report.verdicts = {name: Verdict("crashed", [end]) for name in BUDGETS}
    return report


def load(options: argparse.Namespace) -> None:
    """The counting allocator goes in before there are tensors."""
    from measure import Memory

    options.memory = Memory()
    import torch

    try:
        # Beside a PyTorch without CUDA torchvision's operators do not load; its
        # models need their schemas only.
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
    except RuntimeError:
        pass  # they did


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budgets", default="fits,half,quarter")
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--isolate", action="store_true")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.budgets = [name for name in options.budgets.split(",") if name]
    for name in options.budgets:
        if name not in ("fits", "half", "quarter"):
            parser.error(f"no budget '{name}'; there are fits, half and quarter")
    return options


def main() -> int:
    options = parse()
    scripts = find_scripts(options.names)
    if options.list:
        print(*(script.stem for script in scripts), sep="\n")
        return 0
    load(options)
    import report as texts

    reports = []
    for index, script in enumerate(scripts):
        found = (study_apart if options.isolate else study_here)(script, options)
        reports.append(found)
        print(f"[{index + 1:{len(str(len(scripts)))}}/{len(scripts)}]", texts.line(found))
        for text in texts.details(found, options.verbose):
            print("   ", text)
        sys.stdout.flush()
        if options.json:
            # Anew after each: what was found is there if the next one hangs.
            options.json.write_text(json.dumps(list(map(dataclasses.asdict, reports)), indent=1))
    print()
    below = False
    for text, good in texts.summary(reports, options.budgets):
        below |= not good
        print(text if good else f"{text}   <-- below the bar")
    return int(below)


if __name__ == "__main__":
    sys.exit(main())
