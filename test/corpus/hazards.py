"""Programs that tiles can break, tiled, and their look-alikes.

Usage: hazards.py [--koila-opt PATH] [--koila-run PATH] [--folder FOLDER]
           [--only NAME...] [--tile 4] [--batches 0,1,2,7,13] [--fresh BATCH,...]
           [--every N] [--jobs N] [--document FILE]

Every program says what koila must do (hazard_registry.py). A hazard is refused
for the reason that it names, or is equal (docs/user/Reports.md) at every
batch and has the barrier that it names, or none if it says so; a safe program
is equal and has no barrier. A comparison that proves nothing is a failure.
Where the original raises, its tiles must raise; where it gives no number, or
says nothing of one or two samples, fresh.py compares them.

A control shows that these programs can tell: a tiler that knows nothing of
batches (hazard_control.py) must be caught at every hazard, and be equal at
every safe program.

`careful`: koila has a barrier or refuses where it need not, and the program
says why that is known.

Exits with 1 if a program is not as it says.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import importlib
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import traceback
import warnings

import tiling
from hazard_registry import PROGRAMS

HERE = tiling.HERE
# Three full tiles and a last one of a single sample.
CONTROL_BATCH = 13
SHARED = ["hazard_registry.py", "hazard_control.py", "inputs.py"]


def load_hazards():
    for file in sorted(HERE.glob("hazards_*.py")):
        importlib.import_module(file.stem)


# ---------------------------------------------------------------------------
# Program files


@dataclasses.dataclass
class Files:
    """Where the files of a program are."""

    folder: pathlib.Path
    name: str

    def __getattr__(self, kind):
        return self.folder / kind / f"{self.name}.pt"


def key_of(program, tile):
    """What the files are made from."""
    key = hashlib.sha256(str(tile).encode())
    for path in [program.file, *(HERE / shared for shared in SHARED)]:
        key.update(pathlib.Path(path).read_bytes())
    key.update(importlib.metadata.version("torch").encode())
    return key.hexdigest()


def make_files(program, files, tile):
    import torch

    import hazard_control
    import inputs
    import make_programs

    module = program.build()
    if program.scripted:
        module = torch.jit.script(module)
    else:
        example = inputs.make(program.inputs, make_programs.TRACED_BATCH)
        module = torch.jit.trace(module, example, check_trace=False, strict=False)
        # Tracing called it: a buffer may have changed.
        module.load_state_dict(program.build().state_dict())
    module.save(str(files.original))
    hazard_control.write_control(files.original, program.inputs, tile, files.whole, files.control)


def make_all(names, folder, tile):
    """Makes what is missing; exits with 1 if a program cannot be made."""
    warnings.simplefilter("ignore")
    for kind in ("original", "whole", "control", "tiled", "key"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    failed = False
    for name in names:
        stamp, key = folder / "key" / name, key_of(PROGRAMS[name], tile)
        if stamp.exists() and stamp.read_text() == key:
            continue
        # Whoever ends this process leaves no file that looks finished.
        stamp.unlink(missing_ok=True)
        try:
            make_files(PROGRAMS[name], Files(folder, name), tile)
            stamp.write_text(key)
        except Exception:
            print(f"hazards.py: {name} cannot be made", file=sys.stderr)
            traceback.print_exc()
            failed = True
    sys.exit(failed)


def make_side_by_side(names, options):
    """In other processes: this one needs no PyTorch."""
    running = [
        subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--folder",
                options.folder,
                "--tile",
                str(options.tile),
                "--make",
                *names[part :: options.jobs],
            ]
        )
        for part in range(min(options.jobs, len(names)))
    ]
    if any([process.wait() for process in running]):
        sys.exit(1)


# ---------------------------------------------------------------------------
# One program


@dataclasses.dataclass
class Finding:
    name: str
    refused: str = ""
    barriers: list = dataclasses.field(default_factory=list)
    # What is wrong with results.
    problems: list = dataclasses.field(default_factory=list)
    batches: list = dataclasses.field(default_factory=list)
    # Batches to compare in a fresh Python.
    fresh: list = dataclasses.field(default_factory=list)
    control: str = ""

    @property
    def program(self):
        return PROGRAMS[self.name]

    @property
    def seen(self):
        if self.problems:
            return "WRONG"
        if self.refused:
            return "refused"
        return "equal"

    def complaints(self):
        """In what this is not as the program says."""
        program = self.program
        found = list(self.problems)
        if program.kind == "safe":
            cautious = self.refused or "; ".join(sorted(set(self.barriers)))
            if cautious and not program.careful:
                found.append(f"more careful than needed: {cautious}")
            if program.careful and not cautious:
                found.append("not careful any more: take the mark out")
            if self.control != "equal":
                found.append(f"the control is not equal: {self.control}")
            return found
        if not self.control.startswith("caught"):
            found.append(f"the control is not caught: {self.control}")
        if self.refused:
            if not program.refused:
                found.append(f"refused: {self.refused}")
            elif not re.search(program.refused, self.refused):
                found.append(f"refused for another reason: {self.refused}")
        elif program.exact and not self.barriers:
            pass
        elif not program.barrier and not program.exact:
            found.append("not refused")
        elif not program.barrier:
            found.append(f"a barrier: {self.barriers[0]}")
        elif not any(re.search(program.barrier, barrier) for barrier in self.barriers):
            found.append(
                f"no barrier '{program.barrier}': "
                + ("; ".join(sorted(set(self.barriers))) or "none")
            )
        return found

    @property
    def verdict(self):
        if self.problems:
            return "WRONG"
        if self.complaints():
            return "unexpected"
        return "careful" if self.program.careful else self.seen


def check_control(options, files, specs):
    """ "equal", "caught: " and how, or why it proves nothing."""
    errors, _ = tiling.run_both(options, files.whole, files.control, specs, CONTROL_BATCH)
    if not errors:
        return "equal"
    error = errors[0]
    if str(files.whole) in error or "vacuous" in error or "NaN" in error:
        return error
    if "failed" in error:
        return "caught: raises"
    return "caught: " + ("another shape" if "in the first program" in error else "differs")


def compare(options, files, specs, batch, finding):
    errors, report = tiling.run_both(options, files.original, files.tiled, specs, batch)
    finding.batches.append(batch)
    if not errors:
        problem = tiling.check_figure(report)
        if (
            not problem
            and batch > 1
            and any("tiled path" in note for note in report["compare"]["notes"])
        ):
            problem = "runs untiled"
        if problem:
            finding.problems.append(f"B={batch}: {problem}")
    elif (
        (f"{files.original}" in errors[0] and "failed" in errors[0])
        or "first program's result contains NaN" in errors[0]
        # What a sample shares with itself is often constant, and what two
        # share the same for both; larger batches tell.
        or (batch <= 2 and "the comparison is vacuous" in errors[0])
    ):
        finding.fresh.append(batch)
    else:
        finding.problems.append(f"B={batch}: {errors[0]}")


def evaluate(task):
    name, options = task
    specs = list(PROGRAMS[name].inputs)
    files = Files(options.folder, name)
    files.tiled.unlink(missing_ok=True)
    finding = Finding(name, control=check_control(options, files, specs))
    try:
        finding.barriers = tiling.compile_program(options, files.original, specs, files.tiled)
    except tiling.Refused as refusal:
        finding.refused = str(refusal)
        return finding
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        finding.problems.append(str(error))
        return finding
    finding.fresh = [0] * (0 in options.batches) + options.fresh
    finding.batches = [0] * (0 in options.batches)
    for batch in options.batches:
        try:
            if batch:
                compare(options, files, specs, batch, finding)
        except subprocess.TimeoutExpired:
            finding.problems.append(f"B={batch}: no end")
    return finding


# ---------------------------------------------------------------------------
# Many calls in a fresh Python


def call_fresh(tasks):
    """Answers of fresh.py; a task that ends the process is answered so."""
    answers = []
    while len(answers) < len(tasks):
        done = subprocess.run(
            [sys.executable, str(HERE / "fresh.py")],
            text=True,
            capture_output=True,
            timeout=tiling.TIMEOUT,
            input="".join(json.dumps(task) + "\n" for task in tasks[len(answers) :]),
        )
        answers += map(json.loads, done.stdout.splitlines())
        if len(answers) < len(tasks):
            lines = done.stderr.strip().splitlines()
            answers.append(f"exit {done.returncode}: " + (lines[-1] if lines else "no message"))
    return answers


def compare_fresh(findings, options, pool):
    tasks = []
    for finding in findings:
        files = Files(options.folder, finding.name)
        for batch in sorted(set(finding.fresh)):
            tasks.append(
                (
                    finding,
                    batch,
                    [str(files.original), str(files.tiled), batch, finding.program.inputs],
                )
            )
    groups = [tasks[part :: options.jobs] for part in range(options.jobs)]
    answers = pool.map(call_fresh, [[task for *_, task in group] for group in groups])
    for group, answered in zip(groups, answers, strict=True):
        for (finding, batch, _), answer in zip(group, answered, strict=True):
            if answer and answer not in ("both raise", "no such inputs"):
                finding.problems.append(f"B={batch}, a fresh Python: {answer}")


# ---------------------------------------------------------------------------
# The table


def cell(text):
    text = re.sub(r"/[^\s\"':()]*/(?=[\w.-]+\.(?:pt|py))", "", text)
    return text.replace("|", "\\|")


def reasons_of(finding):
    if complaints := finding.complaints():
        return "; ".join(complaints[:3])
    counts = collections.Counter(finding.barriers)
    text = finding.refused or "; ".join(
        reason + (f" ({count} times)" if count > 1 else "")
        for reason, count in counts.most_common(3)
    )
    if finding.program.careful:
        text += f" (known: {finding.program.careful})"
    return text


def count_verdicts(findings):
    """`186 hazards: 170 equal, 16 refused; 75 safe programs: ...`"""
    parts = []
    for kind, label in (("hazard", "hazards"), ("safe", "safe programs")):
        counts = collections.Counter(
            finding.verdict for finding in findings if finding.program.kind == kind
        )
        parts.append(
            f"{sum(counts.values())} {label}: "
            + (", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "none")
        )
    return "; ".join(parts)


def document(findings, options):
    lines = [
        "# Hazards",
        "",
        "Written by `tools/dev/write_results.py hazards`: programs that tiles can break, "
        f"and safe look-alikes of them, at tile {options.tile}; compared at "
        f"batches {', '.join(map(str, options.batches))} by the definition of "
        "`koila-run`"
        + (
            ", and three times in a fresh Python with PyTorch as it starts, "
            f"at batch {', '.join(map(str, options.fresh))}"
            if options.fresh
            else ""
        )
        + ".",
        "",
        "The control is a tiler that knows nothing of batches. It must be "
        "caught at each hazard, and be equal at each safe program, at batch "
        f"{CONTROL_BATCH}. `careful`: koila has a barrier, or refuses, where "
        "it need not.",
        "",
        count_verdicts(findings) + ".",
        "",
        "| program | kind | expected | seen | batches | barriers or reason | control |",
        "|---|---|---|---|---|---|---|",
    ]
    for finding in findings:
        program = finding.program
        lines.append(
            f"| `{program.name}` | {program.kind} | {program.expected} | "
            f"{finding.verdict} | {', '.join(map(str, finding.batches))} | "
            f"{cell(reasons_of(finding))} | {cell(finding.control)} |"
        )
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tiling.add_options(parser)
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="only each N-th of the programs"
    )
    parser.add_argument(
        "--make", nargs="+", metavar="NAME", help="only make the files of these programs"
    )
    return parser.parse_args()


def main():
    options = parse()
    options.folder = options.folder.resolve()
    load_hazards()
    if options.make:
        make_all(options.make, options.folder, options.tile)
    names = [
        name
        for name in PROGRAMS
        if not options.only or any(name.startswith(part) for part in options.only)
    ][:: options.every]
    if not names:
        sys.exit("hazards.py: no such program")
    make_side_by_side(names, options)
    findings = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for finding in pool.map(evaluate, [(name, options) for name in names]):
            findings.append(finding)
            print(f"[{len(findings)}/{len(names)}] {finding.name}", file=sys.stderr, flush=True)
        compare_fresh(findings, options, pool)
    for finding in findings:
        for complaint in finding.complaints():
            print(f"{finding.name}: {finding.verdict}: {complaint}")
    if options.document:
        options.document.write_text(document(findings, options))
    print(count_verdicts(findings))
    sys.exit(any(finding.complaints() for finding in findings))


if __name__ == "__main__":
    main()
