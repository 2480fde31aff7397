"""Writes pages of docs/results: what was measured of koila.

Usage: write_results.py PAGE... [--output FOLDER] [--jobs N] [--dry-run]

Each page comes from one or more runs of a program under test/corpus or tools/bench,
which use the build in build/ and last from minutes to hours; --dry-run prints them.
Pages with times want a machine that does nothing else. Tests write no page:
test/corpus/*-long.test compare what they see with the committed page.
"""

import argparse
import dataclasses
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Page:
    file: str
    about: str
    program: str
    # Arguments; each run leaves a JSON file, and all of them become the page.
    runs: tuple
    # Or the only run writes the page.
    is_direct: bool = False


def of_corpus(file, about, program, run):
    return Page(file, about, f"test/corpus/{program}", (run,))


def of_benchmark(file, about, program, *runs, **more):
    return Page(file, about, f"tools/bench/{program}", runs, **more)


PAGES = {
    "corpus": of_corpus(
        "Corpus.md",
        "traced programs: read, inferred, written back",
        "corpus.py",
        "--processes",
    ),
    "corpus-scripted": of_corpus(
        "CorpusScripted.md",
        "scripted programs: read, inferred, written back",
        "corpus.py",
        "--scripted --long --processes",
    ),
    "tiling": of_corpus(
        "Tiling.md",
        "traced programs in tiles",
        "tiling.py",
        "--batches 0,1,2,7,13,16 --fresh 13",
    ),
    "hazards": of_corpus(
        "Hazards.md",
        "programs that tiles can break",
        "hazards.py",
        "--batches 0,1,2,7,13,16,64,100 --fresh 13",
    ),
    "budgets": of_corpus(
        "Budgets.md", "traced programs under a budget", "budgets.py", "--batches 16,13 --below"
    ),
    "training-corpus": of_corpus(
        "TrainingCorpus.md",
        "training steps of traced programs in tiles",
        "training.py",
        "--batches 5,8",
    ),
    "accuracy": of_benchmark(
        "Accuracy.md",
        "predicted and measured peaks of inference",
        "accuracy.py",
        "",
        "--grad",
        "--scripted",
        "--curve --batches 1..40 --threads 2 --only hand_lstm hf_bert_sdpa tv_densenet "
        "tv_resnet_basic tv_swin",
        "--default-executor",
    ),
    "accuracy-training": of_benchmark(
        "AccuracyTraining.md",
        "predicted and measured peaks of training steps",
        "accuracy.py",
        "--train",
        "--train --first-step --threads 1",
    ),
    "tiling-speed": of_benchmark(
        "TilingSpeed.md",
        "time of inference in tiles",
        "tiling_speed.py",
        "",
        "--free",
    ),
    "training-speed": of_benchmark(
        "TrainingSpeed.md",
        "time of training steps in tiles",
        "training_speed.py",
        "",
        "--models ViT-B/16 --triples 2",
        "--models ResNet-18 --triples 2 --tiles 4 8 16 32",
        "--models GPT-2 --triples 2 --tokens 32",
    ),
    "batch-finders": of_benchmark(
        "BatchFinders.md",
        "koila next to toma, accelerate and Lightning",
        "batch_finders.py",
        "--threads 2",
    ),
    "lazy-models": of_benchmark(
        "LazyModels.md", "torchvision's models through koila.lazy", "lazy_models.py", "--batch 4",
        is_direct=True,
    ),
    "train-models": of_benchmark(
        "TrainModels.md", "torchvision's models in training mode", "train_models.py", "",
        is_direct=True,
    ),
    "train-budgets": of_benchmark(
        "TrainBudgets.md", "time and memory of steps in less memory", "train_budgets.py", "",
        is_direct=True,
    ),
    "lazy-steps": of_benchmark(
        "LazySteps.md", "time of steps through koila.lazy", "lazy_steps.py", "--rounds 3",
        is_direct=True,
    ),
    "lazy-first-step": of_benchmark(
        "LazyFirstStep.md",
        "time of first steps through koila.lazy",
        "lazy_first_step.py",
        "--threads 1 --cpu",
        is_direct=True,
    ),
    "compile-time": of_benchmark(
        "CompileTime.md", "time of reports and compilations", "compile_time.py", "--rounds 3",
        is_direct=True,
    ),
    "guard-cost": of_benchmark("GuardCost.md", "time of guards", "guards.py", "", is_direct=True),
    "memtracker": of_benchmark(
        "MemTracker.md", "koila next to PyTorch's MemTracker", "memtracker.py", "", "--train",
    ),
}  # fmt: skip


def commands_of(page, options, folder):
    """Argument lists, the one that writes the page last."""
    start = [sys.executable, str(ROOT / page.program)]
    runs = [[*start, *run.split()] for run in page.runs]
    output = str(options.output / page.file)
    if page.program.startswith("test/corpus"):
        return [[*run, f"--jobs={options.jobs}", "--document", output] for run in runs]
    if page.is_direct:
        return [[*run, "--write", output] for run in runs]
    kept = [str(folder / f"{number}.json") for number in range(len(runs))]
    return [
        *([*run, "--json", file] for run, file in zip(runs, kept, strict=True)),
        [*start, "--write", output, *kept],
    ]


def parse():
    pages = "\n".join(f"  {name:18} {page.file:20} {page.about}" for name, page in PAGES.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"pages:\n{pages}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", nargs="+", metavar="PAGE", choices=list(PAGES))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "results")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="programs at a time")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    return parser.parse_args()


def main():
    options = parse()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "build" / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    }
    for name in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            for command in commands_of(PAGES[name], options, pathlib.Path(folder)):
                print(shlex.join(command), flush=True)
                if options.dry_run:
                    continue
                if status := subprocess.run(command, env=environment).returncode:
                    sys.exit(f"write_results.py: {name}: exit code {status}")


if __name__ == "__main__":
    main()
