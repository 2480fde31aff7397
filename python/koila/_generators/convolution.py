"""Calls of convolutions."""

import re

from koila._generators.generator import COMPLEX, FLOATS, Batch, masked, other_if_empty

DTYPES = FLOATS * 4 + ["int64", "int32"] + COMPLEX


def image(g, channels, rank, batched=True):
    """(N, C, ...) or (C, ...); the batch is seldom elsewhere than in N."""
    dims = [0 if g.chance(0.02) else g.rng.randint(3, 9) for _ in range(rank)]
    dims.insert(0, channels)
    if batched:
        dims.insert(0, g.batch())
    if g.symbolic and g.chance(0.1 if batched else 0.4):
        if batched:
            dims[0] = g.rng.randint(1, 3)
        dims[g.rng.randrange(len(dims) - rank, len(dims))] = g.batch()
    return dims


def entries(g, rank, values, wrong):
    """An int[n]: one for all or one per dim."""
    many = 1 if g.chance(0.2) else rank
    found = [g.pick(*values) for _ in range(many)]
    if g.spoil(0.12):
        found[g.rng.randrange(many)] = wrong
    if g.spoil(0.04):
        found = found + [1] * rank
    return found


def empties(dims, kernel, stride, padding, dilation, extra):
    """Whether a transposed convolution has an empty result, which the number
    of threads and of samples decide to refuse."""

    def at(values, index):
        return values[index if len(values) > 1 else 0]

    return any(
        not isinstance(size, Batch)
        and index < len(kernel)
        and all(len(v) in (1, len(dims)) for v in (stride, padding, dilation))
        and (size - 1) * at(stride, index)
        - 2 * at(padding, index)
        + at(dilation, index) * (kernel[index] - 1)
        + at(extra, index)
        + 1
        == 0
        for index, size in enumerate(dims)
    )


def convolution(g):
    name = g.op.split("::")[1].split(".")[0]
    digit = re.search(r"(\d)d", name)
    rank = int(digit[1]) if digit else g.pick(1, 2, 2, 3)
    mode = g.op.endswith((".padding", "_mode"))
    transposed = "transpose" in name or (not digit and not mode and g.chance(0.4))
    groups = g.pick(1, 1, 1, 2, 3)
    inputs = groups * g.pick(1, 1, 2, 3)
    outputs = groups * g.pick(1, 2, 3)
    if g.chance(0.1):
        groups = inputs
        outputs = inputs * g.pick(1, 2)
    if g.chance(0.3):  # Whole vectors, and more.
        groups = g.pick(1, 1, 1, 2, 4)
        inputs, outputs = (groups * g.pick(3, 8, 12, 16, 24, 32, 40, 64) for _ in range(2))
    if g.chance(0.02):
        inputs = 0
    kernel = [g.pick(1, 1, 2, 3, 3, 4) for _ in range(rank)]
    if g.chance(0.2):
        kernel = [1] * rank
    if g.spoil(0.1):
        kernel[0] = g.pick(0, 20)
    dtype = g.dtype(DTYPES)
    batched = g.chance(0.75) if digit else not g.spoil(0.15)
    dims = image(g, inputs, rank, batched)
    if g.spoil(0.08):
        dims = dims[1:] if g.chance(0.5) else [2, *dims]
    x = g.strided(dims, dtype)
    weight = [outputs, inputs // groups]
    if transposed:
        weight = [inputs, outputs // groups]
    if g.spoil(0.15):
        weight[g.pick(0, 1)] += 1
    if g.spoil(0.05):
        kernel = [*kernel, 1]
    w = g.strided(weight + kernel, "float64" if g.spoil(0.08) else dtype)
    b = "None"
    if g.chance(0.5):
        bias = [outputs + g.spoil(0.15)]
        if g.spoil(0.08):
            bias = [1, outputs]
        b = g.tensor(bias, "float64" if g.spoil(0.08) else dtype)
    if g.spoil(0.08):
        groups = g.pick(0, -1, groups + 1)
    stride = entries(g, rank, (1, 1, 2, 3), 0)
    padding = entries(g, rank, (0, 0, 1, 2), -1)
    dilation = entries(g, rank, (1, 1, 1, 2), 0 if inputs else 1)
    extra = entries(g, rank, (0,), -1)
    if transposed and g.chance(0.4):
        extra = entries(g, rank, (0, 1), 2)
    if mode:
        padding = g.pick("same", "same", "valid")
        if padding == "same" and not g.spoil(0.3):
            stride = [1]
        if g.spoil(0.1):
            padding = "full"
        padding = repr(padding)
    if transposed and empties(dims[-rank:], kernel, stride, padding, dilation, extra):
        return None
    call = f"r = torch.ops.aten.{name}(%s, %s, %s, %s, %s, "
    if digit and transposed:
        return g.call(call + "%s, %s, %s)", x, w, b, stride, padding, extra, groups, dilation)
    if digit or mode:
        return g.call(call + "%s, %s)", x, w, b, stride, padding, dilation, groups)
    flags = {
        "aten::convolution": "",
        "aten::_convolution": ", False, False, False, False",
        "aten::_convolution.deprecated": ", False, False, False",
    }[g.op]
    return g.call(
        call + "%s, %s, %s, %s" + flags + ")",
        x,
        w,
        b,
        stride,
        padding,
        dilation,
        transposed,
        extra,
        groups,
    )


def at(values, index):
    return values[index if len(values) > 1 else 0]


@other_if_empty
def backward(g):
    rank = g.pick(1, 2, 2, 3)
    transposed = g.chance(0.4)
    groups = g.pick(1, 1, 1, 2, 3)
    inputs, outputs = (groups * g.pick(1, 2, 3) for _ in range(2))
    if g.chance(0.2):  # Whole vectors.
        inputs, outputs = (groups * g.pick(8, 16, 24) for _ in range(2))
    batch = 0 if g.chance(0.03) else g.batch()
    if groups == 1 and g.symbolic and g.chance(0.06):
        batch, outputs = 2, g.batch()
    kernel = [g.pick(1, 1, 2, 3, 3, 4) for _ in range(rank)]
    sizes = [g.rng.randint(3, 9) for _ in range(rank)]
    stride = entries(g, rank, (1, 1, 2, 3), 0)
    padding = entries(g, rank, (0, 0, 1, 2), -1)
    dilation = entries(g, rank, (1, 1, 1, 2), 0)
    extra = entries(g, rank, (0, 1) if transposed and g.chance(0.4) else (0,), -1)
    made = []
    for index, size in enumerate(sizes):
        step, reach = at(stride, index), at(dilation, index) * (kernel[index] - 1)
        if transposed:
            out = (size - 1) * step - 2 * at(padding, index) + reach + at(extra, index) + 1
        else:
            out = (size + 2 * at(padding, index) - reach - 1) // max(step, 1) + 1
        if out < 1:
            return None
        made.append(out)
    wanted = g.mask()
    if extra != [0] * len(extra):
        wanted[0] = True
    dtype, other = g.dtype(["float32"] * 3 + ["float64"] * 2), None
    # Kernels that compute nothing check nothing.
    if g.spoil(0.15):
        wanted[0], other = True, "float32" if dtype == "float64" else "float64"
    if g.spoil(0.15):
        made.append(1)
    if g.spoil(0.15):
        wanted[1], dtype = True, "int64"
    dims = [batch, inputs, *sizes]
    if g.spoil(0.15):
        dims = dims[1:]
    x = g.strided(dims, dtype)
    takes = inputs // groups + g.spoil(0.2)
    weight = [inputs, outputs if groups == 1 else outputs // groups]
    if not transposed:
        weight = [outputs, takes]
    w = g.strided([*weight, *kernel], other or dtype)
    y = g.strided([batch, outputs, *made], dtype)
    # Without, PyTorch dies where there are no samples.
    bias = str([outputs])
    if isinstance(outputs, Batch):
        wanted[2], bias = False, "None"
        wanted[0] |= not any(wanted)
    elif not wanted[2] and g.chance(0.5):
        bias = "None"
    call = (
        f"{masked(wanted)} = torch.ops.aten.convolution_backward(%s, %s, %s, %s, %s, %s, %s, %s, "
    )
    return g.call(
        call + "%s, %s, %s)",
        y,
        x,
        w,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        extra,
        groups,
        wanted,
    )


def conv_tbc(g):
    channels, outputs, kernel = (g.rng.randint(1, 4) for _ in range(3))
    dims = [g.rng.randint(3, 7), g.batch(), channels + g.spoil(0.3)]
    if g.symbolic and g.chance(0.2):
        dims[:2] = [g.batch(), g.rng.randint(1, 4)]
    dtype = g.dtype(FLOATS)
    if g.spoil(0.2):
        kernel = 14
    x = g.tensor(dims, dtype)  # PyTorch takes no other layout everywhere.
    w = g.strided([kernel, channels, outputs], "float64" if g.spoil(0.1) else dtype)
    b = g.tensor([outputs + g.spoil(0.2)] + [1] * g.spoil(0.2), dtype)
    return g.call("r = torch.ops.aten.conv_tbc(%s, %s, %s, %s)", x, w, b, g.pick(0, 1, 2))


GENERATORS = {
    f"aten::{name}": convolution
    for name in (
        "_convolution",
        "_convolution.deprecated",
        "convolution",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv1d.padding",
        "conv2d.padding",
        "conv3d.padding",
        "_convolution_mode",
        "conv_transpose1d",
        "conv_transpose2d.input",
        "conv_transpose3d.input",
    )
}
GENERATORS["aten::conv_tbc"] = conv_tbc
GENERATORS["aten::convolution_backward"] = backward
