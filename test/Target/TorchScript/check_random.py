"""Compares what a tiled program draws with the untiled one in plain PyTorch.

Usage: check_random.py UNTILED.pt TILED.pt --input SPEC --batches 0,1,2
           [--distribution]

Without a warning, equal seeds must give equal bits, and leave the generator in
the same state. With --distribution, at each batch: equal shapes, means and
deviations that differ by no more than five of their standard errors.
"""

import argparse
import warnings

import torch

import equality


def run(program, inputs, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        result = equality.flatten(program(*inputs))
    return result, torch.random.get_rng_state()


def check_bits(untiled, tiled, inputs, seed):
    expected, state = run(untiled, inputs, seed)
    found, left = run(tiled, inputs, seed)
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert torch.equal(a, b), f"result {index}: other numbers"
    assert torch.equal(left, state), "another state of the generator"


def check_distribution(untiled, tiled, inputs, seed):
    expected, _ = run(untiled, inputs, seed)
    found, _ = run(tiled, inputs, seed + 1)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if a.numel() < 2:
            continue
        a, b = a.double(), b.double()
        for x, y in (a, b), ((a - a.mean()) ** 2, (b - b.mean()) ** 2):
            error = (x.var() / x.numel() + y.var() / y.numel()).sqrt()
            assert (x.mean() - y.mean()).abs() <= 5 * error, (
                f"{x.mean()} and {y.mean()} are further apart than {error}"
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("untiled")
    parser.add_argument("tiled")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--distribution", action="store_true")
    arguments = parser.parse_args()

    torch._C._jit_set_profiling_mode(False)
    untiled = torch.jit.load(arguments.untiled)
    tiled = torch.jit.load(arguments.tiled)
    warnings.simplefilter("error")
    check = check_distribution if arguments.distribution else check_bits
    for batch in map(int, arguments.batches.split(",")):
        inputs = equality.make_inputs(arguments.input, batch, seed=batch)
        for seed in 0, 1:
            check(untiled, tiled, inputs, seed)
        print(f"batch {batch}: equal")


if __name__ == "__main__":
    main()
