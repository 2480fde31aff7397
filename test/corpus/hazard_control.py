"""A tiler that knows nothing of batches: what a hazard must break.

It calls the program for each slice of at most `tile` samples of the arguments
that have the batch symbol in a dim, and joins the results along the dim where
they follow the batch. A result that does not follow it is the last tile's.
"""

import torch

import inputs

# Both runs must succeed, and no other extent be a multiple of both.
PROBES = (5, 7)
WHOLE = 1 << 40


def batch_dims(spec):
    """[(dim, rows per sample)] of an argument; none if it has no batch."""
    match = inputs.TENSOR.fullmatch(spec)
    dims = inputs.split(match.group(2)) if match else []
    return [
        (place, int(dim.rpartition("*")[0] or 1))
        for place, dim in enumerate(dims)
        if dim.rpartition("*")[2].strip() == "B"
    ]


def followed_dim(small, large):
    """The first dim whose extent is so many rows per sample, or None."""
    for dim, (left, right) in enumerate(zip(small.shape, large.shape, strict=False)):
        if left % PROBES[0] == 0 and left > 0 and (left // PROBES[0] * PROBES[1] == right):
            return dim
    return None


class Results:
    """The leaves of a result, as code, and the result made of them again."""

    def __init__(self):
        # (expression of `result`, dim or None if it is the last tile's)
        self.leaves = []

    def describe(self, small, large, path="result"):
        def parts(keys):
            return ", ".join(
                self.describe(small[key], large[key], f"{path}[{key!r}]") for key in keys
            )

        if isinstance(small, dict):
            return (
                "{"
                + ", ".join(
                    f'"{key}": ' + self.describe(small[key], large[key], f'{path}["{key}"]')
                    for key in small
                )
                + "}"
            )
        if isinstance(small, list):
            return f"[{parts(range(len(small)))}]"
        if isinstance(small, tuple):
            return f"({parts(range(len(small)))},)"
        dim = followed_dim(small, large) if isinstance(small, torch.Tensor) else None
        if dim is None:
            return path
        self.leaves.append((path, dim))
        return f"torch.cat(leaf{len(self.leaves) - 1}, {dim})"


def elements(name, spec):
    """[(expression, spec)] of a list of arguments, as its parts."""
    return [(f"{name}[{place}]", part) for place, part in enumerate(inputs.split(spec[1:-1]))]


def slice_of(name, spec, start, rows):
    """An argument with the samples from `start` on."""
    if spec.startswith("["):
        return (
            "["
            + ", ".join(slice_of(part, kind, start, rows) for part, kind in elements(name, spec))
            + "]"
        )
    for dim, factor in batch_dims(spec):
        name += f".narrow({dim}, {start} * {factor}, ({rows}) * {factor})"
    return name


def call_of(arguments, start, rows):
    """The call of the program with these samples."""
    return (
        "self.inner("
        + ", ".join(slice_of(name, spec, start, rows) for name, spec in arguments)
        + ")"
    )


def find_batch(arguments):
    """(expression of a tensor, dim, rows per sample)"""
    for name, spec in arguments:
        if spec.startswith("["):
            return find_batch(elements(name, spec))
        if batch_dims(spec):
            return name, *batch_dims(spec)[0]


def code_of(module, specs, small, large, tile):
    schema = module.forward.schema
    formal = schema.arguments[1 : 1 + len(specs)]
    arguments = [(argument.name, spec) for argument, spec in zip(formal, specs, strict=True)]
    name, dim, factor = find_batch(arguments)
    results = Results()
    returned = results.describe(small, large)
    lists = [(f"leaf{index}", path) for index, (path, _) in enumerate(results.leaves)]
    return "\n".join(
        [
            "def forward(self, "
            + ", ".join(f"{argument.name}: {argument.type.annotation_str}" for argument in formal)
            + "):",
            f"    count = {name}.size({dim}) // {factor}",
            f"    stop = min(count, {tile})",
            f"    result = {call_of(arguments, '0', 'stop')}",
            *(f"    {leaf} = [{path}]" for leaf, path in lists),
            "    while stop < count:",
            "        start = stop",
            f"        stop = min(start + {tile}, count)",
            "        result = " + call_of(arguments, "start", "stop - start"),
            *(f"        {leaf}.append({path})" for leaf, path in lists),
            f"    return {returned}",
            "",
        ]
    )


def write_control(file, specs, tile, whole, control):
    """Writes the control, and the program with all samples in one slice: its
    buffers have the same names as the control's."""
    results = []
    for batch in PROBES:
        # As koila-run does: each call starts from the state of the file.
        torch.manual_seed(0)
        with torch.no_grad():
            results.append(torch.jit.load(file)(*inputs.make(specs, batch)))
    for path, rows in ((whole, WHOLE), (control, tile)):
        module = torch.nn.Module()
        module.inner = torch.jit.load(file)
        module = torch.jit.script(module)
        small, large = results
        module.define(code_of(module.inner, specs, small, large, rows))
        module.save(str(path))
