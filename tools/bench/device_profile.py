"""Writes the profile of a card from what tools/bench/record_device.py has recorded.

Usage: device_profile.py RECORD.json[.gz] PROFILE.json [--source TEXT]

Needs neither a GPU nor koila. The format is that of docs/reference/DeviceProfiles.md;
a file in lib/KernelModels/Profiles is a device of the next build. --source says where
the record is found; without it, the name of its file.
"""

import argparse
import gzip
import json
import pathlib
import sys

#: The context and the code of cuBLAS, without that of cuDNN and of linear algebra.
AFTER = "mm bfloat16"
PROPERTIES = ("capability", "multiprocessors", "threads_per_multiprocessor", "total_bytes")


def read(file):
    text = file.read_bytes()
    return json.loads(gzip.decompress(text) if file.suffix == ".gz" else text)


def name_device(name):
    """As ``device=`` takes it: 'NVIDIA GeForce RTX 4060' is rtx-4060."""
    words = name.lower().split()
    return "-".join(word for word in words if word not in ("nvidia", "geforce"))


def make_profile(record, source):
    device = record["device"]
    source = f"tools/bench/record_device.py, {source}"
    properties = {key: {"value": device[key], "source": source} for key in PROPERTIES}
    steps = {row["after"]: row["bytes"] for row in record.get("E1", []) if "after" in row}
    if AFTER in steps:
        properties["context_bytes"] = {
            "value": steps[AFTER],
            "source": f"{source}, E1: after products of float32 and bfloat16",
        }
    return {
        "schema": 1, "device": name_device(device["name"]), "name": device["name"],
        "properties": properties, "rows": [],
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("profile", type=pathlib.Path)
    parser.add_argument("--source")
    options = parser.parse_args()
    try:
        record = read(options.record)
        profile = make_profile(record, options.source or options.record.name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"error: {options.record} is no record of a device: {error!r}")
    options.profile.write_text(json.dumps(profile, indent=1) + "\n")


if __name__ == "__main__":
    main()
