"""Feeds koila-opt archives and .mlir texts that were damaged on purpose.

Usage: fuzz.py KOILA_OPT [--models FOLDER] [--archives N] [--texts N]
               [--seconds S] [--seed N] [--long] [--keep FOLDER]

Whatever comes in, the tool must end by itself with 0 or 1, say what is wrong
after a 1, and leave no file but a whole one. A crash within LibTorch must have
become an error sentence; one within koila counts as a failure, as does any
report of a sanitizer. Inputs follow from the seed and their number, so that
`--only archive:17` repeats one. Failing inputs are copied to --keep.

--long runs 1000 archives and 1000 texts; --seconds goes on until the time is
over. With a build of -DKOILA_SANITIZE=ON the same command finds what does not
crash by itself.
"""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import mutate_archive
import mutate_text

# The longest that any input may take, on a busy machine.
TIMEOUT = 120

ARCHIVE_PIPELINES = [
    (["-o", "{out}.mlir"], "mlir"),
    (["--koila-infer-shapes", "--koila-peak-memory", "-o", "{out}.mlir"], "mlir"),
    (["-o", "{out}.pt"], "pt"),
    (["--input={input}", "--batch", "B=8", "--koila-compile=tile=2", "-o", "{out}.pt"], "pt"),
    (
        [
            "--input={input}",
            "--batch",
            "B=8",
            "--koila-infer-shapes",
            "--koila-peak-memory=format=json",
            "-o",
            "{out}.mlir",
        ],
        "mlir",
    ),
]
TEXT_PIPELINES = [
    ["--verify-roundtrip"],
    ["--koila-infer-shapes", "--koila-peak-memory=format=json"],
    ["--koila-compile=tile=4"],
    ["--koila-infer-shapes", "--koila-tile-batch=budget=20KiB"],
    [
        "--koila-infer-shapes",
        "--koila-tile-batch=tile=4",
        "--canonicalize",
        "--cse",
        "--koila-peak-memory",
    ],
    ["--canonicalize", "--cse", "--koila-peak-memory"],
]
# What is small and different enough; with the shape of its first input.
MODELS = {
    "mlp": "float32[B,64]",
    "scripted_mlp": "float32[B,64]",
    "mlp_view": "float32[B,64]",
    "mlp_inplace": "float32[B,64]",
    "mlp_flatten": "float32[B,8,8]",
    "tuple_out": "float32[B,64]",
    "two_inputs": "float32[B,64]",
    "tied": "float32[B,64]",
    "mlp_dropout": "float32[B,64]",
    "unknown_op": "float32[B,64]",
}
SANITIZER = re.compile(r"AddressSanitizer|UndefinedBehavior|runtime error:")
# Where a stack ends says nothing there.
SYSTEM = ("libLLVM", "libc.", "libstdc++", "libm.", "libgcc", "libgomp")
# A crash is reported by the parent process in one of these sentences.
CRASH = re.compile(r"error: .* crashed \(")


class Fuzzer:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.failures = []
        self.environment = dict(
            os.environ,
            # A report must not look like an ordinary error. Crashes in
            # LibTorch, which is not instrumented, are left to the parent; so
            # is memory that LLVM's headers poison in one half of the process
            # and use in the other.
            ASAN_OPTIONS="exitcode=77:handle_segv=0:handle_abort=0:"
            "detect_leaks=0:allocator_may_return_null=1:"
            "allow_user_poisoning=0:alloc_dealloc_mismatch=0:"
            "detect_odr_violation=0",
            UBSAN_OPTIONS="halt_on_error=1:exitcode=77:print_stacktrace=1",
            OMP_NUM_THREADS="1",
        )

    def run(self, command, single=False):
        environment = dict(self.environment)
        if single:
            environment["KOILA_SINGLE_PROCESS"] = "1"
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            env=environment,
        )

    def crashes_in_koila(self, command):
        """Whether koila's code, and no other, is where the stack ends."""
        try:
            text = self.run(command, single=True).stderr
        except subprocess.TimeoutExpired:
            return True
        for frame in re.findall(r"^ *#\d+ .*", text, re.M):
            library = re.search(r"([\w.+-]+)\+0x[0-9a-f]+\)", frame)
            if library and not library[1].startswith(SYSTEM):
                return not library[1].startswith(("libtorch", "libc10"))
        return True

    def check(self, kind, number, source, arguments):
        """Runs the tool on a file in an empty folder; returns what is wrong."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="koila-fuzz-"))
        try:
            (folder / "tmp").mkdir()
            (folder / "out").mkdir()
            self.environment["TMPDIR"] = str(folder / "tmp")
            command = [self.options.tool, str(source)] + [
                part.replace("{out}", str(folder / "out" / "x")) for part in arguments
            ]
            try:
                result = self.run(command)
            except subprocess.TimeoutExpired:
                return f"no end within {TIMEOUT} s", command
            files = os.listdir(folder / "out")
            written = any("{out}" in part for part in arguments)
            self.counts[f"{kind}, exit code {result.returncode}"] += 1
            if result.returncode not in (0, 1):
                return (f"exit code {result.returncode}: {result.stderr[-2000:]}"), command
            if SANITIZER.search(result.stderr):
                return "sanitizer: " + result.stderr[-2000:], command
            if result.returncode == 1 and "error:" not in result.stderr:
                return "exit code 1 without an error", command
            if files and result.returncode == 1:
                return f"files left: {files}", command
            if written and result.returncode == 0 and len(files) != 1:
                return f"files instead of one: {files}", command
            if os.listdir(folder / "tmp"):
                return "temporary files left", command
            if CRASH.search(result.stderr):
                self.counts[f"{kind}, crashes turned into errors"] += 1
                if kind == "text" or self.crashes_in_koila(command):
                    return result.stderr.strip(), command
            return "", command
        finally:
            shutil.rmtree(folder)

    def report(self, kind, number, problem, command, source):
        self.failures.append(f"{kind}:{number}")
        print(
            f"{kind}:{number} (seed {self.options.seed}): {problem}\n  " + " ".join(command),
            flush=True,
        )
        if self.options.keep:
            keep = pathlib.Path(self.options.keep)
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, keep / f"{kind}-{number}{source.suffix}")

    def do_archive(self, number):
        rng = random.Random(f"{self.options.seed}/archive/{number}")
        name = rng.choice(sorted(MODELS))
        data, valid = mutate_archive.mutate(pathlib.Path(self.options.models) / f"{name}.pt", rng)
        arguments = [
            part.replace("{input}", MODELS[name]) for part in rng.choice(ARCHIVE_PIPELINES)[0]
        ]
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            file.write(data)
            file.flush()
            source = pathlib.Path(file.name)
            self.counts["archives"] += 1
            self.counts["valid zips with a mutated record"] += valid
            self.counts["past torch.jit.load"] += loads(source)
            problem, command = self.check("archive", number, source, arguments)
            if problem:
                self.report("archive", number, problem, command, source)

    def do_text(self, number):
        rng = random.Random(f"{self.options.seed}/text/{number}")
        text = mutate_text.mutate(self.programs, rng)
        pipelines = TEXT_PIPELINES if self.options.all_pipelines else rng.sample(TEXT_PIPELINES, 2)
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(text)
            file.flush()
            source = pathlib.Path(file.name)
            self.counts["texts"] += 1
            for pipeline in pipelines:
                problem, command = self.check(
                    "text",
                    number,
                    source,
                    ["--allow-unregistered-dialect", *pipeline, "-o", "{out}.mlir"],
                )
                if problem:
                    self.report("text", number, problem, command, source)
                    break

    def fuzz(self):
        options = self.options
        self.programs = mutate_text.load(pathlib.Path(__file__).resolve().parent.parent)
        if options.only:
            kind, number = options.only.split(":")
            return (self.do_archive if kind == "archive" else self.do_text)(int(number))
        end = time.monotonic() + options.seconds if options.seconds else None
        number = 0
        while number < max(options.archives, options.texts) or end:
            if end and time.monotonic() > end:
                break
            if number < options.archives or (end and options.archives):
                self.do_archive(number)
            if number < options.texts or (end and options.texts):
                self.do_text(number)
            number += 1


def loads(path):
    """Whether torch.jit.load takes the file, tried in a process of its own."""
    import torch

    child = os.fork()
    if child == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            torch.jit.load(str(path), map_location="cpu")
            code = 0
        finally:
            os._exit(code)
    for _ in range(TIMEOUT * 100):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tool")
    parser.add_argument("--models", help="folder with the files of make_models")
    parser.add_argument("--archives", type=int, default=60)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true")
    parser.add_argument(
        "--all-pipelines", action="store_true", help="each text through every pipeline, not two"
    )
    parser.add_argument("--keep", help="folder for inputs that fail")
    parser.add_argument("--only", help="one input: archive:17 or text:17")
    options = parser.parse_args()
    if options.long:
        options.archives = options.texts = 1000
    if options.archives and not options.models:
        parser.error("archives need --models")
    if options.archives:
        import warnings

        warnings.simplefilter("ignore")
    fuzzer = Fuzzer(options)
    fuzzer.fuzz()
    for name, count in sorted(fuzzer.counts.items()):
        print(f"{count:6} {name}")
    print(f"{len(fuzzer.failures)} failures")
    sys.exit(bool(fuzzer.failures))


if __name__ == "__main__":
    main()
