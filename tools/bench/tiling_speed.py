"""What tiled inference costs in time, and what it saves in memory.

Usage: tiling_speed.py [--models NAME...] [--triples N] [--batch B] [--size N]
           [--tokens N] [--threads N] [--percent 20] [--free]
           [--build FOLDER] [--folder FOLDER] [--json FILE]
       tiling_speed.py --write FILE JSON...

Models with random weights, traced with the batch open, are compiled for a
budget: the floor, which is the smallest one that koila says works, and
--percent of what lies between it and the untiled peak. A process per model
then runs untiled, tiled and untiled again in turn, under no_grad and
TorchScript's executor without profiling. The ratio is of medians, tiled to
untiled; the second untiled to the first says how much of it is noise. Peaks are
those of PyTorch's allocator under a counter, after a warm-up.

--free sweeps the batch over small models, by default programs of test/corpus,
and prints from which batch on tiling costs no time: the ratio is at most 1.02
there and at every larger batch. --json keeps a run, and --write makes
docs/results/TilingSpeed.md of several. Exits with 1 if a peak is above the budget, or
if results differ by more than rounding explains; a model that koila refuses is
a row with the reason.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / part) for part in ("corpus", "oracle")]

import budgets
from accuracy import call_apart, measure
from tiling import Refused

SMALL = [
    "hand_transformer_encoder",
    "hand_unet_attention",
    "hand_gru",
    "tv_resnet_basic",
    "tv_mobilenet_v2",
    "tv_vit",
]
SWEEP = [1, 2, 4, 8, 16, 32, 64]
FREE = 1.02
NOTHING = "nothing to save"
# A sample of the clock is at least as long.
SECONDS = 0.05
TRACED_BATCH = 3


# ---------------------------------------------------------------------------
# Models: name -> batch, and what makes the module and its inputs


MODELS = {}


def model(name, batch=64):
    def register(function):
        MODELS[name] = batch, function
        return function

    return register


def from_torchvision(name, options, **more):
    import torchvision

    return (
        getattr(torchvision.models, name)(weights=None, **more),
        [f"float32[B,3,{options.size},{options.size}]"],
    )


@model("ResNet-18")
def resnet18(options):
    return from_torchvision("resnet18", options)


@model("ResNet-50")
def resnet50(options):
    return from_torchvision("resnet50", options)


@model("MobileNetV2")
def mobilenet_v2(options):
    return from_torchvision("mobilenet_v2", options)


@model("ConvNeXt-T")
def convnext_tiny(options):
    return from_torchvision("convnext_tiny", options)


@model("ViT-B/16")
def vit_b_16(options):
    return from_torchvision("vit_b_16", options, image_size=options.size)


@model("U-Net")
def unet(options):
    import segmentation_models_pytorch as smp

    return (
        smp.Unet("resnet18", encoder_weights=None),
        [f"float32[B,3,{options.size},{options.size}]"],
    )


def from_gpt2(options, **more):
    from transformers import GPT2Config, GPT2LMHeadModel

    from programs_transformers import wrap

    config = GPT2Config()
    return (
        wrap(GPT2LMHeadModel(config), ["input_ids"], "logits", use_cache=False, **more),
        [f"int64[B,{options.tokens}]{{0:{config.vocab_size}}}"],
    )


@model("GPT-2", batch=32)
def gpt2(options):
    return from_gpt2(options)


@model("GPT-2, last token", batch=32)
def gpt2_last_token(options):
    """What generation asks for. The logits of all tokens are the result, and
    so large that they alone are the peak."""
    return from_gpt2(options, logits_to_keep=1)


def write_model(name, options):
    """The name of the file that is written to the folder."""
    import torch

    import inputs
    import make_programs

    make_programs.prepare_libraries()
    torch.manual_seed(0)
    module, specs = MODELS[name][1](options)
    stem = re.sub(r"\W+", "-", name.lower())
    # With grad mode on: under no_grad attention records its fast path.
    torch.jit.trace(
        module.eval(), inputs.make(specs, TRACED_BATCH), check_trace=False, strict=False
    ).save(str(options.folder / f"{stem}.pt"))
    (options.folder / f"{stem}.inputs").write_text(json.dumps(specs))
    return stem


def make_file(name, options):
    """As write_model; a program of the corpus makes itself."""
    if name in MODELS:
        return call_apart(lambda: write_model(name, options))
    import corpus

    corpus.make_programs([name], options.folder, 1)
    return name


# ---------------------------------------------------------------------------
# Times and peaks


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def seconds_of(module, arguments, calls):
    start = time.perf_counter()
    for _ in range(calls):
        # Freed before the clock stops: that is part of what a call costs.
        result = module(*arguments)
        del result
    return (time.perf_counter() - start) / calls


def tensors_in(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [leaf for part in value for leaf in tensors_in(part)]


def largest_difference(left, right):
    """Of two results, as a part of the norm."""
    return max(
        ((one.double() - other.double()).norm() / one.double().norm().clamp(min=1e-30)).item()
        for one, other in zip(tensors_in(left), tensors_in(right), strict=False)
    )


def run_both(original, tiled, specs, batch, options):
    """Times and peaks of the two files; in a process of its own."""
    import torch

    import inputs
    import make_programs
    from counter import Counter

    make_programs.prepare_libraries()
    torch._C._jit_set_profiling_mode(False)
    torch.set_num_threads(options.threads)
    counter = Counter(options.build / "lib" / "libkoila-counter.so")
    modules = [torch.jit.load(str(file)) for file in (original, tiled)]
    arguments = inputs.make(specs, batch)
    with torch.no_grad():
        peaks = [measure(module, arguments, counter) for module in modules]
        difference = largest_difference(*(module(*arguments) for module in modules))
        once = seconds_of(modules[0], arguments, 1)
        calls = max(1, round(SECONDS / once))
        triples = []
        for _ in range(options.triples):
            triples.append([seconds_of(modules[which], arguments, calls) for which in (0, 1, 0)])
            say("   ", ", ".join(f"{1e3 * seconds:.1f}" for seconds in triples[-1]), "ms")
    return {"peaks": peaks, "difference": difference, "triples": triples}


def ratios(row):
    """Tiled to untiled, and untiled to itself."""
    first, tiled, again = (
        statistics.median(column) for column in zip(*row["triples"], strict=False)
    )
    return tiled / first, again / first


class Model(budgets.Program):
    """As a program of the corpus, with these threads."""

    def __init__(self, options, name, folder):
        super().__init__(options, name, folder)
        self.threads = options.threads


def evaluate(stem, name, batch, options):
    """A row: figures, or why there are none."""
    row = {"model": name, "batch": batch}
    with tempfile.TemporaryDirectory() as folder:
        program = Model(options, stem, folder)
        try:
            untiled = program.get_untiled(batch)["peak_bytes"]
            floor, is_tiled = program.get_floor(batch)
            row |= {"untiled": untiled, "floor": floor}
            if not is_tiled or floor >= untiled:
                return row | {"problem": NOTHING}
            budget = floor + (untiled - floor) * options.percent // 100
            start = time.perf_counter()
            report = program.compile(batch, budget)
            row |= {
                "budget": budget,
                "tile": report["promise"]["tile"],
                "predicted": report["peak_bytes"],
                "exact": report["exact"],
                "isa": report["isa"],
                "compile_seconds": time.perf_counter() - start,
            }
        except (Refused, budgets.Wrong) as problem:
            return row | {"problem": str(problem)}
        except subprocess.TimeoutExpired:
            return row | {"problem": "koila-opt does not end"}
        say(
            f"{name}, batch {batch}: {untiled} bytes untiled, floor {floor}, "
            f"budget {budget}, tile {row['tile']}"
        )
        try:
            return row | call_apart(
                lambda: run_both(program.file, program.output, program.specs, batch, options)
            )
        except RuntimeError as problem:
            lines = str(problem).strip().splitlines() or ["failed"]
            return row | {"problem": lines[-1]}


def problem_of(row):
    """What makes the run fail; None if nothing does."""
    if "peaks" not in row:
        return None
    if row["peaks"][1] > row["budget"]:
        return f"{row['peaks'][1] - row['budget']} bytes above the budget"
    # Rounding of other kernels for a smaller batch; a wrong sample is near 1.
    if not row["difference"] < 1e-3:
        return f"results differ by {row['difference']:.1e} of their norm"
    return None


# ---------------------------------------------------------------------------
# What was found


def mebibytes(bytes):
    return f"{bytes / 2**20:.1f}"


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
    "saved",
    "koila's peak",
]


def cells(row):
    """A row of the table."""
    first = [row["model"], str(row["batch"])]
    if "peaks" not in row:
        from evaluate import without_machine

        why = without_machine(row["problem"]).replace("|", "\\|")
        if why == NOTHING and row["floor"]:
            why += (
                f": the floor of {mebibytes(row['floor'])} MiB is not "
                f"below the peak of {mebibytes(row['untiled'])} MiB"
            )
        return first + [""] * (len(HEAD) - 3) + [why]
    untiled, tiled = row["peaks"]
    times = [
        1e3 * statistics.median(column) for column in list(zip(*row["triples"], strict=False))[:2]
    ]
    off = row["predicted"] - tiled
    said = f"{off:+} B" if off else "the same"
    return [
        *first,
        str(row["tile"]),
        *(f"{value:.1f}" for value in times),
        *(f"{value:.3f}" for value in ratios(row)),
        *map(mebibytes, (untiled, tiled, row["floor"], row["budget"])),
        f"{100 * (untiled - tiled) / (untiled - row['floor']):.0f} %",
        "; ".join(
            [said + ("" if row["exact"] else ", not exact"), *filter(None, [problem_of(row)])]
        ),
    ]


def table(head, rows):
    return [
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def free_from(rows):
    """The least batch from which on tiling is free; None if it never is."""
    least = None
    for row in sorted(rows, key=lambda row: -row["batch"]):
        # Nothing to save: koila leaves the program as it is.
        if "peaks" not in row:
            continue
        if ratios(row)[0] > FREE:
            break
        least = row["batch"]
    return least


def free_table(run):
    names = dict.fromkeys(row["model"] for row in run["rows"])
    batches = list(dict.fromkeys(row["batch"] for row in run["rows"]))
    rows = []
    for name in names:
        group = [row for row in run["rows"] if row["model"] == name]
        by_batch = {row["batch"]: row for row in group}
        line = [f"`{name}`"]
        for batch in batches:
            row = by_batch.get(batch, {})
            line.append(
                "{:.2f} ({:.2f})".format(*ratios(row)) if "peaks" in row else row.get("problem", "")
            )
        least = free_from(group)
        rows.append([*line, "never" if least is None else str(least)])
    return table(["program", *(f"B = {batch}" for batch in batches), "free from"], rows)


def describe(run):
    """How a run was made."""
    return (
        f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}, "
        f"{run['triples']} triples, the floor and {run['percent']} % of "
        f"what tiling can save as the budget, images of {run['size']}², "
        f"{run['tokens']} tokens. PyTorch {run['torch']}, "
        f"{run['processor']}, {run['isa']}."
    )


def document(runs):
    lines = [
        "# The speed of tiled inference",
        "",
        "<!-- Written by tools/dev/write_results.py tiling-speed; do not edit. -->",
        "",
        "Models with random weights under `no_grad`, TorchScript's executor "
        "without profiling. *Ratio* is the median time of the tiled program to "
        "that of the untiled one, run in turn; *untiled again* is the same for "
        "a second run of the untiled program, and so the noise. Peaks are "
        "measured, the *floor* is the smallest budget that koila says works, "
        "and *saved* the part of what lies between the untiled peak and the "
        "floor that tiling saved. The last column compares koila's peak of "
        "the tiled program with the measured one.",
    ]
    for run in runs:
        if run["free"]:
            lines += [
                "",
                "## From which batch on tiling is free",
                "",
                describe(run) + " A cell has the ratio, and in brackets "
                "that of the untiled program to itself. Free is a ratio "
                f"of at most {FREE}, there and at each larger batch. "
                "Where there is nothing to save, koila refuses or "
                "leaves the program as it is.",
                "",
                *free_table(run),
            ]
        else:
            lines += [
                "",
                f"## {run['percent']} % of what tiling can save",
                "",
                describe(run),
                "",
                *table(HEAD, map(cells, run["rows"])),
            ]
    return "\n".join(lines) + "\n"


def about_machine():
    def ask():
        import torch

        return torch.__version__, torch.backends.cpu.get_cpu_capability()

    version, capability = call_apart(ask)
    processor = "unknown processor"
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"torch": version, "processor": processor, "isa": capability}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", metavar="NAME", help=f"of {', '.join(MODELS)}, or of test/corpus"
    )
    parser.add_argument("--triples", type=int, default=7, metavar="N")
    parser.add_argument("--batch", type=int, help="default: 64, and 32 for GPT-2")
    parser.add_argument(
        "--size", type=int, default=224, metavar="N", help="height and width of images"
    )
    parser.add_argument("--tokens", type=int, default=128, metavar="N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--percent", type=int, default=20)
    parser.add_argument("--free", action="store_true", help="sweep the batch over small models")
    parser.add_argument(
        "--build", type=pathlib.Path, default=ROOT / "build", help="folder with koila's bin and lib"
    )
    parser.add_argument(
        "--folder", type=pathlib.Path, default=ROOT / "build" / "bench", help="for the model files"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keep the run")
    parser.add_argument(
        "--write",
        type=pathlib.Path,
        metavar="FILE",
        help="write the document of runs that were kept",
    )
    parser.add_argument("runs", nargs="*", type=pathlib.Path, metavar="JSON")
    return parser.parse_args()


def main():
    options = parse()
    if options.write:
        options.write.write_text(document([json.loads(run.read_text()) for run in options.runs]))
        return
    if options.runs:
        sys.exit("tiling_speed.py: a JSON file goes with --write")
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.koila_opt = options.build / "bin" / "koila-opt"
    options.koila_run = options.build / "bin" / "koila-run"
    from make_programs import load_programs

    programs = load_programs()
    names = options.models or (SMALL if options.free else list(MODELS))
    for name in names:
        if name not in MODELS and name not in programs:
            sys.exit(
                f"tiling_speed.py: no model '{name}'; there are "
                f"{', '.join(MODELS)} and the programs of test/corpus"
            )
    run = {
        "free": options.free,
        "rows": [],
        **about_machine(),
        **{
            name: getattr(options, name)
            for name in ("threads", "triples", "size", "tokens", "percent")
        },
    }
    for name in names:
        say(f"making {name}")
        stem = make_file(name, options)
        batches = SWEEP if options.free else [options.batch or MODELS.get(name, [64])[0]]
        for batch in batches:
            row = evaluate(stem, name, batch, options)
            run["rows"].append(row)
            if row.get("problem"):
                say(f"{name}, batch {batch}: {row['problem']}")
            # After each: a run of hours may be stopped.
            if options.json:
                options.json.write_text(json.dumps(run, indent=1))
    print("\n".join(free_table(run) if options.free else table(HEAD, map(cells, run["rows"]))))
    problems = [
        f"{row['model']}, batch {row['batch']}: {problem}"
        for row in run["rows"]
        if (problem := problem_of(row))
    ]
    for problem in problems:
        say(f"tiling_speed.py: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
