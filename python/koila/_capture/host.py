"""Batches that stay on the host while their program runs on another device, which has a tile
of them at a time.

To the program they are tensors of the device, as after ``x.to(device)``. What is there of
them, and of what is computed of them in tiles, is on the host: ``Value.meta`` names the
device, and the tensor is on another one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from koila._capture.values import Value

__all__ = ["find_tile_device", "is_on_host", "keep", "lift", "take_down"]


def find_tile_device(value: Value) -> torch.device | None:
    """Where the tiles go of the batch that a value is made of; None where that is there."""
    return None if value.source is None else value.source.device


def is_on_host(value: Value, tensor: Tensor | None) -> bool:
    """Whether what is there of a value is not where the program has it."""
    return tensor is not None and tensor.device != value.meta.device


def lift(value: Value, tensor: Tensor) -> Tensor:
    """What is there of a value, as a whole where the program has it."""
    return tensor.to(value.meta.device) if is_on_host(value, tensor) else tensor


def take_down(value: Value, tensor: Tensor) -> Tensor:
    """What was computed of a value without a graph; on the host if it is made of a batch
    that stays there."""
    device = find_tile_device(value)
    if device is None or device != tensor.device or tensor.requires_grad:
        return tensor
    return tensor.cpu()


def keep(leaf: Value, device: torch.device | None) -> None:
    """A leaf that is a tensor on the host stays there, and to the program is one of ``device``:
    a copy, to which nobody else writes."""
    tensor = leaf.tensor
    if device is None or tensor is None or tensor.device.type != "cpu":
        return
    like = torch.empty_strided(leaf.meta.shape, leaf.meta.stride, device="meta")
    # As `to` lays it out.
    leaf.meta = leaf.meta._replace(device=device, stride=torch.empty_like(like).stride())
    leaf.group.external, leaf.group.is_there = False, True
