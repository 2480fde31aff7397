"""Calls programs and tiled ones as a user does, in a Python with PyTorch as it
starts: three times, so that what the executor learns in the first calls counts.

Reads tasks from stdin, each a line [ORIGINAL.pt, TILED.pt, BATCH, [SPEC...]] in
JSON; answers each with a line: null if results, buffers and arguments are the
same after each call; "both raise"; "no such inputs"; or what is wrong. At batch
0 there are only shapes and dtypes to compare.
"""

import json
import sys
import warnings

import torch

import inputs


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def copies_of(arguments):
    """A program may write to what it gets."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments]


def call(module, arguments):
    """What can be seen of a call afterwards, or the exception."""
    arguments = copies_of(arguments)
    try:
        result = leaves(module(*arguments))
    except Exception as error:
        return error
    return {"result": result, "buffer": list(module.buffers()), "argument": arguments}


def difference(left, right):
    if not isinstance(left, torch.Tensor):
        return None if left == right else f"{right} instead of {left}"
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return f"{right.dtype}{list(right.shape)} instead of {left.dtype}{list(left.shape)}"
    if left.is_floating_point() or left.is_complex():
        try:
            torch.testing.assert_close(right, left, rtol=1e-3, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())
    return None


def compare(expected, found):
    """Whether one call went as the other; a sentence if not."""
    if isinstance(expected, Exception):
        if isinstance(found, Exception):
            return "both raise"
        return f"only the original raises: {str(expected).splitlines()[-1]}"
    if isinstance(found, Exception):
        return str(found).strip().splitlines()[-1]
    for what, values in expected.items():
        if len(values) != len(found[what]):
            return f"another number of {what}s"
        for left, right in zip(values, found[what], strict=True):
            if problem := difference(left, right):
                return problem + f" ({what})" * (what != "result")
    return None


def check(original, tiled, batch, specs):
    torch.manual_seed(0)
    try:
        arguments = inputs.make(specs, batch)
    except RuntimeError:
        return "no such inputs"
    original, tiled = torch.jit.load(original), torch.jit.load(tiled)
    for _ in range(3):
        results = []
        for program in (original, tiled):
            # The same random numbers for both.
            torch.manual_seed(0)
            results.append(call(program, arguments))
        problem = compare(*results)
        if problem:
            return problem
    return None


def main():
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for line in sys.stdin:
            print(json.dumps(check(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
