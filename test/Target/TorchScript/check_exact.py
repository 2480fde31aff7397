"""Runs koila-run and compares predicted with measured peaks, to the byte.

Usage: check_exact.py A.pt [B.pt] --input SPEC... --batches 2,8
           [--threads 1,2] [--budget BYTES] [--smaller] [--profiler] [--alone]

For every program, batch and number of threads the prediction must be there and
equal to what was measured; with B, its results must equal A's. --budget: the
last program's measured peak is within it. --smaller: B holds less than A.
--profiler: PyTorch's own profiler must count the same bytes, so that
koila-run's counter is checked by something else. --alone: without comparing
results, which takes a run in float64.
"""

import argparse
import json
import subprocess
import sys


def run(arguments, programs, batch, threads):
    command = [
        "koila-run",
        *programs,
        f"--batch=B={batch}",
        f"--threads={threads}",
        "--repeat=1",
        "--json",
    ]
    command += [f"--input={spec}" for spec in arguments.input]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed:\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    assert len(report["programs"]) == len(programs)
    return report


def profiled_peak(path, specs, batch, threads):
    import torch

    import equality
    import memory

    torch._C._jit_set_profiling_mode(False)
    torch.set_num_threads(threads)
    module = torch.jit.load(path)
    inputs = equality.make_inputs(specs, batch)
    with torch.no_grad():
        return memory.peak_bytes(lambda: module(*inputs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--smaller", action="store_true")
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()

    failures = 0
    for threads in map(int, arguments.threads.split(",")):
        for batch in map(int, arguments.batches.split(",")):
            runs = (
                [[path] for path in arguments.programs] if arguments.alone else [arguments.programs]
            )
            reports = [run(arguments, paths, batch, threads) for paths in runs]
            programs = [p for report in reports for p in report["programs"]]
            problems = []
            for program in programs:
                predicted = program["predicted_peak_bytes"]
                measured = program["measured_peak_bytes"]
                if predicted is None or measured <= 0:
                    problems.append("no figure")
                elif predicted != measured:
                    problems.append(f"{predicted - measured:+} bytes off")
                if arguments.profiler:
                    profiled = profiled_peak(program["path"], arguments.input, batch, threads)
                    if profiled != measured:
                        problems.append(f"profiler counts {profiled}")
            measured = [p["measured_peak_bytes"] for p in programs]
            for report in reports:
                if report["compare"] and not report["compare"]["equal"]:
                    problems.append("unequal results")
            if arguments.smaller and measured[-1] >= measured[0]:
                problems.append("not smaller")
            if arguments.budget and measured[-1] > arguments.budget:
                problems.append(f"above the budget of {arguments.budget}")
            failures += bool(problems)
            print(
                f"threads {threads} batch {batch}: "
                f"{' -> '.join(map(str, measured))} bytes: "
                f"{', '.join(problems) or 'exact'}"
            )
    if failures:
        sys.exit(f"{failures} of the runs above failed")


if __name__ == "__main__":
    main()
