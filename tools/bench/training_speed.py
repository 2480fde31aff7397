"""What training in tiles costs in time, and what it saves in memory.

Usage: training_speed.py [--models NAME...] [--triples N] [--batch 64]
           [--size 224] [--tokens 128] [--threads N] [--percent 25]
           [--tiles N...]
           [--build FOLDER] [--folder FOLDER] [--json FILE]
       training_speed.py --write FILE JSON...

Models of tiling_speed.py with batch normalisation in eval mode get a training
step, the cross entropy of the classes of images or of the tokens, and a budget: the floor that
koila names, and --percent of what lies between it and the untiled peak. A
process then runs the step of the untiled program, the tiled one and the untiled
one again in turn, all weights with a gradient before. The ratio is of medians;
the second untiled to the first says how much of it is noise. --tiles takes these
tiles in place of the budget, and leaves the time of the second run out.

--json keeps a run, and --write makes docs/results/TrainingSpeed.md of several. Exits with
1 if a peak is above the budget, or if gradients differ by more than rounding
explains.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / part) for part in ("corpus", "oracle")]

import tiling_speed
from accuracy import call_apart
from tiling_speed import MODELS, mebibytes, say, seconds_of, table

CLASSES = 1000
TIMEOUT = 900


def run_koila(options, *arguments):
    done = subprocess.run(
        [options.build / "bin" / "koila-opt", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        raise RuntimeError(errors[0] if errors else done.stderr[-200:])
    return done.stderr


class Step:
    """One file with a tiled and an untiled step."""

    def __init__(self, module, method):
        self.module, self.method = module, method

    def __call__(self, *arguments):
        return getattr(self.module, self.method)(*arguments)


def write_program(name, options):
    """The name of the file, its inputs, and the loss if it has none itself."""
    if name != "GPT-2":
        stem = tiling_speed.write_model(name, options)
        image = f"float32[B,3,{options.size},{options.size}]"
        return stem, [image, f"int64[B]{{0:{CLASSES}}}"], "loss=cross_entropy "
    import torch

    import inputs
    import make_programs

    make_programs.prepare_libraries()
    torch.manual_seed(0)
    model, specs = MODELS[name][1](options)

    class TokenLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens, labels):
            return torch.nn.functional.cross_entropy(
                self.model(tokens).flatten(0, 1), labels.flatten()
            )

    specs *= 2
    torch.jit.trace(
        TokenLoss().eval(),
        inputs.make(specs, tiling_speed.TRACED_BATCH),
        check_trace=False,
        strict=False,
    ).save(str(options.folder / "gpt-2-loss.pt"))
    return "gpt-2-loss", specs, ""


def run_both(file, specs, options):
    import torch

    import inputs
    from counter import Counter

    torch._C._jit_set_profiling_mode(False)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    counter = Counter(options.build / "lib" / "libkoila-counter.so")
    module = torch.jit.load(str(file))
    arguments = inputs.make(specs, options.batch)
    steps = [Step(module, "train_step_untiled"), Step(module, "train_step")]
    gradients, peaks = [], []
    for step in steps:
        step(*arguments)
        for weight in module.parameters():
            weight.grad.zero_()
        peaks.append(counter.measure(step, arguments)[0])
        gradients.append([weight.grad.clone() for weight in module.parameters()])
    difference = max(
        ((one - other).norm() / one.norm().clamp(min=1e-30)).item()
        for one, other in zip(*gradients, strict=False)
    )
    triples = []
    order = (0, 1) if options.tiles else (0, 1, 0)
    for _ in range(options.triples):
        triples.append([seconds_of(steps[which], arguments, 1) for which in order])
        say("   ", ", ".join(f"{1e3 * seconds:.0f}" for seconds in triples[-1]), "ms")
    return {"peaks": peaks, "difference": difference, "triples": triples}


def evaluate(name, options):
    stem, specs, loss = call_apart(lambda: write_program(name, options))
    source = options.folder / f"{stem}.pt"
    inputs = [*(f"--input={spec}" for spec in specs), "--batch", f"B={options.batch}"]
    with tempfile.TemporaryDirectory() as folder:
        report, output = (pathlib.Path(folder) / part for part in ("report.json", "step.pt"))
        common = f"mode=train {loss}threads={options.threads}"
        run_koila(
            options,
            source,
            *inputs,
            "--koila-infer-shapes",
            f"--koila-peak-memory={common} format=json batches=0 output={report}",
            "-o",
            "/dev/null",
        )
        untiled = json.loads(report.read_text())
        peak, floor = untiled["peak_bytes"], untiled["floor_bytes"]
        budget = floor + (peak - floor) * options.percent // 100
        for tile in options.tiles or [None]:
            row = {
                "model": name,
                "batch": options.batch,
                "untiled": peak,
                "floor": floor,
                "budget": None if tile else budget,
            }
            run_koila(
                options,
                source,
                *inputs,
                f"--koila-compile={common} " + (f"tile={tile}" if tile else f"budget={budget}"),
                "-o",
                output,
            )
            with zipfile.ZipFile(output) as archive:
                stored = json.loads(
                    archive.read(
                        next(
                            entry
                            for entry in archive.namelist()
                            if entry.endswith("koila/report.json")
                        )
                    )
                )
            row |= {
                "tile": tile or stored["promise"]["tile"],
                "predicted": stored["peak_bytes"],
                "exact": stored["exact"],
            }
            say(f"{name}: {peak} bytes untiled, floor {floor}, tile {row['tile']}")
            yield row | call_apart(lambda: run_both(output, specs, options))


def problem_of(row):
    if row["budget"] and row["peaks"][1] > row["budget"]:
        return f"{row['peaks'][1] - row['budget']} bytes above the budget"
    if not row["difference"] < 1e-2:
        return f"gradients differ by {row['difference']:.1e} of their norm"
    return None


HEAD = [
    "model",
    "batch",
    "tile",
    "untiled, ms",
    "tiled, ms",
    "ratio",
    "untiled again",
    "untiled, MiB",
    "tiled, MiB",
    "floor, MiB",
    "budget, MiB",
    "koila's peak",
    "gradients",
]


def cells(row):
    untiled, tiled = row["peaks"]
    times = [statistics.median(column) for column in zip(*row["triples"], strict=False)]
    again = f"{times[2] / times[0]:.3f}" if len(times) > 2 else ""
    off = row["predicted"] - tiled
    said = (f"{off:+} B" if off else "the same") + ("" if row["exact"] else ", not exact")
    return [
        row["model"],
        str(row["batch"]),
        str(row["tile"]),
        f"{1e3 * times[0]:.0f}",
        f"{1e3 * times[1]:.0f}",
        f"{times[1] / times[0]:.3f}",
        again,
        mebibytes(untiled),
        mebibytes(tiled),
        mebibytes(row["floor"]),
        mebibytes(row["budget"]) if row["budget"] else "",
        "; ".join([said, *filter(None, [problem_of(row)])]),
        f"{row['difference']:.0e}",
    ]


def document(runs):
    lines = [
        "# The speed of training in tiles",
        "",
        "<!-- Written by tools/dev/write_results.py training-speed; do not edit. -->",
        "",
        "Steps of models with random weights, batch normalisation in eval "
        "mode, cross entropy, gradients there before; TorchScript's "
        "executor without profiling. *Ratio* is the median time of the tiled "
        "step to that of the untiled one, run in turn; *untiled again* is the "
        "noise. Peaks are measured; *koila's peak* compares the prediction for "
        "the tiled step. *Gradients* is the largest difference of a gradient to "
        "the untiled one, of its norm, in float32.",
    ]
    for run in runs:
        what = (
            "Memory against time over tiles"
            if run["tiles"]
            else f"{run['percent']} % of what tiling can save"
        )
        lines += [
            "",
            f"## {what}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}",
            "",
            f"{run['triples']} rounds, images of {run['size']}², "
            f"{run.get('tokens', 128)} tokens. PyTorch "
            f"{run['torch']}, {run['processor']}, {run['isa']}.",
            "",
            *table(HEAD, map(cells, run["rows"])),
        ]
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", default=["ResNet-18", "MobileNetV2"])
    parser.add_argument("--triples", type=int, default=3, metavar="N")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, metavar="N")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--percent", type=int, default=25)
    parser.add_argument("--tiles", type=int, nargs="+", metavar="N")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "bench")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE")
    parser.add_argument("runs", nargs="*", metavar="JSON")
    options = parser.parse_args()
    for name in options.models:
        if name not in MODELS:
            parser.error(f"no model '{name}'; there is {', '.join(MODELS)}")
    return options


def main():
    options = parse()
    if options.write:
        options.write.write_text(
            document([json.loads(pathlib.Path(run).read_text()) for run in options.runs])
        )
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for name in options.models for row in evaluate(name, options)]
    run = {
        **tiling_speed.about_machine(),
        "rows": rows,
        **{
            name: getattr(options, name)
            for name in ("triples", "threads", "percent", "size", "tokens", "tiles")
        },
    }
    if options.json:
        options.json.write_text(json.dumps(run, indent=1))
    print("\n".join(table(HEAD, map(cells, rows))))
    return int(any(problem_of(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
