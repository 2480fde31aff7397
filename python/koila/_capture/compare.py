"""Two results of one computation, in little memory."""

from __future__ import annotations

import os
from typing import Any

import torch

from koila._capture.structure import flatten, is_same, map_tensors

__all__ = ["compare", "put_aside"]

# Elements that are compared at once.
_PART = 1 << 13


def compare(found: Any, wanted: Any, exact: bool = False) -> str | None:
    """How two results differ, unless ``exact`` by more than rounding; None if they
    do not."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            return f"{type(found).__name__} in place of a tensor"
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            shapes = tuple(found.shape), tuple(wanted.shape)
            return f"{found.dtype} {shapes[0]} in place of {wanted.dtype} {shapes[1]}"
        if not wanted.dtype.is_floating_point and not wanted.dtype.is_complex:
            return None if torch.equal(found, wanted) else "other integers"
        return _compare_numbers(found.detach(), wanted.detach(), exact)
    if isinstance(found, torch.Tensor):
        return f"a tensor in place of {wanted!r}"
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            return "other keys"
        pairs = [(found[key], wanted[key]) for key in wanted]
    elif isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return "another number of results"
        pairs = list(zip(found, wanted, strict=True))
    else:
        return _compare_objects(found, wanted, exact)
    for left, right in pairs:
        if problem := compare(left, right, exact):
            return problem
    return None


def _compare_objects(found: Any, wanted: Any, exact: bool) -> str | None:
    lefts: list[torch.Tensor] = []
    rights: list[torch.Tensor] = []
    nodes = flatten(found, lefts), flatten(wanted, rights)
    if not rights:
        return None if found == wanted else f"{found!r} in place of {wanted!r}"
    if not is_same(*nodes):
        return f"a {type(found).__name__} of other parts in place of a {type(wanted).__name__}"
    return compare(lefts, rights, exact)


def _compare_numbers(found: torch.Tensor, wanted: torch.Tensor, exact: bool) -> str | None:
    if torch.equal(found, wanted):
        return None  # without more memory
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    error = size = 0.0
    lefts, rights = found.reshape(-1), wanted.reshape(-1)
    # A part at a time: where this runs there may be little memory.
    for start in range(0, rights.numel(), _PART):
        left, right = (part[start : start + _PART].to("cpu", wide) for part in (lefts, rights))
        finite = torch.isfinite(right)
        if not torch.equal(finite, torch.isfinite(left)):
            return "not finite at other places"
        error += float((left - right)[finite].norm()) ** 2
        size += float(right[finite].norm()) ** 2
    # Other kernels round otherwise, and rounding adds up in depth.
    if error > (0.0 if exact else torch.finfo(wanted.dtype).eps * size):
        return f"off by {error**0.5:.3g} in norm, of {size**0.5:.3g}"
    return None


def put_aside(result: Any, folder: str) -> Any:
    """The same, its tensors in files of ``folder``: two sets of gradients may
    not fit into memory."""
    if isinstance(result, torch.Tensor):
        result = result.detach()
        if not result.numel() or result.layout != torch.strided:
            return result
        path = os.path.join(folder, str(len(os.listdir(folder))))
        kept = torch.from_file(path, shared=True, size=result.numel(), dtype=result.dtype)
        return kept.view(result.shape).copy_(result)
    return map_tensors(lambda tensor: put_aside(tensor, folder), result)
