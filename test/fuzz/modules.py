"""Runs random modules (make_module.py) through every koila pass.

Usage: modules.py KOILA_OPT [--mlir-opt TOOL --plugin LIBRARY] [--count N]
                  [--seed S] [--long [--modules N] [--minutes M] [--state FILE]]
                  [--jobs N] [--only N] [--keep FOLDER]

A pass may refuse a module, by an error at a place of it. What it may not: end by a
signal or a sanitizer's report, take forever, say an error without a place, leave invalid
IR behind, or give another output for the same input. Every other module has dialects
that only mlir-opt knows, which loads koila as a plugin.

One process runs all modules of one kind through one pipeline; only if something is wrong,
each is run alone. --long goes on with seed after seed until there were N modules, or M
minutes are over; with --state it goes on where it was.
"""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import make_module

TIMEOUT, TIMEOUT_ALONE = 240, 60
MARK = "\n// -----\n"
PIPELINES = [
    "koila-infer-shapes",
    "koila-peak-memory{threads=1 format=json}",
    "koila-infer-shapes,koila-verify-stage{stage=inferred},koila-peak-memory{threads=1}",
    "koila-infer-shapes,koila-peak-memory{threads=1 mode=forward-with-grad batches=4}",
    "koila-infer-shapes,koila-tile-batch{tile=4},canonicalize,cse,koila-peak-memory{threads=1}",
    "koila-infer-shapes,koila-tile-batch{budget=20KiB}",
    "canonicalize,cse,koila-infer-shapes,koila-verify-stage{stage=emittable}",
    "builtin.module(koila-infer-shapes,koila-peak-memory{threads=1})",
    "koila-verify-stage{stage=imported},koila-verify-stage{stage=tiled}",
]
# Tests have it.
PRINT = "koila-print-facts"
CRASH = re.compile(r"crashed \(|AddressSanitizer|UndefinedBehavior|runtime error:")


class Tool:
    def __init__(self, command):
        self.command = command

    def run(self, path, pipeline=None, timeout=TIMEOUT):
        """(exit code or None, stdout, stderr)"""
        command = [
            *self.command,
            str(path),
            "--allow-unregistered-dialect",
            "--split-input-file",
            "--mlir-disable-threading",
            "--mlir-print-op-on-diagnostic=0",
        ]
        if pipeline:
            # What is invalid shows when it is read again.
            command += ["--verify-each=0", f"--pass-pipeline=builtin.module({pipeline})"]
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return None, "", ""
        return result.returncode, result.stdout, result.stderr


def find_failed(modules, path, stderr):
    """The numbers of modules with an error, and errors without a place."""
    starts, line = [], 1
    for module in modules:
        starts.append(line)
        line += module.count("\n") + MARK.count("\n")
    failed, lost = set(), []
    for text in stderr.splitlines():
        if not re.search(r"\berror: ", text):
            continue
        place = re.match(re.escape(str(path)) + r":(\d+):", text)
        if place:
            number = int(place[1])
            failed.add(max(i for i, start in enumerate(starts) if start <= number))
        else:
            lost.append(text)
    return failed, lost


def find_difference(first, second):
    """The first lines that differ, or the exit codes."""
    if first[0] != second[0]:
        return f"exit codes {first[0]} and {second[0]}, {second[2][-300:]}"
    for one, other in zip(first[1:], second[1:], strict=True):
        for line, another in itertools.zip_longest(one.splitlines(), other.splitlines()):
            if line != another:
                return f"\n    {line!r:.1000}\n    {another!r:.1000}"
    return ""


class Fuzzer:
    """The modules of one seed."""

    def __init__(self, options, seed):
        self.options, self.seed = options, seed
        self.failures = self.passed = self.count = self.modules = 0

    def judge(self, tool, modules, pipeline, timeout):
        """(what is wrong, how many modules the pipeline took)"""
        path = self.path
        path.write_text(MARK.join(modules) + "\n")
        first = tool.run(path, pipeline, timeout)
        code, stdout, stderr = first
        if code is None:
            return f"no end within {timeout} s", 0
        if code not in (0, 1) or CRASH.search(stderr):
            return f"exit code {code}: {stderr[-300:]}", 0
        failed, lost = find_failed(modules, path, stderr)
        if lost:
            return f"no place: {lost[0]}", 0
        if code == 1 and not failed:
            return f"exit code {code} without an error: {stderr[-300:]}", 0
        passed = len(modules) - len(failed)
        if failed and passed and not stdout:
            # koila-opt writes all of its output or none.
            rest = [module for number, module in enumerate(modules) if number not in failed]
            path.write_text(MARK.join(rest) + "\n")
            first = tool.run(path, pipeline, timeout)
            code, stdout, stderr = first
            if code != 0:
                return f"exit code {code} without an error: {stderr[-300:]}", 0
        second = tool.run(path, pipeline, timeout)
        if second != first:
            return f"another output the second time: {find_difference(first, second)}", 0
        if not passed:
            return "", 0
        # mlir-opt prints nothing of one with an error but its mark.
        printed = [text for text in stdout.split(MARK.strip()) if text.strip()]
        if len(printed) != passed:
            return f"{len(printed)} modules of {passed} came out", 0
        path.write_text(MARK.join(printed))
        code, _, stderr = tool.run(path)
        if code != 0:
            return f"invalid IR: {stderr[:500]}", 0
        return "", passed

    def check(self, tool, modules, names, pipelines):
        for pipeline in pipelines:
            problem, taken = self.judge(tool, modules, pipeline, TIMEOUT)
            self.passed += taken
            self.count += len(modules)
            if not problem:
                continue
            found = 0
            for name, module in zip(names, modules, strict=True):
                alone, _ = self.judge(tool, [module], pipeline, TIMEOUT_ALONE)
                if alone:
                    found += 1
                    self.report(name, pipeline, alone, module)
            if not found:
                self.report("all modules", pipeline, problem, MARK.join(modules))

    def report(self, name, pipeline, problem, text):
        self.failures += 1
        print(f"{name} (seed {self.seed}): {pipeline}\n  {problem}", flush=True)
        if self.options.keep:
            keep = pathlib.Path(self.options.keep)
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{self.seed}-{name}.mlir".replace(" ", "-")).write_text(text)

    def run(self, tools):
        numbers = range(self.options.count)
        if self.options.only is not None:
            numbers = [self.options.only]
        with tempfile.TemporaryDirectory(prefix="koila-modules-") as folder:
            self.path = pathlib.Path(folder) / "in.mlir"
            for wide, (tool, pipelines) in enumerate(tools):
                chosen = [number for number in numbers if number % len(tools) == wide]
                modules = [make(self.seed, number, bool(wide)) for number in chosen]
                self.modules += len(modules)
                if modules:
                    self.check(tool, modules, [str(number) for number in chosen], pipelines)
        return self


def make(seed, number, wide):
    return make_module.make(random.Random(f"{seed}/{number}"), wide)


def get_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("koila_opt")
    parser.add_argument("--mlir-opt")
    parser.add_argument("--plugin")
    parser.add_argument("--count", type=int, default=60, help="modules of a seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the module of this number")
    parser.add_argument("--print", action="store_true", help="print the modules and end")
    parser.add_argument("--long", action="store_true", help="seed after seed")
    parser.add_argument("--modules", type=int, default=100_000, help="with --long: so many")
    parser.add_argument("--minutes", type=float, default=60, help="with --long: no longer")
    parser.add_argument("--state", help="with --long: a file with what was done")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at the same time")
    parser.add_argument("--keep", help="folder for modules that fail")
    return parser.parse_args()


def main():
    options = get_options()
    tools = [(Tool([options.koila_opt]), [*PIPELINES, PRINT])]
    if options.plugin:
        wide = [options.mlir_opt, f"--load-dialect-plugin={options.plugin}"]
        tools.append((Tool(wide), PIPELINES))
    if options.print:
        for number in range(options.count) if options.only is None else [options.only]:
            print(make(options.seed, number, bool(number % len(tools))) + MARK)
        return
    state = pathlib.Path(options.state) if options.state else None
    done = {"seed": options.seed, "modules": 0, "runs": 0, "passed": 0, "failures": 0}
    if state and state.exists():
        done = json.loads(state.read_text())
    late = time.monotonic() + 60 * options.minutes
    jobs = options.jobs if options.long else 1
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while True:
            seeds = [done["seed"] + job for job in range(jobs)]
            for found in pool.map(lambda seed: Fuzzer(options, seed).run(tools), seeds):
                done["modules"] += found.modules
                done["runs"] += found.count
                done["passed"] += found.passed
                done["failures"] += found.failures
            done["seed"] += jobs
            if state:
                state.write_text(json.dumps(done))
            if options.long:
                print(f"{done['modules']} modules, {done['failures']} failures", flush=True)
            if not options.long or done["modules"] >= options.modules or time.monotonic() > late:
                break
    print(
        f"{done['runs']} runs of {done['modules']} modules, "
        f"{done['passed']} of them through the whole pipeline"
    )
    print(f"{done['failures']} failures")
    sys.exit(bool(done["failures"]))


if __name__ == "__main__":
    main()
