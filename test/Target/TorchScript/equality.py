"""When two results are equal, and inputs to compare with.

The tests that compare programs in plain Python use this; koila-run has the
same definition in C++ and shares no code with it.
"""

import re

import torch

INPUT = re.compile(r"(?:\w+=)?(\w+)\[([^\]]*)\]$")


def make_input(spec, batch, generator):
    """A tensor for `float32[B,3,64,64]`; samples differ from each other."""
    dtype, dims = INPUT.match(spec).groups()
    shape = [batch if dim == "B" else int(dim) for dim in dims.split(",")]
    data = torch.randn(shape, generator=generator, dtype=torch.float64)
    return data.to(getattr(torch, dtype))


def make_inputs(specs, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [make_input(spec, batch, generator) for spec in specs]


def to_f64(values):
    return [v.double() if v.is_floating_point() else v for v in values]


def flatten(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flatten(part)]


def within_rounding(tiled, untiled, reference):
    """The tiled result is not further from the float64 one than twice the
    untiled result is, up to a few units of rounding."""
    if not tiled.is_floating_point():
        return torch.equal(tiled, untiled)
    eps = torch.finfo(tiled.dtype).eps
    error = (tiled.double() - reference).norm()
    bound = 2 * (untiled.double() - reference).norm() + 8 * eps * reference.norm()
    return bool(error <= bound)


def check_equal(tiled, untiled, reference):
    """Raises AssertionError unless equal and not vacuous."""
    for a, b, ref in zip(flatten(tiled), flatten(untiled), flatten(reference), strict=True):
        assert a.shape == b.shape, f"shape {list(a.shape)} for {list(b.shape)}"
        assert a.dtype == b.dtype, f"dtype {a.dtype} for {b.dtype}"
        if not a.numel():
            continue
        assert within_rounding(a, b, ref), (
            f"unequal: largest difference {(a - b).abs().max().item():g} "
            f"where values reach {b.abs().max().item():g}"
        )
        assert not within_rounding(torch.zeros_like(a), b, ref), "vacuous: zeros would have passed"
        if a.dim() and a.shape[0] > 1:
            assert not within_rounding(a.roll(1, 0), b, ref), (
                "vacuous: a rotated batch would have passed"
            )
