"""What koila's tools take, next to what they may: reports, compilations, and
koila.analyze() next to PyTorch's MemTracker.

Usage: compile_time.py [--models NAME...] [--rounds 5] [--batch 64] [--build FOLDER]
           [--against FOLDER] [--write FILE]
       compile_time.py --program FILE SPEC

Each model is traced in eval mode and saved; --program has one saved already.
Then, round by round, each of these runs in a process of its own, in turn:

    report    `koila report`, from the import of koila on, PyTorch being there
    compile   koila-opt with --koila-compile and half of the peak as budget, to a
              TorchScript file, which is read back and compared
    start     koila-opt that reads a program of one layer
    load      koila-opt that reads the model
    again     the same once more: what the ratio of the two is off 1 is noise
    infer     --koila-infer-shapes
    peak      the same and --koila-peak-memory, with the floor and the curve
    tile      as *compile*, written as MLIR
    check     reads what was written: an estimate of what reading back takes

With --against every compilation also runs with the tools of another build, after
those of this one, and the ratio of the two is one more column.

Times are medians of the rounds, of the clock and of the CPU. On a machine that
does other things the clock says too much, and where two cores work the CPU does:
bars are held to the smaller one. A bar of a compilation is without *start*, which
is LibTorch's import.

MemTracker and koila.analyze() predict the peak of a training step of ResNet-18,
each in the first call of a process, from the import of koila on, judged by the CPU;
`again` as above.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "bench"), str(ROOT / "test" / "models")]

TIMM = ("hrnet_w18", "ghostnet_100", "xcit_nano_12_p16_224")
# Seconds that a report and a compilation may take.
REPORT, COMPILE = 1.0, 2.0
PARTS = ("load", "infer", "peak", "page", "tile", "emit", "check")
# Samples, and their sides, of the training step.
STEP = (16, 64)
DONT_WRITE = "PYTHONDONTWRITEBYTECODE"
STEPS = ("import", "script", "analysis")


def list_models():
    from lazy_models import MODELS

    return {**MODELS, **dict.fromkeys(TIMM, 224)}


def save_model(name, size, folder):
    """The traced model, and the spec of its argument."""
    import torch

    from lazy_models import MODELS, make_model

    if name in MODELS:
        model = make_model(name, torch.float32)
    else:
        make_model("squeezenet1_0", torch.float32)  # imports torchvision
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10)
    file = folder / f"{name}.pt"
    image = torch.randn(3, 3, size, size)
    torch.jit.save(torch.jit.trace(model.eval(), image, check_trace=False), str(file))
    return file, f"float32[B,3,{size},{size}]"


def save_layer(folder):
    import torch

    file = folder / "layer.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 4), torch.randn(3, 4)), str(file))
    return file


class Seconds:
    """Of the clock, and of the CPU with the processes that were waited for."""

    def __init__(self):
        self._start = self._read()

    @staticmethod
    def _read():
        return time.perf_counter(), sum(os.times()[:4])

    def take(self):
        return [now - start for now, start in zip(self._read(), self._start, strict=True)]


def run(command):
    """Seconds of a process."""
    seconds = Seconds()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(f"compile_time.py: exit code {done.returncode}: {' '.join(command)}")
    return seconds.take()


def ask(*words):
    """What a process of this program says."""
    command = [sys.executable, __file__, *map(str, words)]
    # Users import what was compiled once.
    environment = {key: text for key, text in os.environ.items() if key != DONT_WRITE}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def median(rows):
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def report(file, spec, batch, page):
    import torch

    torch.set_num_threads(1)
    seconds = Seconds()
    from koila._cli import main

    if main(["report", file, "--input", spec, "--batch", batch, "-o", page]):
        sys.exit(1)
    return seconds.take()


def measure(file, spec, options, folder):
    layer = save_layer(folder)
    figures, written = folder / "report.json", folder / "tiled.pt"

    def command(program, *arguments, output="/dev/null", build=options.build):
        return [str(build / "bin" / "koila-opt"), str(program), *arguments, "-o", str(output)]

    call = (f"--input={spec}", "--batch", f"B={options.batch}")
    peak = f"--koila-peak-memory=format=json floor=false threads=1 batches=0 output={figures}"
    run(command(file, *call, "--koila-infer-shapes", peak))
    budget = json.loads(figures.read_text())["peak_bytes"] // 2
    compiling = (*call, f"--koila-compile=budget={budget} threads=1")
    whole = f"--koila-peak-memory=threads=1 output={figures}"
    commands = {
        "start": command(layer),
        "load": command(file, *call),
        "again": command(file, *call),
        "infer": command(file, *call, "--koila-infer-shapes"),
        "peak": command(file, *call, "--koila-infer-shapes", whole),
        "tile": command(file, *compiling, output=folder / "tiled.mlirbc"),
        "compile": command(file, *compiling, output=written),
    }
    if options.against:
        other = folder / "other.pt"
        commands["against"] = command(file, *compiling, output=other, build=options.against)
    # Behind the compilation, which writes what it reads.
    commands["check"] = command(written, "--function=forward_untiled")
    rounds = []
    for _ in range(options.rounds):
        row = {key: run(words) for key, words in commands.items()}
        row["report"] = ask("--report", file, spec, options.batch, folder / "page.html")
        rounds.append(row)
    return {key: median(row[key] for row in rounds) for key in rounds[0]}


def split(found):
    """Seconds of the CPU that each part adds."""
    cpu = {key: seconds[1] for key, seconds in found.items()}
    check = cpu["check"] - cpu["start"]
    return {
        "load": cpu["load"] - cpu["start"],
        "infer": cpu["infer"] - cpu["load"],
        "peak": cpu["peak"] - cpu["infer"],
        "page": cpu["report"] - (cpu["peak"] - cpu["start"]),
        "tile": cpu["tile"] - cpu["load"],
        "emit": cpu["compile"] - cpu["tile"] - check,
        "check": check,
    }


def judge(seconds, bar):
    """Both times, and whether the smaller one is within the bar."""
    text = " / ".join(f"{part:.2f}" for part in seconds)
    return [text, "met" if min(seconds) <= bar else "**missed**"]


def without_start(found):
    # Of a small program the difference is noise, of either sign.
    return [
        max(all - start, 0.0) for all, start in zip(found["compile"], found["start"], strict=True)
    ]


def line(name, found, against):
    parts = split(found)
    cells = [f"`{name}`", *judge(found["report"], REPORT)]
    cells += judge(without_start(found), COMPILE)
    cells += [f"{found['start'][1]:.2f}", *(f"{parts[part]:.2f}" for part in PARTS)]
    cells += [f"{found['again'][1] / found['load'][1]:.2f}"]
    cells += [f"{found['compile'][1] / found['against'][1]:.2f}"] if against else []
    return "| " + " | ".join(cells) + " |"


def head(against):
    columns = [
        "model",
        "report, s: clock / CPU",
        f"bar {REPORT:g} s",
        "compile, s: clock / CPU",
        f"bar {COMPILE:g} s",
        "CPU: start",
        *PARTS,
        "again",
        *["ratio"] * bool(against),
    ]
    return [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]


def explain(results):
    """What misses a bar, with the parts that make up most of it."""
    missed = []
    for name, found in results.items():
        parts = split(found)
        for what, seconds, bar, of in (
            ("report", found["report"], REPORT, PARTS[:4]),
            ("compile", without_start(found), COMPILE, ("load", *PARTS[4:])),
        ):
            if min(seconds) <= bar:
                continue
            causes, left = [], 0.75 * sum(parts[part] for part in of)
            for part in sorted(of, key=parts.get, reverse=True):
                if left <= 0:
                    break
                causes.append(f"*{part}* {parts[part]:.2f} s")
                left -= parts[part]
            missed.append(
                f"* `{name}`, {what}: {min(seconds):.2f} s, most of it {', '.join(causes)}"
            )
    return ["Bars that are missed:", "", *missed] if missed else ["No bar is missed."]


def make_step():
    import torch

    from lazy_models import make_model

    torch.set_num_threads(1)
    model = make_model("resnet18", torch.float32)

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images).square().mean()

    return Step(), torch.randn(STEP[0], 3, STEP[1], STEP[1])


def predict(how):
    """Seconds from a model to the peak of its training step, and CPU of parts."""
    import torch

    if how == "MemTracker":
        import torch.distributed._tools.mem_tracker
        from torch._subclasses.fake_tensor import FakeTensorMode

        from memtracker import make_fake, watch

        module, images = make_step()
        seconds = Seconds()
        with FakeTensorMode() as mode:
            (images,) = make_fake(mode, module, [images])
            watch(module, [images], lambda: module(images).backward())
        return seconds.take(), {}
    # lazy_models imports koila, which is what is timed here.
    sys.modules["koila"] = types.ModuleType("koila")
    module, images = make_step()
    del sys.modules["koila"]
    parts = {}

    def timed(key, function):
        def call(*arguments, **named):
            seconds = Seconds()
            try:
                return function(*arguments, **named)
            finally:
                parts[key] = parts.get(key, 0) + seconds.take()[1]

        return call

    seconds = Seconds()
    import koila
    from koila import _C

    parts["import"] = seconds.take()[1]
    torch.jit.script = timed("script", torch.jit.script)
    _C.run_on_module = timed("analysis", _C.run_on_module)
    koila.analyze(module, images, mode="train", grads="absent")
    return seconds.take(), parts


def compare(options):
    """Both, with the bar, which is MemTracker."""
    ways = {"MemTracker": [], "koila": [], "again": []}
    for _ in range(options.rounds):
        for way, found in ways.items():
            found.append(ask("--predict", way))
    times = {way: median(seconds for seconds, _ in found) for way, found in ways.items()}
    parts = [statistics.median(part[key] for _, part in ways["koila"]) for key in STEPS]
    is_met = times["koila"][1] < times["MemTracker"][1]
    rest = times["koila"][1] - sum(parts)
    rows = {
        "MemTracker": [" / ".join(f"{part:.2f}" for part in times["MemTracker"]), *[""] * 6],
        "koila.analyze": [
            " / ".join(f"{part:.2f}" for part in times["koila"]),
            "met" if is_met else "**missed**",
            *(f"{part:.2f}" for part in (*parts, rest)),
            f"{times['again'][1] / times['koila'][1]:.2f}",
        ],
    }
    columns = ["", "s: clock / CPU", "bar: MemTracker", *STEPS, "rest", "again"]
    return [
        f"| {' | '.join(columns)} |",
        "|---|" + "---:|" * (len(columns) - 1),
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]


def about_machine():
    import torch

    processor = "unknown processor"
    with contextlib.suppress(OSError):
        for text in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                processor = text.partition(":")[2].strip()
                break
    return f"torch {torch.__version__}, {processor}, {os.cpu_count()} cores."


def page(lines, options):
    sections = __doc__.split("\n\n")
    kinds = []
    for text in sections[3].splitlines():
        if text.startswith(" " * 8):
            kinds[-1] += " " + text.strip()
        else:
            kinds.append("* *{}*: {}".format(*text.strip().split(maxsplit=1)))
    return "\n".join(
        [
            "# Time of koila's tools",
            "",
            "<!-- Written by tools/dev/write_results.py compile-time; do not edit. -->",
            "",
            f"Traced models in eval mode, batch {options.batch}, images of 64 × 64 "
            "(inception_v3: 96 × 96; timm's: 224 × 224), one thread. "
            f"Medians of {options.rounds} rounds, of runs in processes of their own, in turn:",
            "",
            *kinds,
            "",
            " ".join(sections[5].split()),
            "",
            "*load* to *page* are what each step adds to the one before it, and *page* what "
            "`koila report` adds to the same work of koila-opt; *tile* is what the passes add to "
            "*load*, and *emit* what is left of the compilation without *check*. *again* is the "
            "ratio of two equal runs: the noise.",
            "",
            about_machine(),
            "",
            *lines,
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", metavar="NAME", help="none: MemTracker only")
    parser.add_argument("--program", nargs=2, metavar=("FILE", "SPEC"), help="and no MemTracker")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--batch", type=int, default=64, metavar="N")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="FOLDER")
    parser.add_argument("--against", type=pathlib.Path, metavar="FOLDER", help="another build")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="the page")
    parser.add_argument("--report", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--predict", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report or options.predict:
        found = report(*options.report) if options.report else predict(options.predict)
        print(json.dumps(found))
        return
    models = {} if options.program else list_models()
    if unknown := set(options.models or ()) - set(models):
        parser.error(f"no model: {', '.join(sorted(unknown))}; there are: {', '.join(models)}")
    lines = head(options.against)
    print(*lines, sep="\n", flush=True)
    if options.program:
        file, spec = options.program
        with tempfile.TemporaryDirectory() as folder:
            found = measure(file, spec, options, pathlib.Path(folder))
        print(line(pathlib.Path(file).stem, found, options.against))
        return
    results = {}
    for name in models if options.models is None else options.models:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            file, spec = save_model(name, models[name], folder)
            results[name] = measure(file, spec, options, folder)
        lines.append(line(name, results[name], options.against))
        print(lines[-1], flush=True)
    misses = explain(results)
    print("", *misses, sep="\n")
    training = [
        f"Peak of a training step of ResNet-18, {STEP[0]} images of {STEP[1]} × {STEP[1]}, first "
        "call of a process:",
        "",
        *compare(options),
    ]
    print("", *training, sep="\n")
    if options.write:
        options.write.write_text(page([*lines, "", *misses, "", *training], options))


if __name__ == "__main__":
    main()
