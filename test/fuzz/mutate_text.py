"""Mutations of .mlir texts, the same for the same seed."""

import re

NUMBERS = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999999",
    "0x7FF",
    "1.5",
    "1.0e+400",
]
TYPES = [
    "tensor<?x?xf32>",
    "tensor<*xf32>",
    "tensor<0xf32>",
    "tensor<f64>",
    "tensor<4x64xf32>",
    "tensor<9223372036854775807x2xf32>",
    "index",
    "i64",
    "f32",
    "tensor<2x3xi1>",
    "!koila.any",
    "none",
    "()",
    "tuple<tensor<2xf32>>",
    "memref<2xf32>",
    "tensor<4xcomplex<f32>>",
]
TOKEN = re.compile(r'"[^"\n]*"|[%@#!^]?[A-Za-z_][\w.$]*|-?\d[\w.]*|\s+|.', re.S)


def split(text):
    return TOKEN.findall(text)


def load(folder):
    """Every program of the test suite, by itself."""
    programs = []
    for path in sorted(folder.rglob("*.mlir")):
        for text in path.read_text(errors="replace").split("// -----"):
            text = "\n".join(
                line for line in text.splitlines() if not line.strip().startswith("//")
            )
            if text.strip() and len(text) < 20000:
                programs.append(text)
    return programs


def pick(tokens, rng, test):
    places = [index for index, token in enumerate(tokens) if test(token)]
    return rng.choice(places) if places else None


def is_word(token):
    return not token.isspace()


def is_number(token):
    return bool(re.match(r"-?\d", token))


def change_number(tokens, rng, _):
    place = pick(tokens, rng, is_number)
    if place is not None:
        tokens[place] = rng.choice(NUMBERS)


def change_extent(tokens, rng, _):
    place = pick(tokens, rng, lambda token: re.fullmatch(r"\d+x\w+", token))
    if place is not None:
        rest = tokens[place].split("x", 1)[1]
        tokens[place] = rng.choice(["0", "1", "?", "9223372036854775807", "13", "-1"]) + "x" + rest


def change_type(tokens, rng, _):
    text = "".join(tokens)
    found = list(re.finditer(r"tensor<[^<>]*>", text))
    if found:
        match = rng.choice(found)
        tokens[:] = [text[: match.start()], rng.choice(TYPES), text[match.end() :]]


def change_everywhere(tokens, rng, _):
    """A type, an extent or a number, wherever it is: more often valid."""
    text = "".join(tokens)
    found = (
        re.findall(r"tensor<[^<>]*>", text)
        if rng.random() < 0.5
        else re.findall(r"\b\d+(?=x)", text)
    )
    if not found:
        return
    old = rng.choice(found)
    new = rng.choice(
        TYPES
        if old.startswith("tensor")
        else ["0", "1", "2", "7", "64", "1000000", "4611686018427387904"]
    )
    tokens[:] = [new.join(re.split(r"(?<!\d)" + re.escape(old), text))]


def change_operation(tokens, rng, others):
    names = re.findall(r"\bkoila\.\w+", rng.choice(others))
    place = pick(tokens, rng, lambda token: token.startswith("koila."))
    if place is not None and names:
        tokens[place] = rng.choice(names)


def swap(tokens, rng, _):
    first, second = pick(tokens, rng, is_word), pick(tokens, rng, is_word)
    tokens[first], tokens[second] = tokens[second], tokens[first]


def change_value(tokens, rng, _):
    first = pick(tokens, rng, lambda token: token.startswith("%"))
    second = pick(tokens, rng, lambda token: token.startswith("%"))
    if first is not None:
        tokens[first] = tokens[second]


def borrow(tokens, rng, others):
    other = split(rng.choice(others))
    start = rng.randrange(len(other))
    place = rng.randrange(len(tokens))
    tokens[place : place + rng.randrange(3)] = other[start : start + rng.choice([1, 2, 5, 20])]


def drop(tokens, rng, _):
    place = rng.randrange(len(tokens))
    del tokens[place : place + rng.choice([1, 1, 2, 10])]


def repeat(tokens, rng, _):
    place = rng.randrange(len(tokens))
    tokens[place:place] = tokens[place : place + rng.choice([1, 3, 20])] * (rng.choice([1, 2, 50]))


def change_lines(tokens, rng, others):
    lines = "".join(tokens).split("\n")
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[other])
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines.insert(place, rng.choice(rng.choice(others).split("\n")))
    tokens[:] = ["\n".join(lines)]


def change_characters(tokens, rng, _):
    text = "".join(tokens)
    place = rng.randrange(len(text) + 1)
    tokens[:] = [
        text[:place]
        + rng.choice(
            ["<", ">", "{", "}", "[", '"', "\0", "é", "%", "#", "((((", "tensor<", "<" * 200, "\\"]
        )
        + text[place + rng.randrange(3) :]
    ]


KINDS = [
    change_number,
    change_number,
    change_number,
    change_extent,
    change_type,
    change_everywhere,
    change_everywhere,
    change_everywhere,
    change_everywhere,
    change_operation,
    swap,
    change_value,
    change_value,
    change_value,
    borrow,
    drop,
    repeat,
    change_lines,
    change_lines,
    change_characters,
]


def mutate(programs, rng):
    tokens = split(rng.choice(programs))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if tokens:
            rng.choice(KINDS)(tokens, rng, programs)
        # Some mutations leave texts as one token.
        tokens = split("".join(tokens))
    return "".join(tokens)
