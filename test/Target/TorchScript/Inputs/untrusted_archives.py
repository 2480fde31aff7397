"""Archives that koila must refuse before LibTorch sees them, and a few that
LibTorch does not survive.

Usage: untrusted_archives.py FOLDER
"""

import io
import pathlib
import struct
import sys
import zipfile

import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).relu()


class Saves(nn.Module):
    """Writes a file when it is loaded."""

    def __init__(self, path: str):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.path = path

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.path)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, str]):
        torch.save(state[0], state[1])
        self.weight = state[0]
        self.path = state[1]
        self.training = False

    def forward(self, x):
        return x * self.weight


class Loops(nn.Module):
    """Loading it does not end."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    @torch.jit.export
    def __getstate__(self):
        return self.weight

    @torch.jit.export
    def __setstate__(self, state: torch.Tensor):
        self.weight = state
        self.training = False
        while bool(state.sum() > 0):
            state = state + 0.0

    def forward(self, x):
        return x * self.weight


def save(program, path):
    buffer = io.BytesIO()
    torch.jit.save(program, buffer)
    path.write_bytes(buffer.getvalue())


def rewrite(source, target, edit, more=()):
    """Copies an archive; `edit` maps a record's name and bytes to new bytes or
    None, and `more` are records to add."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        folder = old.namelist()[0].split("/")[0]
        for info in old.infolist():
            data = edit(info.filename.split("/", 1)[1], old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
        for name, data in more:
            new.writestr(f"{folder}/{name}", data)


def replace(record, change):
    return lambda name, data: change(data) if name == record else data


def in_code(old, new):
    def edit(name, data):
        return data.replace(old, new) if name.endswith(".py") else data

    return edit


def declare_size(path, target, name, size):
    """Changes what the directory says about the size of a stored record."""
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\1\2")
    while data[place : place + 4] == b"PK\1\2":
        length, extra, comment = struct.unpack_from("<HHH", data, place + 28)
        if data[place + 46 : place + 46 + length].endswith(name):
            struct.pack_into("<II", data, place + 20, size, size)
        place += 46 + length + extra + comment
    target.write_bytes(data)


def chain_of_classes(length):
    """Each class has a field of the next: LibTorch imports them by recursion."""
    text = []
    for index in range(length):
        text.append(
            f"class C{index}(Module):\n  __parameters__ = []\n"
            f"  __buffers__ = []\n  x : __torch__.chain.C{index + 1}\n"
        )
    text.append(f"class C{length}(Module):\n  __parameters__ = []\n  __buffers__ = []\n  y : int\n")
    return "".join(text).encode()


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    small = folder / "small.pt"
    save(torch.jit.script(Small().eval()), small)

    def edited(name, edit, more=()):
        rewrite(small, folder / f"{name}.pt", edit, more)

    def keep(name, data):
        return data

    save(torch.jit.script(Saves(str(folder / "written_at_load")).eval()), folder / "saves.pt")
    save(torch.jit.script(Loops().eval()), folder / "loops.pt")

    # The directory.
    declare_size(small, folder / "outside.pt", b"data/0", 1 << 30)
    edited("doubled", keep, [("DATA.PKL", b"\x80\x02N.")])
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(folder / "two_folders.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
        new.writestr("other/code/hidden.py", "")
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(folder / "bomb.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
        prefix = old.namelist()[0].split("/")[0]
        new.writestr(f"{prefix}/extra/zeros", bytes(300 << 20), zipfile.ZIP_DEFLATED)
    edited("missing_weight", lambda name, data: None if name == "data/0" else data)
    edited("missing_constants", lambda name, data: None if name == "constants.pkl" else data)
    edited("short_weight", replace("data/0", lambda data: data[:8]))

    # Versions.
    edited("version_0", replace("version", lambda data: b"0\n"))
    edited("version_99", replace("version", lambda data: b"99\n"))
    edited("version_word", replace("version", lambda data: b"new\n"))
    edited("version_1_3", keep, [("model.json", b"{}")])

    # Pickles.
    edited(
        "nested_pickle",
        replace("constants.pkl", lambda data: b"\x80\x02)" + b"\x85" * 100000 + b"."),
    )
    edited("circular", replace("constants.pkl", lambda data: b"\x80\x02]q\x00h\x00a\x85."))
    edited("far_memo", replace("constants.pkl", lambda data: b"\x80\x02)r\xf0\xff\xff\xff."))
    edited("empty_stack", replace("constants.pkl", lambda data: b"\x80\x02\x87."))
    edited("foreign_opcode", replace("constants.pkl", lambda data: b"\x80\x02\x8c\x01a."))

    # Code.
    edited("brackets", in_code(b"torch.relu(", b"(" * 5000 + b"torch.relu"))
    edited("operators", in_code(b"return ", b"return " + b"- " * 20000))
    edited(
        "blocks",
        in_code(
            b"    return ",
            b"".join(b" " * (4 + depth) + b"if True:\n" for depth in range(3000))
            + b" " * 3004
            + b"return ",
        ),
    )
    edited("custom_operator", in_code(b"torch.relu(", b"ops.nobody.special_relu("))
    edited(
        "custom_class",
        in_code(
            b"training : bool", b"training : bool\n  state : __torch__.torch.classes.nobody.Special"
        ),
    )
    edited("quantised_code", in_code(b"torch.relu(", b"ops.quantized.relu6("))

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer(
                "weight", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
            )

        def forward(self, x):
            return x * self.weight.dequantize()  # type: ignore[operator]

    save(torch.jit.script(Quantised().eval()), folder / "quantised.pt")

    # What passes the checks and overflows LibTorch's stack.
    edited(
        "overflow",
        in_code(b"training : bool\n", b"training : bool\n  first : __torch__.chain.C0\n"),
        [("code/__torch__/chain.py", chain_of_classes(20000))],
    )

    # Frozen: the weights are constants of the program.
    save(torch.jit.freeze(torch.jit.script(Small().eval())), folder / "frozen.pt")
    save(
        torch.jit.freeze(torch.jit.trace(Small().eval(), torch.ones(3, 4))),
        folder / "frozen_trace.pt",
    )


if __name__ == "__main__":
    main()
