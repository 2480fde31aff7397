"""A file with labels, settings and bytecode inside, and one that a copy damaged."""

# points: 12

import json
import zipfile

import torch
from torch import nn

INPUT = "--input=float32[B,32]", "--batch=128", "--budget=64KiB"
EXTRA = {
    "labels.txt": "cat\ndog\n",
    "config.json": json.dumps({"mean": [0.5], "name": "Zoë"}),
    "notes/read me.md": "# Notes\n" * 100,
    "empty": "",
}


def damage(path, copy):
    """One byte of a weight, as a bad disk does it: the checksum is that of before."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
    data[find_middle(data, largest)] ^= 1
    copy.write_bytes(data)
    return largest.filename


def find_middle(data, info):
    """The middle of a record that is stored as it is."""
    lengths = data[info.header_offset + 26 : info.header_offset + 30]
    name, extra = (int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
    return info.header_offset + 30 + name + extra + info.file_size // 2


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 4)).eval()
    script = torch.jit.script(model)
    torch.jit.save(script, app.folder / "model.pt", _extra_files=dict(EXTRA))
    done = app.command("compile", "model.pt", "-o", "small.pt", *INPUT)
    app.check(not done.code, done.stderr)
    found = dict.fromkeys(EXTRA, None)
    torch.jit.load(app.folder / "small.pt", _extra_files=found)
    for name, text in EXTRA.items():
        data = found[name].encode() if isinstance(found[name], str) else found[name]
        app.check(data == text.encode(), f"{name} is {data!r} in the emitted file")

    script._save_for_lite_interpreter(str(app.folder / "mobile.ptl"))
    # In a process of its own, whose warnings nobody records.
    done = app.command("compile", "mobile.ptl", "-o", "small-mobile.pt", *INPUT, fresh=True)
    if not done.code:
        with zipfile.ZipFile(app.folder / "small-mobile.pt") as archive:
            kept = any(name.endswith("bytecode.pkl") for name in archive.namelist())
        said = any(word in done.stderr for word in ("bytecode", "lite", "mobile interpreter"))
        app.check(kept or said, f"the bytecode is gone, and nobody said so: {done.stderr!r}")

    record = damage(app.folder / "model.pt", app.folder / "damaged.pt")
    for arguments in (
        ("compile", "damaged.pt", "-o", "out.pt", *INPUT),
        ("report", "damaged.pt", *INPUT[:2]),
    ):
        done = app.command(*arguments)
        app.check(done.code == 1, f"{arguments[0]} accepts a record whose checksum is another")
        named = record.split("/", 1)[1] in done.stderr
        app.check(named or not done.code, f"{arguments[0]} does not name it: {done.stderr}")
    app.check(not (app.folder / "out.pt").exists(), "it is written all the same")
    error = app.error(lambda: koila.analyze(app.folder / "damaged.pt", "float32[B,32]"))
    app.check(isinstance(error, koila.KoilaError), f"analyze raises {error!r}")
