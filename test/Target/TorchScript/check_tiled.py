"""Compares a tiled program with the untiled one in plain PyTorch.

Usage: check_tiled.py UNTILED.pt TILED.pt --input SPEC... --batches 0,1,2
           [--f64 UNTILED.pt TILED.pt] [--smaller-at BATCH]

Per batch: no warning, results equal and not vacuous. With --f64, copies of
both programs in float64 must agree as well. With --smaller-at, the tiled
program must hold less memory than the untiled one at that batch: else it may
have run the untiled program and compared that with itself.
"""

import argparse
import warnings

import torch

import equality
import memory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("untiled")
    parser.add_argument("tiled")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--f64", nargs=2)
    parser.add_argument("--smaller-at", type=int)
    arguments = parser.parse_args()

    torch._C._jit_set_profiling_mode(False)
    untiled = torch.jit.load(arguments.untiled)
    tiled = torch.jit.load(arguments.tiled)
    reference = torch.jit.load(arguments.untiled).double()
    f64 = [torch.jit.load(path) for path in arguments.f64 or []]
    warnings.simplefilter("error")

    for batch in map(int, arguments.batches.split(",")):
        inputs = equality.make_inputs(arguments.input, batch, seed=batch)
        inputs_f64 = equality.to_f64(inputs)
        with torch.no_grad():
            equality.check_equal(tiled(*inputs), untiled(*inputs), reference(*inputs_f64))
            if f64:
                torch.testing.assert_close(f64[1](*inputs_f64), f64[0](*inputs_f64))
        print(f"batch {batch}: equal")

    if arguments.smaller_at is not None:
        inputs = equality.make_inputs(arguments.input, arguments.smaller_at)
        with torch.no_grad():
            before = memory.peak_bytes(lambda: untiled(*inputs))
            after = memory.peak_bytes(lambda: tiled(*inputs))
        assert after < before, f"not tiled: {after} bytes, untiled {before}"
        print(f"batch {arguments.smaller_at}: {before} -> {after} bytes")


if __name__ == "__main__":
    main()
