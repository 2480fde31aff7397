#!/usr/bin/env python3
"""Compares the bytes at every autograd node with koila's backward pass.

Usage: backward_nodes.py --counter LIBRARY [--koila-opt PATH] [--batch N]
           [--threads T] [--verbose] [--control] --folder FOLDER NAME...

The traced programs of test/corpus whose names begin with a NAME get a loss, the
mean of the squares of what they return. PyTorch runs the backward pass with a
hook before each node, which reads the allocator: the bytes that are live then,
and the most until the next one. koila-opt reports the same for each operation,
which may be several nodes. Each operation that holds something has to be found
in the order of the nodes, with the same bytes live before and the same at most,
and no other node may hold anything.

Exits with 1 if a program differs of which koila says that its figure is exact.
--control predicts another batch than runs: all differ.
"""

import argparse
import ctypes
import functools
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]
sys.path.append(str(HERE.parent / "property"))

import torch

import corpus
import inputs
import training
from counter import Counter
from koila_opt import Broken, Koila, Refused
from make_programs import load_programs

# Of one operation; of a GRU's steps there are many.
MOST_NODES = 96


class NodeLog:
    """Names of nodes, bytes live before each, and the most until the next."""

    def __init__(self, counter):
        self.library = counter.library
        self.names, self.live, self.peaks = [], [], []

    def mark(self, name=None):
        peak, live = ctypes.c_int64(), ctypes.c_int64()
        self.library.koilaCounterMark(ctypes.byref(peak), ctypes.byref(live))
        if self.names:
            self.peaks.append(peak.value)
        if name:
            self.names.append(name)
            self.live.append(live.value)


def find_nodes(root):
    found, work = {root}, [root]
    while work:
        for node, _ in work.pop().next_functions:
            if node is not None and node not in found:
                found.add(node)
                work.append(node)
    return [node for node in found if "AccumulateGrad" not in node.name()]


def measure(program, values, counter):
    for _ in range(2):
        program(*values).backward()
    log = NodeLog(counter)

    def run():
        loss = program(*values)
        for node in find_nodes(loss.grad_fn):
            name = node.name()
            node.register_prehook(lambda _, name=name: log.mark(name))
        loss.backward()
        log.mark()

    counter.measure(run)
    return log


@functools.cache
def open_koila(tool):
    return Koila(tool)


def predict(options, file, specs):
    """The archive is read in this process, which has LibTorch already."""
    code = pathlib.Path(file).with_suffix(".mlirbc")
    try:
        code.write_bytes(open_koila(options.koila_opt).read(file, loss=""))
    except (Broken, Refused) as error:
        raise SystemExit(f"{file}: {error}") from error
    done = subprocess.run(
        [
            options.koila_opt,
            code,
            *(f"--input={spec}" for spec in specs),
            "--batch",
            f"B={options.batch + options.control}",
            "--koila-infer-shapes",
            f"--koila-peak-memory=mode=train format=json threads={options.threads}",
            "-o",
            "/dev/null",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{file}: {done.stderr}")
    report = json.loads(done.stderr[done.stderr.index("{") :])
    suffix = " (backward)"
    return report, [
        (
            entry["op"].removesuffix(suffix),
            entry["live_bytes"],
            entry["live_bytes"] + entry["transient_bytes"],
        )
        for entry in report["timeline"]
        if entry["op"].endswith(suffix)
    ]


def find(log, place, live, peak):
    """The first nodes from PLACE on that begin with LIVE bytes and have PEAK
    at most; a span."""
    for start in range(place, len(log.names)):
        if log.live[start] != live:
            continue
        for end in range(start + 1, min(start + MOST_NODES, len(log.names)) + 1):
            most = max(log.peaks[start:end])
            if most == peak:
                return start, end
            if most > peak:
                break
    return None


def compare(log, predicted, verbose):
    """What differs."""
    problems, place, before = [], 0, 0

    def skip(end, after=0):
        # Other nodes of the operation before, which says its most alone. What makes
        # a view anew runs first of the nodes of a write.
        for node in range(place, end):
            held = log.peaks[node] - log.live[node]
            allowed = max(before, after) if log.names[node] == "AsStridedBackward0" else before
            if held and log.peaks[node] > allowed:
                problems.append(
                    f"{log.names[node]}: {held} B on top of {log.live[node]} B are not predicted"
                )

    for op, live, peak in predicted:
        if live == peak:
            continue
        span = find(log, place, live, peak)
        if not span:
            problems.append(f"{op}: {peak - live} B on top of {live} B are not measured")
            continue
        if verbose:
            print(f"  {op}: {live} B, most {peak} B, {log.names[slice(*span)]}")
        skip(span[0], peak)
        place, before = span[1], peak
    skip(len(log.names))
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch._C._jit_set_profiling_mode(False)
    counter = Counter(options.counter)
    folder = options.folder.resolve()
    names = [
        name for name in load_programs() if any(name.startswith(part) for part in options.names)
    ]
    corpus.make_programs(names, folder, 2)
    failed = False
    tasks = []
    for name in names:
        source, file = folder / f"{name}.pt", folder / f"{name}.loss.pt"
        tasks.append((source, file, json.loads(source.with_suffix(".inputs").read_text())))
    problems = training.make_losses(tasks)
    for name, (_, file, specs), problem in zip(names, tasks, problems, strict=True):
        if problem:
            print(f"{name}: {problem}")
            continue
        # In the order of the arguments, which lose their names.
        specs = [spec.split("=", 1)[-1] for spec in specs]
        try:
            program = torch.jit.load(file)
            log = measure(program, inputs.make(specs, options.batch), counter)
            report, predicted = predict(options, str(file), specs)
        except (RuntimeError, SystemExit) as error:
            # A batch that was baked in, or an argument that is no tensor.
            text = str(error)
            if isinstance(error, SystemExit) and not (
                "cannot be loaded" in text or "--batch" in text
            ):
                raise
            print(f"{name}: not run: {text.splitlines()[0]}")
            continue
        problems = compare(log, predicted, options.verbose)
        exact = report["exact"]
        print(
            f"{name}: {len(log.names)} nodes, {len(predicted)} "
            f"operations, {'exact' if exact else 'not exact'}, "
            f"{len(problems)} differ"
        )
        for problem in problems[: None if options.verbose else 8]:
            print(f"  {problem}")
        failed |= exact and bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
