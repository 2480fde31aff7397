"""Runs random modules (make_module.py) through every koila pass.

Usage: modules.py KOILA_OPT [--mlir-opt TOOL --plugin LIBRARY] [--count N]
                  [--seed S] [--long] [--state FILE] [--only N] [--keep FOLDER]

A pass may refuse a module, by an error at a place of it. What it may not: end by a
signal or a sanitizer's report, take forever, say an error without a place, leave invalid
IR behind, or give another output for the same input. Every other module has dialects
that only mlir-opt knows, which loads koila as a plugin.

One process runs all modules of one kind through one pipeline; only if something is wrong,
each is run alone. --long goes on with seed after seed until it is ended; with --state it
goes on where it was.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile

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


class Fuzzer:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="koila-modules-"))
        self.failures = self.passed = self.count = 0

    def judge(self, tool, modules, pipeline, timeout):
        """(what is wrong, how many modules the pipeline took)"""
        path = self.folder / "in.mlir"
        path.write_text(MARK.join(modules) + "\n")
        first = tool.run(path, pipeline, timeout)
        code, _, stderr = first
        if code is None:
            return f"no end within {timeout} s", 0
        if code not in (0, 1) or CRASH.search(stderr):
            return f"exit code {code}: {stderr[-300:]}", 0
        failed, lost = find_failed(modules, path, stderr)
        if lost:
            return f"no place: {lost[0]}", 0
        if tool.run(path, pipeline, timeout) != first:
            return "another output the second time", 0
        rest = [module for number, module in enumerate(modules) if number not in failed]
        if not rest:
            return "", 0
        path.write_text(MARK.join(rest) + "\n")
        code, stdout, stderr = tool.run(path, pipeline, timeout)
        if code != 0:
            return f"exit code {code} without an error: {stderr[-300:]}", 0
        path.write_text(stdout)
        code, _, stderr = tool.run(path)
        if code != 0:
            return f"invalid IR: {stderr[:500]}", 0
        return "", len(rest)

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
        print(f"{name} (seed {self.options.seed}): {pipeline}\n  {problem}", flush=True)
        if self.options.keep:
            keep = pathlib.Path(self.options.keep)
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{self.options.seed}-{name}.mlir".replace(" ", "-")).write_text(text)

    def fuzz(self, tools):
        numbers = range(self.options.count)
        if self.options.only is not None:
            numbers = [self.options.only]
        for wide, (tool, pipelines) in enumerate(tools):
            chosen = [number for number in numbers if number % len(tools) == wide]
            modules = [
                make_module.make(random.Random(f"{self.options.seed}/{number}"), bool(wide))
                for number in chosen
            ]
            if modules:
                self.check(tool, modules, [str(number) for number in chosen], pipelines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("koila_opt")
    parser.add_argument("--mlir-opt")
    parser.add_argument("--plugin")
    parser.add_argument("--count", type=int, default=60, help="modules of a seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the module of this number")
    parser.add_argument("--print", action="store_true", help="print the modules and end")
    parser.add_argument("--long", action="store_true", help="seed after seed")
    parser.add_argument("--seeds", type=int, default=0, help="with --long: so many; 0: no end")
    parser.add_argument("--state", help="with --long: a file with the next seed")
    parser.add_argument("--keep", help="folder for modules that fail")
    options = parser.parse_args()
    tools = [(Tool([options.koila_opt]), [*PIPELINES, PRINT])]
    if options.plugin:
        wide = [options.mlir_opt, f"--load-dialect-plugin={options.plugin}"]
        tools.append((Tool(wide), PIPELINES))
    state = pathlib.Path(options.state) if options.state else None
    if state and state.exists():
        options.seed = int(state.read_text())
    fuzzer = Fuzzer(options)
    if options.print:
        for number in range(options.count) if options.only is None else [options.only]:
            rng = random.Random(f"{options.seed}/{number}")
            print(make_module.make(rng, bool(number % len(tools))) + MARK)
        return
    last = options.seed + options.seeds if options.seeds else None
    while True:
        fuzzer.fuzz(tools)
        options.seed += 1
        if state:
            state.write_text(str(options.seed))
        if not options.long or options.seed == last:
            break
    print(f"{fuzzer.count} runs of modules, {fuzzer.passed} of them through the whole pipeline")
    print(f"{fuzzer.failures} failures")
    sys.exit(bool(fuzzer.failures))


if __name__ == "__main__":
    main()
