"""How a run over many programs ends."""

import sys
import time


def conclude(tool, start, problems):
    """Prints what is wrong and the time since `start`, in seconds of
    time.monotonic(), and exits: with 1 if anything is."""
    for problem in problems:
        print(f"{tool}: {problem}")
    print(f"{time.monotonic() - start:.0f} seconds")
    sys.exit(1 if problems else 0)
