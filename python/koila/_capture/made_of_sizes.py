"""Tensors that a program makes of its number of samples alone: the identity matrix that
masks the pairs of a contrastive loss, the positions of partners in a doubled batch.

They are made before anything is recorded, so that their contents say what they are. A trace
makes them again from the number of samples; contents that are others are another program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Diagonal", "Positions", "find_made", "is_permutation"]

# More elements are not looked at in every step.
_MOST = 1 << 22
_MOST_SQUARES = 64


_Number = float | int | bool


@dataclass(frozen=True)
class Diagonal:
    """A matrix of squares, rows of them, each of as many rows as ``times`` the batch: of each
    the value on its diagonal, and that beside."""

    times: int
    squares: tuple[tuple[tuple[_Number, _Number], ...], ...]

    def make(self, samples: int, like: Tensor) -> Tensor:
        extent = samples * self.times
        diagonal = torch.eye(extent, dtype=torch.bool, device=like.device)

        def square(on: _Number, off: _Number) -> Tensor:
            if like.dtype == torch.bool and on != off:
                return diagonal if on else ~diagonal
            beside, along = (
                torch.full((extent, extent), x, dtype=like.dtype, device=like.device)
                for x in (off, on)
            )
            return beside if on == off else torch.where(diagonal, along, beside)

        rows = [[square(*values) for values in row] for row in self.squares]
        whole = [torch.cat(row, 1) if len(row) > 1 else row[0] for row in rows]
        return torch.cat(whole) if len(whole) > 1 else whole[0]


@dataclass(frozen=True)
class Positions:
    """Positions of a batch that is there more than once: those of the samples in the copies
    ``copies``, one after the other, in the first of ``dims`` dims."""

    copies: tuple[int, ...]
    dims: int = 1

    def make(self, samples: int, like: Tensor) -> Tensor:
        row = torch.arange(samples, dtype=like.dtype, device=like.device)
        found = torch.cat([row + samples * copy for copy in self.copies])
        return found.view(-1, *[1] * (self.dims - 1))


def find_made(tensor: Tensor, batch: int) -> Diagonal | Positions | None:
    """What a tensor is by its contents; None of any other."""
    if batch < 2 or tensor.requires_grad or not 0 < tensor.numel() <= _MOST:
        return None
    with torch.no_grad():
        if tensor.dtype == torch.int64 and tensor.dim() > 0 and len(tensor) == tensor.numel():
            return _find_positions(tensor, batch)
        if tensor.is_complex() or any(extent % batch for extent in tensor.shape):
            return None
        return _find_diagonal(tensor, batch) if tensor.dim() == 2 else None


def _find_diagonal(tensor: Tensor, batch: int) -> Diagonal | None:
    rows, columns = tensor.shape
    if rows // batch * (columns // batch) > _MOST_SQUARES:
        return None
    # The largest squares first: an identity matrix of two batches is one.
    for size in dict.fromkeys((math.gcd(rows, columns), batch)):
        corners = tensor[::size, ::size].tolist(), tensor[::size, 1::size].tolist()
        squares = tuple(tuple(zip(*row, strict=True)) for row in zip(*corners, strict=True))
        if all(on == off for row in squares for on, off in row):
            continue
        # Of other tensors their first row tells, and no matrix is made.
        first = torch.cat([tensor.new_full((size,), off) for _, off in squares[0]])
        first[::size] = tensor[0, ::size]
        if not torch.equal(first, tensor[0]):
            continue
        found = Diagonal(size // batch, squares)
        if torch.equal(found.make(batch, tensor), tensor):
            return found
    return None


def _find_positions(tensor: Tensor, batch: int) -> Positions | None:
    starts = tensor.flatten()[::batch].tolist()
    if len(tensor) % batch or len(starts) < 2:
        return None
    if any(start % batch or start < 0 for start in starts):
        return None
    found = Positions(tuple(start // batch for start in starts), tensor.dim())
    return found if torch.equal(found.make(batch, tensor), tensor) else None


def is_permutation(tensor: Tensor) -> bool:
    """Whether it has each position of its own once, as randperm() gives them."""
    if tensor.dim() != 1 or tensor.dtype != torch.int64 or not 0 < tensor.numel() <= _MOST:
        return False
    return torch.equal(tensor.sort().values, torch.arange(len(tensor), device=tensor.device))
