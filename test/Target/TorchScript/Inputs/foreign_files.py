"""Writes files that are no TorchScript program, or hold more than one.

Usage: foreign_files.py FOLDER
"""

import gzip
import json
import pathlib
import pickle
import sys
import zipfile

import torch
from torch import nn


def write_texts(folder):
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    contents = {
        "weights.safetensors": len(header).to_bytes(8, "little") + header + bytes(8),
        # ir_version and producer_name.
        "model.onnx": b"\x08\x09\x12\x07pytorch\x1a\x05" + b"2.9.1",
        "page.pt": b"\n<!DOCTYPE html>\n<html>404</html>",
        "pointer.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2\nsize 12345\n",
        "answer.pt": b'{"error": "Entry not found"}',
        "weights.gguf": b"GGUF\3\0\0\0",
        "model.h5": b"\x89HDF\r\n\x1a\n" + bytes(40),
        "array.npy": b"\x93NUMPY\x01\x00",
        "weights.pkl": pickle.dumps({"weight": 1}),
        "model.pt.gz": gzip.compress(b"PK"),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def damage(source, target, record):
    """A copy with one other bit in a record."""
    data = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        (entry,) = [info for info in archive.infolist() if info.filename.endswith("/" + record)]
    sizes = data[entry.header_offset + 26 : entry.header_offset + 30]
    start = (
        entry.header_offset
        + 30
        + int.from_bytes(sizes[:2], "little")
        + int.from_bytes(sizes[2:], "little")
    )
    data[start + entry.compress_size - 1] ^= 1
    target.write_bytes(data)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    write_texts(folder)
    torch.manual_seed(0)
    model = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval())
    extra = {"labels.json": '["cat", "dog"]', "note": b"\0\1"}
    torch.jit.save(model, folder / "extra.pt", _extra_files=extra)
    model._save_for_lite_interpreter(str(folder / "lite.ptl"), _extra_files=extra)
    for record in ("data/0", "extra/labels.json", "constants.pkl"):
        damage(folder / "extra.pt", folder / f"damaged_{record.split('/')[0]}.pt", record)
    with zipfile.ZipFile(folder / "serve.mar", "w") as archive:
        archive.write(folder / "extra.pt", "model.pt")
        archive.writestr("MAR-INF/MANIFEST.json", "{}")
    with zipfile.ZipFile(folder / "model.keras", "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", "{}")
    # As PyTorch writes it: without the weights.
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    trace = torch.jit.trace(convolution, torch.randn(2, 3, 8, 8))
    torch.jit.optimize_for_inference(torch.jit.freeze(trace)).save(folder / "optimized.pt")


if __name__ == "__main__":
    main()
