"""Snapshots of the experiments E3 of tools/bench/record_device.py.

Usage: h100_snapshots.py RECORD.json.gz FOLDER

The record has addresses from the lowest on, and segments without them: these follow
from where segments were taken or mapped.
"""

import gzip
import json
import pathlib
import pickle
import sys

BASE = 0x7F0000000000
NAMES = {
    "": "default",
    "expandable_segments:True": "expandable",
    "max_split_size_mb:64": "split",
}


def find_segments(trace):
    """Where segments begin: none is given back."""
    taken = sorted(
        (entry["addr"], entry["size"])
        for entry in trace
        if entry["action"] in ("segment_alloc", "segment_map")
    )
    starts, end = [], None
    for address, size in taken:
        # Pages that lie one behind the other are one segment.
        if address != end or trace[0]["action"] == "segment_alloc":
            starts.append(address)
        end = address + size
    return starts


def make_segment(address, segment, is_expandable):
    blocks, place = [], address
    for size, requested, state in segment["blocks"]:
        blocks.append({"address": place, "size": size, "requested_size": requested, "state": state})
        place += size
    return {
        "device": 0,
        "address": address,
        "total_size": segment["bytes"],
        "stream": 0,
        "segment_type": segment["type"],
        "segment_pool_id": (0, 0),
        "is_expandable": is_expandable,
        "blocks": blocks,
    }


def make_snapshot(row):
    setting = row.get("setting", "")
    trace = [
        {"action": action, "addr": BASE + row["addresses"][rank], "size": size, "stream": 0}
        for action, rank, size in row["trace"]
    ]
    pairs = zip(find_segments(trace), row["segments"], strict=True)
    return {
        "segments": [
            make_segment(address, segment, "expandable" in setting) for address, segment in pairs
        ],
        "device_traces": [trace],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": setting,
            "max_split_size": 64 << 20 if "split" in setting else -1,
            "expandable_segments": "expandable" in setting,
        },
        "external_annotations": [],
    }


def main():
    with gzip.open(sys.argv[1]) as file:
        rows = json.load(file)["E3"]
    folder = pathlib.Path(sys.argv[2])
    for row in rows:
        snapshot = make_snapshot(row)
        name = NAMES[row.get("setting", "")]
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(snapshot))
        if name == "default":
            del snapshot["device_traces"][0][:2000]
            (folder / "cut.pickle").write_bytes(pickle.dumps(snapshot))


if __name__ == "__main__":
    main()
