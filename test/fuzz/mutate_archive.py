"""Mutations of TorchScript archives, the same for the same seed.

About a third damages the file as a whole. The rest are valid zip files with one
changed record; many of those still load, since what LibTorch rejects tells
nothing about what comes after it.
"""

import io
import pickletools
import re
import struct
import zipfile
import zlib

NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "7",
    "64",
    "100000",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "-0.5",
    "0.1",
]
OPERATORS = [
    "add",
    "sub",
    "mul",
    "div",
    "relu",
    "relu_",
    "sigmoid",
    "matmul",
    "linear",
    "cat",
    "stack",
    "softmax",
    "mean",
    "sum",
    "flatten",
    "reshape",
    "view",
    "permute",
    "transpose",
    "t",
    "conv2d",
    "select",
    "slice",
    "squeeze",
    "unsqueeze",
    "chunk",
    "split",
    "expand",
    "dropout",
    "batch_norm",
    "zeros",
    "ones_like",
    "nonzero",
    "size",
    "to",
    "contiguous",
    "add_",
    "mul_",
    "max",
    "argmax",
    "einsum",
    "tanh",
    "exp",
    "len",
    "dim",
]
# {0} and {1} are names that the method has.
STATEMENTS = [
    "z9 = torch.add({0}, 1)",
    "z9 = torch.relu_({0})",
    "z9 = torch.reshape({0}, [-1])",
    "z9 = torch.size({0}, 0)",
    "z9 = torch.cat([{0}, {1}])",
    "z9 = torch.split({0}, 2)",
    "z9 = torch.mul({0}, {1})",
    "z9 = torch.select({0}, 0, -1)",
    "z9 = torch.slice({0}, 0, 1, 9223372036854775807)",
    "z9 = torch.nonzero({0})",
    "z9 = torch.softmax({0}, 0)",
    "z9 = ({0}, {1})",
    "z9 = [{0}, {1}]",
    'z9 = {{"k": {0}}}',
    "z9 = torch.copy_({0}, {1})",
    "z9 = torch.as_strided({0}, [2, 2], [1, 1])",
    "z9 = torch.zeros([4, 1000000, 1000000])",
    "print({0})",
    "z9 = torch.expand({0}, [-1, 3, -1])",
    "z9 = torch.permute({0}, [1, 0])",
    "z9 = torch.max_pool2d({0}, [0, 0])",
    "z9 = int(torch.size({0}, 1))",
    "z9 = torch.upsample_nearest2d({0}, [0, 0])",
    "z9 = torch.t_({0})",
    "z9 = torch.unsqueeze_({0}, 0)",
    "z9 = torch.stack([], 0)",
    "z9 = torch.zero_({0})",
    "if True:\n      z9 = {0}\n    else:\n      z9 = {1}",
    "for i in range(3):\n      print(i)",
    "z9 = torch.full([2], 7, dtype=99)",
    "z9 = torch.arange(0, 9223372036854775807)",
    "z9 = torch.to({0}, 6, False, False, None)",
    "z9 = annotate(List[Tensor], [])",
]


def read(path):
    with zipfile.ZipFile(path) as file:
        return [(info.filename, file.read(info)) for info in file.infolist()]


def write(records):
    """A zip file as torch.jit.save would write it, but for the alignment. Names
    may be there twice."""
    data, directory = io.BytesIO(), io.BytesIO()
    for name, content in records:
        raw = name.encode()
        checksum = zlib.crc32(content)
        place = data.tell()
        data.write(
            struct.pack(
                "<4s5H3I2H",
                b"PK\3\4",
                20,
                0,
                0,
                0,
                0,
                checksum,
                len(content),
                len(content),
                len(raw),
                0,
            )
        )
        data.write(raw + content)
        directory.write(
            struct.pack(
                "<4s6H3I5H2I",
                b"PK\1\2",
                20,
                20,
                0,
                0,
                0,
                0,
                checksum,
                len(content),
                len(content),
                len(raw),
                0,
                0,
                0,
                0,
                0,
                place,
            )
        )
        directory.write(raw)
    start, size = data.tell(), directory.tell()
    data.write(directory.getvalue())
    data.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(records), len(records), size, start, 0))
    return data.getvalue()


# ----------------------------------------------------------------------------
# The file as a whole


def flip_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(data, rng):
    return data[: rng.randrange(len(data))]


def splice(data, rng):
    start, end, to = sorted(rng.randrange(len(data)) for _ in range(3))
    return data[:start] + data[end:to] + data[start:end] + data[to:]


def change_directory(data, rng):
    """Another number in the directory or its end record."""
    data = bytearray(data)
    start = data.index(b"PK\1\2")
    place = rng.randrange(start, len(data) - 4)
    data[place : place + 4] = rng.choice(
        [
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\1\0\0\0",
            b"\0\0\0\x80",
            struct.pack("<I", len(data)),
            rng.randbytes(4),
        ]
    )
    return bytes(data)


WHOLE = [flip_bytes, truncate, splice, change_directory, change_directory]

# ----------------------------------------------------------------------------
# One record


def get_names(text):
    names = re.findall(r"^ +([A-Za-z_]\w*) = ", text, re.M)
    return names + re.findall(r"(\w+): Tensor", text) or ["x"]


def change_number(text, rng):
    found = list(re.finditer(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(NUMBERS) + text[match.end() :]


def change_operator(text, rng):
    found = list(re.finditer(r"torch\.(\w+)\(", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start(1)] + rng.choice(OPERATORS) + text[match.end(1) :]


def change_name(text, rng):
    names = get_names(text)
    found = list(re.finditer(rf"\b({'|'.join(map(re.escape, names))})\b", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(names) + text[match.end() :]


def insert_statement(text, rng):
    lines = text.split("\n")
    places = [index for index, line in enumerate(lines) if line.startswith("    return ")]
    if not places:
        return text
    place = rng.choice(places)
    seen = get_names("\n".join(lines[max(0, place - 40) : place]))
    statement = rng.choice(STATEMENTS).format(rng.choice(seen), rng.choice(seen))
    lines.insert(place, "    " + statement)
    if rng.random() < 0.5 and statement.startswith("z9"):
        lines[place + 1] = "    return " + rng.choice(["z9", "z9", "(z9, z9)", "[z9]"])
        text = "\n".join(lines)
        return text.replace("-> Tensor:", "-> Any:") if (rng.random() < 0.3) else text
    return "\n".join(lines)


def change_lines(text, rng):
    lines = text.split("\n")
    place = rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[rng.randrange(len(lines))])
    else:
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    return "\n".join(lines)


def change_characters(text, rng):
    for _ in range(rng.choice([1, 3])):
        place = rng.randrange(len(text) + 1)
        text = (
            text[:place]
            + rng.choice(
                [
                    "(",
                    ")",
                    "[",
                    '"',
                    "\n",
                    ",",
                    "\\",
                    "\0",
                    "é",
                    "..",
                    "-" * 600,
                    "(" * 600,
                    "0x",
                    "#",
                    "@",
                    "__setstate__",
                ]
            )
            + (text[place + rng.randrange(2) :])
        )
    return text


CODE = [
    change_number,
    change_number,
    change_number,
    change_operator,
    change_operator,
    change_name,
    change_name,
    insert_statement,
    insert_statement,
    insert_statement,
    insert_statement,
    change_lines,
    change_characters,
]


def change_code(content, rng):
    text = content.decode("utf-8", "replace")
    for _ in range(rng.choice([1, 1, 1, 2])):
        text = rng.choice(CODE)(text, rng)
    return text.encode("utf-8", "replace")


def change_pickle(content, rng):
    try:
        operations = list(pickletools.genops(content))
    except Exception:  # Mutated before.
        return flip_bytes(content or b"\0", rng)
    places = [position for _, _, position in operations] + [len(content)]
    index = rng.randrange(len(operations))
    code, argument, start = operations[index]
    end = places[index + 1]
    body = content[start:end]
    kind = rng.randrange(8)
    numbers = [
        i
        for i, (o, _, _) in enumerate(operations)
        if o.name in ("BININT1", "BININT2", "BININT", "LONG1")
    ]
    if kind < 4 and numbers:
        index = rng.choice(numbers)
        code, argument, start = operations[index]
        end = places[index + 1]
        number = rng.choice(
            [
                0,
                1,
                2,
                -1,
                argument + 1,
                argument - 1,
                argument * 2,
                1 << 31,
                1 << 62,
                -(1 << 63),
                128,
            ]
        )
        number = max(-(1 << 63), min(number, (1 << 63) - 1))
        body = b"\x8a\x08" + struct.pack("<q", number)
    elif kind == 4:
        body = b""
    elif kind == 5:
        body = body + body
    elif kind == 6:
        body = bytes([rng.choice(b"(.0]})tRQNbq\x81\x85\x86\x87\x88\x89uesa")])
    elif argument in (True, False) or code.name in ("NEWTRUE", "NEWFALSE"):
        body = rng.choice([b"\x88", b"\x89", b"N", b"K\1"])
    else:
        body = flip_bytes(body, rng)
    return content[:start] + body + content[end:]


def change_record(records, rng):
    """One valid zip file with a mutated member."""
    records = list(records)
    code = [i for i, (name, _) in enumerate(records) if name.endswith(".py")]
    pickles = [
        i
        for i, (name, _) in enumerate(records)
        if name.endswith(("data.pkl", "constants.pkl", "traced_inputs.pkl"))
    ]
    kind = rng.random()
    index = rng.randrange(len(records))
    if kind < 0.55:
        # Where the most is going on.
        index = rng.choice(code)
        records[index] = (records[index][0], change_code(records[index][1], rng))
    elif kind < 0.75:
        index = rng.choice(pickles)
        records[index] = (records[index][0], change_pickle(records[index][1], rng))
    elif kind < 0.80:
        del records[index]
    elif kind < 0.84:
        records.insert(rng.randrange(len(records) + 1), records[index])
    elif kind < 0.88:
        records[index] = (records[index][0], records[rng.randrange(len(records))][1])
    elif kind < 0.92:
        records[index] = (records[index][0], b"")
    elif kind < 0.96:
        debug = [i for i, (name, _) in enumerate(records) if name.endswith(".debug_pkl")]
        index = rng.choice(debug or pickles)
        records[index] = (records[index][0], change_pickle(records[index][1], rng))
    else:
        records[index] = (records[index][0], flip_bytes(records[index][1] or b"\0", rng))
    return write(records)


def mutate(path, rng):
    """New bytes, and whether they are a valid zip file with a changed record."""
    if rng.random() < 0.26:
        return rng.choice(WHOLE)(path.read_bytes(), rng), False
    return change_record(read(path), rng), True
