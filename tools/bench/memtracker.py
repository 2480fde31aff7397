"""Predicted peaks of koila and of PyTorch's MemTracker, side by side.

Usage: memtracker.py [--build FOLDER] [--programs FOLDER] [--batch 16]
           [--rounds N] [--train] [--json FILE] [NAME...]
       memtracker.py --write FILE JSON...

Programs of test/corpus in eval mode under no_grad; with --train forward and
backward, the loss being the mean of the squares of what a program returns, and
gradients there before. For each, in one run:

* measured: PyTorch's allocator under a counter, the file that koila reads;
* MemTracker under FakeTensorMode on the Python module, whose weights and inputs
  are fake tensors already;
* koila: the analysis on the imported program in memory; it infers shapes.

Errors are bytes and percent of the measured peak. Times are from the loaded
module to the number: the first one of a new process, and the median of those
after it, which for koila there is of inference alone. --json keeps a run, and
--write makes a page of several.
"""

import argparse
import json
import multiprocessing
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / part) for part in ("corpus", "oracle")]

NAMES = [
    "tv_alexnet",
    "tv_vgg11_bn",
    "tv_resnet_basic",
    "tv_resnet_bottleneck",
    "tv_densenet",
    "tv_mobilenet_v2",
    "tv_squeezenet",
    "tv_googlenet",
    "tv_convnext",
    "tv_vit",
]


def sum_of(snapshot):
    """Bytes on all devices."""
    return sum(kinds.get("Total", 0) for kinds in snapshot.values())


def run_program(module, arguments, trains):
    if not trains:
        return module(*arguments)
    return module(*arguments).square().mean().backward()


def make_fake(mode, module, arguments):
    """The arguments without data, and the module, in place."""
    module._apply(mode.from_tensor)
    return [mode.from_tensor(argument) for argument in arguments]


def watch(module, arguments, call):
    """MemTracker's peak beyond what is there before `call`, which runs under
    FakeTensorMode."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(module, *arguments)
    before = sum_of(tracker.get_tracker_snapshot("current"))
    with tracker:
        call()
    return sum_of(tracker.get_tracker_snapshot("peak")) - before


def track(name, specs, batch, rounds, trains, answer):
    """MemTracker's peak, and seconds."""
    import torch
    import torch.distributed._tools.mem_tracker
    from torch._subclasses.fake_tensor import FakeTensorMode

    import inputs
    import make_programs
    from registry import PROGRAMS

    make_programs.prepare_libraries()
    make_programs.load_programs()
    torch.set_num_threads(1)
    module = PROGRAMS[name]()[0]
    arguments = inputs.make(specs, batch)
    seconds = []
    with FakeTensorMode() as mode, torch.set_grad_enabled(trains):
        arguments = make_fake(mode, module, arguments)
        run_program(module, arguments, trains)
        for _ in range(rounds + 1):
            start = time.perf_counter()
            peak = watch(module, arguments, lambda: run_program(module, arguments, trains))
            seconds.append(time.perf_counter() - start)
    answer.put((peak, seconds[0], statistics.median(seconds[1:])))


def run_tracker(options, name, specs):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(
        target=track, args=(name, specs, options.batch, options.rounds, options.train, answer)
    )
    process.start()
    found = answer.get(timeout=600)
    process.join()
    return found


def run_koila(options, file, specs, folder):
    """koila's peak, and seconds of the passes."""
    tools = pathlib.Path(options.build) / "bin"
    mode = "mode=train " if options.train else ""
    report = pathlib.Path(folder) / "report.json"
    text = pathlib.Path(folder) / "program.mlirbc"
    subprocess.run(
        [
            tools / "koila-opt",
            file,
            *(f"--input={spec}" for spec in specs),
            "--batch",
            f"B={options.batch}",
            # The step is made of the file for what trains.
            *([f"--koila-peak-memory={mode}floor=false"] if mode else []),
            "-o",
            text,
        ],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [
            tools / "koila-opt",
            text,
            "--mlir-timing",
            f"--koila-peak-memory={mode}format=json floor=false threads=1 "
            f"batches=0 output={report}",
            "-o",
            "/dev/null",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    first = sum(
        map(float, re.findall(r"^\s+([0-9.]+) \(.*?\)\s+\S*PeakMemory\S*$", done.stderr, re.M))
    )
    if mode:
        return json.loads(report.read_text())["peak_bytes"], first, None
    later = None
    with subprocess.Popen(
        [tools / "koila-bench", text], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as bench:
        for line in bench.stdout:
            if found := re.match(r"\s+peak memory, as imported\s+([0-9.]+) ms", line):
                later = float(found[1]) / 1e3
                break
        bench.kill()
    if not first or not later:
        sys.exit(f"memtracker.py: no times of {file}:\n{done.stderr}")
    return json.loads(report.read_text())["peak_bytes"], first, later


def measure(options, file, specs):
    import torch

    import inputs
    from counter import Counter

    counter = Counter(pathlib.Path(options.build) / "lib" / "libkoila-counter.so")
    module = torch.jit.load(str(file))
    torch.manual_seed(0)
    arguments = inputs.make(specs, options.batch)
    with torch.set_grad_enabled(options.train):
        if options.train:
            from accuracy import Step

            module = Step(module, is_first=False)
        module(*arguments)
        return max(counter.measure(module, arguments)[0] for _ in range(3))


def table(run):
    """The rows of a run, and what they come to."""
    lines = [
        "| program | measured, B | MemTracker, B off | | koila, B off | | "
        "MemTracker, ms: first | later | koila, ms: first | later | ratio: "
        "first | later |",
        "|---" * 12 + "|",
    ]
    firsts, laters, worse = [], [], []
    for row in run["rows"]:
        measured, times = row["measured"], row["seconds"]
        firsts.append(times[0] / times[2])
        if times[3]:
            laters.append(times[1] / times[3])
        if abs(row["predicted"] - measured) > abs(row["tracked"] - measured):
            worse.append(row["name"])
        cells = [f"`{row['name']}`", measured]
        for peak in (row["tracked"], row["predicted"]):
            cells += [peak - measured, f"{100 * (peak - measured) / measured:.2f} %"]
        cells += [f"{1e3 * seconds:.1f}" if seconds else "" for seconds in times]
        cells += [f"{firsts[-1]:.0f}", f"{laters[-1]:.0f}" if times[3] else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    later = f", {statistics.median(laters):.0f} later" if laters else ""
    return [
        *lines,
        "",
        f"Median ratios of the times: {statistics.median(firsts):.0f} the first time{later}; "
        f"koila is less exact on: {', '.join(worse) or 'none'}.",
    ]


def page(runs):
    lines = [
        "# koila and MemTracker",
        "",
        "<!-- Written by tools/dev/write_results.py memtracker; do not edit. -->",
        "",
        "PyTorch's `torch.distributed._tools.mem_tracker.MemTracker` under `FakeTensorMode` "
        "predicts without running kernels, too. Both predict the same call; measured is "
        "PyTorch's allocator. Times are from the loaded module to the number: the first one "
        "of a process, and the median of those after it.",
    ]
    for run in runs:
        heading, what = "Inference", "Forward under `no_grad`"
        if run["train"]:
            heading = "Training steps"
            what = (
                "Forward and backward of a step whose gradients are there before, the loss "
                "being the mean of the squares of what a program returns"
            )
        lines += ["", f"## {heading}", "", f"{what}; batch {run['batch']}, one thread.", ""]
        lines += table(run)
    return "\n".join(lines) + "\n"


def main():
    build = ROOT / "build"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--build", default=build, help="folder with koila's bin and lib")
    parser.add_argument("--programs", default=build / "test" / "corpus")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keep the run")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the page of runs")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    options = parser.parse_args()
    if options.write:
        runs = [json.loads(pathlib.Path(run).read_text()) for run in options.names]
        options.write.write_text(page(runs))
        return
    import torch

    import corpus
    import make_programs

    make_programs.prepare_libraries()
    make_programs.load_programs()
    torch._C._jit_set_profiling_mode(False)
    torch.set_num_threads(1)
    corpus.make_programs(options.names, pathlib.Path(options.programs), 2)
    rows = []
    for name in options.names:
        file = pathlib.Path(options.programs) / f"{name}.pt"
        specs = json.loads(file.with_suffix(".inputs").read_text())
        if options.train:
            import training

            program, file = file, file.with_suffix(".loss.pt")
            if problem := training.make_loss(program, file, specs):
                sys.exit(f"memtracker.py: {name}: {problem}")
        measured = measure(options, file, specs)
        tracked, their_first, their_later = run_tracker(options, name, specs)
        with tempfile.TemporaryDirectory() as folder:
            predicted, our_first, our_later = run_koila(options, file, specs, folder)
        rows.append(
            {
                "name": name,
                "measured": measured,
                "tracked": tracked,
                "predicted": predicted,
                "seconds": [their_first, their_later, our_first, our_later],
            }
        )
        print(f"[{len(rows)}/{len(options.names)}] {name}", file=sys.stderr, flush=True)
    run = {"batch": options.batch, "train": options.train, "rows": rows}
    print("\n".join(table(run)))
    if options.json:
        options.json.write_text(json.dumps(run, indent=1))


if __name__ == "__main__":
    main()
