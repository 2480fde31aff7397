"""All that a training goes on from, and random generators with it."""

from __future__ import annotations

import random
from typing import Any

import torch

from koila.compat.infinitybatch.errors import InfinityBatchError

__all__ = ["get_random_state", "get_state", "set_random_state", "set_state"]


def get_state(name: str, thing: Any) -> Any:
    """Of what has a ``state_dict``, or is a generator."""
    if isinstance(thing, torch.Generator):
        return thing.get_state()
    if callable(getattr(thing, "state_dict", None)):
        return thing.state_dict()
    generator = getattr(thing, "generator", None)
    if isinstance(generator, torch.Generator):
        return generator.get_state()  # a sampler's or a dataloader's
    raise InfinityBatchError(
        f"`{name}`, of type {type(thing).__name__}, has neither a state_dict nor a generator of "
        "its own; samplers without one draw from PyTorch's, which is in every checkpoint"
    )


def set_state(name: str, thing: Any, state: Any) -> None:
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    elif callable(getattr(thing, "load_state_dict", None)):
        thing.load_state_dict(state)
    else:
        get_state(name, thing)  # raises for others
        thing.generator.set_state(state)


def get_random_state() -> dict[str, Any]:
    """Of PyTorch on all devices, of NumPy and of ``random``; plain enough for
    ``torch.load`` with ``weights_only``."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.random.get_rng_state(),
        "random": [version, list(numbers), gauss],
    }
    if torch.accelerator.is_available():
        module = torch.get_device_module()
        if hasattr(module, "get_rng_state_all"):
            state["devices"] = module.get_rng_state_all()
    try:
        import numpy
    except ImportError:
        return state
    found: Any = numpy.random.get_state()
    name, keys, position, has_gauss, cached = found
    state["numpy"] = [name, keys.tolist(), int(position), int(has_gauss), float(cached)]
    return state


def set_random_state(state: dict[str, Any]) -> None:
    torch.random.set_rng_state(state["torch"])
    version, numbers, gauss = state["random"]
    random.setstate((version, tuple(numbers), gauss))
    if "devices" in state and torch.accelerator.is_available():
        module = torch.get_device_module()
        if hasattr(module, "set_rng_state_all"):
            module.set_rng_state_all(state["devices"])
    if "numpy" in state:
        import numpy

        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state(
            (name, numpy.array(keys, dtype=numpy.uint32), position, has_gauss, cached)
        )
