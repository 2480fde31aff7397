"""Data for input specifications: `make("float32[B,8]", 3)` is a tensor.

The part of koila's grammar that the corpus needs: tensors with extents `8`,
`B`, `4*B` and a range of values, integers, numbers, true, false, none, lists,
tuples and dicts. Written apart from koila's own parser on purpose.
"""

import re

TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^:}]*):([^}]*)\})?")


def split(text):
    """The parts between the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def extent(text, batch):
    factor, _, symbol = text.strip().rpartition("*")
    value = batch if symbol.strip() == "B" else int(symbol)
    return int(factor or 1) * value


def make_tensor(match, batch, generator):
    import torch

    name, dims, low, high = match.groups()
    dtype = getattr(torch, name)
    shape = [extent(dim, batch) for dim in split(dims)]
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if dtype.is_floating_point and low is None:
        data = torch.randn(shape, generator=generator, dtype=torch.float64)
        return data.to(dtype)
    if dtype.is_floating_point:
        data = torch.rand(shape, generator=generator, dtype=torch.float64)
        return (float(low) + data * (float(high) - float(low))).to(dtype)
    return torch.randint(
        extent(low or "0", batch), extent(high or "2", batch), shape, generator=generator
    ).to(dtype)


def make_value(text, batch, generator):
    if match := TENSOR.fullmatch(text):
        return make_tensor(match, batch, generator)
    if text[0] in "[(":
        parts = [make_value(part, batch, generator) for part in split(text[1:-1])]
        return parts if text[0] == "[" else tuple(parts)
    if text[0] == "{":
        pairs = [part.split(":", 1) for part in split(text[1:-1])]
        return {
            key.strip("'\" "): make_value(value.strip(), batch, generator) for key, value in pairs
        }
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def make(specs, batch):
    """One value per specification; the same ones in every run."""
    import torch

    generator = torch.Generator().manual_seed(batch)
    return tuple(make_value(spec, batch, generator) for spec in specs)
