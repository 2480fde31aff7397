"""Runs a program that koila changed beside the original, also after attributes
were assigned that koila took to be what they were.

Usage: literal_attributes.py ORIGINAL.pt CHANGED.pt
"""

import sys
import warnings

import torch


def run(program, x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = program(x)
    return result, [str(warning.message) for warning in caught if "koila:" in str(warning.message)]


def main():
    original, changed = map(torch.jit.load, sys.argv[1:])
    x = torch.randn(3, 6)
    for name, value in (
        (None, None),
        ("patch", (3, 2)),
        ("patch", (2, 3)),
        ("grid", ((2, 1.5), "rows", True)),
        ("grid", ((3, 0.5), "rows", True)),
        ("grid", ((2, 0.5), "rows", True)),
        ("steps", ["double"]),
        ("steps", ["add", "double"]),
        ("window", [2, 2]),
    ):
        if name:
            setattr(original, name, value)
            setattr(changed, name, value)
        expected, _ = run(original, x)
        result, said = run(changed, x)
        assert torch.equal(result, expected), (name, value)
        print(f"{name} {value}: {said[0] if said else 'quiet'}")


if __name__ == "__main__":
    main()
