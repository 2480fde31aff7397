"""Holds koila to its memory budgets, on every traced program of the corpus.

Usage: budgets.py [--koila-opt PATH] [--koila-run PATH] [--folder FOLDER]
           [--only NAME...] [--batches 16,13] [--percent 50,20,10] [--below]
           [--jobs N] [--json FILE] [--document FILE]
           [--control accept|refuse]

Between the untiled peak of a program and its floor, which is the smallest
budget that koila says it can keep, lies what tiling can save. Budgets are the
floor and a part of that. For each, at each batch B, on one thread:

kept              koila writes a file, and the measured peak is within the
                  budget at B and at batches below, since the promise is for
                  all of them; results are equal and, where koila calls its
                  figure exact, the measured peak is the predicted one
refused rightly   koila writes none, and no power of two up to B as the tile
                  is within the budget at all batches up to B when measured
not promised      koila says that it does not know enough to promise
nothing to save   the floor is not below the untiled peak
WRONG             none of these

Programs that koila does not tile at all, whatever the budget, are "not
tiled", and those that PyTorch cannot run at B "not run": tracing baked another
batch in. Results of a program that does not run in float64 are not compared.
--below adds a budget of one byte less than the floor: that koila refuses it
says how true the floor is. --json keeps the results after each program, and a
run that finds them there goes on from them.

--control shows that the check can fail. With "accept" the untiled program
stands in for what koila writes, with "refuse" koila's yes counts as a no:
whatever was kept must then be WRONG. Exits with 1 if anything is WRONG, or if
no budget was kept.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile

import tiling

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(HERE.parent / "oracle"))

from archive import read_report

NOT_PROMISED = "a budget cannot be promised"
NO_TILE = "no tile fits the budget"
VERDICTS = [
    "kept",
    "refused rightly",
    "WRONG",
    "not promised",
    "nothing to save",
    "not tiled",
    "not run",
]


class Wrong(RuntimeError):
    """A sentence that says which promise is broken."""


def batches_up_to(batch):
    """The batch and some below: one less, which has a remainder of every
    size, half and one, odd ones and a single sample."""
    found = {batch, batch - 1, batch // 2 + 1, 5, 3, 1}
    return sorted((size for size in found if 0 < size <= batch), reverse=True)


def powers_of_two(most):
    size = 1
    while size <= most:
        yield size
        size *= 2


def contents_of(archive):
    """A hash of what runs: without the report, which names the budget."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(archive) as members:
        for name in sorted(members.namelist()):
            if "/extra/" not in name:
                digest.update(name.partition("/")[2].encode())
                digest.update(members.read(name))
    return digest.hexdigest()


class Program:
    """One file: what koila says of it, and what is measured."""

    threads = 1

    def __init__(self, options, name, folder):
        self.options = options
        self.file = options.folder / f"{name}.pt"
        self.specs = json.loads(self.file.with_suffix(".inputs").read_text())
        self.inputs = [f"--input={spec}" for spec in self.specs]
        self.output = pathlib.Path(folder) / self.file.name
        # By what the file runs and the batch: budgets often share a tile.
        self.figures = {}

    def run_opt(self, batch, *arguments):
        """Raises Refused with koila's sentence."""
        done = subprocess.run(
            [self.options.koila_opt, self.file, *self.inputs, "--batch", f"B={batch}", *arguments],
            capture_output=True,
            text=True,
            timeout=tiling.TIMEOUT,
        )
        if done.returncode not in (0, 1):
            raise Wrong(f"exit {done.returncode}: {done.stderr[-300:]}")
        if done.returncode:
            lines = re.findall(r"error: (.*)", done.stderr)
            if not lines:
                raise Wrong("no file and no reason")
            raise tiling.Refused(lines[0])

    def get_untiled(self, batch):
        """The report of the program as it is."""
        report = self.output.with_suffix(".json")
        self.run_opt(
            batch,
            f"--koila-peak-memory=format=json batches=0 threads={self.threads} output={report}",
            "-o",
            "/dev/null",
        )
        return json.loads(report.read_text())

    def get_floor(self, batch):
        """The smallest budget that koila says it keeps, and whether it keeps
        it by tiles; None and no if the program as it is needs no more than a
        byte."""
        try:
            self.compile(batch, 1)
        except tiling.Refused as refusal:
            found = re.search(
                r"the smallest budget that works is [^,]*?"
                r"(?:\(([\d,]+) bytes\)|([\d,]+) bytes?)",
                str(refusal),
            )
            if not found:
                raise
            return (
                int((found[1] or found[2]).replace(",", "")),
                ", untiled, for" not in str(refusal),
            )
        return None, False

    def compile(self, batch, budget):
        """The report that travels in the file."""
        self.output.unlink(missing_ok=True)
        try:
            self.run_opt(
                batch, f"--koila-compile=budget={budget} threads={self.threads}", "-o", self.output
            )
        except tiling.Refused:
            if self.output.exists():
                raise Wrong("an error, and a file nevertheless") from None
            raise
        return read_report(self.output)

    def measure(self, batch, *originals):
        """koila-run's figures for the originals that are given, and the file
        that was made; None where the program does not run."""
        key = contents_of(self.output), batch, bool(originals)
        if key not in self.figures:
            self.figures[key] = self.run(batch, *originals, self.output)
        return self.figures[key]

    def run(self, batch, *files):
        done = subprocess.run(
            [
                self.options.koila_run,
                *files,
                "--json",
                "--repeat=1",
                f"--threads={self.threads}",
                *self.inputs,
                "--batch",
                f"B={batch}",
            ],
            capture_output=True,
            text=True,
            timeout=tiling.TIMEOUT,
        )
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            errors = re.findall(r"error: (.*)", done.stderr)
            # Some programs name float32; what they need can be measured.
            if errors and "in float64' failed" in errors[0]:
                alone = [self.run(batch, file) for file in files]
                if None in alone:
                    return None
                return {"programs": [figures["programs"][0] for figures in alone], "compare": None}
            # The program itself, before any tile.
            if errors and str(self.file) in errors[0] and "failed" in errors[0]:
                return None
            if files == (self.output,) and not self.run(batch, self.file):
                return None
            raise Wrong(f"B={batch}: {errors[0] if errors else done.stderr[-200:]}") from None


def most_needed(figures_at, batch, budget):
    """The measured peak above the budget at the batch or the next one below;
    else the largest. None where nothing runs."""
    most = None
    for size in range(batch, 0, -1):
        if figures := figures_at(size):
            measured = figures["programs"][0]["measured_peak_bytes"]
            most = max(most or 0, measured)
            if most > budget:
                break
    return most


def check_kept(program, batch, budget, report):
    """Raises Wrong unless the file keeps the promise in its report. The figures
    at the batch; None where PyTorch does not run the program."""
    promise = report["promise"]
    if (promise["budget_bytes"], promise["holds_to"]) != (budget, batch):
        raise Wrong(f"another promise: {promise}")
    at_batch = None
    for size in batches_up_to(batch):
        # The program may mean something else for fewer samples, and then runs
        # as it is.
        if size < promise["holds_from"]:
            continue
        figures = program.measure(size, program.file)
        if figures is None:
            continue
        if size == batch:
            at_batch = figures
        tiled, compared = figures["programs"][1], figures["compare"]
        # Data that say nothing about the results say something about memory.
        if compared and not (compared["equal"] or compared["vacuous"]):
            raise Wrong(f"B={size}: results differ: {compared['reason']}")
        measured = tiled["measured_peak_bytes"]
        if measured > budget:
            raise Wrong(
                f"B={size}: {measured} bytes measured, "
                f"{measured - budget} above the budget of {budget}"
            )
        predicted = {
            tiled["predicted_peak_bytes"] if tiled["predicted_exact"] else measured,
            report["peak_bytes"] if report["exact"] and size == batch else measured,
        }
        if predicted - {measured}:
            raise Wrong(
                f"B={size}: {max(predicted - {measured})} bytes predicted, {measured} measured"
            )
    return at_batch


def check_refused(program, batch, budget):
    """Raises Wrong if a tile, or the program as it is, stays within the budget
    at all batches. True if a tile was measured: the program may not run."""

    def check(what, figures_at):
        most = most_needed(figures_at, batch, budget)
        if most is not None and most <= budget:
            raise Wrong(f"a budget of {budget} was refused, and {what} needs {most} bytes at most")
        return most is not None

    originals = functools.cache(lambda size: program.run(size, program.file))
    if originals(batch) is None:
        return False
    check("the original", originals)
    measured = False
    for tile in powers_of_two(batch):
        program.output.unlink(missing_ok=True)
        try:
            tiling.compile_program(
                argparse.Namespace(
                    koila_opt=program.options.koila_opt, tile=tile, random="full-batch-masks"
                ),
                program.file,
                program.specs,
                program.output,
            )
        except tiling.Refused:
            continue
        measured |= check(f"tile {tile}", program.measure)
    return measured


def judge(program, batch, budget, floor):
    """What is to be said of a budget, as a dictionary."""
    found = {"budget": budget}
    control = program.options.control
    try:
        try:
            report = program.compile(batch, budget)
            found["tile"] = report["promise"]["tile"]
            if control == "refuse":
                raise tiling.Refused(f"{NO_TILE}: so says the control")
            if budget < floor:
                raise Wrong(
                    f"a budget of {budget} was taken, below the smallest that works, {floor}"
                )
        except tiling.Refused as refusal:
            found["why"] = str(refusal)
            if NOT_PROMISED in str(refusal):
                return {**found, "verdict": "not promised"}
            if NO_TILE not in str(refusal):
                return {**found, "verdict": "not tiled"}
            shown = check_refused(program, batch, budget)
            return {**found, "verdict": "refused rightly" if shown else "not run"}
        if control == "accept":
            shutil.copy(program.file, program.output)
        figures = check_kept(program, batch, budget, report)
        if figures is None:
            return {**found, "verdict": "not run"}
        found["untiled"], found["tiled"] = (
            entry["measured_peak_bytes"] for entry in figures["programs"]
        )
        return {**found, "verdict": "kept"}
    except RuntimeError as wrong:
        return {**found, "verdict": "WRONG", "why": str(wrong)}
    except subprocess.TimeoutExpired:
        return {**found, "verdict": "WRONG", "why": "no end"}


def names_of(options):
    """What the budgets are called."""
    return [f"{part} %" for part in options.percent] + ["below"] * options.below


def evaluate(program, batch):
    """One row: the program at one batch, and its budgets by their names."""
    options = program.options
    row = {"batch": batch, "untiled": None, "floor": None, "budgets": {}}
    names = names_of(options)

    def all_are(verdict, why=""):
        row["budgets"] = {name: {"verdict": verdict, "why": why} for name in names}
        return row

    try:
        untiled = program.get_untiled(batch)
        row["untiled"] = untiled["peak_bytes"]
        floor, is_tiled = program.get_floor(batch)
        row["floor"] = floor
    except tiling.Refused as refusal:
        return all_are(
            "not promised" if NOT_PROMISED in str(refusal) else "not tiled", str(refusal)
        )
    except Wrong as wrong:
        return all_are("WRONG", str(wrong))
    except subprocess.TimeoutExpired:
        return all_are("WRONG", "no end")
    # The report's floor is that of tiles. Where these need more than no tile,
    # koila names the peak of the program that compiling made.
    reported = untiled["floor_bytes"]
    if None not in (floor, reported) and (reported != floor if is_tiled else reported < floor):
        return all_are(
            "WRONG", f"the report of the untiled program says that {reported} bytes are the floor"
        )
    if not is_tiled or row["untiled"] <= floor:
        return all_are("nothing to save")
    for name in names:
        if name == "below":
            budget = floor - 1
        else:
            part = int(name.split()[0])
            budget = floor + (row["untiled"] - floor) * part // 100
        row["budgets"][name] = judge(program, batch, budget, floor)
    return row


def evaluate_all(task):
    name, options = task
    with tempfile.TemporaryDirectory() as folder:
        if not (options.folder / f"{name}.pt").exists():
            return name, []
        program = Program(options, name, folder)
        return name, [evaluate(program, batch) for batch in options.batches]


# ---------------------------------------------------------------------------
# What was found


def pick(rows, options):
    """Of rows that were kept those that are asked for; None if one is not
    there."""
    try:
        by_batch = {row["batch"]: row for row in rows}
        return [
            by_batch[batch]
            | {"budgets": {name: by_batch[batch]["budgets"][name] for name in names_of(options)}}
            for batch in options.batches
        ]
    except KeyError:
        return None


def saved(row, name):
    """The part of what tiling can save that a budget saved; None without."""
    found = row["budgets"].get(name, {})
    if found.get("verdict") != "kept":
        return None
    return (found["untiled"] - found["tiled"]) / (found["untiled"] - row["floor"])


def count(rows):
    return collections.Counter(
        entry["verdict"] for row in rows for entry in row["budgets"].values()
    )


def summary(rows):
    counts = count(rows)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def cell(entry):
    if entry["verdict"] == "kept":
        return f"kept, tile {entry['tile']}"
    return entry["verdict"]


def reason(text):
    """A sentence without the place, so that equal ones can be counted."""
    from evaluate import without_machine

    text = without_machine(text)
    text = re.sub(r" at [\w./-]+\.py:\d+(?=$|;)", "", text)
    return re.sub(r"'/?[\w.-]+\.(?:pt|tmp)'", "the file", text)


def count_reasons(results, verdict):
    """Programs by the reasons of a verdict."""
    found = collections.defaultdict(set)
    for name, rows in results.items():
        for row in rows:
            for entry in row["budgets"].values():
                if entry["verdict"] == verdict:
                    found[reason(entry["why"])].add(name)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def document(results, options, programs):
    """The table; `programs` says how many there are in all."""
    rows = [row for rows in results.values() for row in rows]
    names = names_of(options)
    lines = [
        "# Memory budgets",
        "",
        "<!-- Written by tools/dev/write_results.py budgets; do not edit. -->",
        "",
        (
            f"The {programs} traced programs of the corpus"
            if len(results) == programs
            else f"{len(results)} of the {programs} traced programs of the corpus"
        )
        + ", compiled for a budget on one thread. The *floor* is the smallest "
        "budget that koila says works; a budget of 20 % is the floor and a "
        "fifth of what lies between it and the untiled peak."
        + (" *Below* is one byte less than the floor." if options.below else "")
        + " A budget is *kept* if the measured peak is within it at the batch "
        "that it was given for and at "
        + "; ".join(
            f"{', '.join(map(str, batches_up_to(batch)[1:]))} for {batch}"
            for batch in options.batches
        )
        + ", with equal results, and the predicted peak to the byte where "
        "koila calls it exact. It is *refused rightly* if, measured, no "
        "power of two as the tile stays within it at all batches.",
        "",
        "| batch | " + " | ".join(VERDICTS) + " | median saved at 20 % |",
        "|---" * (2 + len(VERDICTS)) + "|",
    ]
    for batch in options.batches:
        part = [row for row in rows if row["batch"] == batch]
        parts = [share for row in part if (share := saved(row, "20 %")) is not None]
        lines.append(
            f"| {batch} | "
            + " | ".join(str(count(part)[verdict]) for verdict in VERDICTS)
            + f" | {100 * statistics.median(parts):.0f} % |"
            if parts
            else f"| {batch} | "
            + " | ".join(str(count(part)[verdict]) for verdict in VERDICTS)
            + " | |"
        )
    for verdict in ("not promised", "not tiled"):
        reasons = count_reasons(results, verdict)
        if reasons:
            lines += ["", f"## {verdict.capitalize()}", "", "| programs | why |", "|---|---|"]
            lines += [
                f"| {len(found)} | " + why.replace("|", "\\|") + " |" for why, found in reasons
            ]
    lines += [
        "",
        "## Programs",
        "",
        "Bytes as koila predicts them. *Saved* is the part of what "
        "tiling can save that the budget of 20 % saved, from measured "
        "peaks: a tile that is the largest within a budget may need "
        "far less.",
        "",
        "| program | batch | untiled, B | floor, B | "
        + " | ".join(names)
        + " | saved at 20 % | why |",
        "|---" * (6 + len(names)) + "|",
    ]
    for name, rows in results.items():
        for row in rows:
            entries = row["budgets"]
            share = saved(row, "20 %")
            texts = sorted(
                {
                    entry["why"]
                    for entry in entries.values()
                    if entry.get("why") and entry["verdict"] == "WRONG"
                }
            )
            lines.append(
                f"| `{name}` | {row['batch']} | {row['untiled'] or ''} | "
                f"{row['floor'] or ''} | "
                + " | ".join(cell(entries[part]) for part in names)
                + f" | {'' if share is None else f'{100 * share:.0f} %'} | "
                + "; ".join(texts).replace("|", "\\|")
                + " |"
            )
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tiling.add_common_options(parser)
    parser.set_defaults(batches=[16, 13])
    parser.add_argument("--percent", default="50,20,10", type=tiling.numbers)
    parser.add_argument("--below", action="store_true", help="also one byte less than the floor")
    parser.add_argument(
        "--control", choices=["accept", "refuse"], help="lie about the budget: all must be WRONG"
    )
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="keep the results there, and go on from them",
    )
    return parser.parse_args()


def main():
    options = parse()
    options.folder = options.folder.resolve()
    sys.path.insert(0, str(HERE))
    import corpus
    from make_programs import load_programs
    from registry import select

    load_programs()
    names = select(only=options.only)
    corpus.make_programs(names, options.folder, options.jobs)
    results = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    missing = [name for name in names if not pick(results.get(name, []), options)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tasks = [(name, options) for name in missing]
        for place, (name, rows) in enumerate(pool.map(evaluate_all, tasks), 1):
            results[name] = rows
            print(
                f"[{place}/{len(missing)}] {name}: "
                + (summary(rows) or "not traced")
                + "".join(
                    f"\n    batch {row['batch']}, {part}: {entry['why']}"
                    for row in rows
                    for part, entry in row["budgets"].items()
                    if entry["verdict"] == "WRONG"
                ),
                file=sys.stderr,
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    results = {name: pick(results[name], options) or [] for name in names}
    if options.document:
        options.document.write_text(document(results, options, len(select())))
    rows = [row for rows in results.values() for row in rows]
    print(summary(rows))
    counts = count(rows)
    sys.exit(bool(counts["WRONG"]) or not counts["kept"])


if __name__ == "__main__":
    main()
