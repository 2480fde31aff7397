"""Changes `names` of two modules and prints what the second warns of.

Usage: change_names.py ORIGINAL.pt CHANGED.pt
"""

import sys
import warnings

import torch

CHANGES = [
    {"1": "out"},
    {"1": "out", "2": "aux"},
    {"1": "out", "3": "more"},
    {"0": "aux", "1": "out", "3": "aux"},
]


def main():
    original, changed = map(torch.jit.load, sys.argv[1:])
    x = torch.randn(3, 4)

    def call():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            expected, found = original(x), changed(x)
        assert all(map(torch.equal, expected, found))
        return [str(warning.message) for warning in warned]

    print(*call() or ["the same"])
    for names in CHANGES:
        original.names = changed.names = names
        print(*call())


if __name__ == "__main__":
    main()
