"""PyTorch's caching allocator for one stream, written to be read, not to be fast.

Usage: caching_allocator.py RECORD.json.gz [--wrong]

Replays the requests of experiment E3 of tools/bench/record_device.py and compares
each event with what the allocator of a real GPU did: which block serves a request,
what is split and merged, and when a segment is taken. --wrong takes the first block
that is large enough instead of the smallest.

Rules: c10/cuda/CUDACachingAllocator.cpp, get_free_block, should_split,
get_allocation_size and try_merge_blocks. Ties go to the lower address, as in PyTorch
up to 2.11. Expandable segments are not modelled.
"""

import argparse
import dataclasses
import gzip
import json
import sys

MIB = 1 << 20
LEAST = 512
MAX_UNSPLIT_REST = 20 * MIB


@dataclasses.dataclass(eq=False)
class Block:
    address: int
    size: int
    is_small: bool
    segment: list  # its blocks, in the order of their addresses
    requested: int | None = None  # None: free


def round_size(requested):
    return max(LEAST, -(-requested // LEAST) * LEAST)


def segment_bytes(size):
    if size <= MIB:
        return 2 * MIB
    if size < 10 * MIB:
        return 20 * MIB
    return -(-size // (2 * MIB)) * 2 * MIB


class Allocator:
    """`new_address` gives the address of each segment, which the driver chooses."""

    def __init__(self, new_address, max_split=None, is_wrong=False):
        self._new_address, self._max_split, self._is_wrong = new_address, max_split, is_wrong
        self._segments = []
        self.events = []

    def _find(self, size):
        is_small = size <= MIB
        fitting = [
            block
            for segment in self._segments
            for block in segment
            if block.requested is None and block.is_small == is_small and block.size >= size
        ]
        if not fitting:
            return None
        if self._is_wrong:
            return min(fitting, key=lambda block: block.address)
        best = min(fitting, key=lambda block: (block.size, block.address))
        if self._max_split is not None and best.size >= self._max_split:
            is_too_large = size < self._max_split or best.size >= size + MAX_UNSPLIT_REST
            return None if is_too_large else best
        return best

    def _should_split(self, block, size):
        rest = block.size - size
        if block.is_small:
            return rest >= LEAST
        return rest > MIB and (self._max_split is None or size < self._max_split)

    def allocate(self, requested):
        """The address."""
        size = round_size(requested)
        block = self._find(size)
        if block is None:
            segment = []
            block = Block(self._new_address(), segment_bytes(size), size <= MIB, segment)
            segment.append(block)
            self._segments.append(segment)
            self.events.append(["segment_alloc", block.address, block.size])
        if self._should_split(block, size):
            rest = dataclasses.replace(block, address=block.address + size, size=block.size - size)
            block.size = size
            block.segment.insert(block.segment.index(block) + 1, rest)
        block.requested = requested
        self.events.append(["alloc", block.address, requested])
        return block.address

    def free(self, address):
        block = next(b for segment in self._segments for b in segment if b.address == address)
        for action in ("free_requested", "free_completed"):
            self.events.append([action, address, block.requested])
        block.requested = None
        segment, at = block.segment, block.segment.index(block)
        for first in (at, at - 1):
            if first >= 0 and first + 1 < len(segment):
                left, right = segment[first : first + 2]
                if left.requested is None and right.requested is None:
                    left.size += right.size
                    segment.remove(right)


def replay(row, is_wrong):
    """The events by our rules, and those of the record."""
    addresses = row["addresses"]
    wanted = [[action, addresses[rank], size] for action, rank, size in row["trace"]]
    given = iter([address for action, address, _ in wanted if action == "segment_alloc"])
    is_split_limited = row.get("setting") == "max_split_size_mb:64"
    max_split = 64 * MIB if is_split_limited else None
    # A segment that was never taken lies behind all others.
    allocator = Allocator(lambda: next(given, 1 << 62), max_split, is_wrong)
    live = []
    for action, value in row["requests"]:
        if action == "+":
            live.append(allocator.allocate(value))
        else:
            live[value], live[-1] = live[-1], live[value]
            allocator.free(live.pop())
    return allocator.events, wanted


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record")
    parser.add_argument("--wrong", action="store_true", help="the first block that fits")
    options = parser.parse_args()
    with gzip.open(options.record) as file:
        record = json.load(file)
    is_equal = True
    for row in record["E3"]:
        setting = row.get("setting", "defaults")
        if "expandable" in setting:
            continue
        found, wanted = replay(row, options.wrong)
        pairs = enumerate(zip(found, wanted, strict=False))
        off = next((number for number, (ours, theirs) in pairs if ours != theirs), None)
        if off is None and len(found) == len(wanted):
            print(f"{setting}: {len(wanted)} events, all equal")
            continue
        is_equal = False
        print(f"{setting}: event {off} is {found[off]}, recorded is {wanted[off]}")
    sys.exit(not is_equal)


if __name__ == "__main__":
    main()
