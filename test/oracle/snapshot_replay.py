"""Snapshots of random programs, replayed by koila-run.

Usage: snapshot_replay.py TRACE-PROGRAM KOILA-RUN [--traces N]

TRACE-PROGRAM runs a program with the slow allocator of test/Unit, which shares no
code with koila's, and prints events and segments; here they become the dicts of
torch.cuda.memory._snapshot() and a pickle. Each is replayed whole, without its first
events, and without some actions. Then one event is changed, which has to be found
where it is.

Segments have random addresses: since PyTorch 2.12 these decide nothing. With
--replay-rules 2.11 they rise, which gives the same order.
"""

import argparse
import collections
import json
import pathlib
import pickle
import random
import subprocess
import tempfile

MIB = 1 << 20
SHIFT = 38  # of the addresses that TRACE-PROGRAM prints

# Settings, and the mebibytes of the device.
CONFIGURATIONS = [
    ("", 80000),
    ("", 400),
    ("expandable_segments:True", 80000),
    ("expandable_segments:True", 400),
    ("max_split_size_mb:24", 450),
    ("max_split_size_mb:40,max_non_split_rounding_mb:32,roundup_power2_divisions:8", 450),
    ("roundup_power2_divisions:[1:4,8:2,16:16,>:1]", 600),
    ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 1000),
    ("large_segment_size_mb:21", 400),
    ("expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:16", 400),
]


def make_settings(text):
    """Those of a snapshot: the text, and values of some of its keys."""
    keys = dict(pair.split(":", 1) for pair in text.split(",") if "[" not in text and pair)
    split = keys.get("max_split_size_mb")
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": int(split) * MIB if split else -1,
        "garbage_collection_threshold": float(keys.get("garbage_collection_threshold", 0)),
        "expandable_segments": keys.get("expandable_segments") == "True",
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "max_round_threshold": 0,
        "max_cached_size": 0,
    }
    if "roundup" not in text:
        settings["roundup_power2_divisions"] = {str(1 << power): 0 for power in range(16)}
    return settings


class Trace:
    def __init__(self, program, index, configuration, *, is_rising=False, streams=3):
        self.settings, total = configuration
        self.random = random.Random(index)
        self.total = total * MIB
        command = [program, self.settings, str(total), str(index), "1500", str(streams)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        self.peaks = found["peaks"]
        births = max((event[1] >> SHIFT for event in found["events"]), default=0) + 1
        slots = list(range(births))
        if not is_rising:
            self.random.shuffle(slots)
        low = (1 << SHIFT) - 1

        def place(address):
            return 0x7F0000000000 + (slots[address >> SHIFT] << SHIFT) + (address & low)

        self.entries = []
        for time, (action, address, size, stream, free) in enumerate(found["events"]):
            where = {"device_free": free} if action == "oom" else {"addr": place(address)}
            self.entries.append(
                {
                    "action": action,
                    **where,
                    "size": size,
                    "stream": stream,
                    "time_us": 1000 + time,
                    "compile_context": "N/A",
                    "user_metadata": "",
                    "pool_id": (0, 0),
                    "frames": [{"filename": "a.py", "line": time, "name": "f"}],
                }
            )
        self.segments = sorted(
            (self._make_segment(place(one["address"]), one) for one in found["segments"]),
            key=lambda segment: segment["address"],
        )

    def _make_segment(self, address, one):
        blocks, place = [], address
        for size, requested, state in one["blocks"]:
            # What is kept of an inactive block is not compared.
            kept = self.random.randrange(1 << 20) if state == "inactive" else requested
            blocks.append({"address": place, "size": size, "requested_size": kept, "state": state})
            place += size
        return {
            "device": 0,
            "address": address,
            "total_size": place - address,
            "stream": one["stream"],
            "segment_type": "small" if one["is_small"] else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": one["is_expandable"],
            "frames": [],
            "blocks": blocks,
        }

    def make(self, entries):
        return {
            "segments": self.segments,
            # Of another device, there is nothing.
            "device_traces": [entries, []],
            "allocator_settings": make_settings(self.settings),
            "external_annotations": [],
        }


class Replayer:
    def __init__(self, koila_run, folder):
        self.koila_run, self.file = koila_run, pathlib.Path(folder) / "snapshot.pickle"
        self.count = 0

    def run(self, trace, entries, *options):
        self.count += 1
        self.file.write_bytes(pickle.dumps(trace.make(entries), protocol=2 + self.count % 3))
        command = [self.koila_run, "--replay", self.file, "--json", *options]
        if "expandable" in trace.settings:
            command += ["--device-memory", str(trace.total)]
        if "garbage" in trace.settings:
            command += ["--memory-limit", str(trace.total // 2)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if not run.stdout:
            raise SystemExit(f"{trace.settings}: {run.stderr}")
        report = json.loads(run.stdout)
        if report["agree"] != (run.returncode == 0):
            raise SystemExit("the exit code is another one")
        return report

    def check(self, what, trace, entries, *options):
        report = self.run(trace, entries, *options)
        if not report["agree"]:
            raise SystemExit(f"{what} of '{trace.settings}': {json.dumps(report, indent=1)}")
        return report


def change_size(trace):
    """The number of an event whose size is another one, and the events."""
    numbers = [
        number
        for number, entry in enumerate(trace.entries)
        if entry["action"] in ("segment_alloc", "segment_map")
    ]
    number = trace.random.choice(numbers)
    entries = list(trace.entries)
    entries[number] = {**entries[number], "size": entries[number]["size"] + 2 * MIB}
    return number, entries


def find_life(entries, begin):
    """The numbers of the events of the block that is allocated at one."""
    life, address = [begin], entries[begin]["addr"]
    for number in range(begin + 1, len(entries)):
        if entries[number].get("addr") == address:
            if entries[number]["action"] == "alloc":
                break
            if "segment" not in entries[number]["action"]:
                life.append(number)
    return life


def swap_places(trace):
    """Of two allocations one after the other, each gets the place of the other."""
    entries = trace.entries
    numbers = list(range(len(entries) - 1))
    trace.random.shuffle(numbers)
    for number in numbers:
        if not entries[number]["action"] == entries[number + 1]["action"] == "alloc":
            continue
        lives = [find_life(entries, begin) for begin in (number, number + 1)]
        places = [entries[begin]["addr"] for begin in (number, number + 1)]
        # Neither place is used again before both are free.
        ends = [
            life[-1] if entries[life[-1]]["action"] == "free_completed" else len(entries)
            for life in lives
        ]
        if any(
            entry["action"] == "alloc" and entry["addr"] in places
            for entry in entries[number + 2 : max(ends)]
        ):
            continue
        swapped = list(entries)
        for life, place in zip(lives, reversed(places), strict=True):
            for index in life:
                swapped[index] = {**entries[index], "addr": place}
        return number, swapped
    raise SystemExit("no places can be swapped")


def replay_whole(replayer, trace, seen):
    report = replayer.check("all", trace, trace.entries)
    peaks = ("allocated", "active", "requested", "reserved")
    if [report[f"peak_{name}_bytes"] for name in peaks] != trace.peaks:
        raise SystemExit(f"peaks are {trace.peaks}, not those of {report}")
    if report["events_compared"] != len(trace.entries):
        raise SystemExit(f"not all of {len(trace.entries)} events are compared: {report}")
    seen.update(entry["action"] for entry in trace.entries)


def replay_cut(replayer, trace, seen):
    # What is cached is of an unknown age after a cut.
    if "garbage" in trace.settings:
        return
    cut = trace.random.randrange(1, len(trace.entries) - 1)
    report = replayer.run(trace, trace.entries[cut:])
    seen["cut"] += 1
    seen["explained"] += report["agree"]
    if not report["agree"] and "not known" not in " ".join(report["notes"]):
        raise SystemExit(f"after event {cut} of '{trace.settings}': {report}")


def replay_without(*skipped):
    def check(replayer, trace, seen):
        kept = [entry for entry in trace.entries if entry["action"] not in skipped]
        report = replayer.run(trace, kept)
        seen["skip"] += 1
        # Which pages came when is not known then, and decides on a full device.
        is_open = "expandable" in trace.settings and "segment_map" in skipped
        seen["open"] += not report["agree"]
        if not report["agree"] and not is_open:
            raise SystemExit(f"without {skipped} of '{trace.settings}': {report}")

    return check


def find_change(change):
    def check(replayer, trace, seen):
        number, changed = change(trace)
        report = replayer.run(trace, changed)
        if report["agree"] or report["difference"]["event"] != number:
            raise SystemExit(f"{change.__name__} at event {number}: {report}")
        seen["change"] += 1

    return check


# What is done with a trace, and with what streams it is made.
CHECKS = [
    (replay_cut, {}),
    (find_change(change_size), {}),
    # Without one of them, it is not known what waits for another stream.
    (replay_without("free_requested"), {"streams": 1}),
    (find_change(swap_places), {}),
    (replay_without("free_completed"), {"streams": 1}),
    (replay_cut, {}),
    (replay_without("segment_alloc", "segment_map"), {}),
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("koila_run")
    parser.add_argument("--traces", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="each check of each trace")
    options = parser.parse_args()
    seen: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        replayer = Replayer(options.koila_run, folder)
        for index in range(options.traces):
            configuration = CONFIGURATIONS[index % len(CONFIGURATIONS)]
            trace = Trace(options.program, index, configuration)
            replay_whole(replayer, trace, seen)
            for number, (check, kind) in enumerate(CHECKS):
                if options.all or (index - number) % len(CHECKS) in (0, 3):
                    check(replayer, Trace(options.program, index, configuration, **kind), seen)
            if options.all or index % 4 == 0:
                rising = Trace(options.program, index, configuration, is_rising=True)
                replayer.check("2.11", rising, rising.entries, "--replay-rules=2.11")
    print(
        f"{options.traces} traces, {seen['explained']} of {seen['cut']} that are cut,"
        f" {seen['skip']} without some actions, {seen['change']} changes found"
    )
    # Where blocks end that were there before decides now and then.
    if 10 * seen["explained"] < 9 * seen["cut"]:
        raise SystemExit("too few that are cut agree")
    if 10 * seen["open"] > seen["skip"]:
        raise SystemExit("too few without some actions agree")
    actions = sorted(name for name in seen if "_" in name or name == "oom")
    print(", ".join(f"{name}: {seen[name]}" for name in actions))


if __name__ == "__main__":
    main()
