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

# Runs apart: makes FILE of what a program returns, or says why there is no loss.
MAKE = """
import json, sys
import torch
sys.path.insert(0, sys.argv[4])
import inputs, make_programs
make_programs.prepare_libraries()
program = torch.jit.load(sys.argv[1])
values = inputs.make(json.loads(sys.argv[3]), 3)

def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return [leaf for part in value for leaf in leaves(part)]
    return []

class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.program = program

    def forward(self, *values):
        parts = [leaf.square().mean() for leaf in leaves(self.program(*values))]
        return torch.stack([part.float() for part in parts]).sum()

loss = Loss().train(program.training)
if not list(loss.parameters()):
    raise SystemExit("no weights")
found = leaves(program(*values))
if not any(leaf.requires_grad for leaf in found):
    raise SystemExit("no gradient")
torch.jit.trace(loss, values, check_trace=False).save(sys.argv[2])
"""


def make_loss(file, output, specs):
    """Why there is no loss; None if OUTPUT has it."""
    done = subprocess.run(
        [sys.executable, "-c", MAKE, file, output, json.dumps(specs), HERE],
        capture_output=True,
        text=True,
        timeout=tiling.TIMEOUT,
    )
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else "failed") if done.returncode else None


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


def evaluate(task):
    """Name, verdict, sentences, and how the peak is known at each batch."""
    name, options = task
    peaks = []
    file = options.folder / f"{name}.pt"
    if not file.exists():
        return name, "not traced", [], peaks
    specs = json.loads(file.with_suffix(".inputs").read_text())
    source = options.folder / "training" / file.name
    output = source.with_suffix(".tiled.pt")
    source.parent.mkdir(exist_ok=True)
    output.unlink(missing_ok=True)
    try:
        problem = make_loss(file, source, specs)
        if problem:
            return name, "no loss", [problem], peaks
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
    from registry import SCRIPTED

    names = [
        name
        for name in load_programs()
        if name not in SCRIPTED
        and (not options.only or any(name.startswith(part) for part in options.only))
    ]
    corpus.make_programs(names, options.folder, options.jobs)
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(evaluate, [(name, options) for name in names]):
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
