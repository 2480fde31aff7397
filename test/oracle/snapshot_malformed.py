"""Snapshots with something wrong in them, refused by koila-run.

Usage: snapshot_malformed.py KOILA-RUN

A small snapshot is replayed as it is. Then one thing of it is changed at a time, and
koila-run has to say what is wrong, with exit code 1.
"""

import pathlib
import pickle
import subprocess
import sys
import tempfile

MIB = 1 << 20
PLACE = 0x7F0000000000  # of the segment


def make_entry(action, address=PLACE, size=512):
    return {"action": action, "addr": address, "size": size, "stream": 0}


def make_segment(address, sizes, **values):
    """A segment whose first block is in use."""
    blocks = []
    for size in sizes:
        place = address + sum(block["size"] for block in blocks)
        state = "inactive" if blocks else "active_allocated"
        blocks.append({"address": place, "size": size, "requested_size": size, "state": state})
    return {
        "device": 0,
        "address": address,
        "total_size": sum(sizes),
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [{"filename": "a.py", "line": 1, "name": "f"}],
        "blocks": blocks,
        **values,
    }


def make_snapshot():
    """A block is allocated in a new segment of two mebibytes."""
    return {
        "segments": [make_segment(PLACE, [512, 2 * MIB - 512])],
        "device_traces": [[make_entry("segment_alloc", size=2 * MIB), make_entry("alloc")]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {"1": 0, "2": 0},
        },
    }


# Each changes a part of a snapshot.
def whole(**values):
    return lambda snapshot: snapshot.update(values)


def segment(**values):
    return lambda snapshot: snapshot["segments"][0].update(values)


def block(**values):
    return lambda snapshot: snapshot["segments"][0]["blocks"][0].update(values)


def alloc(**values):
    return lambda snapshot: snapshot["device_traces"][0][1].update(values)


def setting(**values):
    return lambda snapshot: snapshot["allocator_settings"].update(values)


def append(*entries):
    return lambda snapshot: snapshot["device_traces"][0].extend(entries)


def add_segments(*segments):
    return lambda snapshot: snapshot["segments"].extend(segments)


def add_to_no_key(snapshot):
    snapshot["allocator_settings"][7] = 0


def repeat_segment(snapshot):
    snapshot["segments"] *= 2


def remove_alloc(snapshot):
    snapshot["device_traces"][0].pop()


def cut_segment(snapshot):
    """Only its first block is there."""
    cut = snapshot["segments"][0]
    cut["blocks"].pop()
    cut["total_size"] = 512


def make_far_segments():
    """Two parts of an expandable segment, with too many bytes between them."""
    return [
        make_segment(address, [2 * MIB], is_expandable=True, stream=1)
        for address in (PLACE + 4 * MIB, PLACE + 4 * MIB + (1 << 62))
    ]


# How the snapshot is changed, and what is said.
CASES = [
    # Values of the wrong kind.
    (segment(blocks=[None]), "segments[0].blocks[0]: it is not a dict"),
    (segment(frames=[1]), "segments[0].frames[0]: it is not a dict"),
    (repeat_segment, "segments[1]: the same dict is in another place"),
    (
        alloc(addr=-1),
        "device_traces[0][1]: 'addr' is not there, or not an integer from 0 to 2^64",
    ),
    (alloc(action=1), "device_traces[0][1]: 'action' is not there, or not a text"),
    (segment(is_expandable=1), "segments[0]: 'is_expandable' is not True or False"),
    (segment(segment_pool_id=(0,)), "segments[0]: 'segment_pool_id' is not a pair of integers"),
    (segment(frames=1), "segments[0]: 'frames' is not a list"),
    (block(state="free"), "segments[0].blocks[0]: there is no state 'free'"),
    (segment(segment_type="huge"), "segments[0]: there is no type 'huge'"),
    (segment(total_size=512), "segments[0]: its blocks have more bytes than 'total_size'"),
    (
        segment(total_size=4 * MIB),
        "segments[0]: its blocks have 2097152 bytes, and 'total_size' is 4194304",
    ),
    (add_to_no_key, "allocator_settings: a key is not a text"),
    (whole(device_traces=[[]] * 1025), "snapshot: 'device_traces' has more than 1024 devices"),
    (whole(device_traces=[None]), "device_traces[0]: it is not a list"),
    # Settings.
    (
        setting(garbage_collection_threshold=1.0),
        "allocator_settings: 'garbage_collection_threshold' is not a fraction below 1",
    ),
    (
        setting(expandable_segments=1),
        "allocator_settings: 'expandable_segments' is not True or False",
    ),
    (
        setting(roundup_power2_divisions={"3": 0}),
        "allocator_settings: 'roundup_power2_divisions' has the size '3', which is not one of "
        "1, 2, 4...",
    ),
    (
        setting(roundup_power2_divisions={"1": 3}),
        "allocator_settings: 'roundup_power2_divisions' has a number that is no power of two",
    ),
    (
        setting(PYTORCH_CUDA_ALLOC_CONF=1),
        "allocator_settings: 'PYTORCH_CUDA_ALLOC_CONF' is not a text",
    ),
    # What cannot have been.
    (
        remove_alloc,
        "the recording has no 'alloc' of device 0, so that there is nothing to replay; record "
        "without skip_actions",
    ),
    (
        append(make_entry("free_requested"), make_entry("free_requested")),
        "the recording contradicts itself: event 3 (free_requested at 0x7F0000000000) frees a "
        "block that is not in use",
    ),
    (
        append(make_entry("free_completed"), make_entry("free_completed")),
        "the recording contradicts itself: event 3 (free_completed at 0x7F0000000000) frees a "
        "block that is not in use",
    ),
    (
        append(
            make_entry("free_requested", PLACE + 512, 1024),
            make_entry("free_requested", PLACE + 1024, 512),
        ),
        "the recording contradicts itself: the block of 1024 bytes at 0x7F0000000200, which was "
        "there before the first event, overlaps another one",
    ),
    (
        append(make_entry("free_requested", PLACE + 4 * MIB)),
        "the recording contradicts itself: blocks that were there before the first event are in "
        "no segment; was the recording stopped before the snapshot was made, or segment_free left "
        "out of it?",
    ),
    (
        add_segments(make_segment(PLACE + 4 * MIB, [3 * MIB], is_expandable=True)),
        "the expandable segment at 0x7F0000400000 does not consist of pages of 2097152 bytes",
    ),
    (
        add_segments(*make_far_segments()),
        "the segment at 0x7F0000400000 has a block of no size, or of a wrong one",
    ),
    (
        cut_segment,
        "simulated: more blocks in a small segment at 0x7f0000000000, stream 0 recorded: none "
        "behind 0x7f0000000200",
    ),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "snapshot.pickle"

        def check(expected, code=1):
            command = [sys.argv[1], "--replay", str(file)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            said = " ".join((run.stdout + run.stderr).split())
            if run.returncode != code or expected not in said:
                raise SystemExit(f"not '{expected}', but {run.returncode}: {said}")

        def check_snapshot(change, expected, code=1):
            snapshot = make_snapshot()
            change(snapshot)
            with file.open("wb") as stream:
                pickle.dump(snapshot, stream)
            check(expected, code)

        check_snapshot(whole(), "", code=0)
        for change, expected in CASES:
            check_snapshot(change, expected)
        # A hole, which takes no room.
        with file.open("wb") as stream:
            stream.truncate((1 << 32) + 1)
        check("it has more than 4 GiB")
    print(f"{len(CASES) + 1} snapshots are refused")


if __name__ == "__main__":
    main()
