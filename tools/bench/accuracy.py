"""Predicted peaks next to measured ones, over the programs of test/corpus.

Usage: accuracy.py [--koila-opt PATH] [--counter LIBRARY] [--programs FOLDER]
           [--only NAME...] [--batches 1,2,7,16] [--threads 1,2] [--jobs N]
           [--grad | --train [--first-step]] [--curve] [--default-executor]
           [--scripted | --hazards]
           [--json FILE]
       accuracy.py --write FILE JSON...

Each program runs in eval mode under no_grad, TorchScript's executor without
profiling: once to warm up, then three times under a counter of PyTorch's
allocator; the largest peak counts. koila-opt predicts from the same file, with
the batch and the number of threads given. A pair is a program, a batch and a
number of threads.

right      koila says exact, and not a byte differs
WRONG      koila says exact, and the figures differ; or no less, and it is less
differs    the same, with PyTorch's default executor
bounded    koila says that no more is allocated than it says
inexact    koila says that it does not know, with the place and the reason
refused    no figure, with a reason

--grad runs with gradients recorded, and predicts mode=forward-with-grad.
--train gives each program a loss, the mean of the squares of what it returns,
and runs forward and backward; programs without weights are left out. All weights
have a gradient before; with --first-step none has.
--default-executor leaves PyTorch as it starts, and measures the first three
calls of each pair in a process of its own: profiling and what LibTorch makes of
it, which koila does not model. --scripted takes the scripted programs, and
--hazards those of hazards_*.py; both load the file anew for each pair, since a
call may change it; where data decide the memory of a program, its pairs are
also counted apart. --curve takes the
figures from the polynomials over the batch of one report. --json keeps a run,
and --write makes a page of several.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / part) for part in ("corpus", "oracle")]

from counter import Counter

TIMEOUT = 300


class Step:
    """Forward and backward of a program that returns a loss."""

    def __init__(self, program, is_first):
        self.program, self.is_first = program, is_first

    def prepare(self):
        if self.is_first:
            for weight in self.program.parameters():
                weight.grad = None

    def __call__(self, *arguments):
        loss = self.program(*arguments)
        loss.backward()
        return loss


def measure(module, arguments, counter, warm=True):
    """The largest peak of three calls, after a warm-up if `warm`."""
    if isinstance(module, Step):
        module(*arguments)
        peaks = []
        for _ in range(3):
            module.prepare()
            peaks.append(counter.measure(module, arguments)[0])
        return max(peaks)
    if warm:
        module(*arguments)
    return max(counter.measure(module, arguments)[0] for _ in range(3))


def call_apart(function):
    """What the function gives in a process of its own. This process must not
    have run anything in PyTorch."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)

    def send():
        try:
            writer.send(function())
        except Exception as error:
            writer.send(RuntimeError(str(error)))

    process = context.Process(target=send)
    process.start()
    writer.close()
    try:
        found = reader.recv()
    except EOFError:
        found = RuntimeError("the process that measures crashed")
        print(f"accuracy.py: {found}", file=sys.stderr, flush=True)
    process.join()
    if isinstance(found, Exception):
        raise found
    return found


def run_koila(tool, *arguments):
    done = subprocess.run(
        [tool, *map(str, arguments)], text=True, capture_output=True, timeout=TIMEOUT
    )
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    return done.returncode == 0, lines[0] if lines else done.stderr[-200:]


class Predictor:
    """koila's figures for one file, which is imported once."""

    def __init__(self, tool, file, specs, folder, mode):
        self.tool = tool
        self.mode = mode
        self.text = pathlib.Path(folder) / (file.stem + ".mlirbc")
        # The step is made where a pass of the pipeline trains.
        trains = (
            ["--koila-peak-memory=mode=train floor=false output=/dev/null"]
            if mode.startswith("train")
            else []
        )
        good, self.problem = run_koila(
            tool,
            file,
            *(f"--input={spec}" for spec in specs),
            "--koila-infer-shapes",
            *trains,
            "-o",
            self.text,
        )
        if good:
            self.problem = None

    def predict(self, batch, threads):
        """The report, or a sentence."""
        if self.problem:
            return self.problem
        return self.report(f"threads={threads} batches=0 mode={self.mode}", "--batch", f"B={batch}")

    def report(self, options, *more):
        report = self.text.with_suffix(".json")
        good, problem = run_koila(
            self.tool,
            self.text,
            *more,
            f"--koila-peak-memory=format=json floor=false {options} output={report}",
            "-o",
            "/dev/null",
        )
        return json.loads(report.read_text()) if good else problem


class CurvePredictor(Predictor):
    """As Predictor, by the polynomials of one report for all batches."""

    def __init__(self, tool, file, specs, folder, mode, last):
        super().__init__(tool, file, specs, folder, mode)
        self.last, self.reports = last, {}

    def predict(self, batch, threads):
        if self.problem:
            return self.problem
        if threads not in self.reports:
            self.reports[threads] = self.report(
                f"threads={threads} batches={self.last} mode={self.mode}",
                "--batch",
                f"B={self.last}",
            )
        found = self.reports[threads]
        if isinstance(found, str):
            return found
        for piece in found["batch_pieces"]:
            if piece["from"] <= batch and (piece["to"] is None or batch <= piece["to"]):
                peak = sum(
                    int(factor) * batch**power for power, factor in enumerate(piece["coefficients"])
                )
                return {"peak_bytes": peak, "exact": found["exact"], "inexact": found["inexact"]}
        return "no piece of the curve is for this batch"


def make_hazards(options):
    """The names of the programs of hazards_*.py, which it makes."""
    import hazards

    hazards.load_hazards()
    names = [
        name
        for name in hazards.PROGRAMS
        if not options.only or any(map(name.startswith, options.only))
    ]
    options.programs = pathlib.Path(options.programs) / "hazards"
    if names:
        hazards.make_side_by_side(
            names, argparse.Namespace(folder=options.programs, tile=4, jobs=options.jobs)
        )
    return names


def find_program(name, options):
    """The file of a program, and the specifications of its inputs."""
    folder = pathlib.Path(options.programs)
    if options.hazards:
        import hazards

        hazards.load_hazards()
        return hazards.Files(folder, name).original, list(hazards.PROGRAMS[name].inputs)
    file = folder / f"{name}.pt"
    return file, json.loads(file.with_suffix(".inputs").read_text())


def is_decided(name, options):
    """Whether data decide how much memory the program needs."""
    if options.hazards:
        import hazards

        return hazards.PROGRAMS[name].decided
    return False


def make_losses(names, options):
    """Makes NAME.loss.pt; the names of programs that have one."""
    import training

    tasks = []
    for name in names:
        file, specs = find_program(name, options)
        tasks.append((file, file.with_suffix(".loss.pt"), specs))
    problems = training.make_losses(tasks)
    return {name for name, problem in zip(names, problems, strict=True) if not problem}


def evaluate(task):
    name, has_loss, options = task
    import torch

    import inputs
    import make_programs
    from evaluate import without_machine

    make_programs.prepare_libraries()
    make_programs.load_programs()
    # It is on when PyTorch starts.
    if not options.default_executor:
        torch._C._jit_set_profiling_mode(False)
    file, specs = find_program(name, options)
    mode = "forward-with-grad" if options.grad else "inference"
    if options.train:
        mode = f"train grads={'absent' if options.first_step else 'present'}"
        if not has_loss:
            return name, []
        file = file.with_suffix(".loss.pt")
        # In the order of the arguments, which lose their names.
        specs = [spec.split("=", 1)[-1] for spec in specs]
    counter = Counter(options.counter)
    loaded = None
    pairs = []

    def run(batch, threads):
        nonlocal loaded
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        if loaded is None or options.scripted or options.hazards:
            loaded = torch.jit.load(str(file))
            if options.train:
                loaded = Step(loaded, options.first_step)
        return measure(
            loaded, inputs.make(specs, batch), counter, warm=not options.default_executor
        )

    with (
        tempfile.TemporaryDirectory() as folder,
        torch.set_grad_enabled(options.grad or options.train),
    ):
        predictor = (
            CurvePredictor(options.koila_opt, file, specs, folder, mode, max(options.batches))
            if options.curve
            else Predictor(options.koila_opt, file, specs, folder, mode)
        )
        for threads in options.threads:
            for batch in options.batches:
                pair = {"program": name, "batch": batch, "threads": threads}
                if is_decided(name, options):
                    pair["decided"] = True
                if options.default_executor:
                    pair["default_executor"] = True
                pairs.append(pair)
                try:
                    pair["measured"] = (
                        call_apart(functools.partial(run, batch, threads))
                        if options.default_executor
                        else run(batch, threads)
                    )
                except Exception as error:  # what a batch baked in raises
                    lines = str(error).strip().splitlines() or [repr(error)]
                    pair["fails"] = lines[-1]
                    continue
                found = predictor.predict(batch, threads)
                if isinstance(found, str):
                    pair["problem"] = without_machine(found)
                    continue
                pair["predicted"] = found["peak_bytes"]
                pair["exact"] = found["exact"]
                pair["bounded"] = all(entry["bound"] for entry in found["inexact"])
                pair["reasons"] = sorted(
                    {
                        f"{entry['op'].removeprefix('koila.')}: {entry['reason']}"
                        for entry in found["inexact"]
                    }
                )
    return name, pairs


def verdict(pair):
    if "fails" in pair:
        return "not run"
    if pair.get("predicted") is None:
        return "refused"
    if not pair["exact"] and not pair.get("bounded"):
        return "inexact"
    if not pair["exact"] and pair["predicted"] >= pair["measured"]:
        return "bounded"
    if pair["exact"] and pair["predicted"] == pair["measured"]:
        return "right"
    return "differs" if pair.get("default_executor") else "WRONG"


def off(pair):
    """Bytes that the prediction is too high; None without one."""
    if pair.get("predicted") is None or "measured" not in pair:
        return None
    return pair["predicted"] - pair["measured"]


def percent(pair):
    return 100 * abs(off(pair)) / max(1, pair["measured"])


VERDICTS = ["right", "WRONG", "differs", "bounded", "inexact", "refused", "not run"]


def summary(pairs):
    counts = collections.Counter(map(verdict, pairs))
    default = any(pair.get("default_executor") for pair in pairs)
    kinds = [kind for kind in VERDICTS if kind != ("WRONG" if default else "differs")]
    ran = [pair for pair in pairs if verdict(pair) != "not run"]
    figures = [pair for pair in ran if off(pair) is not None]
    equal = sum(off(pair) == 0 for pair in figures)
    errors = [percent(pair) for pair in figures]
    apart = {}
    if any(pair.get("decided") for pair in pairs):
        known = [pair for pair in ran if not pair.get("decided")]
        same = sum(off(pair) == 0 for pair in known)
        apart["where data decide nothing"] = (
            f"{same} of {len(known)} ({100 * same / max(1, len(known)):.1f} %)"
        )
    return {
        "pairs": len(pairs),
        **{kind: counts[kind] for kind in kinds},
        "0 bytes off": f"{equal} ({100 * equal / max(1, len(ran)):.1f} %)",
        **apart,
        "median": f"{statistics.median(errors):.2f} %" if errors else "",
        "worst": f"{max(errors):.1f} %" if errors else "",
    }


def rows(pairs):
    """One row per program."""
    by_program = collections.defaultdict(list)
    for pair in pairs:
        by_program[pair["program"]].append(pair)
    for name, group in sorted(by_program.items()):
        counts = collections.Counter(map(verdict, group))
        figures = [pair for pair in group if off(pair) is not None]
        worst = max(figures, key=percent, default=None)
        reasons = sorted(
            {reason for pair in group for reason in pair.get("reasons", [])}
            | {pair["problem"] for pair in group if "problem" in pair}
        )
        yield (
            f"`{name}`",
            ", ".join(f"{counts[key]} {key}" for key in VERDICTS if counts[key]),
            max((pair["measured"] for pair in figures), default=""),
            off(worst) if worst else "",
            f"{percent(worst):.2f} %" if worst else "",
            reasons,
        )


def describe_run(run):
    """The heading of a run, and what it was."""
    batches = run["batches"]
    text = ", ".join(map(str, batches)) if len(batches) < 9 else f"{batches[0]} to {batches[-1]}"
    heading = (
        "A training step"
        if run["train"]
        else "Forward, gradients recorded"
        if run["grad"]
        else "Inference under `no_grad`"
    )
    mode = "the mode that they were scripted in" if run["scripted"] else "eval mode"
    kind = "Scripted" if run["scripted"] else "Traced"
    if run.get("hazards"):
        kind, mode = "Hazardous", "the mode that they name"
    said = (
        f"{kind} programs of "
        f"`test/corpus` in {mode} at batches {text}, "
        f"{' and '.join(map(str, run['threads']))} threads."
    )
    if run["train"]:
        heading += ", the first one" if run["first_step"] else ", all weights with a gradient"
        said += (
            " Forward and backward; the loss is the mean of the squares of "
            "what the program returns. Programs without weights are left "
            "out."
        )
    if run["scripted"]:
        heading += ", scripted"
    if run.get("hazards"):
        heading += ", hazards"
    if run["curve"]:
        heading += ", by the curve"
        said += " Predicted by the polynomials of one report."
    if run["default_executor"]:
        heading += ", PyTorch as it starts"
        said += (
            " Profiling is on: the largest of the first three calls of a "
            "fresh process for each pair. koila's figure is for the "
            "executor without profiling. The second table has all "
            "programs in which the two differ, with koila's figure "
            "before the measured one, in bytes; one figure stands for "
            "both where they are equal."
        )
    return heading, said


def list_programs(pairs):
    """A table of programs with reasons."""
    head = "| program | pairs | largest peak, B | worst, B | worst | why |"
    lines = [head, "|---" * 6 + "|"]
    for *cells, reasons in rows(pairs):
        text = "; ".join(reasons[:3])
        more = len(reasons) - 3
        cells.append((text + (f"; {more} more" if more > 0 else "")).replace("|", "\\|"))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def list_differences(pairs, batches):
    """Both figures of the programs in which they differ: a row for the numbers
    of threads with the same figures."""
    found = collections.defaultdict(dict)
    for pair in pairs:
        if off(pair) is not None:
            found[pair["program"], pair["threads"]][pair["batch"]] = pair
    rows = collections.defaultdict(list)
    for (name, threads), by_batch in sorted(found.items()):
        if not any(map(off, by_batch.values())):
            continue
        cells = [
            ""
            if batch not in by_batch
            else f"{by_batch[batch]['predicted']}"
            + (f" / {by_batch[batch]['measured']}" if off(by_batch[batch]) else "")
            for batch in batches
        ]
        exact = all(pair["exact"] for pair in by_batch.values())
        rows[(name, "" if exact else "not exact", *cells)].append(threads)
    lines = [
        "| program | threads | koila says | "
        + " | ".join(f"B = {batch}" for batch in batches)
        + " |",
        "|---" * (3 + len(batches)) + "|",
    ]
    for (name, exact, *cells), threads in rows.items():
        lines.append(
            "| "
            + " | ".join([f"`{name}`", ", ".join(map(str, threads)), exact or "exact", *cells])
            + " |"
        )
    return lines


def document(runs):
    lines = [
        "# Predicted and measured peaks",
        "",
        "<!-- Written by tools/dev/write_results.py; do not edit. -->",
        "",
        "What counts as measured is in [Reports](../user/Reports.md). A pair is a "
        "program, a batch and a number of threads. Errors are of all "
        "pairs with a figure, those that koila calls not exact included.",
    ]
    for run in runs:
        heading, said = describe_run(run)
        pairs, batches = run["pairs"], run["batches"]
        counts = summary(pairs)
        lines += [
            "",
            f"## {heading}",
            "",
            said,
            "",
            "| " + " | ".join(counts) + " |",
            "|---" * len(counts) + "|",
            "| " + " | ".join(map(str, counts.values())) + " |",
            "",
        ]
        if run["default_executor"]:
            lines += list_differences(pairs, batches)
        else:
            lines += list_programs(pairs)
    return "\n".join(lines) + "\n"


def numbers(text):
    """`1,2,7` and `1..40`."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("..")
        found += range(int(first), int(last or first) + 1)
    return found


def parse():
    build = ROOT / "build"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--koila-opt", default=build / "bin" / "koila-opt")
    parser.add_argument("--counter", default=build / "lib" / "libkoila-counter.so")
    parser.add_argument("--programs", default=build / "test" / "corpus")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these programs, or what their names begin with"
    )
    parser.add_argument(
        "--scripted", action="store_true", help="the scripted programs, not the traced ones"
    )
    parser.add_argument(
        "--hazards", action="store_true", help="those of hazards_*.py, traced and scripted"
    )
    parser.add_argument("--batches", type=numbers, default=[1, 2, 7, 16])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--grad", action="store_true", help="record gradients")
    parser.add_argument("--train", action="store_true", help="run forward and backward")
    parser.add_argument(
        "--first-step", action="store_true", help="of --train, without gradients before"
    )
    parser.add_argument(
        "--curve", action="store_true", help="predict by the polynomials over the batch"
    )
    parser.add_argument(
        "--default-executor",
        action="store_true",
        help="measure the first three calls of a new process",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="keep the run")
    parser.add_argument("--write", metavar="FILE", help="write the document of runs that were kept")
    parser.add_argument("runs", nargs="*", metavar="JSON")
    options = parser.parse_args()
    if options.first_step and not options.train:
        parser.error("--first-step belongs to --train")
    if options.hazards and options.scripted:
        parser.error("--hazards takes the scripted ones, too")
    if options.train and (options.grad or options.default_executor):
        parser.error("--train goes with --curve and --scripted alone")
    return options


def main():
    options = parse()
    if options.write:
        runs = [json.loads(pathlib.Path(run).read_text()) for run in options.runs]
        import make_programs

        make_programs.load_programs()
        pathlib.Path(options.write).write_text(document(runs))
        return
    import corpus
    import make_programs
    from registry import select

    make_programs.load_programs()
    if options.hazards:
        names = make_hazards(options)
    else:
        names = select(options.scripted, options.only)
        corpus.make_programs(names, pathlib.Path(options.programs), options.jobs)
    if not names:
        sys.exit("accuracy.py: --only names no program of the corpus")
    losses = make_losses(names, options) if options.train else set()
    pairs = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, context, max_tasks_per_child=1 if options.default_executor else None
    ) as pool:
        tasks = [(name, name in losses, options) for name in names]
        for count, (name, found) in enumerate(pool.map(evaluate, tasks), 1):
            pairs += found
            counts = collections.Counter(map(verdict, found))
            print(
                f"[{count}/{len(names)}] {name}: "
                + ", ".join(f"{counts[key]} {key}" for key in VERDICTS if counts[key]),
                file=sys.stderr,
                flush=True,
            )
    if options.json:
        run = {
            name: getattr(options, name)
            for name in (
                "grad",
                "train",
                "first_step",
                "scripted",
                "hazards",
                "curve",
                "default_executor",
                "batches",
                "threads",
            )
        }
        pathlib.Path(options.json).write_text(json.dumps({**run, "pairs": pairs}, indent=1))
    for key, value in summary(pairs).items():
        print(f"{key}: {value}")
    if decided := sorted({pair["program"] for pair in pairs if pair.get("decided")}):
        print("data decide:", ", ".join(decided))
    reasons = collections.Counter(reason for pair in pairs for reason in pair.get("reasons", []))
    for reason, count in reasons.most_common(40):
        print(f"{count:6} {reason}")
    sys.exit(any(verdict(pair) == "WRONG" for pair in pairs))


if __name__ == "__main__":
    main()
