#!/usr/bin/env python3
"""Compares the rules of every operator with PyTorch.

Usage: operator_oracle.py [--koila-opt PATH] [--legal N] [--illegal N]
           [--seed S] [--only OP,...] [--keep FOLDER]

Random calls (operator_cases.py) are first given to PyTorch, which says which
are legal, what they return and what they allocate, at batches of 0, 1, 2 and
7, and whether samples are mixed in them: whether two samples at a time, and the
results put together, give the same. Then koila must say

* shape, element type and peak bytes (where it calls them exact) of each legal
  case, inferred once with a symbolic batch;
* an error for each illegal one;
* a program in tiles that gives the same where samples do not meet, and an
  error where they do.

The columns: legal and illegal sets; of the illegal ones refused by koila,
opaque (no rule speaks of the call), kernel (only the element type has no
code), accepted (a disagreement); figures per set and batch that are exact and
equal, not vouched for, and exact but wrong (a disagreement); results of
unknown rank; sets tiled and equal; refused since samples are mixed, since a size is
literal, or without elements to tell; refused without a reason, and other
disagreements.

Many cases share a program, so that koila runs a few times only. What koila
says of one case is read off the timeline of the whole: how much more than the
results of the cases before is live. Prints one line per operator, and for
each disagreement one with the call; exits 1 if there is any.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
import zlib

import torch

import operator_cases
from operator_cases import Input

COUNTER = itertools.count()
BATCHES = (0, 1, 2, 7)
TILE = 2
# So large that what is live while it is made is what the report lists.
LAST = Input([1 << 40])
MLIR_TYPES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "ui8": "uint8",
    "i1": "bool",
}
TORCH_TO_MLIR = {name: short for short, name in MLIR_TYPES.items()}
# A type that an operator has no code for is no matter of shapes: the program
# raises the same error before and after.
NO_KERNEL = re.compile(
    "not[ ]implemented for|not supported|should be of float|"
    "must not be a floating point|only supports? floating|"
    "only implemented for|could not infer output dtype|"
    "NotImplementedError"
)
# Why koila refuses to tile what samples do not meet in, and rightly so.
BAKED_IN = re.compile("literal batch size was perhaps baked in")
MIXES = re.compile("mixes samples|over the batch dim|every sample")


# ----------------------------------------------------------------------------
# Programs
# ----------------------------------------------------------------------------


def rename(case, index):
    """The statements of a case with names of their own, and its arguments."""
    names = {f"x{i}" for i in range(len(case.inputs))}
    names |= {line.split(" = ")[0] for line in case.body}
    pattern = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    lines = [pattern.sub(rf"\1_{index}", line) for line in case.body]
    return lines, [f"x{i}_{index}" for i in range(len(case.inputs))]


def write_program(cases, path, last=False):
    """A file whose forward runs all cases; returns case by source line."""
    text, arguments, where = [], [], {}
    for index, case in enumerate(cases):
        lines, names = rename(case, index)
        arguments += names
        for line in lines:
            text.append("    " + line)
            where[len(text) + 1] = index
    results = [f"r_{index}" for index in range(len(cases))]
    if last:
        arguments.append("last")
        text.append("    r_last = torch.ops.aten.neg(last)")
        results.append("r_last")
    joined = ", ".join(f"{name}: Tensor" for name in arguments)
    # A class of its own: methods of a class cannot be defined again.
    made = type(f"Program{next(COUNTER)}", (torch.jit.ScriptModule,), {})
    module = made()
    module.define(
        f"def forward(self, {joined}):\n"
        + "\n".join(text)
        + f"\n    return ({', '.join(results)},)\n"
    )
    module.eval().save(path)
    return where


def compile_cases(cases):
    """One function per case, so that each runs alone."""
    text = []
    for index, case in enumerate(cases):
        arguments = ", ".join(f"x{i}: Tensor" for i in range(len(case.inputs)))
        text.append(f"def case{index}({arguments}):")
        text += ["    " + line for line in case.body] + ["    return r", ""]
    unit = torch.jit.CompilationUnit("\n".join(text))
    return [getattr(unit, f"case{index}") for index in range(len(cases))]


def input_specs(cases, last=False, batch=None):
    specs = [tensor.spec(batch) for case in cases for tensor in case.inputs]
    return [f"--input={spec}" for spec in specs + [LAST.spec()] * last]


# ----------------------------------------------------------------------------
# PyTorch
# ----------------------------------------------------------------------------


def make_input(tensor, batch, generator):
    shape, dtype = tensor.shape(batch), getattr(torch, tensor.dtype)
    if dtype.is_floating_point:
        data = torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        data = torch.randint(
            0 if dtype == torch.bool else 1,
            2 if dtype == torch.bool else 6,
            shape,
            generator=generator,
        )
    layout = torch.channels_last if tensor.channels_last else torch.contiguous_format
    made = torch.empty(shape, dtype=dtype, memory_format=layout)
    return made.copy_(data.to(dtype))


def make_inputs(case, batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [make_input(tensor, batch, generator) for tensor in case.inputs]


def attempt(method, inputs):
    try:
        return method(*inputs)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:
        return error


def run_eagerly(case, batch):
    """The result, or the error, of Python rather than TorchScript: faster."""
    scope = {f"x{i}": tensor for i, tensor in enumerate(make_inputs(case, batch))}
    scope["torch"] = torch
    try:
        exec("\n".join(case.body), scope)
        return scope["r"]
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError) as error:
        return error


@dataclasses.dataclass
class Truth:
    """What PyTorch says of one case at one batch."""

    shape: list
    dtype: str
    bytes: int
    peak: int = 0


def measure(truths, methods, inputs):
    """Adds the peak of each call, in one session of the profiler."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        for index in truths:
            with torch.profiler.record_function(f"koila case {index}"):
                result = methods[index](*inputs[index])
            del result
    ranges, memory = [], []
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            memory.append((event.start_ns(), event.nbytes()))
        elif event.name().startswith("koila case "):
            ranges.append((event.start_ns(), event.end_ns(), int(event.name().split()[-1])))
    memory.sort(key=lambda event: event[0])
    position = 0
    for start, end, index in sorted(ranges):
        live = peak = 0
        while position < len(memory) and memory[position][0] < start:
            position += 1
        while position < len(memory) and memory[position][0] <= end:
            live += memory[position][1]
            peak = max(peak, live)
            position += 1
        truths[index].peak = peak


def ask_pytorch(cases):
    """Per case and batch the truth, or the error."""
    methods = compile_cases(cases)
    answers = [{} for _ in cases]
    for batch in BATCHES:
        inputs = [make_inputs(case, batch) for case in cases]
        truths = {}
        for index, method in enumerate(methods):
            result = attempt(method, inputs[index])
            if isinstance(result, Exception):
                answers[index][batch] = result
            else:
                truths[index] = Truth(
                    list(result.shape),
                    str(result.dtype).split(".")[1],
                    result.numel() * result.element_size(),
                )
        measure(truths, methods, inputs)
        for index, truth in truths.items():
            answers[index][batch] = truth
    return answers


def batch_dim(tensor):
    for place, dim in enumerate(tensor.dims):
        if isinstance(dim, operator_cases.Batch):
            return place, dim.factor
    return None


def close(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    try:
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance(a.dtype))
    except AssertionError:
        return False
    return True


def tolerance(dtype):
    """Looser than the defaults for float32: one call, of few elements, but
    another kernel for a tile of one sample."""
    if dtype == torch.float32:
        return dict(rtol=1e-4, atol=1e-5)
    if dtype in (torch.float16, torch.bfloat16):
        return dict(rtol=2e-2, atol=2e-2)
    return dict(rtol=None, atol=None)


def samples_meet(case, method, batch=7):
    """Whether pieces of the batch, run one by one, differ from the whole."""
    inputs = make_inputs(case, batch)
    whole = attempt(method, inputs)
    if isinstance(whole, Exception):
        return True
    pieces = []
    for start in range(0, batch, TILE):
        part = []
        for tensor, data in zip(case.inputs, inputs, strict=True):
            if place := batch_dim(tensor):
                dim, factor = place
                count = min(TILE, batch - start) * factor
                layout = torch.channels_last if tensor.channels_last else torch.contiguous_format
                narrow = data.narrow(dim, start * factor, count)
                data = torch.empty(narrow.shape, dtype=data.dtype, memory_format=layout).copy_(
                    narrow
                )
            part.append(data)
        result = attempt(method, part)
        if isinstance(result, Exception) or result.dim() != whole.dim():
            return True
        pieces.append(result)
    return not any(
        [p.shape[:dim] + p.shape[dim + 1 :] for p in pieces]
        == [whole.shape[:dim] + whole.shape[dim + 1 :]] * len(pieces)
        and close(torch.cat(pieces, dim), whole)
        for dim in range(whole.dim())
    )


# ----------------------------------------------------------------------------
# koila
# ----------------------------------------------------------------------------


class Koila:
    def __init__(self, path, folder):
        self.path, self.folder, self.calls = path, folder, 0

    def file(self, name):
        return os.path.join(self.folder, name)

    def __call__(self, *arguments):
        self.calls += 1
        return subprocess.run([self.path, *arguments], capture_output=True, text=True)


def error_line(stderr):
    """The first error, and the source line it names."""
    match = re.search(r"^(?:<string>:(\d+):\d+: )?error: (.*)$", stderr, re.MULTILINE)
    if not match:
        return None, stderr.strip()[-300:]
    return match[1] and int(match[1]), match[2]


def split_type(text):
    """`tensor<8x?xf32>` as extents (None where unknown) and torch's dtype."""
    inner = re.match(r"tensor<(.*)>$", text)[1]
    if inner.startswith("*"):
        return None, MLIR_TYPES.get(inner.split("x", 1)[1])
    *dims, element = inner.split("x")
    return ([None if dim == "?" else int(dim) for dim in dims], MLIR_TYPES.get(element))


def mlir_type(tensor, batch=7):
    """The declaration of an argument of that type and layout."""
    dims = "".join(f"{extent}x" for extent in tensor.shape(batch))
    layout = ' {koila.memory_format = "channels_last"}'
    return f"tensor<{dims}{TORCH_TO_MLIR[tensor.dtype]}>" + layout * tensor.channels_last


def result_types(text):
    """The types of the returned values in the module `text`."""
    line = re.search(r"koila.construct tuple\(.*", text)[0]
    types = line.split(": (", 1)[1].split(") ->", 1)[0]
    return [split_type(t) for t in re.findall(r"tensor<[^>]*>", types)]


# ----------------------------------------------------------------------------
# The comparisons
# ----------------------------------------------------------------------------


@dataclasses.dataclass
class Refusal:
    """What koila says, and of which case, if it says so."""

    index: int | None
    message: str


class Oracle:
    def __init__(self, koila, arguments):
        self.koila, self.arguments = koila, arguments
        self.counts = collections.defaultdict(collections.Counter)
        self.reasons = collections.defaultdict(collections.Counter)
        self.problems = []

    def problem(self, case, kind, text):
        self.counts[case.op][kind] += 1
        self.problems.append(f"{case.op}: {text}: {case}")

    # Generation ------------------------------------------------------------

    def draw(self, op):
        """Legal and illegal cases of one operator."""
        rng = random.Random(zlib.crc32(f"{self.arguments.seed} {op}".encode()))
        few = 0.5 if op in operator_cases.SMALL else 1
        goals = {
            True: max(4, round(self.arguments.legal * few)),
            False: max(2, round(self.arguments.illegal * few)),
        }
        found, seen = {True: [], False: []}, set()
        for _ in range(40 * sum(goals.values())):
            missing = {kind: len(found[kind]) < goals[kind] for kind in goals}
            if not any(missing.values()):
                break
            case = operator_cases.generate(
                op, rng, 0.05 if not missing[False] else 0.9 if not missing[True] else 0.3
            )
            if str(case) in seen:
                continue
            seen.add(str(case))
            refused = [isinstance(run_eagerly(case, batch), Exception) for batch in BATCHES[::-1]]
            kind = not refused[0] and not refused[1]
            if (kind or all(refused)) and missing[kind]:
                found[kind].append(case)
        return found[True], found[False]

    # Shapes and bytes ------------------------------------------------------

    def check_legal(self, pairs):
        """Types and bytes of all cases at each batch; returns those read."""
        pairs = list(pairs)
        while pairs:
            path = self.koila.file("legal.pt")
            cases = [case for case, _ in pairs]
            where = write_program(cases, path, last=True)
            answer = self.report(path, cases, BATCHES[-1])
            if isinstance(answer, tuple):
                break
            line, message = error_line(answer)
            if line not in where:
                sys.exit("koila-opt failed on a program of legal cases: " + answer[-2000:])
            case, _ = pairs.pop(where[line])
            self.problem(case, "wrong", f"refused although legal ({message})")
        for batch in BATCHES[::-1] if pairs else ():
            # What holds for symbols need not for an empty batch.
            some = pairs if batch else [pair for pair in pairs if isinstance(pair[1][batch], Truth)]
            found = answer
            if batch != BATCHES[-1]:
                cases = [case for case, _ in some]
                where = write_program(cases, path, last=True)
                found = self.report(path, cases, batch)
            if isinstance(found, str):
                line, message = error_line(found)
                case = cases[where[line]] if line in where else cases[0]
                self.problem(case, "wrong", f"batch {batch}: refused ({message})")
            else:
                report, text = found
                self.compare(some, where, report, text, batch)
        return pairs

    def report(self, path, cases, batch):
        out = self.koila.file("report.json")
        # A symbol is at least one: an empty batch is a static one.
        sizes = (["--batch", f"B={batch}"] if batch else []) + input_specs(
            cases, last=True, batch=None if batch else 0
        )
        done = self.koila(
            path,
            *sizes,
            "--koila-infer-shapes",
            f"--koila-peak-memory=format=json output={out} threads={torch.get_num_threads()}",
            "-o",
            "-",
        )
        if done.returncode:
            return done.stderr
        with open(out) as file:
            return json.load(file), done.stdout

    def compare(self, pairs, where, report, text, batch):
        def place(entry):
            return where.get((entry["location"] or {}).get("line"))

        inexact, most, live = {}, collections.Counter(), {}
        for entry in report["inexact"]:
            inexact.setdefault(place(entry), entry["reason"])
        for entry in report["timeline"]:
            most[place(entry)] = max(
                most[place(entry)], entry["live_bytes"] + entry["transient_bytes"]
            )
        for entry in report["live_at_peak"]:
            if entry["kind"] == "output":
                live[place(entry)] = entry
        types, before = result_types(text), 0
        for index, (case, answers) in enumerate(pairs):
            truth, taken = answers[batch], most[index] - before
            before += live[index]["bytes"] if index in live else 0
            if isinstance(truth, Exception):
                continue
            counts = self.counts[case.op]
            shape, dtype = types[index]
            if shape is None:
                counts["unknown"] += 1
            elif not self.same_type(case, batch, truth, shape, dtype):
                continue
            elif index not in live:
                if truth.bytes:
                    self.problem(case, "wrong", f"batch {batch}: koila sees no result of its own")
            else:
                self.same_type(case, batch, truth, *split_type(live[index]["type"]))
            reason = inexact.get(index)
            if reason:
                counts["inexact"] += 1
                key = (
                    "equal" if taken == truth.peak else ("above" if taken > truth.peak else "below")
                )
                self.reasons[case.op, reason][key] += 1
            elif taken == truth.peak:
                counts["exact"] += 1
            else:
                self.problem(
                    case,
                    "bytes",
                    f"batch {batch}: koila says "
                    f"exactly {taken} bytes, PyTorch takes "
                    f"{truth.peak} (result {truth.bytes})",
                )

    def same_type(self, case, batch, truth, shape, dtype):
        if (
            len(shape) == len(truth.shape)
            and dtype in (None, truth.dtype)
            and all(a in (None, b) for a, b in zip(shape, truth.shape, strict=True))
        ):
            return True
        self.problem(
            case,
            "wrong",
            f"batch {batch}: koila says {shape} "
            f"{dtype}, PyTorch returns {truth.shape} {truth.dtype}",
        )
        return False

    # Illegal ---------------------------------------------------------------

    def check_illegal(self, cases):
        """Each case as a module of its own, in one file."""
        path = self.koila.file("illegal.pt")
        where = write_program(cases, path)
        done = self.koila(path, "--mlir-print-debuginfo", "--mlir-print-local-scope", "-o", "-")
        if done.returncode:
            sys.exit("koila-opt failed to import: " + done.stderr[-2000:])
        ops = collections.defaultdict(list)
        for line in done.stdout.splitlines():
            match = re.search(r'loc\(.*"<string>":(\d+):\d+', line)
            if match and int(match[1]) in where and "%" in line:
                ops[where[int(match[1])]].append(re.sub(r"\s*loc\(.*$", "", line.strip()))
        modules, starts, opaque = [], [], set()
        arguments = re.findall(r"(%\w+): tensor", done.stdout.split("->")[0])
        position, line_count = 0, 1
        for index, case in enumerate(cases):
            names = arguments[position : position + len(case.inputs)]
            position += len(case.inputs)
            typed = [f"%in{i}: {mlir_type(tensor)}" for i, tensor in enumerate(case.inputs)]
            text = [f"func.func @f({', '.join(typed)}) {{"]
            for name, declared in zip(names, typed, strict=True):
                value, kind = declared.split(" {")[0].split(": ")
                text.append(f"  {name} = koila.refine {value} : {kind} to tensor<*x!koila.any>")
            text += ops[index] + ["  return", "}", "// -----"]
            if any("koila.torch_op" in line for line in ops[index]):
                opaque.add(index)
            starts.append(line_count)
            line_count += len(text)
            modules += text
        file = self.koila.file("illegal.mlir")
        with open(file, "w") as out:
            out.write("\n".join(modules) + "\n")
        done = self.koila(file, "--split-input-file", "--koila-infer-shapes", "-o", os.devnull)
        lines = [int(n) for n in re.findall(r"illegal\.mlir:(\d+):\d+: error:", done.stderr)]
        starts.append(line_count)
        for index, case in enumerate(cases):
            if any(starts[index] <= n < starts[index + 1] for n in lines):
                self.counts[case.op]["refused"] += 1
                continue
            if index in opaque:
                # No rule is asked: nothing is claimed of it.
                self.counts[case.op]["opaque"] += 1
                continue
            error = str(run_eagerly(case, 7)).strip().splitlines()[0]
            if NO_KERNEL.search(error):
                self.counts[case.op]["kernel"] += 1
            else:
                self.problem(case, "accepted", f"accepted, while PyTorch says '{error[:90]}'")

    # Tiles -----------------------------------------------------------------

    def check_tiles(self, pairs):
        """Per batches at which the cases are legal: often not an empty one.
        Results without elements go alone, too."""
        groups = collections.defaultdict(list)
        for case, answers in pairs:
            if case.follows_batch():
                legal = tuple(batch for batch in BATCHES if isinstance(answers[batch], Truth))
                groups[legal, answers[BATCHES[-1]].bytes > 0].append(case)
        asked = collections.Counter()
        for (self.batches, _), cases in groups.items():
            apart = []
            for case, method in zip(cases, compile_cases(cases), strict=True):
                if not samples_meet(case, method):
                    apart.append(case)
                    continue
                asked[case.op] += 1
                if asked[case.op] > self.arguments.mixing:
                    self.counts[case.op]["meet, untried"] += 1
                # Refused, or named as what runs whole between the loops; the
                # results have been compared then.
                elif self.tile([case]) or self.barriers:
                    self.counts[case.op]["meet"] += 1
                else:
                    self.problem(case, "wrong", "tiled although samples are mixed")
            self.tile_all(apart)

    def tile_all(self, cases):
        """Tiles all in one program; if refused, finds the ones that are."""
        if not cases:
            return
        refusal = self.tile(cases)
        if not refusal:
            for case in cases:
                self.counts[case.op]["tiled"] += 1
        elif len(cases) == 1:
            self.judge_refusal(cases[0], refusal.message)
        elif refusal.index is not None:
            rest = cases[: refusal.index] + cases[refusal.index + 1 :]
            self.tile_all([cases[refusal.index]])
            self.tile_all(rest)
        else:
            half = len(cases) // 2
            self.tile_all(cases[:half])
            self.tile_all(cases[half:])

    def judge_refusal(self, case, message):
        if BAKED_IN.search(message):
            self.counts[case.op]["baked in"] += 1
        elif "is always empty" in message or (
            MIXES.search(message) and not run_eagerly(case, 7).numel()
        ):
            # Samples without elements meet as little as they do not, and what
            # is empty saves nothing.
            self.counts[case.op]["empty"] += 1
        else:
            self.problem(case, "untiled", f"not tiled although samples do not meet ({message})")

    def tile(self, cases):
        """None if tiled, after a comparison, or the refusal."""
        path, out = self.koila.file("whole.pt"), self.koila.file("tiled.pt")
        where = write_program(cases, path)
        done = self.koila(
            path,
            *input_specs(cases),
            f"--koila-compile=tile={TILE}",
            "-o",
            out,
            "--remark-format=emitRemark",
            "--remarks-filter=koila-tile-batch",
        )
        self.barriers = done.stderr.count("[Missed] Barrier")
        if done.returncode:
            line, message = error_line(done.stderr)
            return Refusal(where.get(line), message)
        whole, tiled = torch.jit.load(path), torch.jit.load(out)
        if "prim::Loop" not in str(tiled.inlined_graph):
            self.problem(cases[0], "wrong", "compiled, but without a loop")
        for batch in self.batches:
            inputs = [tensor for case in cases for tensor in make_inputs(case, batch, batch)]
            expected = whole(*inputs)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = attempt(tiled, inputs)
            said = [str(w.message) for w in caught if "koila" in str(w.message)]
            if isinstance(found, Exception):
                said.append(str(found).strip().splitlines()[-1])
            if said:
                return Refusal(None, f"tiled, at batch {batch}: {said[0]}")
            for case, a, b in zip(cases, found, expected, strict=True):
                if not close(a, b):
                    self.problem(
                        case,
                        "wrong",
                        f"tiled, batch {batch}: "
                        f"another result, {list(a.shape)} {a.dtype} "
                        f"for {list(b.shape)} {b.dtype}",
                    )
        return None

    # Report ----------------------------------------------------------------

    def run(self, ops):
        legal, illegal = [], []
        for op in ops:
            some, others = self.draw(op)
            self.counts[op]["legal"] = len(some)
            self.counts[op]["illegal"] = len(others)
            legal += some
            illegal += others
        legal = list(zip(legal, ask_pytorch(legal), strict=True))
        for start in range(0, len(legal), self.arguments.group):
            group = legal[start : start + self.arguments.group]
            self.check_tiles(self.check_legal(group))
        for start in range(0, len(illegal), 4 * self.arguments.group):
            self.check_illegal(illegal[start : start + 4 * self.arguments.group])

    def check_not_vacuous(self, ops):
        """Every operator has been asked every question."""
        for op in ops:
            wanted = ["legal", "exact", "tiled"]
            if op != "chain":
                wanted.append("illegal")
            for name in wanted:
                if not self.counts[op][name]:
                    self.problems.append(f"{op}: vacuous: no set is {name}")

    def print(self, ops):
        columns = [
            "legal",
            "illegal",
            "refused",
            "opaque",
            "kernel",
            "accepted",
            "exact",
            "inexact",
            "bytes",
            "unknown",
            "tiled",
            "meet",
            "baked in",
            "empty",
            "untiled",
            "wrong",
        ]
        print(f"{'':20}" + "".join(f"{name:>9}" for name in columns))
        total, least = collections.Counter(), {}
        for op in ops:
            counts = self.counts[op]
            total.update(counts)
            for name in columns:
                least[name] = min(least.get(name, counts[name]), counts[name])
            print(f"{op:20}" + "".join(f"{counts[n]:9}" for n in columns))
        print(f"{'minimum':20}" + "".join(f"{least[n]:9}" for n in columns))
        print(f"{'total':20}" + "".join(f"{total[n]:9}" for n in columns))
        # What koila does not vouch for; `below` is less than PyTorch takes.
        for (op, reason), keys in sorted(self.reasons.items()):
            print(
                f"inexact: {op}: {reason}: "
                + ", ".join(f"{count} {key}" for key, count in sorted(keys.items()))
            )
        for problem in self.problems:
            print(problem)
        print(f"{len(self.problems)} disagreements, {self.koila.calls} runs of koila-opt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--legal", type=int, default=10)
    parser.add_argument("--illegal", type=int, default=6)
    parser.add_argument("--mixing", type=int, default=1)
    parser.add_argument("--group", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # The executor whose memory koila predicts; compiling is then quick, too.
    torch._C._jit_set_profiling_mode(False)
    torch._C._set_graph_executor_optimize(False)
    ops = arguments.only.split(",") if arguments.only else list(operator_cases.GENERATORS)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        koila = Koila(arguments.koila_opt, arguments.keep or folder)
        oracle = Oracle(koila, arguments)
        oracle.run(ops)
        oracle.check_not_vacuous(ops)
        oracle.print(ops)
    sys.exit(1 if oracle.problems else 0)


if __name__ == "__main__":
    main()
