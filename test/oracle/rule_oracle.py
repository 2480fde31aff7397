#!/usr/bin/env python3
"""Compares the shape, batch and alias rules of every operator with PyTorch.

Usage: rule_oracle.py [--koila-opt PATH] [--legal N] [--illegal N]
           [--only REGEX] [--seed S] [--keep FOLDER] [--list]

The generators of the package (python/koila/_generators) make random calls, N legal and
N illegal ones per schema; PyTorch says which are which. koila-opt infers each once, a part of
them with a symbolic batch, and --koila-print-facts says what it knows. Then,
at batches of 0, 1, 2 and 7:

* dims, element type and strides of every result are PyTorch's (strides where
  the extent is more than one);
* a result is called new storage if it is, and shared if it is a view, as the
  real CPU kernel has it;
* where the batch is said to be `at(dim, k)`, running two samples at a time
  and putting the results together along `dim` gives what the whole gives;
  where it is said to be free, every piece gives the whole;
* illegal calls are an error at their line.

The columns: legal and illegal sets; symbolic: legal sets with a batch; of the
illegal ones refused, opaque (a literal argument that no operation of koila
can have; PyTorch raises when it runs), kernel (only the element type has no
code), values (depends on data: PyTorch takes other data of the same shapes),
batches (depends on the batch value: PyTorch takes another one, not zero), each
with a line that says which; strides, views: results whose strides or storage koila does not vouch
for; data: extents that data decides; at, free, mixed: what is said of the
batch; careful: said to be mixed although the pieces agree; edge: a view at an
extent of one or none where koila expects a copy, or the reverse.

Prints one line per schema, then for each disagreement one line with the call,
and exits 1 if there is any. --only with one schema and --legal 1000 tries one
rule hard.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings

import torch

from koila._check.facts import find_batch_problem, find_shape_problem, find_storage_problem
from koila._generators import load_generators
from koila._generators.draw import draw, make_inputs, run
from koila._generators.program import script_cases

COUNTER = itertools.count()
BATCHES = (7, 2, 1, 0)
# What an illegal set with a batch may be legal at.
OTHER_BATCHES = range(1, 257)
# A type that an operator has no code for is no matter of shapes.
NO_KERNEL = re.compile(
    "not[ ]implemented for|not supported|should be of float|only supports? |"
    "must not be a floating point|only implemented for|NotImplementedError|"
    "could not infer output dtype|expected scalar type|not yet supported|"
    "Unsupported dtype|does not support|is not supported|unsupported|"
    "must be Float|expected .* dtype"
)


# ----------------------------------------------------------------------------
# PyTorch
# ----------------------------------------------------------------------------


def other_data(case, batch):
    """Inputs of the same shapes and types with other values: other random
    ones, zeros, ones, and matrices that can be factored."""
    for seed in range(2, 7):
        yield f"seed {seed}", make_inputs(case, batch, seed)
    for name, fill in (("zeros", torch.zeros_like), ("ones", torch.ones_like)):
        yield name, [fill(x) for x in make_inputs(case, batch)]
    inputs = make_inputs(case, batch)
    for tensor in inputs:
        if tensor.dim() > 1:
            rows, columns = tensor.shape[-2:]
            tensor.copy_(torch.eye(rows, columns).to(tensor.dtype))
    yield "identities", inputs


# ----------------------------------------------------------------------------
# koila
# ----------------------------------------------------------------------------


class Oracle:
    def __init__(self, arguments, generators, folder):
        self.arguments, self.generators = arguments, generators
        self.folder = folder
        #: How a Generator draws, as its constructor takes it.
        self.drawing = {}
        self.counts = collections.defaultdict(collections.Counter)
        self.problems = []
        self.depends = []

    def problem(self, case, text):
        self.counts[case.op]["problems"] += 1
        self.problems.append(f"{case.op}: {text}: {case}")

    # Cases -----------------------------------------------------------------

    def draw(self, op):
        """Legal and illegal cases of one schema."""
        return draw(
            op,
            self.generators[op],
            self.arguments.seed,
            self.arguments.legal,
            self.arguments.illegal,
            **self.drawing,
        )

    # koila -----------------------------------------------------------------

    def infer(self, cases, hidden=False):
        """Facts by case, and errors by case."""
        path = os.path.join(self.folder, f"cases{next(COUNTER)}.pt")
        program = script_cases(cases, hidden=hidden)
        program.module.save(path)
        facts = path + ".json"
        done = subprocess.run(
            [
                self.arguments.koila_opt,
                path,
                *(f"--input={spec}" for spec in program.inputs),
                f"--koila-print-facts=output={facts}",
                "-o",
                os.devnull,
            ],
            capture_output=True,
            text=True,
        )
        errors, other = {}, []
        for match in re.finditer(
            r"^(?:<string>:(\d+):\d+: )?error: (.*)$", done.stderr, re.MULTILINE
        ):
            index = program.cases.get(int(match[1] or 0))
            if index is None:
                other.append(match[2])
            else:
                errors.setdefault(index, match[2])
        if done.returncode and not errors:
            sys.exit(f"koila-opt failed on {path}: {done.stderr.strip()[-1500:]}")
        found = {}
        if not done.returncode:
            calls = {line: index for index, line in enumerate(program.calls)}
            for text in pathlib.Path(facts).read_text().splitlines():
                fact = json.loads(text)
                match = re.search(r'"<string>":(\d+):', fact["location"])
                index = calls.get(int(match[1])) if match else None
                if index is not None and fact.get("schema"):
                    found[index] = fact
        if not self.arguments.keep:
            for name in (path, facts):
                if os.path.exists(name):
                    os.remove(name)
        return found, errors

    def check_legal(self, cases):
        while cases:
            facts, errors = self.infer(cases)
            for index, message in errors.items():
                self.problem(cases[index], f"refused ({message})")
            if not errors:
                break
            cases = [c for i, c in enumerate(cases) if i not in errors]
        for index, case in enumerate(cases):
            fact = facts.get(index)
            if fact is None:
                self.problem(case, "no operation of koila at its line")
            else:
                self.check_case(case, fact)

    def check_illegal(self, cases):
        if not cases:
            return
        facts, errors = self.infer(cases, hidden=True)
        if errors:
            # Opaque operators can be told apart only in a program without
            # errors.
            rest = [c for i, c in enumerate(cases) if i not in errors]
            for index in errors:
                self.counts[cases[index].op]["refused"] += 1
            return self.check_illegal(rest)
        for index, case in enumerate(cases):
            fact = facts.get(index)
            if fact is None or fact["op"] == "koila.torch_op":
                self.counts[case.op]["opaque"] += 1
            elif NO_KERNEL.search(case.error):
                self.counts[case.op]["kernel"] += 1
            elif not self.depends_on_values(case):
                error = case.error.strip().splitlines() or [""]
                self.problem(case, f"accepted, while PyTorch says '{error[0][:100]}'")

    def depends_on_values(self, case):
        """Whether the call is illegal for its data or its batch alone, which
        no rule can know."""

        def is_legal(inputs):
            return not isinstance(run(case, inputs), Exception)

        def note(column, text):
            self.counts[case.op][column] += 1
            self.depends.append(f"{case.op}: depends on {text}: {case}")
            return True

        for name, inputs in other_data(case, BATCHES[0]):
            if is_legal(inputs):
                return note("values", f"data (legal with {name})")
        for batch in OTHER_BATCHES if case.follows_batch() else ():
            if is_legal(make_inputs(case, batch)):
                return note("batches", f"the batch value (legal at {batch})")
        return False

    # Comparisons -----------------------------------------------------------

    def check_case(self, case, fact):
        counts, make = self.counts[case.op], self.generators[case.op]
        if fact["op"] == "koila.torch_op":
            return self.problem(case, "is opaque")
        counts["symbolic"] += case.follows_batch()
        dies = getattr(make, "needs_elements", False)
        for batch in BATCHES if case.follows_batch() else BATCHES[:1]:
            if batch == 0 and dies:
                continue
            scope = run(case, make_inputs(case, batch))
            if isinstance(scope, Exception):
                continue
            problem = find_shape_problem(
                case, fact, make, batch, scope, counts
            ) or find_storage_problem(case, fact, batch, scope, counts)
            if problem:
                return self.problem(case, problem)
        has_batch = case.follows_batch() and not case.random
        if has_batch and (problem := find_batch_problem(case, fact, BATCHES[0], counts)):
            self.problem(case, problem)

    # Report ----------------------------------------------------------------

    def run(self, ops):
        legal, illegal, start = [], [], time.time()
        for number, op in enumerate(ops):
            some, others = self.draw(op)
            self.counts[op]["legal"] = len(some)
            self.counts[op]["illegal"] = len(others)
            legal += some
            illegal += others
            if sys.stderr.isatty() or number % 20 == 19:
                print(
                    f"drawn: {number + 1} of {len(ops)} schemas, {time.time() - start:.0f} s",
                    file=sys.stderr,
                )
        for kind, cases in (("legal", legal), ("illegal", illegal)):
            check = getattr(self, "check_" + kind)
            for first in range(0, len(cases), self.arguments.group):
                check(cases[first : first + self.arguments.group])
                print(
                    f"{kind}: {min(first + self.arguments.group, len(cases))}"
                    f" of {len(cases)}, {len(self.problems)} disagreements, "
                    f"{time.time() - start:.0f} s",
                    file=sys.stderr,
                )
        for op in ops:
            # Some operators take everything.
            takes_all = getattr(self.generators[op], "takes_all", False)
            for name, wanted in (
                ("legal", self.arguments.legal),
                ("illegal", self.arguments.illegal),
            ):
                if self.counts[op][name] < wanted and not (name == "illegal" and takes_all):
                    self.problems.append(
                        f"{op}: only {self.counts[op][name]} {name} sets of {wanted}"
                    )

    def print(self, ops):
        columns = [
            "legal",
            "illegal",
            "symbolic",
            "refused",
            "opaque",
            "kernel",
            "values",
            "batches",
            "strides",
            "views",
            "data",
            "at",
            "free",
            "mixed",
            "careful",
            "edge",
            "problems",
        ]
        width = max(map(len, ops), default=10) + 1
        print(" " * width + "".join(f"{name:>9}" for name in columns))
        for op in ops:
            print(f"{op:{width}}" + "".join(f"{self.counts[op][name]:9}" for name in columns))
        total = sum(self.counts.values(), collections.Counter())
        least = {n: min(self.counts[op][n] for op in ops) for n in columns}
        print(f"{'minimum':{width}}" + "".join(f"{least[name]:9}" for name in columns))
        print(f"{'total':{width}}" + "".join(f"{total[name]:9}" for name in columns))
        for op in sorted(ops):
            for text, count in sorted(self.counts[op].items()):
                if text.startswith("careful: "):
                    print(f"careful: {op}: {text.removeprefix('careful: ')}: {count}")
        for text in self.depends:
            print(text)
        shown = (
            self.problems
            if self.arguments.verbose
            else [
                p
                for _, group in itertools.groupby(self.problems, lambda p: p.split(":")[:3])
                for p in list(group)[:3]
            ]
        )
        for problem in shown:
            print(problem)
        print(f"{len(ops)} schemas, {len(self.problems)} disagreements")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--legal", type=int, default=60)
    parser.add_argument("--illegal", type=int, default=15)
    parser.add_argument("--group", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="schemas by regex")
    parser.add_argument("--keep", help="folder for the programs")
    parser.add_argument("--list", action="store_true")
    parser.add_argument(
        "--verbose", action="store_true", help="every disagreement, not three of a kind"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    generators = load_generators()
    ops = [op for op in generators if re.search(arguments.only, op)]
    if arguments.list:
        print("\n".join(ops))
        return
    if not ops:
        sys.exit("no schema matches --only")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
        oracle = Oracle(arguments, generators, arguments.keep or folder)
        oracle.run(ops)
        oracle.print(ops)
    sys.exit(1 if oracle.problems else 0)


if __name__ == "__main__":
    main()
