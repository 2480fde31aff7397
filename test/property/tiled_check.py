"""One program, untiled and as koila tiles it, for tiled_operators.py."""

import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

import torch

from archive import read_report
from evaluate import in_child
from koila_opt import INTERNAL, Broken, Refused
from tiled_equal import ERRORS, call, compare, is_inexact, widen

TIMEOUT = 60
BATCHES = (0, 1, 2, 3, 5, 7, 13, 16)
PROMISED = (3, 5, 7, 13, 16)
TILES = (1, 2, 4, 8)
# How often the figure at another batch is asked for: it is a call of its own.
SECOND_FIGURE = 0.3
# How often a budget is tried for; not for every program there is one between
# the floor and the untiled peak.
ASK_BUDGET = 0.9
NO_TILE = "no tile fits the budget"
NOT_PROMISED = "a budget cannot be promised"
SMALLEST = re.compile(
    r"the smallest budget that works is [^,]*?"
    r"(?:\(([\d,]+) bytes\)|([\d,]+) bytes?)"
)
# Why the emitted file may run the untiled program for inputs that it was
# compiled for: tiles mean something else for few samples.
BELOW = "means something else for a batch below"
# Of no samples its result is what was in the memory before.
# Source: multi_margin_loss_out_cpu_template in LossMultiMargin.cpp.
UNSET_IF_EMPTY = "aten::multi_margin_loss"


class Failed(Exception):
    """What is wrong with koila."""


@dataclasses.dataclass
class Verdict:
    """`kind` is equal, refused, not run or failed."""

    kind: str
    detail: str = ""
    # Lines to do it again by hand.
    command: str = ""
    # What was checked, for the counts.
    notes: list = dataclasses.field(default_factory=list)


# -- koila --------------------------------------------------------------------


class Check:
    """One program in a folder of its own."""

    def __init__(self, koila, counter, program, seed, folder):
        self.koila, self.counter, self.program = koila, counter, program
        self.folder, self.seed = folder, seed
        self.rng = random.Random(f"{seed}:check")
        self.file, self.output = folder / "in.pt", folder / "out.pt"
        self.specs = [f"--input={spec}" for spec in program.specs()]
        self.command, self.notes = "", []

    def shown(self, tool_arguments):
        quoted = " ".join(f"'{text}'" for text in tool_arguments)
        return f"koila-opt in.pt {quoted} -o out.pt"

    def compile(self, option, batch):
        """The report in the emitted file; raises Refused or Failed."""
        arguments = [
            *self.specs,
            *([f"--batch=B={batch}"] if batch else []),
            f"--koila-compile={option} threads=1",
        ]
        self.command = self.shown(arguments)
        try:
            done = subprocess.run(
                [
                    self.koila.tool,
                    self.file,
                    *arguments,
                    "-o",
                    self.output,
                    "--remark-format=emitRemark",
                    "--remarks-filter=koila-tile-batch",
                ],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                env=self.koila.environment,
            )
        except subprocess.TimeoutExpired:
            raise Failed("koila-opt takes too long") from None
        if done.returncode not in (0, 1):
            raise Failed(f"koila-opt ends with {done.returncode}: {done.stderr.strip()[-600:]}")
        if done.returncode:
            lines = re.findall(r"error: (.*)", done.stderr)
            if not lines:
                raise Failed("no file and no reason")
            if self.output.exists():
                raise Failed(f"a file in spite of '{lines[0]}'")
            if INTERNAL.search(lines[0]):
                raise Failed(f"no answer to a program: {lines[0]}")
            raise Refused(lines[0])
        self.remarks = re.findall(r"remark: (.*)", done.stderr)
        return read_report(self.output)

    def ask(self, file, arguments):
        """Runs passes only to hear what they say; raises Refused."""
        try:
            self.koila.passes(
                self.koila.read(file), self.folder, [*self.specs, *arguments], ".mlirbc"
            )
        except Broken as error:
            raise Failed(f"{self.shown(arguments)}: {error}") from None

    def peak(self, batch, *arguments, file):
        """koila's report on a file; `arguments`: passes after it."""
        report = self.folder / "report.json"
        self.ask(
            file,
            [
                f"--batch=B={batch}",
                f"--koila-peak-memory=format=json batches=0 threads=1 output={report}",
                *arguments,
            ],
        )
        return json.loads(report.read_text())

    def plan(self):
        """The option for koila, the batch of its figure, and the batches to
        run at."""
        rng = self.rng
        tile = f"tile={rng.choice(TILES)}"
        self.untiled = None
        if rng.random() < ASK_BUDGET:
            batch = rng.choice(PROMISED)
            if budget := self.choose_budget(batch, rng.random()):
                others = [rng.randrange(1, batch), rng.choice(BATCHES)]
                return f"budget={budget}", batch, [batch, *others]
        batches = rng.sample(BATCHES, 2)
        return tile, next(b for b in batches if b), batches

    def choose_budget(self, batch, part):
        """Between the floor and the untiled peak; None if koila names none."""
        report = self.folder / "report.json"
        try:
            self.peak(batch, "--koila-compile=budget=1 threads=1", file=self.file)
        except Refused as refusal:
            if not (found := SMALLEST.search(str(refusal))):
                self.notes.append(
                    "no budget: " + ("not promised" if NOT_PROMISED in str(refusal) else "refused")
                )
                return None
        else:
            self.notes.append("no budget: nothing is needed")
            return None
        untiled = json.loads(report.read_text())
        self.untiled = (batch, untiled["peak_bytes"], untiled["exact"])
        floor = int((found[1] or found[2]).replace(",", ""))
        if floor >= untiled["peak_bytes"]:
            self.notes.append("no budget: nothing to save")
            return None
        return floor + int(part * (untiled["peak_bytes"] - floor))

    # PyTorch -----------------------------------------------------------------

    def measure(self, module, batch):
        """The most bytes at once, of two calls; None if it raises."""
        most = 0
        try:
            for _ in range(2):
                inputs = self.program.inputs(batch, self.seed_of(batch))
                peak, _, found = self.counter.measure(module, inputs)
                most = max(most, peak)
                del found
        except ERRORS:
            return None
        return most

    def seed_of(self, batch):
        return 1000 + batch

    def load(self):
        self.module = self.program.compile()
        try:
            self.reference = self.program.compile_reference()
        except Exception:
            self.reference = None
        self.module.save(str(self.file))
        self.names = [name for part in self.program.parts for name in part.results]

    def see_reference(self, inputs):
        """The call in float64; None where the program does not run so, because
        it mixes types."""
        if self.reference is None:
            return None
        wide = [widen(tensor) if is_inexact(tensor) else tensor for tensor in inputs]
        # What is made of integers alone would be float32 else.
        torch.set_default_dtype(torch.float64)
        try:
            seen = call(self.reference, wide)
        finally:
            torch.set_default_dtype(torch.float32)
        return None if seen.error else seen

    def check_results(self, tiled, batch, report):
        inputs = self.program.inputs(batch, self.seed_of(batch))
        untiled = call(self.module, inputs)
        found = call(tiled, inputs)
        reference = self.see_reference(inputs)
        unset = () if batch else self.program.spread(UNSET_IF_EMPTY)
        if problem := compare(self.names, found, untiled, reference, self.program.double, unset):
            raise Failed(f"B={batch}: {problem}")
        promise = report["promise"] or {"holds_to": batch}
        for warning in found.warnings:
            if not (BELOW in warning or batch > promise["holds_to"]):
                raise Failed(f"B={batch}: it warns '{warning}'")
            self.notes.append("ran untiled" if BELOW in warning else "above its promise")
        if untiled.error:
            self.notes.append("both raise")
        else:
            self.notes.append("compared" if reference else "compared without float64")
        return not untiled.error

    def check_peak(self, tiled, batch, report, figure):
        measured = self.measure(tiled, batch)
        if measured is None:
            return
        promise = report["promise"]
        if promise and promise["holds_from"] <= batch <= promise["holds_to"]:
            self.notes.append("within its budget")
            if measured > promise["budget_bytes"]:
                raise Failed(
                    f"B={batch}: {measured} bytes measured, {promise['budget_bytes']} promised"
                )
        if figure and figure["exact"]:
            self.notes.append("peak as predicted")
            if measured != figure["peak_bytes"]:
                raise Failed(
                    f"B={batch}: {figure['peak_bytes']} bytes "
                    f"predicted exactly, {measured} measured"
                )

    def check_untiled(self):
        batch, predicted, exact = self.untiled
        measured = self.measure(self.module, batch)
        if exact and measured not in (None, predicted):
            raise Failed(
                f"untiled, B={batch}: {predicted} bytes predicted exactly, {measured} measured"
            )

    def run(self):
        self.load()
        option, batch, batches = self.plan()
        kind = option.split("=")[0]
        try:
            report = self.compile(option, batch)
        except Refused as refusal:
            if NO_TILE in str(refusal) and kind == "budget":
                raise Failed(f"koila named a smaller budget: {refusal}") from refusal
            return Verdict("refused", str(refusal))
        self.notes += [kind, *sorted({kind_of(text) for text in self.remarks} - {None})]
        if kind == "budget":
            self.check_promise(report, option, batch)
        tiled = torch.jit.load(str(self.output))
        second = self.rng.random() < SECOND_FIGURE
        ran = 0
        for size in batches:
            figure = report if size == batch else None
            if not self.check_results(tiled, size, report):
                continue
            ran += 1
            promise = report["promise"] or {"holds_to": size}
            if size and second and not figure and (size <= promise["holds_to"]):
                figure, second = self.peak(size, file=self.output), False
            self.check_peak(tiled, size, report, figure)
        if kind == "budget":
            self.check_untiled()
        return Verdict("equal" if ran else "not run")

    def check_promise(self, report, option, batch):
        promise = report["promise"]
        budget = int(option.split("=")[1])
        if not promise or (promise["budget_bytes"], promise["holds_to"]) != (budget, batch):
            raise Failed(f"another promise: {promise}")
        if report["exact"] and report["peak_bytes"] > budget:
            raise Failed(f"{report['peak_bytes']} bytes predicted, {budget} promised")


def kind_of(remark):
    """What a remark says of the tiles, for the counts."""
    if "Reason=" in remark:
        return "has a barrier" if "Barrier" in remark else "has combined tiles"
    if "[Passed] BatchTiling" in remark:
        return "runs in tiles"
    return None


def check(koila, counter, program, seed):
    """The Verdict on a program, found in a process of its own."""

    def run():
        with tempfile.TemporaryDirectory() as name, torch.no_grad():
            mine = Check(koila, counter, program, seed, pathlib.Path(name))
            try:
                verdict = mine.run()
            except (Failed, Refused) as problem:
                verdict = Verdict("failed", str(problem))
            verdict.command, verdict.notes = mine.command, mine.notes
            verdict.detail = verdict.detail.replace(name + os.sep, "")
            return verdict

    kind, answer = in_child(run, TIMEOUT * 2)
    return answer if kind == "value" else Verdict("failed", answer)
