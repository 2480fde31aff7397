"""Two results of one computation, in little memory."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from koila._capture.structure import flatten, is_same, map_tensors
from koila._temporary import explain_write

__all__ = ["compare", "compare_gradients", "put_aside"]

# Elements that are compared at once: in float64 little of a budget.
_PART = 1 << 14

# A gradient whose terms cancel out, as that of a bias in front of a batch
# normalisation, is what their rounding leaves: so many of the last digits of the
# largest gradient of the step, and never more than results may differ by.
_CANCELLED = 256


@dataclass(frozen=True)
class _Aside:
    """A tensor in a file. It is read, not mapped: a disk that is full, or fails,
    would end the process."""

    path: str
    shape: torch.Size
    dtype: torch.dtype

    def pieces(self) -> Iterator[torch.Tensor]:
        with open(self.path, "rb") as file:
            while data := file.read(_PART * self.dtype.itemsize):
                yield torch.frombuffer(bytearray(data), dtype=torch.uint8).view(self.dtype)


def compare_gradients(
    found: list[Any],
    wanted: list[Any],
    results: list[Any],
    coarsest: torch.dtype | None = None,
) -> str | None:
    """The same of the gradients of one step, None for those that are absent. What
    is no larger than the rounding of the others, or of the ``results`` whose
    gradients they are, is not told apart."""
    if len(found) != len(wanted):
        return "another number of results"
    present = [gradient for gradient in wanted if gradient is not None]
    typical = [_norm(result) / max(1, result.numel()) ** 0.5 for result in results]
    largest = max([*map(_norm, present), *typical], default=0.0)
    for left, right in zip(found, wanted, strict=True):
        noise = 0.0
        if right is not None and right.dtype.is_floating_point:
            digit = _last_digit(right.dtype, coarsest)
            noise = min(_CANCELLED * digit, digit**0.5) * largest
        if problem := compare(left, right, noise=noise, coarsest=coarsest):
            return problem
    return None


def _norm(gradient: torch.Tensor | _Aside) -> float:
    wide = torch.complex128 if gradient.dtype.is_complex else torch.float64
    norms = [float(part.to(wide).norm()) for part in _parts(gradient)]
    return math.hypot(*(norm for norm in norms if math.isfinite(norm)))


def _last_digit(dtype: torch.dtype, coarsest: torch.dtype | None) -> float:
    """The relative distance of numbers of a type, or of the ``coarsest`` on the way to it."""
    eps = torch.finfo(dtype).eps
    return eps if coarsest is None else max(eps, torch.finfo(coarsest).eps)


def compare(
    found: Any,
    wanted: Any,
    exact: bool = False,
    *,
    noise: float = 0.0,
    coarsest: torch.dtype | None = None,
) -> str | None:
    """How two results differ, unless ``exact`` by more than rounding, or by a norm
    of ``noise``; None if they do not. The rounding is that of their type, or of the
    ``coarsest`` that they were computed in."""
    if isinstance(wanted, (torch.Tensor, _Aside)):
        if not isinstance(found, torch.Tensor):
            return f"{type(found).__name__} in place of a tensor"
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            shapes = tuple(found.shape), tuple(wanted.shape)
            return f"{found.dtype} {shapes[0]} in place of {wanted.dtype} {shapes[1]}"
        return _compare_tensors(found.detach(), wanted, exact, noise, coarsest)
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
        return _compare_objects(found, wanted, exact, coarsest)
    for left, right in pairs:
        if problem := compare(left, right, exact, coarsest=coarsest):
            return problem
    return None


def _compare_objects(
    found: Any, wanted: Any, exact: bool, coarsest: torch.dtype | None
) -> str | None:
    lefts: list[torch.Tensor] = []
    rights: list[torch.Tensor] = []
    kinds = (torch.Tensor, _Aside)
    nodes = flatten(found, lefts, kinds), flatten(wanted, rights, kinds)
    if not rights:
        return None if found == wanted else f"{found!r} in place of {wanted!r}"
    if not is_same(*nodes):
        return f"a {type(found).__name__} of other parts in place of a {type(wanted).__name__}"
    return compare(lefts, rights, exact, coarsest=coarsest)


def _compare_tensors(
    found: torch.Tensor,
    wanted: torch.Tensor | _Aside,
    exact: bool,
    noise: float,
    coarsest: torch.dtype | None,
) -> str | None:
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.detach()
        if torch.equal(found, wanted):
            return None
    is_number = wanted.dtype.is_floating_point or wanted.dtype.is_complex
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    error = size = 0.0
    # Where this runs there may be little memory.
    for left, right in zip(_parts(found), _parts(wanted), strict=True):
        if not is_number:
            if not torch.equal(left, right):
                return "other integers"
            continue
        same = torch.equal(left, right)
        left, right = left.to(wide), right.to(wide)
        squares = 0.0 if same else float((left - right).norm()) ** 2, float(right.norm()) ** 2
        if not math.isfinite(sum(squares)):
            finite = torch.isfinite(right)
            if not torch.equal(finite, torch.isfinite(left)):
                return "not finite at other places"
            squares = float((left - right)[finite].norm()) ** 2, float(right[finite].norm()) ** 2
        error, size = error + squares[0], size + squares[1]
    # Other kernels round otherwise, and rounding adds up in depth.
    rounding = 0.0 if exact or not is_number else _last_digit(wanted.dtype, coarsest) * size
    if is_number and error > max(rounding, noise**2):
        return f"off by {error**0.5:.3g} in norm, of {size**0.5:.3g}"
    return None


def _parts(value: torch.Tensor | _Aside) -> Iterator[torch.Tensor]:
    """The elements in order, ``_PART`` at once, the last fewer."""
    pieces = value.pieces() if isinstance(value, _Aside) else _pieces(value)
    kept: list[torch.Tensor] = []
    count = 0
    for piece in pieces:
        kept.append(piece)
        count += piece.numel()
        if count >= _PART:
            whole = torch.cat(kept) if len(kept) > 1 else piece
            yield whole[:_PART]
            kept, count = [whole[_PART:]] if count > _PART else [], count - _PART
    if count:
        yield torch.cat(kept)


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in order, at most ``_PART`` at once, on the host; without a
    copy of the whole where it has gaps."""
    if tensor.numel() <= _PART:
        yield tensor.reshape(-1).cpu().resolve_conj().resolve_neg()
        return
    if tensor.is_contiguous():
        tensor = tensor.view(-1)
    rows = max(1, _PART // tensor[0].numel())
    for start in range(0, tensor.shape[0], rows):
        part = tensor[start : start + rows]
        yield from _pieces(part if part.numel() <= _PART else part[0])


def put_aside(result: Any, folder: str, room: int = 0) -> Any:
    """The same, its tensors in files of ``folder``, for ``compare``: two sets of
    gradients may not fit into memory. Up to ``room`` bytes are copies in memory,
    which is faster. Raises KoilaError where the disk is full."""

    def put(tensor: torch.Tensor) -> Any:
        nonlocal room
        tensor = tensor.detach()
        if not tensor.numel() or tensor.layout != torch.strided:
            return tensor
        if tensor.device.type == "cpu" and tensor.nbytes <= room:
            room -= tensor.nbytes
            return tensor.clone()
        path = os.path.join(folder, str(len(os.listdir(folder))))
        try:
            with open(path, "wb") as file:
                for part in _parts(tensor):
                    part = part.contiguous()
                    file.write((ctypes.c_char * part.nbytes).from_address(part.data_ptr()))
        except OSError as error:
            what = "a result that is compared"
            raise explain_write(error, path, tensor.nbytes, what) from None
        return _Aside(path, tensor.shape, tensor.dtype)

    return put(result) if isinstance(result, torch.Tensor) else map_tensors(put, result)
