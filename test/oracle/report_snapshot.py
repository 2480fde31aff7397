"""Snapshots of predicted calls, as koila.analyze and `koila report` write them: PyTorch's own
tools read them, koila-run replays them, and their sums are the figures of the report.

Usage: report_snapshot.py KOILA_RUN
"""

import contextlib
import copy
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.cuda import _memory_viz

import koila
from koila._cli import main as koila_command
from snapshot_viewer import check_instructions, check_segments

CARD = "h100-80gb-hbm3"


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 1024)
        self.norm = nn.LayerNorm(1024)
        self.second = nn.Linear(1024, 10)

    def forward(self, x):
        wide = torch.relu(self.first(x))
        return self.second(self.norm(wide) + wide)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv(x).relu()


def add_up(trace):
    """Of blocks, as they were asked for, and of segments: the most at once, and at the end."""
    live = {"alloc": 0, "segment_alloc": 0}
    most = dict(live)
    ends = {"free_completed": "alloc", "segment_free": "segment_alloc"}
    for entry in trace:
        action = entry["action"]
        if action in live:
            live[action] += entry["size"]
            most[action] = max(most[action], live[action])
        elif action in ends:
            live[ends[action]] -= entry["size"]
    return most, live


def differ(snapshot, cuda):
    """What of the figures the snapshot does not have."""
    most, live = add_up(snapshot["device_traces"][0])
    segments = snapshot["segments"]
    found = {
        "requested_peak": most["alloc"],
        "requested": live["alloc"],
        "reserved_peak": most["segment_alloc"],
        "reserved": sum(segment["total_size"] for segment in segments),
        "allocated": sum(segment["allocated_size"] for segment in segments),
        "active": sum(segment["active_size"] for segment in segments),
    }
    return {key: (value, cuda[key]) for key, value in found.items() if value != cuda[key]}


def check(path, cuda, koila_run):
    """The snapshot, of which all that reads snapshots agrees with the report."""
    data = pathlib.Path(path).read_bytes()
    check_instructions(data)
    snapshot = pickle.loads(data)
    check_segments(snapshot)
    assert not differ(snapshot, cuda), differ(snapshot, cuda)

    done = subprocess.run(
        [koila_run, "--replay", path, "--json"], capture_output=True, text=True, check=True
    )
    replay = json.loads(done.stdout)
    assert replay["agree"], replay
    assert replay["events"] == len(snapshot["device_traces"][0]), replay
    for figure in ("allocated", "active", "requested", "reserved"):
        assert replay[f"peak_{figure}_bytes"] == cuda[f"{figure}_peak"], (figure, replay, cuda)

    assert f"total_reserved: {_memory_viz.Bytes(cuda['reserved'])}" in _memory_viz.segsum(snapshot)
    frees = [e for e in snapshot["device_traces"][0] if e["action"] == "free_requested"]
    assert _memory_viz.trace(snapshot).count("\ndel ") == len(frees)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "<script" in plot(snapshot)
    # As lines for a flame graph, of which the last word is the bytes.
    lines = _memory_viz.memory(snapshot, lambda text: text).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == cuda["reserved"], lines
    return snapshot


def find_frames(snapshot):
    return {
        (os.path.basename(frame["filename"]), frame["line"], frame["name"])
        for entry in snapshot["device_traces"][0]
        for frame in entry["frames"]
    }


def find_line(text):
    source = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(source) if text in line)


def check_training(folder, koila_run):
    path = os.path.join(folder, "it's {one}.pickle")
    model, x, y = Small(), torch.randn(64, 256), torch.randint(10, (64,))
    for grads in ("present", "absent"):
        report = koila.analyze(
            model,
            *(x, y),
            mode="train",
            loss="cross_entropy",
            optimizer="adamw(lr=1e-3)",
            grads=grads,
            device=CARD,
        )
        report.save_snapshot(path)
        snapshot = check(path, report.data["cuda"], koila_run)
    frames = find_frames(snapshot)
    place = ("report_snapshot.py", find_line("wide = torch.relu"))
    assert any(frame[:2] == place and "forward" in frame[2] for frame in frames), frames
    names = {name for _, _, name in frames}
    # Weights, inputs and each step have names of their own.
    assert {"first.weight", "input 1", "step 1 of 3", "step 3 of 3"} <= names, names
    # A block less, and the sums say so.
    trace = snapshot["device_traces"][0]
    broken = copy.deepcopy(snapshot)
    broken["device_traces"][0].remove(next(e for e in trace if e["action"] == "alloc"))
    assert set(differ(broken, report.data["cuda"])) == {"requested", "requested_peak"}
    print("training: the sums of the trace are the report's")


def command(*arguments):
    """The exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = koila_command(arguments)
    return code, out.getvalue(), err.getvalue()


def check_command(folder, koila_run):
    torch.jit.script(Convolution()).save("conv.pt")
    common = ["report", "conv.pt", "--input", "float32[B,3,32,32]", "--batch", "16"]
    code, out, err = command(*common, "--device", CARD, "--snapshot", "conv.pickle")
    assert code == 0, err
    # Which figure may be too low is said beside the file, and in it.
    assert "snapshot: conv.pickle; its peak may be too low, as of 'koila.conv2d'" in out, out
    code, out, _ = command(*common, "--device", CARD, "--snapshot", "again.pickle", "--json")
    assert code == 0
    again = pathlib.Path("again.pickle").read_bytes()
    assert pathlib.Path("conv.pickle").read_bytes() == again
    report = json.loads(out)
    assert report["allocator"] == "cuda", report["allocator"]
    snapshot = check("again.pickle", report["cuda"], koila_run)
    said = {entry["user_metadata"] for entry in snapshot["device_traces"][0]}
    assert any("memory of 'koila.conv2d' is not known: " in text for text in said), said

    for more, why in (
        (["--snapshot", "no.pickle"], "a snapshot belongs to a device of CUDA"),
        (["--device", CARD, "--snapshot", "conv.pt"], "is the model itself"),
        (["--device", CARD, "--snapshot", "conv.html"], "is the page itself"),
        (["--device", CARD, "--snapshot", ""], "--snapshot needs the name of a file"),
    ):
        code, _, err = command(*common, *more)
        assert code == 1 and why in err, (more, code, err)
    code, _, err = command(*common[:4], "--device", CARD, "--snapshot", "no.pickle")
    assert code == 1 and "a snapshot needs a value for symbol 'B'" in err, err
    assert not pathlib.Path("no.pickle").exists()
    print("command: the sums of the trace are the report's")


def check_refusals():
    x = torch.randn(4, 256)
    report = koila.analyze(Small(), x)
    assert "cuda" not in report.data
    for refused, why in (
        (lambda: report.save_snapshot("no.pickle"), "a snapshot belongs to a device of CUDA"),
        (lambda: pickle.loads(pickle.dumps(report)).save_snapshot("no.pickle"), "analyse it again"),
    ):
        try:
            refused()
        except koila.KoilaError as error:
            assert why in str(error), error
        else:
            raise AssertionError(f"not refused: {why}")
    assert not pathlib.Path("no.pickle").exists()
    # Without a batch there is no figure, and no error either.
    open_report = koila.analyze(Small(), "float32[B,256]", device="cuda")
    assert open_report.peak is None and "cuda" not in open_report.data
    print("refusals: named, and no file is there")


def main():
    koila_run = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        check_training(folder, koila_run)
        check_command(folder, koila_run)
        check_refusals()


if __name__ == "__main__":
    main()
