"""Losses of sequences of several lengths. Lengths are a batch like any other once
they are tensors, and so are targets that stand in a row of their own for each
sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from koila._capture.recorder import RecordedTensor, current, known
from koila._execute import executor
from koila._lazy.dispatch import call, handle

__all__: list[str] = []


def _find(item: Any) -> Tensor | None:
    """Integers on the CPU that are known."""
    if isinstance(item, RecordedTensor):
        item = known(current(item))
    if not isinstance(item, Tensor) or item.dtype not in (torch.int64, torch.int32):
        return None
    return item if item.device.type == "cpu" else None


def _as_tensor(lengths: Any) -> Any:
    if isinstance(lengths, Tensor) or not isinstance(lengths, (list, tuple)):
        return lengths
    if not lengths or not all(isinstance(length, int) for length in lengths):
        return lengths
    with executor.ordinary():
        return torch.tensor([int(length) for length in lengths])


def _pad(targets: Tensor, lengths: Tensor) -> Tensor | None:
    """Targets that stand one behind the other, each in a row of its own."""
    if lengths.dim() != 1 or not lengths.numel() or int(lengths.min()) < 0:
        return None
    if int(lengths.sum()) != targets.numel():
        return None
    with torch.no_grad():
        parts = torch.split(targets, lengths.tolist())
        return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)


def _is_out_of_range(lengths: Tensor | None, most: int) -> bool:
    if lengths is None or not lengths.numel():
        return False
    low, high = lengths.aminmax()
    return int(low) < 0 or int(high) > most


@handle(F.ctc_loss, torch.ctc_loss)
def _ctc_loss(func: Any, args: Any, kwargs: Any) -> Any:
    names = ("log_probs", "targets", "input_lengths", "target_lengths")
    given = dict(zip(names, args, strict=False), **kwargs)
    rest, kwargs = args[4:], {name: kwargs[name] for name in kwargs if name not in names}
    if any(name not in given for name in names) or not isinstance(given["log_probs"], Tensor):
        return call(func, args, kwargs)
    logs, targets, *lengths = (given[name] for name in names)
    if logs.dim() == 3:
        lengths = [_as_tensor(item) for item in lengths]
    steps, longest = _find(lengths[0]), _find(lengths[1])
    row = _find(targets)
    # Source: ctc_loss_allocate_outputs in aten/src/ATen/native/LossCTC.cpp.
    most = int(targets.shape[-1]) if isinstance(targets, Tensor) and targets.dim() else 1
    if _is_out_of_range(steps, int(logs.shape[0])) or _is_out_of_range(longest, most):
        # PyTorch says so before it reads the logarithms.
        with executor.ordinary(), torch.no_grad():
            hollow = torch.zeros(1, dtype=logs.dtype).expand([int(n) for n in logs.shape])
            labels = torch.zeros([int(n) for n in targets.shape], dtype=targets.dtype)
            func(hollow, labels, steps, longest, *rest, **kwargs)
    if row is not None and row.dim() == 1 and longest is not None and logs.dim() == 3:
        padded = _pad(row, longest)
        targets = targets if padded is None else padded
    return call(func, (logs, targets, *lengths, *rest), kwargs)
