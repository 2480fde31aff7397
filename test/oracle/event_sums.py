#!/usr/bin/env python3
"""Holds the events of programs against their reports.

Usage: event_sums.py --koila-opt PATH --programs FOLDER [--batch N] [--modes M,...]
           [--tile N] [--wrong] NAME...

For each program of test/corpus: the largest sum of its events is `peak_bytes`, and no
block is freed before it is there, or twice. NAME may be the start of names. With --tile
the program runs in tiles. --wrong drops one event, which must be seen.
"""

import argparse
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "corpus"), str(HERE.parents[1] / "tools" / "bench")]

import accuracy
import make_programs
from event_checks import check_events


def report(tool, text, folder, batch, tile, options):
    output = pathlib.Path(folder) / "report.json"
    tiling = [f"--koila-tile-batch=tile={tile}"] if tile else []
    good, problem = accuracy.run_koila(
        tool,
        text,
        f"--batch=B={batch}",
        *tiling,
        f"--koila-peak-memory={options} batches=0 floor=false output={output}",
        "-o",
        "/dev/null",
    )
    return json.loads(output.read_text()) if good else problem


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--koila-opt", required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--batch", type=int, default=7)
    parser.add_argument("--modes", default="inference,forward-with-grad")
    parser.add_argument("--tile", type=int, default=0)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    names = [
        name
        for name in make_programs.load_programs()
        if not arguments.names or name.startswith(tuple(arguments.names))
    ]
    make_programs.make_all(names, arguments.programs)
    modes = arguments.modes.split(",")
    if "train" in modes:
        losses = accuracy.make_losses(
            names, argparse.Namespace(programs=arguments.programs, hazards=False)
        )
    equal, differ, refused, events_seen, exact_seen = 0, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for mode in modes:
            for name in names:
                file = arguments.programs / f"{name}.pt"
                if not file.exists() or (mode == "train" and name not in losses):
                    continue
                specs = json.loads(file.with_suffix(".inputs").read_text())
                if mode == "train":
                    file = file.with_suffix(".loss.pt")
                made = accuracy.Predictor(arguments.koila_opt, file, specs, folder, mode)
                if made.problem:
                    refused += 1
                    continue
                both = [
                    report(
                        arguments.koila_opt,
                        made.text,
                        folder,
                        arguments.batch,
                        arguments.tile,
                        f"format={kind} mode={mode}",
                    )
                    for kind in ("json", "events")
                ]
                if isinstance(both[0], str) or both[0]["peak_bytes"] is None:
                    refused += 1
                    continue
                if isinstance(both[1], str):
                    print(f"{name} {mode}: {both[1]}")
                    differ += 1
                    continue
                events = both[1]["events"]
                if arguments.wrong:
                    del events[len(events) // 2]
                found = check_events(events)
                if isinstance(found, str):
                    problem = found
                elif found[0] != both[0]["peak_bytes"]:
                    problem = f"events need {found[0]} bytes, the report {both[0]['peak_bytes']}"
                else:
                    problem = None
                if problem:
                    print(f"{name} {mode}: {problem}")
                    differ += 1
                else:
                    equal += 1
                    events_seen += len(events)
                    exact_seen += sum(event["exact"] for event in events)
    print(
        f"{equal} equal, {differ} differ, {refused} refused; {exact_seen} of {events_seen} events "
        "are one call of the allocator"
    )
    sys.exit(1 if differ or not equal else 0)


if __name__ == "__main__":
    main()
