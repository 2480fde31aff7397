"""Tests of memory.py: blocks that a call frees and the profiler has not seen."""

import unittest

import torch

import memory

BLOCKS = 50


class Frees:
    """Frees in its second call what it had before, and makes 4,000 bytes."""

    def __init__(self):
        self.held = [torch.empty(1) for _ in range(BLOCKS)]
        self.is_first = True

    def __call__(self):
        if self.is_first:
            self.is_first = False
            return None
        self.held = None
        return torch.empty(1000)


def use_addresses():
    """Of these blocks the profiler keeps the sizes: they are freed outside."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ):
        return [torch.empty(1) for _ in range(BLOCKS)]


class PeakTests(unittest.TestCase):
    def test_what_was_there_does_not_count(self):
        for _ in range(10):
            del use_addresses()[:]
            self.assertEqual(memory.peak_bytes(Frees(), calls=1), 4000)

    def test_a_peak_is_in_the_middle(self):
        self.assertEqual(memory.peak_bytes(lambda: torch.empty(100).exp().sum()), 800)


if __name__ == "__main__":
    unittest.main()
