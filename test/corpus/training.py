"""Trains every traced program of the corpus in tiles, and compares gradients.

Usage: training.py [--koila-opt PATH] [--koila-run PATH] [--folder FOLDER]
           [--only NAME...] [--tile 2] [--batches 5] [--jobs N]
           [--document FILE]

Each program gets a loss, the mean of the squares of what it returns, and its
training step is compiled with a tile. It is then

refused    with a sentence and without a file, or
equal      by koila-run's definition at every batch: the loss and the gradients
           of all weights, in float64 and in its own dtype; gradients that are
           all zero do not count.

The peaks of equal steps are measured: what koila calls exact is, untiled and
tiled.

Exits with 1 if a program is neither refused nor equal, or its exact peak is wrong.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

import tiling

HERE = pathlib.Path(__file__).resolve().parent


def make_losses(tasks):
    """Of [program, output, specs] why there is no loss, or None if the output has
    it; all in a process apart, and after one that ends it in another."""
    tasks = [(str(program), str(output), specs) for program, output, specs in tasks]
    answers = []
    while len(answers) < len(tasks):
        done = subprocess.run(
            [sys.executable, str(HERE / "make_losses.py")],
            input="".join(json.dumps(task) + "\n" for task in tasks[len(answers) :]),
            capture_output=True,
            text=True,
            timeout=tiling.TIMEOUT + 60 * len(tasks),
        )
        answers += map(json.loads, done.stdout.splitlines())
        if len(answers) < len(tasks):
            lines = done.stderr.strip().splitlines()
            answers.append(lines[-1] if lines else "failed")
    return answers


def make_loss(program, output, specs):
    """As make_losses, for one program."""
    return make_losses([(program, output, specs)])[0]


def judge_peaks(report, batch):
    """How the peak of the tiled step is known, and what is wrong with exact ones."""
    problems = []
    for kind, program in zip(("untiled", "tiled"), report["programs"], strict=True):
        predicted, measured = program["predicted_peak_bytes"], program["measured_peak_bytes"]
        if program["predicted_exact"] and predicted != measured:
            problems.append(
                f"B={batch}: the {kind} step took {measured} bytes, and exactly "
                f"{predicted} were predicted"
            )
    tiled = report["programs"][1]
    known = (
        "to the byte"
        if tiled["predicted_exact"]
        else "not exact, equal"
        if tiled["predicted_peak_bytes"] == tiled["measured_peak_bytes"]
        else "not exact"
    )
    return known, problems


def run_steps(options, file, output, specs, batch, peaks):
    """A sentence if something is wrong, "not run", or None. Adds to `peaks` how
    the peak is known."""
    done = subprocess.run(
        [
            options.koila_run,
            file,
            output,
            "--json",
            "--repeat=1",
            "--mode=train",
            *(f"--input={spec}" for spec in specs),
            "--batch",
            f"B={batch}",
        ],
        capture_output=True,
        text=True,
        timeout=tiling.TIMEOUT,
    )
    if not done.returncode:
        report = json.loads(done.stdout)
        warned = [
            warning for warning in report["programs"][1]["warnings"] if "untiled program" in warning
        ]
        if warned:
            return f"B={batch}: {warned[0]}"
        known, problems = judge_peaks(report, batch)
        peaks.append(known)
        return "; ".join(problems) or None
    errors = re.findall(r"error: (.*)", done.stderr)
    if not errors:
        return f"B={batch}: {done.stderr[-200:]}"
    if (str(file) in errors[0] and "failed" in errors[0]) or ("vacuous" in errors[0]):
        return "not run"
    return f"B={batch}: {errors[0]}"


def find_source(options, name):
    """The file with the loss of a program."""
    return options.folder / "training" / f"{name}.pt"


def find_problems(options, names):
    """By program why there is no loss, or None; makes the losses."""
    made = [name for name in names if (options.folder / f"{name}.pt").exists()]
    (options.folder / "training").mkdir(exist_ok=True)
    tasks = []
    for name in made:
        file = options.folder / f"{name}.pt"
        specs = json.loads(file.with_suffix(".inputs").read_text())
        tasks.append((file, find_source(options, name), specs))
    return dict(zip(made, make_losses(tasks), strict=True))


def evaluate(task):
    """Name, verdict, sentences, and how the peak is known at each batch."""
    name, problem, options = task
    peaks = []
    file = options.folder / f"{name}.pt"
    if not file.exists():
        return name, "not traced", [], peaks
    specs = json.loads(file.with_suffix(".inputs").read_text())
    source = find_source(options, name)
    output = source.with_suffix(".tiled.pt")
    output.unlink(missing_ok=True)
    if problem:
        return name, "no loss", [problem], peaks
    try:
        # In the order of the arguments, which lose their names.
        plain = [re.sub(r"^\w+=", "", spec) for spec in specs]
        tiling.compile_program(
            options,
            source,
            plain,
            output,
            f"mode=train tile={options.tile} random=full-batch-masks",
        )
    except tiling.Refused as refusal:
        return name, "refused", [str(refusal)], peaks
    except Exception as error:
        return name, "WRONG", [str(error)], peaks
    problems = []
    for batch in options.batches:
        try:
            problem = run_steps(options, source, output, plain, batch, peaks)
        except subprocess.TimeoutExpired:
            problem = f"B={batch}: no end"
        if problem == "not run":
            return name, "not run", [], peaks
        if problem:
            problems.append(problem)
    return name, "WRONG" if problems else "equal", problems, peaks


def document(results, options):
    counts = collections.Counter(verdict for _, verdict, *_ in results)
    known = collections.Counter(peak for *_, peaks in results for peak in peaks)
    lines = [
        "# Training steps of the corpus",
        "",
        "Written by `tools/dev/write_results.py training-corpus`: the traced programs of the "
        "corpus with the mean of the squares of what they return as their "
        f"loss, one step in tiles of {options.tile} at batches "
        f"{', '.join(map(str, options.batches))}; loss and gradients compared "
        "by the definition of `koila-run`.",
        "",
        ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + ".",
        "",
        "Peaks of the tiled steps, predicted and measured: "
        + ", ".join(f"{count} {peak}" for peak, count in known.most_common())
        + ".",
        "",
        "| program | verdict | peak | why not |",
        "|---|---|---|---|",
    ]
    for name, verdict, problems, peaks in results:
        text = "; ".join(problems)
        text = re.sub(r"/[^\s\"':()]*/(?=[\w.-]+\.(?:pt|py))", "", text)
        peak = ", ".join(dict.fromkeys(peaks))
        lines.append(f"| `{name}` | {verdict} | {peak} | " + text.replace("|", "\\|") + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tiling.add_common_options(parser)
    parser.add_argument("--tile", type=int, default=2)
    parser.set_defaults(batches=[5])
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    sys.path.insert(0, str(HERE))
    import corpus
    from make_programs import load_programs
    from registry import select

    load_programs()
    names = select(only=options.only)
    corpus.make_programs(names, options.folder, options.jobs)
    losses = find_problems(options, names)
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tasks = [(name, losses.get(name), options) for name in names]
        for result in pool.map(evaluate, tasks):
            results.append(result)
            name, verdict, problems, peaks = result
            print(
                f"[{len(results)}/{len(names)}] {name}: {verdict} {', '.join(peaks)}"
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
