"""Runs koila-run and compares predicted with measured peaks, to the byte.

Usage: check_exact.py A.pt [B.pt] --input SPEC... --batches 2,8
           [--threads 1,2] [--budget BYTES] [--profiler]

For every program, batch and number of threads the prediction must be there and
equal to what was measured; with B, it must equal A and hold less. --budget:
the last program's measured peak is within it. --profiler: PyTorch's own
profiler must count the same bytes, so that koila-run's counter is checked by
something else.
"""

import argparse
import json
import subprocess
import sys

import torch

import equality
import memory


def run(arguments, batch, threads):
    command = ["koila-run", *arguments.programs, f"--batch=B={batch}",
               f"--threads={threads}", "--json"]
    command += [f"--input={spec}" for spec in arguments.input]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def profiled_peak(path, specs, batch, threads):
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
    parser.add_argument("--profiler", action="store_true")
    arguments = parser.parse_args()

    torch._C._jit_set_profiling_mode(False)
    failures = 0
    for threads in map(int, arguments.threads.split(",")):
        for batch in map(int, arguments.batches.split(",")):
            report = run(arguments, batch, threads)
            assert report["schema"] == 1
            programs = report["programs"]
            assert len(programs) == len(arguments.programs)
            problems = []
            for program in programs:
                predicted = program["predicted_peak_bytes"]
                measured = program["measured_peak_bytes"]
                if predicted is None or measured <= 0:
                    problems.append("no figure")
                elif predicted != measured:
                    problems.append(f"{predicted - measured:+} bytes off")
                if arguments.profiler:
                    profiled = profiled_peak(program["path"], arguments.input,
                                             batch, threads)
                    if profiled != measured:
                        problems.append(f"profiler counts {profiled}")
            measured = [p["measured_peak_bytes"] for p in programs]
            if len(programs) == 2 and not report["compare"]["equal"]:
                problems.append("unequal results")
            if arguments.budget and measured[-1] > arguments.budget:
                problems.append(f"above the budget of {arguments.budget}")
            failures += bool(problems)
            print(f"threads {threads} batch {batch}: "
                  f"{' -> '.join(map(str, measured))} bytes: "
                  f"{', '.join(problems) or 'exact'}")
    if failures:
        sys.exit(f"{failures} of the runs above failed")


if __name__ == "__main__":
    main()
