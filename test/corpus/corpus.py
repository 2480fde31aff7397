"""Runs koila-opt on every traced program of the corpus; with --scripted, on the
scripted ones.

For each program: does koila read it, which operators stay opaque, which
tensors have no rank, extent or type, do all extents equal those that PyTorch
sees at three batch sizes, and does the file go in and out unchanged.

Exits with 1 if something is wrong, or if a program misses more, or less, than
gaps.py says of it. --document writes the table of docs/results/Corpus.md or
CorpusScripted.md.
"""

import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys

from gaps import GAPS, count_missing, judge

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def is_whole(report):
    return not report["wrong"] and not count_missing(report)


def evaluate_one(arguments):
    """In a process of its own kind, which has imported PyTorch once."""
    name, tool, folder, in_process = arguments
    import evaluate
    import evaluate_scripted
    import make_programs
    from registry import SCRIPTED

    make_programs.prepare_libraries()
    make_programs.load_programs()
    try:
        how = evaluate_scripted if name in SCRIPTED else evaluate
        # What koila refuses by name depends on what a process has loaded.
        is_refused = name in GAPS and GAPS[name].refused
        tool = evaluate.Tool(tool, in_process and not is_refused)
        return how.evaluate(name, tool, folder)
    except Exception as error:
        import traceback

        traceback.print_exc()
        return evaluate.new_report(name) | {"wrong": [f"the corpus runner failed: {error}"]}


def make_programs(names, folder, jobs):
    """Traces or scripts what is missing, the sources side by side."""
    from registry import source_of

    sources = collections.defaultdict(list)
    for name in names:
        sources[source_of(name)].append(name)

    def make(group):
        return subprocess.run(
            [sys.executable, str(HERE / "make_programs.py"), "--output", str(folder), *group],
            stderr=subprocess.PIPE,
            text=True,
        )

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(make, sources.values()):
            if done.returncode:
                sys.exit("corpus.py: making programs failed:\n" + done.stderr)
            if done.stderr:
                print(done.stderr, end="", file=sys.stderr)


def run(names, tool, folder, jobs, in_process):
    reports = []
    tasks = [(name, tool, folder, in_process) for name in names]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        for report in all_reports(pool, tasks):
            reports.append(report)
            state = "whole" if is_whole(report) else "gap"
            print(
                f"[{len(reports)}/{len(names)}] {report['name']}: {state}",
                file=sys.stderr,
                flush=True,
            )
    return reports


def all_reports(pool, tasks):
    try:
        yield from pool.map(evaluate_one, tasks)
    except concurrent.futures.process.BrokenProcessPool:
        sys.exit("corpus.py: a program crashed koila or PyTorch; --processes says which")


# ---------------------------------------------------------------------------
# The table


def yes(condition):
    return "yes" if condition else "no"


def counted(counts, most=4):
    """`aten::sort 2, aten::topk`, the rest as a number."""
    parts = [
        name.removeprefix("aten::") + (f" {count}" if count > 1 else "")
        for name, count in counts.items()
    ]
    more = [f"{len(parts) - most} more"] if len(parts) > most else []
    return ", ".join(parts[:most] + more)


def inferred_cell(report):
    if "tensors" not in report:
        return "no"
    unknown = sum(report["unknown"].values())
    left_open = sum(report.get("left_open", {}).values())
    text = (
        f"{report['tensors'] - unknown - left_open} of " if unknown or left_open else "all "
    ) + str(report["tensors"])
    return text + (f", {left_open} open" if left_open else "")


def extents_cell(report):
    if "compared" not in report:
        return "no"
    if report["wrong"]:
        return f"{len(report['wrong'])} wrong"
    if report["unknown"] or report["fresh"]:
        return "in part"
    text = "exact"
    if report.get("specialized"):
        text += " at B=3; " + ("reported" if report["batch_reported"] else "not reported")
    return text


def reasons_cell(report):
    parts = [*report["wrong"][:3], *report["refused"]]
    if report["opaque"]:
        parts.append("opaque: " + counted(report["opaque"]))
    unknown = {
        name: count for name, count in report["unknown"].items() if name not in report["opaque"]
    }
    if unknown:
        parts.append("not inferred: " + counted(unknown))
    if report["fresh"]:
        parts.append("a symbol of its own: " + counted(dict.fromkeys(report["fresh"], 1)))
    parts += [
        f"trace-specialised batch, which koila does not report: {text}"
        for text in report["unreported"]
    ]
    if report.get("batch_reported"):
        parts.append(f"trace-specialised batch: {report['batch_reported']}")
    if report["symbols"]:
        parts.append(
            "decided by data: "
            + ", ".join(f"{symbol} ({schema})" for symbol, schema in report["symbols"].items())
        )
    if expected := GAPS.get(report["name"]):
        parts.append(f"expected: {expected.why}")
    return "; ".join(parts).replace("|", "\\|").replace("\n", " ")


def table(reports):
    head = [
        "program", "imported", "nodes", "opaque", "inferred", "extents", "round trip", "why not",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for report in reports:
        cells = [
            f"`{report['name']}`",
            yes(report["imported"]),
            str(report["nodes"] or ""),
            str(sum(report["opaque"].values())) if "tensors" in report else "",
            inferred_cell(report),
            extents_cell(report),
            yes(report["round_trip"]),
            reasons_cell(report),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


TOTALS = {
    "programs": lambda r: True,
    "imported": lambda r: r["imported"],
    "none opaque": lambda r: "tensors" in r and not r["opaque"],
    "all inferred": lambda r: "tensors" in r and not r["unknown"],
    "extents exact": lambda r: "compared" in r and not (r["wrong"] or r["unknown"] or r["fresh"]),
    "trace-specialised batch": lambda r: r.get("specialized"),
    "round trip": lambda r: r["round_trip"],
    "whole": is_whole,
}


HEADER = """# The corpus

<!-- Written by tools/dev/write_results.py corpus; do not edit. -->

Programs of `test/corpus/programs_*.py`, small and with random weights, traced
with PyTorch at batch 3. What the columns say:

* imported: `koila-opt` reads the file.
* opaque: operators of TorchScript that koila has no operation for.
* inferred: tensors with a rank, all extents and an element type, with the
  batch as the symbol `B`.
* extents: every tensor and every integer of the program compared with what
  PyTorch computes at B = 2, 5 and 7. Where the trace holds the batch as a
  number, PyTorch itself refuses another one: koila must report that with its
  place, and extents are compared at B = 3.
* round trip: in and out with no pass in between; the same module, the same IR
  when it is read again, the same results bit by bit at two batches.
"""


SCRIPTED_HEADER = """# The corpus of scripted programs

<!-- Written by tools/dev/write_results.py corpus-scripted; do not edit. -->

Programs of `test/corpus/programs_constructs_*.py`, one per construct of
TorchScript, and scripted models of `test/corpus/programs_scripted.py`. The
columns are those of [the traced corpus](Corpus.md); what differs:

* all methods that a program names are read, inferred and written, not forward
  alone. Nodes are counted in all of their blocks.
* opaque: only operators that give tensors are counted; one whose result is
  inferred, by LibTorch's kernel on shapes, is no gap here.
* inferred: where something else than the batch decides (data, or how often a
  loop turns), an extent may be open, or have a symbol of its own.
* extents: every tensor and every integer each time the program computes it, in
  branches and loops, too, at B = 2, 5 and 7.
* round trip: in and out with no pass in between; the same modules, attributes,
  parameters and methods; the same IR when it is read again. Then several calls
  of both, at two batches, with and without grad mode, and calls that raise:
  the same results bit by bit, the same output, warnings, exceptions and random
  numbers; what shares memory shares memory; arguments and the state of the
  modules are the same after every call.
"""


def document(reports, header):
    columns = [
        column for column in TOTALS if header is HEADER or column != "trace-specialised batch"
    ]
    counts = [str(sum(bool(TOTALS[column](r)) for r in reports)) for column in columns]
    lines = [header, "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(counts) + " |", "", *table(reports)]
    return "\n".join(lines) + "\n"


def write_operators(path, reports):
    """Every operator with the number of programs and of those where it is
    opaque."""
    used, opaque = collections.Counter(), collections.Counter()
    where = collections.defaultdict(list)
    for report in reports:
        for operator in report["operators"]:
            used[operator] += 1
            where[operator].append(report["name"])
        opaque.update(report["opaque"].keys())
    with open(path, "w") as file:
        print("# operator, programs, programs where it is opaque, some of them", file=file)
        for name, count in sorted(used.items(), key=lambda p: (-p[1], p[0])):
            mark = f"OPAQUE {opaque[name]}" if opaque[name] else "-"
            print(f"{name:55} {count:4} {mark:12} " + " ".join(where[name][:4]), file=file)


def check_expectations(reports):
    """Sentences about what is not as expected."""
    from registry import PROGRAMS

    problems = [
        f"gaps.py names '{name}', which is no program" for name in GAPS if name not in PROGRAMS
    ]
    for report in reports:
        name = report["name"]
        problems += [f"{name}: {problem}" for problem in judge(report, GAPS.get(name))]
    return problems


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these programs (or what their names begin with)"
    )
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="only each Nth program of a library of models, and all that are written by hand",
    )
    parser.add_argument(
        "--scripted", action="store_true", help="the scripted programs instead of the traced"
    )
    parser.add_argument(
        "--long", action="store_true", help="also scripted programs that take seconds each"
    )
    parser.add_argument(
        "--processes",
        action="store_true",
        help="koila-opt for each step, as a user runs it; "
        "otherwise archives are read and written by koila's "
        "C boundary",
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="programs at a time (default: cores)"
    )
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt", type=pathlib.Path)
    parser.add_argument(
        "--folder",
        default=ROOT / "build/test/corpus",
        type=pathlib.Path,
        help="for the program files",
    )
    parser.add_argument(
        "--document", type=pathlib.Path, metavar="FILE", help="write the table there"
    )
    parser.add_argument(
        "--operators",
        type=pathlib.Path,
        metavar="FILE",
        help="write the operators of the programs there",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="write all that was found there"
    )
    return parser.parse_args()


# Sources whose programs are small: one for each form that there is.
BY_HAND = ("handwritten", "constructs", "graph")


def choose(names, every):
    """Of each library of models every Nth program, and all that are written by hand."""
    from registry import source_of

    seen, chosen = collections.Counter(), []
    for name in names:
        source = source_of(name)
        if source.startswith(BY_HAND) or seen[source] % every == 0:
            chosen.append(name)
        seen[source] += 1
    return chosen


def main():
    arguments = parse_arguments()
    # Programs run side by side, each on one thread.
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(HERE))
    from make_programs import load_programs
    from registry import SCRIPTED, select

    load_programs()
    names = select(arguments.scripted, arguments.only)
    if not (arguments.long or arguments.only):
        names = [name for name in names if name not in SCRIPTED or not SCRIPTED[name].long]
    for part in arguments.only or []:
        if not any(name.startswith(part) for name in names):
            sys.exit(f"corpus.py: no program '{part}' (see --list)")
    names = choose(names, arguments.every)
    if arguments.list:
        print("\n".join(names))
        return
    if not arguments.koila_opt.exists():
        sys.exit(f"corpus.py: no {arguments.koila_opt}; build koila first")

    arguments.folder = arguments.folder.resolve()
    make_programs(names, arguments.folder, arguments.jobs)
    reports = run(
        names, arguments.koila_opt, arguments.folder, arguments.jobs, not arguments.processes
    )
    if arguments.document:
        header = SCRIPTED_HEADER if arguments.scripted else HEADER
        arguments.document.write_text(document(reports, header))
    if arguments.operators:
        write_operators(arguments.operators, reports)
    if arguments.json:
        arguments.json.write_text(json.dumps(reports, indent=1))
    problems = check_expectations(reports)
    for problem in problems:
        print(f"corpus.py: {problem}", file=sys.stderr)
    whole = sum(map(is_whole, reports))
    print(f"{whole} of {len(reports)} programs are whole")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
