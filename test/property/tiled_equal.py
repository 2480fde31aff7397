"""When a tiled program does what the untiled one does, for tiled_operators.py.

Unlike koila-run, this takes results that are NaN, programs that raise, and
those that do not run in float64.
"""

import dataclasses
import warnings

import torch

from koila._generators.draw import ERRORS


def widen(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def is_inexact(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def norm(tensor):
    return tensor.abs().norm().item()


def describe(tensor):
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"


def largest_difference(tiled, untiled):
    gap = (widen(tiled) - widen(untiled)).abs().nan_to_num(0, 0, 0).flatten()
    place = int(gap.argmax())
    return (
        f"{tiled.flatten()[place].item()} for "
        f"{untiled.flatten()[place].item()} at element {place} of "
        f"{describe(untiled)}"
    )


def difference(tiled, untiled, reference, strict):
    """What is wrong with a tiled result, or None. `reference`: the float64
    result, or None where the program has none. `strict`: all was computed in
    float64, so that this is the comparison of float64 copies, too."""
    if tiled.dtype != untiled.dtype or tiled.shape != untiled.shape:
        return f"{describe(tiled)} for {describe(untiled)}"
    if not tiled.numel():
        return None
    if not is_inexact(tiled):
        wrong = int((tiled != untiled).sum())
        return (
            wrong and (f"{wrong} of {tiled.numel()} differ: " + largest_difference(tiled, untiled))
        ) or None
    finite = torch.isfinite(untiled)
    if not torch.equal(finite, torch.isfinite(tiled)):
        return f"infinities or NaN in other places, or no more: {describe(untiled)}"
    there, rest = untiled[~finite], tiled[~finite]
    if not (there.is_complex() or torch.equal(there.nan_to_num(0.5), rest.nan_to_num(0.5))):
        return "NaN for infinity, or another infinity"
    eps = torch.finfo(tiled.dtype).eps
    within = strict and eps < 1e-10
    if within and not torch.allclose(tiled[finite], untiled[finite], 1e-7, 1e-7):
        return "in float64: " + largest_difference(tiled, untiled)
    usable = reference is not None and reference.shape == tiled.shape and is_inexact(reference)
    if usable:
        reference = widen(reference)
        finite &= torch.isfinite(reference)
        allowance = 8
    else:
        # The untiled result stands in, which itself is some roundings away
        # from what is meant.
        reference, allowance = widen(untiled), 64
    reference = reference[finite]
    distance = norm(widen(tiled)[finite] - reference)
    allowed = 2 * norm(widen(untiled)[finite] - reference) + allowance * eps * norm(reference)
    if distance <= allowed:
        return None
    return (
        f"its distance from the {'float64' if usable else 'untiled'} "
        f"result is {distance:.3g}, allowed is {allowed:.3g}: " + largest_difference(tiled, untiled)
    )


@dataclasses.dataclass
class Seen:
    """What can be seen of a call."""

    results: tuple = ()
    # The arguments after it.
    arguments: list = dataclasses.field(default_factory=list)
    error: str = ""
    warnings: list = dataclasses.field(default_factory=list)


def call(module, inputs):
    inputs = [tensor.clone() for tensor in inputs]
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        try:
            found = module(*inputs)
        except ERRORS as error:
            return Seen(error=str(error).strip().splitlines()[-1])
    return Seen(
        tuple(found),
        inputs,
        "",
        [str(entry.message) for entry in log if str(entry.message).startswith("koila:")],
    )


def compare(names, tiled, untiled, reference, strict, unset=()):
    """A sentence, or None. `unset`: names of which only types and shapes are
    compared."""
    # A fault of PyTorch's own.
    if "INTERNAL ASSERT" in untiled.error and not tiled.error:
        return None
    if bool(tiled.error) != bool(untiled.error):
        return (
            f"the tiled program raises '{tiled.error}'"
            if tiled.error
            else f"the untiled program raises '{untiled.error}', the tiled one does not"
        )
    if untiled.error:
        return None
    for kind, words in (("results", ""), ("arguments", "after the call, ")):
        left, right = getattr(tiled, kind), getattr(untiled, kind)
        others = getattr(reference, kind) if reference else ()
        if len(left) != len(right):
            return f"{len(left)} {kind} for {len(right)}"
        for index, pair in enumerate(zip(left, right, strict=True)):
            other = others[index] if len(others) == len(right) else None
            name = names[index] if kind == "results" else f"a{index}"
            if name in unset:
                problem = describe(pair[0]) != describe(pair[1]) and (
                    f"{describe(pair[0])} for {describe(pair[1])}"
                )
            else:
                problem = difference(*pair, other, strict)
            if problem:
                return f"{words}{name}: {problem}"
    return None
