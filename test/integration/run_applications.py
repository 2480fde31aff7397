#!/usr/bin/env python3
"""Runs small applications around koila, and judges them.

Usage: run_applications.py [NAME...] [--controls] [--timeout 60] [-v]
       run_applications.py --list

NAME is a file of test/integration/applications without its .py, a pattern of such
names, or pN for those about point N. Each runs with plain PyTorch first, which says
what its results are, and then with koila within the budgets that it states, each
time in a process of its own. applications_run.py says how an application is
written, applications_judge.py what the verdicts mean.

--controls  fakes that do nothing, change numbers or keep tensors have to be caught
--timeout   seconds that one run may take
-v          all reasons, warnings, and what each part takes

Exits with 1 if one is not right, or a control is missed.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from applications_app import Outcome
    from measure import Memory

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import instruction_set

# Before PyTorch is loaded: what is measured must not depend on the processors.
os.environ["OMP_NUM_THREADS"] = "1"
instruction_set.limit()

FOLDER = pathlib.Path(__file__).resolve().parent / "applications"
# Of one application without -v, and of one reason.
_MOST_REASONS, _MOST_LETTERS = 3, 300


def find(names: list[str]) -> list[pathlib.Path]:
    scripts = sorted(FOLDER.glob("*.py"))
    if not names:
        return scripts
    found: dict[pathlib.Path, None] = {}
    for name in names:
        point = re.fullmatch(r"p(\d+)", name)
        chosen = [
            script
            for script in scripts
            if (point and point[1] in header(script, "points"))
            or fnmatch.fnmatch(script.stem, name)
        ]
        if not chosen:
            raise SystemExit(f"no application {name} in {FOLDER}")
        found.update(dict.fromkeys(chosen))
    return list(found)


def header(script: pathlib.Path, key: str) -> list[str]:
    """``# points: 1, 4`` and ``# catches: silent, wrong, keeps``: the points of the
    list of an application's defects that it is about, and as what the controls have
    to be caught in it. Without the latter it has no counterpart in plain PyTorch."""
    found = re.search(rf"^# {key}: (.*)$", script.read_text(), re.MULTILINE)
    return found[1].split(", ") if found else []


def study(script: pathlib.Path, options: argparse.Namespace) -> tuple[str, list[str]]:
    """The verdict, and why. ``missed`` is that of an application whose controls are
    not caught, or that fails in plain PyTorch."""
    import koila
    from applications_judge import judge
    from applications_plain import Keeping, Perturbing, Plain
    from applications_run import execute

    def run(make: Callable[[Memory], object]) -> Outcome:
        return execute(script, make, options.memory, options.timeout)

    catches = header(script, "catches")
    plain = run(Plain) if catches else None
    outcome = run(lambda memory: koila)
    found = judge(outcome, plain, script)
    missed = []
    if plain is not None:
        missed += [f"plain PyTorch: {reason}" for _, reason in plain.failures]
        missed += [f"plain PyTorch: {plain.raised}"] if plain.raised is not None else []
        controls = {"silent": Plain, "wrong": Perturbing, "keeps": Keeping}
        for word in catches if options.controls else []:
            fake = plain if controls[word] is Plain else run(controls[word])
            told = judge(fake, plain, script)
            if word not in told:
                missed.append(f"a koila that is {word} is found {', '.join(told) or 'right'}")
    reasons = [f"{word}: {reason}" for word, texts in found.items() for reason in texts]
    if not options.verbose:
        reasons = [reason[:_MOST_LETTERS] for reason in reasons[:_MOST_REASONS]]
    else:
        reasons += [f"took {outcome.seconds:.1f} s"]
        reasons += [outcome.raised.text] if outcome.raised is not None else []
        reasons += [f"line {line} warned: {text}" for text, _, line in outcome.warned]
        for index, part in enumerate(outcome.parts):
            whole = f", plain PyTorch {plain.parts[index].used:,}" if plain is not None else ""
            reasons.append(f"line {part.line}: {part.used:,} of {part.budget:,} bytes{whole}")
    reasons = [f"control: {text}" for text in missed] + reasons
    return ("missed" if missed else next(iter(found), "right")), reasons


def load(options: argparse.Namespace) -> None:
    """Before the first application is forked: what all of them need, and what
    compilations would import, each anew. Nothing may run here: threads and
    PyTorch's state would be forked, too."""
    from measure import Memory

    options.memory = Memory()
    import torch._dynamo  # noqa: F401

    import applications_judge  # noqa: F401
    import applications_plain  # noqa: F401


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse()
    scripts = find(options.names)
    if options.list:
        for script in scripts:
            print(f"{script.stem:<28} {', '.join(header(script, 'points'))}")
        return 0
    load(options)
    counts = dict.fromkeys(("right", "wrong", "silent", "refused", "crashed", "keeps"), 0)
    missed = 0
    for script in scripts:
        start = time.monotonic()
        verdict, reasons = study(script, options)
        if verdict == "missed":
            missed += 1
        else:
            counts[verdict] += 1
        print(f"{script.stem:<28} {verdict:<8} {time.monotonic() - start:5.1f} s")
        for reason in reasons:
            print("   ", reason.replace("\n", "\n        "))
        sys.stdout.flush()
    texts = [f"{count} {word}".replace("keeps", "keep memory") for word, count in counts.items()]
    print(f"{len(scripts)} applications: {', '.join(texts)}")
    if missed:
        print(f"{missed} whose controls are missed")
    return int(counts["right"] != len(scripts))


if __name__ == "__main__":
    sys.exit(main())
