"""What koila's tools take: reports, compilations, and koila.analyze() next to
PyTorch's MemTracker.

Usage: compile_time.py [--models NAME...] [--rounds 5] [--batch 64] [--build FOLDER]
           [--against FOLDER] [--write FILE]
       compile_time.py --program FILE SPEC

Each model is traced in eval mode and saved; --program has one saved already.
Then, round by round, each of these runs of koila-opt in a process of its own, in
turn:

    start     reads a program of one layer
    load      reads the model
    again     the same once more: what the ratio of the two is off 1 is noise
    infer     --koila-infer-shapes
    report    --koila-infer-shapes --koila-peak-memory
    tile      --koila-compile with half of the peak as budget, written as MLIR
    compile   the same, written as TorchScript, which is read back and compared
    check     reads what was written: an estimate of what reading back takes

Columns are seconds of the CPU, medians of the rounds, of what a step adds to the
one before it, and of *report* and *compile* as a whole. With --against every
compilation also runs with the tools of another build, after those of this one,
and the ratio of the two is one more column.

MemTracker and koila.analyze() predict the peak of a training step of ResNet-18,
in processes of their own, whose imports are not counted; `again` as above.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "bench"), str(ROOT / "test" / "models")]

TIMM = ("hrnet_w18", "ghostnet_100", "xcit_nano_12_p16_224")
PARTS = ("start", "load", "infer", "peak", "tile", "emit", "check")
# Samples, and their sides, of the training step.
STEP = (16, 64)


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


def run(command):
    """Seconds of the CPU that a process and those that it started took."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"compile_time.py: exit code {process.returncode}: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def measure(file, spec, options, folder):
    layer = save_layer(folder)
    report, written = folder / "report.json", folder / "tiled.pt"

    def command(program, *arguments, output="/dev/null", build=options.build):
        return [str(build / "bin" / "koila-opt"), str(program), *arguments, "-o", str(output)]

    call = (f"--input={spec}", "--batch", f"B={options.batch}")
    peak = f"--koila-peak-memory=format=json floor=false threads=1 batches=0 output={report}"
    run(command(file, *call, "--koila-infer-shapes", peak))
    budget = json.loads(report.read_text())["peak_bytes"] // 2
    compiling = (*call, f"--koila-compile=budget={budget} threads=1")
    whole = f"--koila-peak-memory=threads=1 output={report}"
    commands = {
        "start": command(layer),
        "load": command(file, *call),
        "again": command(file, *call),
        "infer": command(file, *call, "--koila-infer-shapes"),
        "report": command(file, *call, "--koila-infer-shapes", whole),
        "tile": command(file, *compiling, output=folder / "tiled.mlirbc"),
        "compile": command(file, *compiling, output=written),
    }
    if options.against:
        other = folder / "other.pt"
        commands["against"] = command(file, *compiling, output=other, build=options.against)
    # Behind the compilation, which writes what it reads.
    commands["check"] = command(written, "--function=forward_untiled")
    rounds = [{key: run(words) for key, words in commands.items()} for _ in range(options.rounds)]
    return {key: statistics.median(row[key] for row in rounds) for key in commands}


def split(found):
    """What each part adds."""
    check = found["check"] - found["start"]
    return {
        "start": found["start"],
        "load": found["load"] - found["start"],
        "infer": found["infer"] - found["load"],
        "peak": found["report"] - found["infer"],
        "tile": found["tile"] - found["load"],
        "emit": found["compile"] - found["tile"] - check,
        "check": check,
    }


def line(name, found, against):
    parts = split(found)
    cells = [f"`{name}`", f"**{found['report']:.2f}**", f"**{found['compile']:.2f}**"]
    cells += [f"{parts[part]:.2f}" for part in PARTS]
    cells += [f"{found['again'] / found['load']:.2f}"]
    cells += [f"{found['compile'] / found['against']:.2f}"] if against else []
    return "| " + " | ".join(cells) + " |"


def predict(how):
    """Seconds of the CPU from a model to the peak of its training step."""
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

    module = Step()
    images = torch.randn(STEP[0], 3, STEP[1], STEP[1])
    if how == "MemTracker":
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import MemTracker

        start = time.process_time()
        with FakeTensorMode() as mode:
            module._apply(mode.from_tensor)
            fake = mode.from_tensor(images)
            tracker = MemTracker()
            tracker.track_external(module, fake)
            with tracker:
                module(fake).backward()
            tracker.get_tracker_snapshot("peak")
        return time.process_time() - start
    import koila

    start = time.process_time()
    koila.analyze(module, images, mode="train", grads="absent")
    return time.process_time() - start


def compare(options):
    """Seconds of both."""
    ways = {"MemTracker": [], "koila": [], "again": []}
    for _ in range(options.rounds):
        for way, seconds in ways.items():
            words = [sys.executable, __file__, "--predict", way]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            seconds.append(float(done.stdout.splitlines()[-1]))
    theirs, ours, again = (statistics.median(seconds) for seconds in ways.values())
    return (
        f"Peak of a training step of ResNet-18, {STEP[0]} images of {STEP[1]} × {STEP[1]}, "
        f"first call of a process: koila.analyze() {ours:.2f} s, MemTracker {theirs:.2f} s: "
        f"ratio {ours / theirs:.2f} (koila again {again / ours:.2f})."
    )


def page(lines, options):
    parts = __doc__.split("\n\n")
    kinds = [part.split(maxsplit=1) for part in parts[3].splitlines()]
    return "\n".join(
        [
            "# Time of koila's tools",
            "",
            "<!-- Written by tools/dev/write_results.py compile-time; do not edit. -->",
            "",
            f"Seconds of the CPU, medians of {options.rounds} rounds, of runs of koila-opt on "
            "traced models in eval mode, in processes of their own, in turn; images of 64 × 64 "
            "(inception_v3: 96 × 96; timm's: 224 × 224), batch "
            f"{options.batch}. The runs:",
            "",
            *(f"* *{kind}*: {text}" for kind, text in kinds),
            "",
            "*report* and *compile* are whole runs; the columns behind them are what each step "
            "adds to the one before it, *peak* to inference, *tile* to the loaded model, and "
            "*emit* what is left of the compilation without *check*. *again* is the ratio of "
            "two equal runs: the noise.",
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
    parser.add_argument("--predict", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predict:
        print(predict(options.predict))
        return
    models = {} if options.program else list_models()
    if unknown := set(options.models or ()) - set(models):
        parser.error(f"no model: {', '.join(sorted(unknown))}; there are: {', '.join(models)}")
    columns = ["model", "report", "compile", *PARTS, "again", *["ratio"] * bool(options.against)]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    print(*lines, sep="\n", flush=True)
    if options.program:
        file, spec = options.program
        with tempfile.TemporaryDirectory() as folder:
            found = measure(file, spec, options, pathlib.Path(folder))
        print(line(pathlib.Path(file).stem, found, options.against))
        return
    for name in models if options.models is None else options.models:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            file, spec = save_model(name, models[name], folder)
            found = measure(file, spec, options, folder)
        lines.append(line(name, found, options.against))
        print(lines[-1], flush=True)
    lines += ["", compare(options)]
    print(lines[-1])
    if options.write:
        options.write.write_text(page(lines, options))


if __name__ == "__main__":
    main()
