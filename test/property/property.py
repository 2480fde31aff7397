#!/usr/bin/env python3
"""Random programs, by the interpreter and through koila.

Usage: property.py [--koila-opt PATH] [--count N] [--seed S] [--only K]
           [--features A,B] [--max-refused SHARE] [--jobs N] [--keep FOLDER]
           [--tiled]

Each program has views, writes, loops, branches and containers as its number
says. It goes into koila and out again with no pass, with passes of MLIR, and
with those around --koila-infer-shapes; what comes out must do what the
interpreter makes of the original, bit by bit: results, arguments after the
call, the module's state, at two batches, twice in a row, and with arguments
that share storage.

With --tiled, it goes through --koila-tile-batch instead, and results may round
otherwise.

koila may refuse a program with a sentence; those are counted by what they say,
and --max-refused bounds their share, so that the test means something. A
failure is made smaller and printed with its source, the command lines and the
imported text; `--seed S --only K` runs it again.

Before that, programs with one write taken out must be found to differ, and so
must programs that MLIR's passes ran over without the marks that order writes.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
import re
import tempfile
import time
import typing
import warnings

from conclude import conclude

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# A program that PyTorch does not run is replaced by another one.
ATTEMPTS = 20
# Writes taken out, and how many of those must be noticed: some are dead.
CONTROLS = 40
NOTICED = 0.5
# Marks taken out: programs tried at most, and wrong results that suffice.
UNMARKED = 150
UNMARKED_NOTICED = 2

# A line that writes a tensor; not one that gives the result a name.
WRITE = re.compile(r"^[^=]*(\w_\(|\]\s*[-+*]?= )")
MARK = re.compile(r" ?koila\.(reads|writes),?")


@dataclasses.dataclass
class Outcome:
    number: int
    # Which of the programs for this number is the first that runs.
    attempt: int
    verdicts: list
    discarded: list


# What each process has.
KOILA: typing.Any


def prepare(tool):
    """In each process once."""
    global KOILA
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    from koila_opt import Koila

    KOILA = Koila(tool)


def make_program(seed, number, features, attempt=0):
    from generator import generate

    return generate(f"{seed}:{number}:{attempt}", features)


def run_one(task):
    from evaluate import PIPELINES, TILED, evaluate_apart

    seed, number, features, tiled = task
    discarded = []
    for attempt in range(ATTEMPTS):
        program = make_program(seed, number, features, attempt)
        verdicts = evaluate_apart(KOILA, program, TILED if tiled else PIPELINES)
        if verdicts[0].kind != "discarded":
            break
        discarded.append(verdicts[0].detail)
    return Outcome(number, attempt, verdicts, discarded)


# -- Failures -----------------------------------------------------------------


def command_line(pipeline, program):
    from evaluate import input_flags

    flags = input_flags(program.arguments) if pipeline.described else []
    quoted = [f"'{flag}'" for flag in flags]
    return " ".join(["koila-opt in.pt", *quoted, *pipeline.passes, "-o out.pt"])


def imported_text(program):
    """What koila makes of the program before any pass."""
    import evaluate

    def run():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            evaluate.get_reference(program, folder)
            evaluate.compiled()
            text = KOILA.passes(KOILA.read(folder / "in.pt"), folder, [], ".mlir").decode()
            return text.replace(str(folder / "in.pt"), "in.pt")

    return evaluate.in_child(run)[1]


def report_failure(arguments, outcome):
    """Makes the program smaller and prints it."""
    import evaluate
    from reducer import reduce_program

    verdict = next(v for v in outcome.verdicts if v.kind == "failed")
    original = make_program(arguments.seed, outcome.number, arguments.features, outcome.attempt)
    every = evaluate.TILED if arguments.tiled else evaluate.PIPELINES
    pipelines = [p for p in every if p.name == verdict.pipeline]
    pipelines = pipelines or list(every)

    def fails(program):
        found = evaluate.evaluate_apart(KOILA, program, pipelines)
        return any(v.kind == "failed" and v.what == verdict.what for v in found)

    # Passes that are not needed go too.
    program, pipeline = original, pipelines[0]
    if fails(program):
        program = reduce_program(program, fails, arguments.seconds)
        for index in reversed(range(len(pipeline.passes))):
            passes = pipeline.passes[:index] + pipeline.passes[index + 1 :]
            pipelines = [dataclasses.replace(pipeline, passes=passes)]
            pipeline = pipelines[0] if fails(program) else pipeline
        pipelines = [pipeline]
        found = evaluate.evaluate_apart(KOILA, program, pipelines)
        detail = next((v.detail for v in found if v.kind == "failed"), verdict.detail)
    else:
        detail = verdict.detail + " (not when it is run again)"
    text = (
        f"{program.source()}\n"
        f"{detail}\n\n"
        f"{command_line(pipeline, program)}\n\n"
        f"{imported_text(program)}\n"
    )
    again = (
        f"property.py --seed {arguments.seed} --only {outcome.number}"
        + " --tiled" * arguments.tiled
        + (f" --features {','.join(arguments.features)}" if arguments.given_features else "")
    )
    print(
        f"\n== program {outcome.number}: {verdict.pipeline} {verdict.what}\n   {again}\n\n{text}",
        flush=True,
    )
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        (arguments.keep / f"{outcome.number}.txt").write_text(text)


# -- Controls -----------------------------------------------------------------


def write_places(items, path=()):
    """Where lines that write are in the tree."""
    from program import Block

    for index, item in enumerate(items):
        if isinstance(item, Block):
            for part, (_, inner) in enumerate(item.parts):
                yield from write_places(inner, (*path, (index, part)))
        elif WRITE.match(item):
            yield (*path, index)


def without_line(program, path):
    copy = program.copy()
    items = copy.body
    for index, part in path[:-1]:
        items = items[index].parts[part][1]
    del items[path[-1]]
    return copy


def drop_a_write(task):
    """Compares a program with itself less one write: noticed, or not; None
    if it has none or what is left does not run."""
    import random

    import evaluate

    seed, number, features = task
    program = make_program(seed, number, features)
    places = list(write_places(program.body))
    if not places:
        return None
    wrong = without_line(program, random.Random(number).choice(places))

    def run():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            reference = evaluate.get_reference(program, folder)
            try:
                evaluate.compiled()
                module = evaluate.compile_program(wrong.source())
                module.save(folder / "wrong.pt")
                seen = evaluate.run_emitted(folder / "wrong.pt", program, False)
            except Exception:
                return None
            return bool(evaluate.difference(reference[False], seen))

    kind, answer = evaluate.in_child(run)
    return answer if kind == "value" else None


def drop_the_marks(task):
    """Runs MLIR's passes over a program whose text has lost the marks that
    order reads and writes: whether that went unnoticed by everything but the
    comparison. None if there were no marks, or koila refuses the text."""
    import evaluate
    from koila_opt import Broken, Refused

    seed, number, features = task
    program = make_program(seed, number, features)

    def run():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            reference = evaluate.get_reference(program, folder)
            evaluate.compiled()
            try:
                code = KOILA.read(folder / "in.pt")
                text = KOILA.passes(code, folder, [], ".mlir").decode()
                if not MARK.search(text):
                    return None
                text = re.sub(r",\s*\}", "}", MARK.sub("", text))
                code = KOILA.passes(text.encode(), folder, evaluate.UPSTREAM, ".mlir")
                KOILA.write(code, folder / "out.pt")
            except (Broken, Refused):
                return None
            try:
                seen = evaluate.run_emitted(folder / "out.pt", program, False)
            except Exception:
                return True
            return bool(evaluate.difference(reference[False], seen))

    kind, answer = evaluate.in_child(run)
    return answer if kind == "value" else None


def run_controls(pool, arguments):
    """Sentences about controls that were not noticed."""
    problems = []
    seed = f"{arguments.seed}control"
    tasks = [(seed, number, arguments.features) for number in range(CONTROLS)]
    answers = [a for a in pool.map(drop_a_write, tasks) if a is not None]
    print(
        f"control: {sum(answers)} of {len(answers)} programs with a write "
        "taken out are seen to differ"
    )
    if len(answers) < CONTROLS / 4 or sum(answers) < NOTICED * len(answers):
        problems.append("the comparison does not notice lost writes")
    tasks = [(seed, number, arguments.features) for number in range(UNMARKED)]
    marked, noticed = 0, 0
    for start in range(0, UNMARKED, 30):
        answers = [a for a in pool.map(drop_the_marks, tasks[start : start + 30]) if a is not None]
        marked += len(answers)
        noticed += sum(answers)
        if noticed >= UNMARKED_NOTICED:
            break
    print(f"control: {noticed} of {marked} programs without marks of order are seen to differ")
    if noticed < UNMARKED_NOTICED:
        problems.append(
            "the comparison does not notice what MLIR's passes do "
            "to programs without marks of order"
        )
    return problems


# -- The whole ----------------------------------------------------------------


def sentence(detail):
    """A message without what is particular to the program."""
    detail = detail.strip().splitlines()[-1] if detail.strip() else ""
    return re.sub(r"'[\w.:]+'|%?\b\w+\d\b|\d+", "_", detail)[:140]


def print_counts(title, counts):
    for text, count in counts.most_common():
        print(f"{title} {count:5}  {text}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="K", help="these programs; no controls"
    )
    parser.add_argument("--features", metavar="A,B", help="what programs may have (default: all)")
    parser.add_argument("--tiled", action="store_true", help="tile; no controls")
    parser.add_argument(
        "--max-refused", type=float, default=1.0, metavar="SHARE", help="fail if koila refuses more"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="N", help="time to make a failure smaller"
    )
    parser.add_argument(
        "--reduce", type=int, default=3, metavar="N", help="how many failures are made smaller"
    )
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="for reduced failures")
    parser.add_argument(
        "--print", action="store_true", help="print the programs of --only and their verdicts"
    )
    arguments = parser.parse_args()
    from expressions import FEATURES

    arguments.given_features = arguments.features is not None
    arguments.features = tuple(arguments.features.split(",")) if arguments.features else FEATURES
    if unknown := set(arguments.features) - set(FEATURES):
        parser.error(f"no feature '{unknown.pop()}'; there are " + ", ".join(FEATURES))
    return arguments


def run(pool, arguments):
    """Sentences about what is wrong."""
    numbers = arguments.only or range(arguments.count)
    tasks = [(arguments.seed, number, arguments.features, arguments.tiled) for number in numbers]
    discarded, refusals, failures = (collections.Counter(), collections.Counter(), [])
    passed, refused, empty = collections.Counter(), 0, []
    for outcome in pool.map(run_one, tasks, chunksize=1):
        if arguments.print:
            print(
                make_program(
                    arguments.seed, outcome.number, arguments.features, outcome.attempt
                ).source(),
                *outcome.verdicts,
                sep="\n",
            )
        discarded.update(map(sentence, outcome.discarded))
        verdicts = outcome.verdicts
        if verdicts[0].kind == "discarded":
            empty.append(outcome.number)
            continue
        if any(verdict.kind == "failed" for verdict in verdicts):
            failures.append(outcome)
        refused += any(verdict.kind == "refused" for verdict in verdicts)
        for verdict in verdicts:
            if verdict.kind == "refused":
                refusals[f"{verdict.pipeline}: {sentence(verdict.detail)}"] += 1
            elif verdict.kind == "ok":
                passed[verdict.pipeline] += 1
    print_counts("discarded", discarded)
    print_counts("refused  ", refusals)
    print_counts("equal    ", passed)
    problems = [f"no program that runs for number {number}" for number in empty]
    count = len(numbers) - len(empty)
    print(f"{count} programs: {refused} refused, {len(failures)} failed")
    if refused > arguments.max_refused * count:
        problems.append(
            f"koila refuses {refused} of {count} programs, more than {arguments.max_refused:.0%}"
        )
    kinds = collections.defaultdict(list)
    for outcome in failures:
        verdict = next(v for v in outcome.verdicts if v.kind == "failed")
        kinds[verdict.what, sentence(verdict.detail) if verdict.what != "differs" else ""].append(
            outcome
        )
    for (what, detail), outcomes in kinds.items():
        problems.append(
            f"{len(outcomes)} programs: {what} {detail} "
            f"({', '.join(str(o.number) for o in outcomes[:12])})"
        )
    return problems, list(kinds.values())


def main():
    arguments = parse_arguments()
    start = time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    problems = []
    with concurrent.futures.ProcessPoolExecutor(
        arguments.jobs, context, prepare, (arguments.koila_opt,)
    ) as pool:
        if not arguments.only and not arguments.tiled:
            problems += run_controls(pool, arguments)
        found, kinds = run(pool, arguments)
        problems += found
    prepare(arguments.koila_opt)
    # One of each kind first.
    rows = [
        outcomes[index]
        for index in range(arguments.reduce)
        for outcomes in kinds
        if index < len(outcomes)
    ]
    for outcome in rows[: arguments.reduce]:
        report_failure(arguments, outcome)
    conclude("property.py", start, problems)


if __name__ == "__main__":
    main()
