#!/usr/bin/env python3
"""Random programs with koila.lazy, judged next to plain PyTorch.

Usage: random_scripts.py [--seed 0] [--count 50] [--first 0]
           [--budgets fits,half,quarter] [--resume FILE] [--json FILE]
           [--controls] [--timeout 20] [--verbose]
       random_scripts.py --print I        the text of program I
       random_scripts.py --minimise I     the least of it that fails so, too
       random_scripts.py --minimise FILE  of a script

Program I of a seed is always the same. What programs are made of is in
random_programs.py and random_pieces.py, what verdicts mean in judge.py. Each
runs in plain PyTorch, which rounds in several ways, then with koila in 1 TiB
(fits), in half and in a quarter of what it needs; in a process of its own, so
that a program that ends it does not take the others with it.

--resume    appends a line of JSON for each program, and passes over programs
            that are there
--json      writes all that was found
--controls  programs must notice a koila that loses samples
--timeout   of one run, in seconds
--verbose   also programs that were right, and those that were announced

Programs that are not right are printed with their number, then how often what
happened. Exits with 1 below the bar: none wrong, silent, refused or crashed, none
that keeps memory, false warnings in at most 2 %, and no program unfit to judge by.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import sys
from typing import Any

from random_programs import make
from random_worker import BAD, Found, Worker

BUDGETS = ("fits", "half", "quarter")
MOST_FALSE_WARNINGS = 0.02
# Of one reason: a BudgetError lists what is live.
_MOST_LETTERS = 300

# Of a script while it is made smaller, in seconds.
_SLOWER = 0.1

Record = dict[str, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    parser.add_argument("--resume", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--print", type=int, metavar="I")
    parser.add_argument("--minimise", metavar="I")
    options = parser.parse_args()
    options.budgets = [name for name in options.budgets.split(",") if name]
    for name in options.budgets:
        if name not in BUDGETS:
            parser.error(f"no budget '{name}'; there are {', '.join(BUDGETS)}")
    return options


def read_records(options: argparse.Namespace) -> dict[int, Record]:
    """Programs of this seed that were judged before."""
    if options.resume is None or not options.resume.exists():
        return {}
    lines = options.resume.read_text().splitlines()
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return {record["number"]: record for record in records if record["seed"] == options.seed}


def judge_all(options: argparse.Namespace) -> list[Record]:
    known = read_records(options)
    records = []
    with Worker(options.timeout) as worker:
        for number in range(options.first, options.first + options.count):
            record = known.get(number)
            if record is None:
                program = make(options.seed, number)
                found = worker.judge(program.text, options.budgets, options.controls)
                record = {
                    "seed": options.seed,
                    "number": number,
                    "pieces": program.pieces,
                    **dataclasses.asdict(found),
                }
                if options.resume is not None:
                    with options.resume.open("a") as file:
                        file.write(json.dumps(record) + "\n")
            records.append(record)
            show(record, options.verbose)
    return records


def found_of(record: Record) -> Found:
    fields = {item.name for item in dataclasses.fields(Found)}
    return Found(**{name: value for name, value in record.items() if name in fields})


def show(record: Record, verbose: bool) -> None:
    """One line, where the program is not right."""
    found = found_of(record)
    if not (verbose or found.is_bad()):
        return
    parts = [f"unfit: {text}" for text in found.complaints]
    for name, verdict in found.verdicts.items():
        word = verdict["verdict"] + " (keeps)" * bool(verdict["keeps"])
        word += " (false warning)" * verdict["false_warning"]
        why = verdict["reasons"][:1] or (verdict["warned"][:1] if verbose else [])
        parts.append(f"{name} {word}" + "".join(f": {text[:_MOST_LETTERS]}" for text in why))
    print(f"program {record['number']}: {'; '.join(parts)}", flush=True)


def summary(records: list[Record], budgets: list[str]) -> bool:
    """Prints what happened how often; whether all is above the bar."""
    found = [found_of(record) for record in records]
    classes: dict[str, dict[int, list[str]]] = collections.defaultdict(dict)
    for record, one in zip(records, found, strict=True):
        for budget, text in one.classes():
            classes[text].setdefault(record["number"], []).append(budget)
    if classes:
        print("\nwhat happened in how many programs:")
    for text, programs in sorted(classes.items(), key=lambda item: -len(item[1])):
        budgets_of = [name for name in BUDGETS if any(name in at for at in programs.values())]
        shown = ", ".join(map(str, list(programs)[:6]))
        print(f"{len(programs):5}  {text}  ({'/'.join(budgets_of)}; program {shown})")
    verdicts = [verdict for one in found for verdict in one.verdicts.values()]
    counts = collections.Counter(verdict["verdict"] for verdict in verdicts)
    counts["keeps"] = sum(bool(verdict["keeps"]) for verdict in verdicts)
    false = sum(any(v["false_warning"] for v in one.verdicts.values()) for one in found)
    unfit = sum(bool(one.complaints) for one in found)
    parts = [f"{counts[word]} {word}" for word in ("right", "announced", *BAD, "keeps")]
    seconds = sum(one.koila_seconds for one in found) / max(len(found), 1)
    print(
        f"{len(records)} programs with {', '.join(budgets)}: {', '.join(parts)}; programs with "
        f"false warnings: {false}, unfit: {unfit}; {seconds:.2f} s of koila a program"
    )
    return (
        not any(counts[word] for word in (*BAD, "keeps"))
        and not unfit
        and false <= MOST_FALSE_WARNINGS * len(records)
    )


def minimise_one(options: argparse.Namespace) -> int:
    from random_minimise import minimise

    name = options.minimise
    text = make(options.seed, int(name)).text if name.isdigit() else pathlib.Path(name).read_text()
    with Worker(options.timeout) as worker:
        found = worker.judge(text, options.budgets)
        failures = list(found.classes())
        if not failures:
            print("nothing is wrong with it", file=sys.stderr)
            return 0
        budget, wanted = failures[0]
        print(f"# {budget}: {wanted}", flush=True)

        def fails(candidate: str) -> bool:
            new = worker.judge(candidate, [budget] if budget in BUDGETS else [], again=False)
            if new.need * 4 < found.need or new.seconds > found.seconds + _SLOWER:
                # What needs little is over its budget for other reasons.
                return False
            return (budget, wanted) in new.classes()

        print(minimise(text, fails))
    return 1


def main() -> int:
    options = parse()
    if options.print is not None:
        print(make(options.seed, options.print).text, end="")
        return 0
    if options.minimise is not None:
        return minimise_one(options)
    records = judge_all(options)
    good = summary(records, options.budgets)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
