"""Reads snapshots with torch.cuda._memory_viz.

Usage: snapshot_viewer.py SNAPSHOT.pickle...
"""

import pathlib
import pickle
import pickletools
import sys

from torch.cuda import _memory_viz

# Those of the reader in torch/utils/viz/MemoryViz.js.
KNOWN = """PROTO FRAME MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET MARK TUPLE TUPLE1
TUPLE2 TUPLE3 EMPTY_TUPLE EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS
BINUNICODE SHORT_BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE NONE STOP"""


def check_instructions(data):
    unknown = {opcode.name for opcode, _, _ in pickletools.genops(data)} - set(KNOWN.split())
    if unknown:
        raise SystemExit(f"the viewer does not know {unknown}")


def check_segments(snapshot):
    for segment in snapshot["segments"]:
        place = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == place, "a block is not where the last one ends"
            place += block["size"]
        assert place == segment["address"] + segment["total_size"]
        assert segment["segment_pool_id"] == (0, 0)


def check(path):
    data = pathlib.Path(path).read_bytes()
    check_instructions(data)
    snapshot = pickle.loads(data)
    check_segments(snapshot)
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert {"oom", "free_requested", "alloc"} <= set(actions), actions
    names = {frame["name"] for entry in snapshot["device_traces"][0] for frame in entry["frames"]}
    assert {"first \N{RIGHTWARDS ARROW}", "main"} <= names, names

    assert "total_reserved" in _memory_viz.segsum(snapshot)
    lines = _memory_viz.trace(snapshot)
    assert lines.count("\ndel ") == actions.count("free_requested"), lines
    assert "raise OutOfMemoryError" in lines, lines
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "<script" in plot(snapshot)
    print("read by segsum, trace, trace_plot, segment_plot")


def main():
    for path in sys.argv[1:]:
        check(path)


if __name__ == "__main__":
    main()
