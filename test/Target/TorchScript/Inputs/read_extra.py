"""The extra files of a TorchScript file are those that foreign_files.py wrote.

Usage: read_extra.py FILE
"""

import sys

import torch

found: dict = {"labels.json": "", "note": "", "koila/report.json": ""}
torch.jit.load(sys.argv[1], _extra_files=found)
assert found["labels.json"] == b'["cat", "dog"]', found
assert found["note"] == b"\0\1", found
assert b'"peak_bytes"' in found["koila/report.json"], found
