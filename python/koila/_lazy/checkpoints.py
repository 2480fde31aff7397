"""Layers inside of ``torch.utils.checkpoint``, which koila runs once.

A checkpoint with ``use_reentrant=False`` has its part run again by hooks on what autograd
keeps. Of recorded calls autograd keeps nothing, and koila decides itself what runs again;
gradients are the same, but not what a layer counts each time that it runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from koila._capture.frames import find_frames, location_of
from koila._capture.recorder import RecordedTensor
from koila._lazy.dispatch import call, handle
from koila._plan.announce import Announced, announce

__all__: list[str] = []

_find_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_announced: Announced = set()


def _is_checkpoint() -> bool:
    """Whether what is recorded now stands in a checkpoint that runs its part again."""
    hooks = _find_hooks(True)
    return (
        hooks is not None
        and torch.is_grad_enabled()
        and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"
    )


def _announce_updates(name: str) -> None:
    announce(
        f"'{name}' in a checkpoint updates its running statistics once in koila, and in plain "
        "PyTorch a second time when the backward pass runs it again",
        location_of(find_frames()),
        _announced,
    )


@handle(F.batch_norm, F.instance_norm)
def _normalise(func: Any, args: Any, kwargs: Any) -> Any:
    names = ("input", "running_mean", "running_var", "weight", "bias", "updates")
    given = dict(zip(names, args, strict=False), **kwargs)
    updates = given.get("updates", given.get("training", given.get("use_input_stats")))
    if updates is None:
        updates = func is F.instance_norm
    tracked = given.get("running_mean") is not None
    if tracked and updates and isinstance(given["input"], RecordedTensor) and _is_checkpoint():
        _announce_updates(func.__name__)
    return call(func, args, kwargs)
