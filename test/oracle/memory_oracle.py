#!/usr/bin/env python3
"""Compares the memory rule of every operator with PyTorch's allocator.

Usage: memory_oracle.py --counter LIBRARY [--koila-opt PATH] [--legal N]
           [--batches B,...] [--threads T,...] [--only REGEX] [--seed S]
           [--dtype NAME] [--most EXTENT] [--grad] [--survey] [--verbose]

The legal calls of rule_oracle.py run alone, once to warm up and twice under a
counter of the allocator (tools/koila-run/CounterLibrary.cpp), as scripted
functions, because programs run so. koila-opt makes a peak-memory report of all
calls in one program, with the number of threads and the batch given. Compared:

* what the call keeps: the bytes of the storages of its new results;
* what it holds beyond at its worst moment, the transient bytes.

Columns: calls; right: said to be exact, and both are equal; WRONG: said to be
exact, and one differs; inexact: koila says that it does not know; bound: of
these, an upper bound; violated: a measurement above an upper bound; views: not
exact because a view may be a copy. WRONG and violated must be 0.

--grad lets all floating-point operands want a gradient, and asks for
mode=forward-with-grad: what the call keeps is then what it makes for the
gradient, too.

--dtype makes all operands of that type, and --most matrices of up to so many
rows and columns: products of bfloat16 are other ones when they are large.

--list-without prints the lines of without_figure.txt.

--survey prints every inexact call with what was measured, to derive rules.
"""

import argparse
import collections
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

import torch

import rule_oracle
from counter import Counter
from koila._check.predictions import read_figures
from koila._generators import load_generators
from koila._generators.draw import ERRORS
from koila._generators.program import script_call, script_cases
from rule_oracle import BATCHES

COLUMNS = ["calls", "right", "WRONG", "inexact", "bound", "violated", "refused", "raises"]
WITHOUT_FIGURE = os.path.join(os.path.dirname(__file__), "without_figure.txt")
# What a call may take, so that a batch of thousands stays cheap.
MOST_BYTES = 64 << 20


# ----------------------------------------------------------------------------
# PyTorch
# ----------------------------------------------------------------------------


def new_bytes(found, scope):
    """Bytes of the results that are storage of their own, as koila counts
    them: elements times their size."""
    given = set()
    for value in scope.values():
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                given.add(tensor.untyped_storage()._cdata)
    total = 0
    for tensor in found:
        storage = tensor.untyped_storage()._cdata
        if storage not in given:
            given.add(storage)
            total += tensor.numel() * tensor.element_size()
    return total


def describe(value):
    """Type, dims and strides of a tensor, or of those in a list."""
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(map(describe, value)) + "]"
    if not isinstance(value, torch.Tensor):
        return str(value)
    dims = "x".join(map(str, value.shape))
    strides = "" if value.is_contiguous() else "/" + ",".join(map(str, value.stride()))
    return f"{str(value.dtype)[6:]}[{dims}{strides}]"


class Measured:
    """What one call did: the bytes it kept, those of its new results, and
    those beyond the results at the worst moment."""

    def __init__(self, counter, case, batch, grad):
        call = script_call(case, batch, grad)
        given = call.given
        self.transient = 0
        for _ in range(2):
            peak, self.kept, found = counter.measure(call)
            self.results = new_bytes(found, given)
            self.transient = max(self.transient, peak - self.kept)
        self.operands = given
        self.found = found

    def describe(self):
        return (
            ", ".join(f"{name}={describe(value)}" for name, value in self.operands.items())
            + " -> "
            + ", ".join(map(describe, self.found))
        )


# ----------------------------------------------------------------------------
# koila
# ----------------------------------------------------------------------------


def is_of_every_processor(case):
    """Whether no kernel of oneDNN runs, whose figures depend on the processor: none
    of convolutions and recurrent layers, nor of half types."""
    return not re.search("conv|lstm|gru|rnn", case.op) and not any(
        tensor.dtype in ("float16", "bfloat16") for tensor in case.inputs
    )


class Oracle:
    #: Options of the report that read_report() reads.
    REPORT = "format=json floor=false"
    #: Passes that run before.
    PASSES: tuple[str, ...] = ()

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.counter = Counter(arguments.counter)
        self.generators = load_generators()
        self.rules = rule_oracle.Oracle(
            argparse.Namespace(
                koila_opt=arguments.koila_opt,
                illegal=0,
                legal=arguments.legal,
                seed=arguments.seed,
                keep=None,
            ),
            self.generators,
            folder,
        )
        self.rules.drawing = {"only": arguments.dtype, "most": arguments.most}
        self.counts = collections.defaultdict(collections.Counter)
        self.problems, self.reasons = [], collections.Counter()
        self.unmeasured = collections.Counter()

    def predict(self, cases, batch, threads):
        """Figures by case; none for what koila refuses."""
        gc.collect()
        alive = list(range(len(cases)))
        while alive:
            path = os.path.join(self.folder, "cases.pt")
            report = path + ".json"
            grad = self.arguments.grad
            program = script_cases([cases[i] for i in alive], grad=grad)
            program.module.save(path)
            specs = [f"--input={spec}" for spec in program.inputs]
            mode = "forward-with-grad" if grad else "inference"
            if any(cases[i].follows_batch() for i in alive):
                specs.append(f"--batch=B={batch}")
            done = subprocess.run(
                [
                    self.arguments.koila_opt,
                    path,
                    *specs,
                    *self.PASSES,
                    f"--koila-peak-memory={self.REPORT} output={report} "
                    f"threads={threads} mode={mode}",
                    "-o",
                    os.devnull,
                ],
                capture_output=True,
                text=True,
            )
            if done.returncode == 0:
                with open(report) as file:
                    return self.read_report(json.load(file), alive, program.calls)
            wrong = {
                program.cases[int(line)]
                for line in re.findall(r"^<string>:(\d+):\d+: error: ", done.stderr, re.MULTILINE)
                if int(line) in program.cases
            }
            if not wrong:
                sys.exit(f"koila-opt failed: {done.stderr.strip()[-1500:]}")
            alive = [i for place, i in enumerate(alive) if place not in wrong]
        return {}

    @staticmethod
    def read_report(report, alive, lines):
        return dict(zip(alive, read_figures(report, lines), strict=True))

    # Comparison ------------------------------------------------------------

    def compare(self, case, batch, threads, said):
        counts = self.counts[case.op]
        try:
            measured = Measured(self.counter, case, batch, self.arguments.grad)
        except ERRORS as error:
            self.unmeasured[f"{case.op}: {str(error).strip()[:60]!r}"] += 1
            counts["raises"] += 1
            return
        counts["calls"] += 1
        counts["of every processor"] += is_of_every_processor(case)
        if said.reasons:
            counts["inexact"] += 1
            self.reasons[case.op, said.reasons[0]] += 1
            if said.is_bound:
                counts["bound"] += 1
                inside = said.transient
                # Of what data decide less may be left, and more be inside.
                if any("decided by data" in reason for reason in said.reasons):
                    inside += said.kept - measured.kept
                if measured.kept > said.kept or measured.transient > inside:
                    counts["violated"] += 1
                    self.problem(case, batch, threads, said, measured, "bound violated")
            if self.arguments.survey:
                self.show("survey", case, batch, threads, said, measured)
        elif measured.transient == said.transient and measured.kept == said.kept:
            counts["right"] += 1
            counts["right on every processor"] += is_of_every_processor(case)
            if self.arguments.survey and self.arguments.verbose:
                self.show("right", case, batch, threads, said, measured)
        else:
            counts["WRONG"] += 1
            self.problem(case, batch, threads, said, measured, "WRONG")

    @staticmethod
    def describe(case, batch, threads, said, measured):
        kept = (
            ""
            if said.kept == measured.kept == measured.results
            else f", keeps {measured.kept} (said {said.kept}) for results of {measured.results}"
        )
        return (
            f"{case.op}: B={batch} T={threads}: said {said.transient}, "
            f"measured {measured.transient}{kept}: "
            f"{case.body[-1].replace('torch.ops.aten.', '')} with "
            f"{measured.describe()}"
        )

    def problem(self, case, batch, threads, said, measured, kind):
        self.problems.append(f"{kind}: " + self.describe(case, batch, threads, said, measured))

    def show(self, kind, case, batch, threads, said, measured):
        print(f"{kind}: " + self.describe(case, batch, threads, said, measured))

    def run(self, ops):
        cases, start = [], time.time()
        for op in ops:
            cases += self.rules.draw(op)[0]
        group = self.arguments.group
        for first in range(0, len(cases), group):
            some = cases[first : first + group]
            for batch in self.arguments.batches:
                those = [
                    case
                    for case in some
                    if case.follows_batch() or batch == self.arguments.batches[0]
                ]
                if batch > max(BATCHES):
                    those = [c for c in those if self.fits(c, batch)]
                for threads in self.arguments.threads if those else ():
                    said = self.predict(those, batch, threads)
                    torch.set_num_threads(threads)
                    for index, case in enumerate(those):
                        if index in said:
                            self.compare(case, batch, threads, said[index])
                        else:
                            self.counts[case.op]["refused"] += 1
            print(
                f"{min(first + group, len(cases))} of {len(cases)} calls, "
                f"{len(self.problems)} problems, "
                f"{time.time() - start:.0f} s",
                file=sys.stderr,
            )

    @staticmethod
    def fits(case, batch):
        total = 0
        for tensor in case.inputs:
            size = 8
            for extent in tensor.shape(batch):
                size *= extent
            total += size
        return total <= MOST_BYTES

    def find_without_figure(self, ops):
        """Names of operators of which calls were measured and none was right."""
        return {
            f"{self.get_kind()} {op}"
            for op in ops
            if self.counts[op]["of every processor"]
            and not self.counts[op]["right on every processor"]
        }

    def get_kind(self):
        return "gradient" if self.arguments.grad else "inference"

    def check_floor(self, ops):
        kind = self.get_kind()
        with open(WITHOUT_FIGURE) as file:
            lines = (line.split("#")[0].strip() for line in file)
            known = {line for line in lines if line.startswith(kind)}
        found = self.find_without_figure(ops)
        for line in sorted(found - known):
            self.problems.append(f"no figure: {line}: no call of it is right any more")
        drawn = {f"{kind} {op}" for op in ops if self.counts[op]["of every processor"]}
        for line in sorted((known & drawn) - found):
            self.problems.append(f"a figure: {line}: take it out of {WITHOUT_FIGURE}")

    def print(self, ops):
        families = collections.defaultdict(collections.Counter)
        for op in ops:
            family = self.generators[op].__module__.rpartition(".")[2]
            families[family].update(self.counts[op])
            families[family]["schemas"] += 1
            if self.arguments.verbose:
                print(f"{op:50}" + "".join(f"{self.counts[op][name]:9}" for name in COLUMNS))
        columns = ["schemas", *COLUMNS]
        print(f"{'family':12}" + "".join(f"{n:>9}" for n in columns))
        for family, counts in sorted(families.items()):
            print(f"{family:12}" + "".join(f"{counts[n]:9}" for n in columns))
        total = sum(families.values(), collections.Counter())
        print(f"{'total':12}" + "".join(f"{total[n]:9}" for n in columns))
        for text, count in sorted(self.unmeasured.items()):
            print(f"not measured: {text}: {count}")
        shown = collections.Counter()
        for problem in self.problems:
            key = tuple(problem.split(":")[:4])
            shown[key] += 1
            if shown[key] <= 3 or self.arguments.verbose:
                print(problem)
        print(f"{len(ops)} schemas, {len(self.problems)} problems")


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--legal", type=int, default=8)
    parser.add_argument("--batches", type=numbers, default=[7, 1])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--group", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="schemas by regex")
    parser.add_argument("--dtype")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--list-without", action="store_true")
    parser.add_argument("--survey", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # As koila-run does: memory does not depend on the number of the run.
    torch._C._jit_set_profiling_mode(False)
    # A tensor that is collected while the next call is measured would count.
    gc.disable()
    with tempfile.TemporaryDirectory() as folder, torch.set_grad_enabled(arguments.grad):
        oracle = Oracle(arguments, folder)
        ops = [op for op in oracle.generators if re.search(arguments.only, op)]
        if not ops:
            sys.exit("no schema matches --only")
        oracle.run(ops)
        if arguments.list_without:
            print("\n".join(sorted(oracle.find_without_figure(ops))))
        if arguments.floor:
            oracle.check_floor(ops)
        oracle.print(ops)
    sys.exit(1 if oracle.problems else 0)


if __name__ == "__main__":
    main()
