"""`koila.lazy`, and what makes values of lazy tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import Tensor

from koila._capture.frames import find_frames, location_of
from koila._capture.recorder import find_values
from koila._capture.values import Value, rebuild
from koila._device import find_kind, resolve_device
from koila._errors import KoilaError
from koila._execute.flush import flush, watch_input
from koila._lazy import (  # noqa: F401  answer calls
    checkpoints,
    draws,
    materialize,
    modules,
    ranges,
    reshapes,
    sequences,
)
from koila._lazy.dispatch import dispatch
from koila._lazy.functions import watch_functions
from koila._lazy.lazy_tensor import Evaluation, LazyTensor
from koila._plan import announce
from koila._plan.planner import check_budget

__all__ = ["LazyFunction", "lazy", "run"]


class LazyFunction:
    """A function whose calls are recorded. ``prepass_func`` is not needed and
    not called."""

    def __init__(self, func: Callable[..., Any], prepass_func: Any = None) -> None:
        self.func, self.prepass_func = func, prepass_func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = tuple(
            LazyTensor(arg) if isinstance(arg, (Tensor, Evaluation)) else arg for arg in args
        )
        return dispatch(self.func, made, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)


def lazy(
    *values: Any,
    batch: int | None = None,
    budget: int | str = "auto",
    device: torch.device | str | None = None,
) -> Any:
    """Makes tensors lazy: PyTorch code on them is recorded, and computed
    within ``budget`` when a value is needed.

    ``batch`` is the dim with the samples of every tensor; of None the first dim
    is tried. ``budget`` is a
    number of bytes, a size as ``"64MiB"``, or ``"auto"``: what is free on the
    tensor's device when it runs (the environment variable ``KOILA_BUDGET``
    replaces it). Tensors in lists, tuples and dicts are made lazy too; numbers
    and text pass through, and so do other objects, after a warning. One value
    gives one, several a tuple. With a ``device`` tensors on the CPU stay there: to the
    program they are what ``x.to(device)`` gives, and the device has one tile of them
    at a time; ``"auto"`` is then what is free there, and what ``run()`` returns is on the CPU.
    Raises KoilaError if ``batch`` is no dim of a tensor, for tensors on devices of
    which koila has no figures, and for a ``device`` that is not there.
    """
    check_budget(budget)
    there = None if device is None else resolve_device(device)
    flush()
    watch_functions()
    call = object()
    made = tuple(_lazy(value, batch, budget, call, there) for value in values)
    _remember(made)
    for old, new in zip(values, made, strict=True):
        if new is old and not isinstance(old, _PLAIN):
            announce.announce(
                f"koila.lazy splits tensors, also in lists, tuples and dicts; "
                f"this {type(old).__name__} stays as it is, and unprotected",
                location_of(find_frames()),
                set(),
            )
    return made[0] if len(made) == 1 else made


def run(value: Any, partial: tuple[int, int] | None = None) -> Any:
    """The tensors of lazy ones, in nested lists, tuples and dicts too; anything
    else as it is."""
    if isinstance(value, (LazyTensor, Evaluation)) or _is_runnable(value):
        return value.run(partial)
    return _map(value, lambda item: run(item, partial))


def _is_runnable(value: Any) -> bool:
    """Whether it is a tensor of another class that is asked like a lazy one; not
    whatever has a method of that name."""
    kind = type(value)
    return kind is not Tensor and all(
        callable(getattr(kind, name, None)) for name in ("run", "batch", "visit")
    )


def _remember(made: Any) -> None:
    """The batch that was given, for samples that the program makes beside it."""
    found: list[Value] = []
    find_values(made, found)
    origin = next((value.origin for value in found if value.origin is not None), None)
    if origin is not None and origin.batch is not None:
        given = [value.tensor for value in found if value.tensor is not None]
        modules.remember_batch(origin, given)


# Whatever of these holds no tensor has nothing to protect.
_PLAIN = (int, float, complex, str, bytes, list, tuple, type(None), Tensor)


def _lazy(
    value: Any, batch: int | None, budget: int | str, call: object, device: torch.device | None
) -> Any:
    if isinstance(value, (Tensor, Evaluation)):
        if isinstance(value, Tensor):
            find_kind(value.device)
            if device is not None and value.device not in (device, torch.device("cpu")):
                raise KoilaError(
                    f"koila.lazy(device={str(device)!r}) was given a tensor on {value.device}; "
                    "give it tensors on the CPU, or on that device"
                )
        made = LazyTensor(value, batch, budget, call, device)
        if made is not value and isinstance(value, Tensor):
            watch_input(made)
        return made
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        raise KoilaError("koila.lazy takes dense tensors, and packs what is made of them")
    return _map(value, lambda item: _lazy(item, batch, budget, call, device))


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """A container like this one, of what the function makes of its items."""
    if isinstance(value, (list, tuple)):
        items = [function(item) for item in value]
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return rebuild(value, items) if changed else value
    if isinstance(value, MutableMapping):
        mapping = copy.copy(value)
        for key, item in value.items():
            mapping[key] = function(item)
        return mapping
    return value
