"""Predicted peaks of koila and of PyTorch's MemTracker, side by side.

Usage: memtracker.py [--koila-opt PATH] [--counter LIBRARY] [--programs FOLDER]
           [--batch 16] [--rounds N] [NAME...]

Programs of test/corpus in eval mode under no_grad. For each, in one run and
taking turns:

* measured: PyTorch's allocator under a counter, the file that koila reads;
* MemTracker under FakeTensorMode on the Python module, whose weights and inputs
  are fake tensors already;
* koila: shape inference and the analysis on the program in memory, as
  --mlir-timing has them; and the whole process that reads the file.

Errors are bytes and percent of the measured peak; times are medians.
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

NAMES = ["tv_alexnet", "tv_vgg11_bn", "tv_resnet_basic", "tv_resnet_bottleneck",
         "tv_densenet", "tv_mobilenet_v2", "tv_squeezenet", "tv_googlenet",
         "tv_convnext", "tv_vit"]


def track(name, specs, batch):
    """MemTracker's peak beyond what is there before the call, and seconds."""
    import torch
    from registry import PROGRAMS
    import inputs
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    torch.manual_seed(0)
    module = PROGRAMS[name]()[0]
    arguments = inputs.make(specs, batch)
    with FakeTensorMode() as mode, torch.no_grad():
        def fake(tensor):
            return mode.from_tensor(tensor)
        module._apply(fake)
        arguments = [fake(argument) for argument in arguments]
        start = time.perf_counter()
        tracker = MemTracker()
        tracker.track_external(module, *arguments)
        before = sum_of(tracker.get_tracker_snapshot("current"))
        with tracker:
            module(*arguments)
        peak = sum_of(tracker.get_tracker_snapshot("peak"))
        seconds = time.perf_counter() - start
    return peak - before, seconds


def sum_of(snapshot):
    """Bytes on all devices."""
    return sum(kinds.get("Total", 0) for kinds in snapshot.values())


def run_koila(options, file, specs, folder):
    """koila's peak, seconds of the passes, and seconds of the process."""
    report = pathlib.Path(folder) / "report.json"
    text = pathlib.Path(folder) / "program.mlirbc"
    arguments = [f"--input={spec}" for spec in specs] + [
        "--batch", f"B={options.batch}"]
    passes = ["--koila-infer-shapes",
              f"--koila-peak-memory=format=json threads=1 batches=0 "
              f"output={report}", "-o", "/dev/null"]
    start = time.perf_counter()
    subprocess.run([options.koila_opt, file, *arguments, *passes], check=True,
                   capture_output=True)
    whole = time.perf_counter() - start
    subprocess.run([options.koila_opt, file, *arguments, "-o", text],
                   check=True, capture_output=True)
    done = subprocess.run([options.koila_opt, text, "--mlir-timing", *passes],
                          check=True, capture_output=True, text=True)
    times = re.findall(r"^\s+([0-9.]+) \(.*?\)\s+(?:koila::)?\S*"
                       r"(?:InferShapes|PeakMemory)\S*$", done.stderr, re.M)
    if len(times) != 2:
        sys.exit("memtracker.py: --mlir-timing prints no such passes:\n" +
                 done.stderr)
    return (json.loads(report.read_text())["peak_bytes"],
            sum(map(float, times)), whole)


def measure(options, file, specs):
    import torch
    import inputs
    from counter import Counter
    counter = Counter(options.counter)
    module = torch.jit.load(str(file))
    torch.manual_seed(0)
    arguments = inputs.make(specs, options.batch)
    with torch.no_grad():
        module(*arguments)
        return max(counter.measure(module, arguments)[0] for _ in range(3))


def main():
    build = ROOT / "build"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--koila-opt", default=build / "bin" / "koila-opt")
    parser.add_argument("--counter",
                        default=build / "lib" / "libkoila-counter.so")
    parser.add_argument("--programs", default=build / "test" / "corpus")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    options = parser.parse_args()
    import torch
    import corpus
    import make_programs
    make_programs.prepare_libraries()
    make_programs.load_programs()
    torch._C._jit_set_profiling_mode(False)
    torch.set_num_threads(1)
    corpus.make_programs(options.names, pathlib.Path(options.programs), 2)
    print(f"batch {options.batch}, 1 thread, medians of {options.rounds}\n\n"
          "| program | measured, B | MemTracker, B off | | koila, B off | "
          "| MemTracker, ms | koila, ms | ratio | koila with the file, ms |\n" +
          "|---" * 10 + "|")
    ratios, worse = [], []
    for name in options.names:
        file = pathlib.Path(options.programs) / f"{name}.pt"
        specs = json.loads(file.with_suffix(".inputs").read_text())
        measured = measure(options, file, specs)
        tracked, theirs, ours, wholes = None, [], [], []
        with tempfile.TemporaryDirectory() as folder:
            # The first round warms up.
            for round in range(options.rounds + 1):
                tracked, seconds = track(name, specs, options.batch)
                predicted, passes, whole = run_koila(options, file, specs,
                                                     folder)
                if round:
                    theirs.append(seconds)
                    ours.append(passes)
                    wholes.append(whole)
        their, our, whole = map(statistics.median, (theirs, ours, wholes))
        ratios.append(their / max(our, 1e-4))
        if abs(predicted - measured) > abs(tracked - measured):
            worse.append(name)
        print(f"| `{name}` | {measured} | {tracked - measured} | "
              f"{100 * (tracked - measured) / measured:.2f} % | "
              f"{predicted - measured} | "
              f"{100 * (predicted - measured) / measured:.2f} % | "
              f"{1e3 * their:.1f} | {1e3 * our:.1f} | {ratios[-1]:.0f} | "
              f"{1e3 * whole:.0f} |", flush=True)
    print(f"\nmedian ratio of the times: {statistics.median(ratios):.0f}; "
          f"koila is less exact on: {', '.join(worse) or 'none'}")


if __name__ == "__main__":
    main()
