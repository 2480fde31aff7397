#!/usr/bin/env python3
"""Compares the backward rule of single operators with PyTorch's allocator.

Usage: backward_oracle.py --counter LIBRARY [--koila-opt PATH] [--batches 1,2,5]
           [--threads T] [--only NAME...] [--every N] [--verbose]
           [--gradient dense|expanded|permuted|channels_last|first_last]
           [--type NAME]

Each case is a function of tensors that weights have scaled; the mean of the
squares of what it gives is the loss. As in backward_nodes.py a hook before each
autograd node reads the allocator, and koila's report has to name the same bytes.
With --gradient expanded the loss is the sum, whose gradient is one number in all
places; with the others the dims are copied in another order before, so that the
gradient has other strides. With --type the operands are cast to that type first;
functions that PyTorch refuses then are passed over.
A case of which koila says that its figure is exact must not differ; one whose
figure is a bound must not take more.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import warnings

import torch

import backward_attention
import backward_cases
import backward_composed
import backward_functions
import backward_linalg
import backward_nodes
import backward_recurrent
import backward_writes
from counter import Counter

CASES = {
    **backward_cases.CASES,
    **backward_recurrent.CASES,
    **backward_attention.CASES,
    **backward_composed.CASES,
    **backward_functions.CASES,
    **backward_linalg.CASES,
    **backward_writes.CASES,
}


def copy_first(move):
    """The mean of squares of a copy whose dims are in another order."""
    return lambda result: (
        (move(result).contiguous() if result.dim() > 1 else result).square().mean()
    )


LOSSES = {
    "dense": lambda result: result.square().mean(),
    "expanded": torch.sum,
    "permuted": copy_first(lambda result: result.transpose(-1, -2)),
    "channels_last": copy_first(lambda result: result.movedim(1, -1)),
    "first_last": copy_first(lambda result: result.movedim(0, -1)),
}


class Program(torch.nn.Module):
    def __init__(self, function, extents, loss, dtype):
        super().__init__()
        self.function, self.loss, self.dtype = function, loss, dtype
        self.scales = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(1)) for _ in extents)

    def forward(self, *operands):
        scaled = [
            (operand * scale).to(self.dtype) if operand.is_floating_point() else operand
            for operand, scale in zip(operands, self.scales, strict=True)
        ]
        result = self.function(*scaled)
        # A loss of float32, whatever the type of what is compared.
        return self.loss(result.float() if result.dtype.itemsize < 4 else result).float()


def make_inputs(extents, batch):
    for shape in extents:
        if shape and isinstance(shape[0], str):
            yield torch.randint(int(shape[0].split()[1]), (batch, *shape[1:]))
        else:
            yield torch.randn(batch, *shape)


def make_specs(extents):
    for shape in extents:
        kind, extra = "float32", ""
        if shape and isinstance(shape[0], str):
            kind, extra = "int64", "{0:" + shape[0].split()[1] + "}"
            shape = shape[1:]
        yield f"{kind}[{','.join(map(str, ('B', *shape)))}]{extra}"


class Raises(Exception):
    """PyTorch does not run a case in that type."""


def trace_case(name, options, file):
    """The program of a case, as `file` has it, and the extents of its operands."""
    function, *extents = CASES[name]
    torch.manual_seed(0)
    program = Program(function, extents, LOSSES[options.gradient], getattr(torch, options.type))
    try:
        torch.jit.trace(program, tuple(make_inputs(extents, 3)), check_trace=False).save(file)
    except (RuntimeError, NotImplementedError) as error:
        if options.type == "float32":
            raise
        raise Raises(str(error).splitlines()[0]) from error
    return torch.jit.load(file), extents


def evaluate(name, options, folder, counter):
    """Verdicts by batch."""
    file = f"{folder}/{name}.pt"
    try:
        program, extents = trace_case(name, options, file)
    except Raises as error:
        yield "raises", str(error)
        return
    for batch in options.batches:
        values = tuple(make_inputs(extents, batch))
        log = backward_nodes.measure(program, values, counter)
        options.batch = batch
        try:
            report, predicted = backward_nodes.predict(options, file, list(make_specs(extents)))
        except SystemExit as error:
            if options.type == "float32":
                raise
            yield "refused", str(error).splitlines()[0]
            continue
        problems = backward_nodes.compare(log, predicted, options.verbose)
        if not report["exact"]:
            bound = all(entry["bound"] for entry in report["inexact"])
            most = max(log.peaks)
            if bound and report["peak_bytes"] < most:
                yield "WRONG", f"{most} B, bound {report['peak_bytes']} B"
            elif bound and problems:
                yield "within", f"{most} B, bound {report['peak_bytes']} B"
            elif bound:
                yield "right", ""
            else:
                yield "inexact", report["inexact"][0]["reason"]
        else:
            yield ("WRONG" if problems else "right"), "; ".join(problems[:3])


def check_floor(names, right):
    """Whether other cases are without a figure than the list says."""
    path = pathlib.Path(__file__).with_name("backward_without_figure.txt")
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    known = set(filter(None, lines))
    # What products of half types hold depends on the processor.
    names = [name for name in names if "float16" not in name]
    for name in sorted(set(names) - right - known):
        print(f"no figure: {name}: no batch of it is right any more")
    for name in sorted(known & right):
        print(f"a figure: {name}: take it out of {path.name}")
    return bool((set(names) - right - known) | (known & right))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument(
        "--batches", default="1,2,5", type=lambda text: [int(n) for n in text.split(",")]
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gradient", default="dense", choices=list(LOSSES))
    parser.add_argument("--type", default="float32", help="what all operands are cast to")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only each Nth of the cases")
    parser.add_argument(
        "--floor",
        action="store_true",
        help="fail for a case without a right batch that is not "
        "in backward_without_figure.txt, or no longer belongs there",
    )
    parser.add_argument(
        "--list-without", action="store_true", help="print the lines of backward_without_figure.txt"
    )
    parser.add_argument("--verbose", action="store_true")
    parser.set_defaults(control=False)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    torch._C._jit_set_profiling_mode(False)
    counter = Counter(options.counter)
    counts = collections.Counter()
    names = (options.only or list(CASES))[:: options.every]
    right = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for batch, (verdict, why) in zip(
                options.batches, evaluate(name, options, folder, counter), strict=False
            ):
                counts[verdict] += 1
                if verdict == "right":
                    right.add(name)
                if verdict != "right":
                    print(f"{name}, batch {batch}: {verdict}: {why}")
    print(
        f"{len(names)} cases: {counts['right']} right, "
        f"{counts['within']} within a bound, {counts['inexact']} inexact, "
        f"{counts['WRONG']} WRONG"
    )
    if options.list_without:
        print("\n".join(sorted(set(names) - right)))
    changed = check_floor(names, right) if options.floor else False
    return 1 if counts["WRONG"] or not counts["right"] or changed else 0


if __name__ == "__main__":
    sys.exit(main())
