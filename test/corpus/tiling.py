"""Tiles every traced program of the corpus, and compares the results.

Usage: tiling.py [--koila-opt PATH] [--koila-run PATH] [--folder FOLDER]
           [--only NAME...] [--tile 4] [--batches 0,1,2,7,13] [--jobs N]
           [--document FILE]

Each program is compiled with a tile, and is then

refused    with a sentence and without a file, or
equal      by koila-run's definition (docs/user/Reports.md) at every batch:
           in float64 and in its own dtype, a vacuous comparison does not
           count; at batch 0 shapes and dtypes, or both raise; three calls in a fresh
           Python with PyTorch as it starts.

Where koila calls its figure for the tiled program exact, it must be the measured
one. What a program does not run for in the first place (a batch that tracing
baked in) is not asked of its tiles. Exits with 1 if a program is neither.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT = 900


class Refused(Exception):
    """koila's sentence."""


def compile_program(options, file, specs, output, passes=None):
    """The barriers that koila names; raises Refused. By default inference."""
    passes = passes or f"tile={options.tile} random={options.random}"
    done = subprocess.run(
        [
            options.koila_opt,
            file,
            *(f"--input={spec}" for spec in specs),
            f"--koila-compile={passes}",
            "-o",
            output,
            "--remark-format=emitRemark",
            "--remarks-filter=koila-tile-batch",
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit {done.returncode}: {done.stderr[-300:]}")
    if done.returncode:
        if output.exists():
            raise RuntimeError("an error, and a file nevertheless")
        lines = re.findall(r"error: (.*)", done.stderr)
        if not lines:
            raise RuntimeError("no file and no reason")
        raise Refused(lines[0])
    return re.findall(r'Barrier .*?Reason="([^"]*)"', done.stderr)


def run_fresh(options, file, output, specs, batch):
    """Calls both as a user does (fresh.py); a sentence, None or "not run"."""
    done = subprocess.run(
        [sys.executable, str(HERE / "fresh.py")],
        capture_output=True,
        input=json.dumps([str(file), str(output), batch, specs]) + "\n",
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"B={batch}, a fresh Python: {lines[-1] if lines else 'failed'}"
    answer = json.loads(done.stdout)
    if answer == "no such inputs":
        return "not run"
    if answer and answer != "both raise":
        return f"B={batch}, a fresh Python: {answer}"
    return None


def run_both(options, file, output, specs, batch):
    """koila-run's errors, and its report or None."""
    done = subprocess.run(
        [
            options.koila_run,
            file,
            output,
            "--json",
            "--repeat=1",
            *(f"--input={spec}" for spec in specs),
            "--batch",
            f"B={batch}",
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    report = None if done.returncode else json.loads(done.stdout)
    errors = re.findall(r"error: (.*)", done.stderr)
    if done.returncode and not errors:
        errors = [done.stderr[-200:] or f"exit {done.returncode}"]
    return (errors if done.returncode else []), report


def check_figure(report):
    """A sentence if koila's exact figure for the tiled program is not."""
    tiled = report["programs"][1]
    if tiled["predicted_exact"] and tiled["predicted_peak_bytes"] != tiled["measured_peak_bytes"]:
        return (
            f"{tiled['predicted_peak_bytes']} bytes predicted, "
            f"{tiled['measured_peak_bytes']} measured"
        )
    return None


def compare(options, file, output, specs, batch):
    """A sentence if something is wrong, else None, or "not run"."""
    errors, report = run_both(options, file, output, specs, batch)
    if errors:
        # The program itself, before any tile.
        if str(file) in errors[0] and "failed" in errors[0]:
            return "not run"
        # Batches at which a random network says nothing prove nothing.
        if "the comparison is vacuous" in errors[0]:
            return "not run"
        return f"B={batch}: {errors[0]}"
    problem = check_figure(report)
    return f"B={batch}: {problem}" if problem else None


def evaluate(task):
    """Name, verdict, barriers, reasons and the batches that were compared."""
    name, options = task
    file = pathlib.Path(options.folder) / f"{name}.pt"
    if not file.exists():
        return name, "not traced", [], [], []
    specs = json.loads(file.with_suffix(".inputs").read_text())
    output = file.parent / "tiled" / file.name
    output.parent.mkdir(exist_ok=True)
    output.unlink(missing_ok=True)
    try:
        barriers = compile_program(options, file, specs, output)
    except Refused as refusal:
        return name, "refused", [], [str(refusal).replace(str(file.parent), "")], []
    except Exception as error:
        return name, "WRONG", [], [str(error)], []
    problems, ran = [], []
    for batch in options.batches:
        try:
            problem = (
                compare(options, file, output, specs, batch)
                if batch
                else run_fresh(options, file, output, specs, 0)
            )
        except subprocess.TimeoutExpired:
            problem = f"B={batch}: no end"
        if problem == "not run":
            continue
        ran.append(batch)
        if problem:
            problems.append(problem)
    for batch in options.fresh:
        problem = run_fresh(options, file, output, specs, batch)
        if problem and problem != "not run":
            problems.append(problem)
    verdict = "WRONG" if problems else "equal" if set(ran) - {0} else "not run"
    return name, verdict, barriers, problems, ran


def document(results, options):
    counts = collections.Counter(verdict for _, verdict, *_ in results)
    lines = [
        "# Tiled programs",
        "",
        "Written by `tools/dev/write_results.py tiling`: the traced programs of the corpus "
        f"at tile {options.tile} with `random=full-batch-masks`, "
        "compared at batches "
        f"{', '.join(map(str, options.batches))} by the definition of "
        "`koila-run`"
        + (
            ", and three times in a fresh Python with PyTorch as it starts "
            f"at batch {', '.join(map(str, options.fresh))}"
            if options.fresh
            else ""
        )
        + ".",
        "",
        ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + ".",
        "",
        "| program | verdict | batches | barriers, or why not |",
        "|---|---|---|---|",
    ]
    for name, verdict, barriers, problems, ran in results:
        found = collections.Counter(barriers)
        text = "; ".join(
            problems[:3]
            or [
                reason + (f" ({count} times)" if count > 1 else "")
                for reason, count in found.most_common(3)
            ]
        )
        text = re.sub(r"\.([\w-]+\.pt)\.koila-\w+\.tmp", r"\1", text)
        text = re.sub(r"/[^\s\"':()]*/(?=[\w.-]+\.(?:pt|py))", "", text)
        lines.append(
            f"| `{name}` | {verdict} | "
            f"{', '.join(map(str, ran))} | " + text.replace("|", "\\|") + " |"
        )
    return "\n".join(lines) + "\n"


def numbers(text):
    return [int(part) for part in text.split(",")]


def add_common_options(parser):
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt")
    parser.add_argument("--koila-run", default=ROOT / "build/bin/koila-run")
    parser.add_argument(
        "--folder",
        default=ROOT / "build/test/corpus",
        type=pathlib.Path,
        help="for the program files",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only programs whose names start so"
    )
    parser.add_argument("--batches", default="0,1,2,7,13", type=numbers)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--document", type=pathlib.Path, metavar="FILE")


def add_options(parser):
    add_common_options(parser)
    parser.add_argument("--tile", type=int, default=4)
    parser.add_argument(
        "--fresh",
        type=numbers,
        default=[],
        metavar="BATCH,...",
        help="also in a fresh Python, at these batches",
    )
    parser.add_argument("--random", default="refuse")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.set_defaults(random="full-batch-masks")
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
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(evaluate, [(name, options) for name in names]):
            results.append(result)
            name, verdict, barriers, problems, _ = result
            print(
                f"[{len(results)}/{len(names)}] {name}: {verdict}"
                + (f", {len(barriers)} barriers" if barriers else "")
                + "".join("\n    " + problem for problem in problems),
                file=sys.stderr,
                flush=True,
            )
    if options.document:
        options.document.write_text(document(results, options))
    counts = collections.Counter(verdict for _, verdict, *_ in results)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    sys.exit(bool(counts["WRONG"]) or not counts["equal"])


if __name__ == "__main__":
    main()
