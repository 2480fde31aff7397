#!/usr/bin/env python3
"""Compares the allocations of backward passes with each call of PyTorch's allocator.

Usage: backward_events.py --counter LIBRARY [--koila-opt PATH] [--batches 2]
           [--threads T] [--only NAME...] [--every N] [--grads absent|present]
           [--gradient KIND] [--type NAME] [--least SHARE] [--verbose]

A training step of each case of backward_oracle.py: forward and backward pass. Of
koila `format=events` has the list of its allocations and frees; PyTorch's is what a
counter of the allocator saw. They are compared in order: whether a block comes or
goes, which one (its number in the order of allocations), and its bytes. A hook
before each autograd node says in which one the lists differ first.

equal: both lists are the same. WRONG: koila says that its report and each event is
exact, and they differ. lumps: it says that it does not know the figure, or each block.
WRONG must be 0, and of the steps that are compared at least SHARE equal.

With --grads absent the parameters have no gradient before, and get it in the step.
"""

import argparse
import collections
import dataclasses
import gc
import json
import subprocess
import sys
import tempfile
import warnings

import torch

import backward_nodes
from backward_oracle import CASES, LOSSES, Raises, make_inputs, make_specs, trace_case
from counter import Counter
from koila._check.findings import show_events
from koila.memory import AllocatorEvent

# Of both lists before and after the first difference.
BEFORE, AFTER = 4, 14


class Refused(Exception):
    """koila said no."""


@dataclasses.dataclass
class Said:
    """What koila says of a step: events, the operation of each, and whether each
    is one call of the allocator."""

    events: list
    operations: list
    inexact: list

    @classmethod
    def read(cls, report, events):
        ids = {}
        for event in events:
            if event["action"] == "alloc":
                ids.setdefault(event["id"], len(ids))
        reasons = [f"{entry['op']}: {entry['reason']}" for entry in report["inexact"]]
        lumps = dict.fromkeys(event["op"] for event in events if not event["exact"])
        return cls(
            [
                AllocatorEvent(event["action"] == "free", ids[event["id"]], event["bytes"])
                for event in events
            ],
            [event["op"] for event in events],
            reasons or [f"{op} is not told block by block" for op in lumps],
        )


def predict(options, batch, file, specs, folder):
    """Both reports, of one run of koila-opt."""
    code = f"{folder}/step.mlirbc"
    koila = backward_nodes.open_koila(options.koila_opt)
    try:
        with open(code, "wb") as output:
            output.write(koila.read(file, loss=""))
    except (backward_nodes.Broken, backward_nodes.Refused) as error:
        raise Refused(error) from error
    common = f"mode=train grads={options.grads} threads={options.threads} batches=0 floor=false"
    paths = {kind: f"{folder}/{kind}.json" for kind in ("json", "events")}
    done = subprocess.run(
        [
            options.koila_opt,
            code,
            *(f"--input={spec}" for spec in specs),
            f"--batch=B={batch}",
            "--koila-infer-shapes",
            *(
                f"--koila-peak-memory=format={kind} {common} output={path}"
                for kind, path in paths.items()
            ),
            "-o",
            "/dev/null",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Refused(done.stderr)
    reports = []
    for path in paths.values():
        with open(path) as report:
            reports.append(json.load(report))
    return Said.read(reports[0], reports[1]["events"])


def measure(program, values, counter, grads):
    """What the allocator did in a step, and which node ran from which event on."""
    marks = [(0, "forward")]

    def mark(name):
        marks.append((counter.count_events(), name))

    def step():
        loss = program(*values)
        for node in backward_nodes.find_nodes(loss.grad_fn):
            name = node.name()
            node.register_prehook(lambda _, name=name: mark(name))
        mark("backward()")
        loss.backward()
        return loss

    for _ in range(2):
        program(*values).backward()
    if grads == "absent":
        program.zero_grad(set_to_none=True)
    events, _ = counter.record(step)
    return [AllocatorEvent(*event) for event in events], marks


def describe(said, events, marks):
    """Where the lists differ first, and what is around it."""
    pairs = zip(said.events, events, strict=False)
    shorter = min(len(said.events), len(events))
    first = next((at for at, (own, other) in enumerate(pairs) if own != other), shorter)
    node = [name for at, name in marks if at <= first][-1]
    operation = (said.operations[first : first + 1] or ["the end"])[0]
    around = slice(max(first - BEFORE, 0), first + AFTER)
    return (
        f"event {first}, of {operation}, in {node}\n"
        f"    said     {show_events(said.events[around])}\n"
        f"    measured {show_events(events[around])}"
    )


def evaluate(name, options, folder, counter):
    """Verdicts by batch, and what is to be said of them."""
    file = f"{folder}/step.pt"
    try:
        program, extents = trace_case(name, options, file)
    except Raises as error:
        yield "raises", str(error)
        return
    for batch in options.batches:
        events, marks = measure(program, tuple(make_inputs(extents, batch)), counter, options.grads)
        try:
            said = predict(options, batch, file, list(make_specs(extents)), folder)
        except Refused as error:
            if options.type == "float32":
                raise
            yield "refused", str(error).splitlines()[0]
            continue
        if said.events == events:
            yield "equal", ""
        elif said.inexact:
            yield "lumps", f"{said.inexact[0]}; {describe(said, events, marks)}"
        else:
            yield "WRONG", describe(said, events, marks)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument(
        "--batches", default="2", type=lambda text: [int(n) for n in text.split(",")]
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--grads", default="absent", choices=["absent", "present"])
    parser.add_argument("--gradient", default="dense", choices=list(LOSSES))
    parser.add_argument("--type", default="float32", help="what all operands are cast to")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only each Nth of the cases")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    torch._C._jit_set_profiling_mode(False)
    # What is collected in the middle of a step would count.
    gc.disable()
    counter = Counter(options.counter)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in (options.only or list(CASES))[:: options.every]:
            verdicts = evaluate(name, options, folder, counter)
            for batch, (verdict, why) in zip(options.batches, verdicts, strict=False):
                counts[verdict] += 1
                if verdict == "WRONG" or (options.verbose and verdict != "equal"):
                    print(f"{name}, batch {batch}: {verdict}: {why}")
            gc.collect()
    compared = counts["equal"] + counts["WRONG"] + counts["lumps"]
    share = counts["equal"] / max(compared, 1)
    print(
        f"{compared} steps: {counts['equal']} equal ({100 * share:.1f} %), "
        f"{counts['lumps']} lumps, {counts['WRONG']} WRONG"
    )
    return 1 if counts["WRONG"] or not compared or share < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
