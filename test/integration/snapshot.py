"""What a user can see of a script that ran, as leaves with names.

    leaves = take(namespace, stdout)     # {"results['loss'][2]": Leaf, ...}

Values are copied into numpy, whose memory is not counted. Reading a lazy tensor
computes it, as it does when the user reads it, and raises what that raises.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

# How deep modules and optimizers are looked for in lists and objects.
_DEEPEST = 3
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|[-+]?\b(?:nan|inf)\b")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass
class Leaf:
    """One value. ``about`` must be equal: types, shapes, texts. ``number`` is
    compared up to rounding, ``exact`` must be one that plain PyTorch found.
    ``unit`` is what a printed number was rounded to."""

    about: str
    number: np.ndarray | None = None
    exact: np.ndarray | None = None
    unit: float = 0.0

    def equals(self, other: Leaf) -> bool:
        """To the last bit."""
        return self.about == other.about and all(
            (mine is None) == (its is None)
            and (mine is None or (mine.shape == its.shape and mine.tolist() == its.tolist()))
            for mine, its in ((self.number, other.number), (self.exact, other.exact))
        )


def take(namespace: dict[str, Any], stdout: str) -> dict[str, Leaf]:
    leaves: dict[str, Leaf] = {}
    _take(namespace.get("results"), "results", leaves)
    for name, value in list(namespace.items()):
        if not name.startswith("__") and name != "results":
            _take_states(value, name, leaves, 0)
    _take_text(stdout, leaves)
    # Draws are part of what a program does: the next one must be the same.
    leaves["torch.get_rng_state()"] = Leaf("", exact=torch.get_rng_state().numpy().copy())
    leaves["numpy.random.get_state()"] = Leaf(repr(np.random.get_state()))
    leaves["random.getstate()"] = Leaf(repr(random.getstate()))
    return leaves


def type_of(value: Any) -> str:
    """The name of the type. A lazy tensor is to be taken for a tensor, and
    koila's ints for ints."""
    for kind in type(value).__mro__:
        if kind.__module__.partition(".")[0] != "koila":
            return f"{kind.__module__}.{kind.__qualname__}"
    return "object"


def _take(value: Any, path: str, leaves: dict[str, Leaf]) -> None:
    kind = type_of(value)
    if isinstance(value, torch.Tensor):
        leaves[path] = _tensor(value, kind)
    elif isinstance(value, (np.ndarray, np.generic)):
        leaves[path] = _array(np.array(value), f"{kind} {value.dtype} {value.shape}")
    elif isinstance(value, (bool, int)) or value is None:
        # int(): numpy would take a subclass for an object.
        plain = value if value is None or isinstance(value, bool) else int(value)
        leaves[path] = Leaf(kind, exact=np.array(plain, dtype=object))
    elif isinstance(value, (float, complex)):
        leaves[path] = _array(np.array(value), kind)
    elif isinstance(value, (str, bytes)):
        leaves[path] = Leaf(kind, exact=np.array(value, dtype=object))
    elif isinstance(value, nn.Module):
        _take_module(value, path, leaves)
    elif isinstance(value, Mapping):
        leaves[f"{path}.keys()"] = Leaf(f"{kind} {[str(key) for key in value]}")
        for key, item in value.items():
            _take(item, f"{path}[{key!r}]", leaves)
    elif isinstance(value, (list, tuple)):
        leaves[f"len({path})"] = Leaf(f"{kind} {len(value)}")
        for index, item in enumerate(value):
            _take(item, f"{path}[{index}]", leaves)
    elif isinstance(value, (set, frozenset)):
        leaves[path] = Leaf(f"{kind} {sorted(map(repr, value))}")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _take(getattr(value, field.name), f"{path}.{field.name}", leaves)
    else:
        leaves[path] = Leaf(kind)


def _tensor(tensor: torch.Tensor, kind: str) -> Leaf:
    about = f"{kind} {tensor.dtype} {tuple(tensor.shape)} requires_grad={tensor.requires_grad}"
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain.to_dense()
    if plain.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        plain = plain.float()  # numpy has no such type
    return _array(plain.cpu().numpy().copy(), about)


def _array(array: np.ndarray, about: str) -> Leaf:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag])
    if array.dtype.kind == "f":
        return Leaf(about, number=array.astype(np.float64))
    return Leaf(about, exact=array)


def _take_module(module: nn.Module, path: str, leaves: dict[str, Leaf]) -> None:
    for name, child in module.named_modules():
        at = f"{path}.{name}" if name else path
        leaves[f"{at}.training"] = Leaf(str(child.training))
    for name, parameter in module.named_parameters():
        leaves[f"{path}.{name}"] = _tensor(parameter, type_of(parameter))
        gradient = parameter.grad
        leaves[f"{path}.{name}.grad"] = (
            Leaf("None") if gradient is None else _tensor(gradient, type_of(gradient))
        )
    for name, buffer in module.named_buffers():
        leaves[f"{path}.{name}"] = _tensor(buffer, type_of(buffer))


def _take_states(value: Any, path: str, leaves: dict[str, Leaf], depth: int) -> None:
    """Modules and optimizers, wherever a script keeps them."""
    if isinstance(value, nn.Module):
        _take_module(value, path, leaves)
    elif isinstance(value, torch.optim.Optimizer):
        # Without functions: only what a checkpoint holds.
        _take(value.state_dict(), f"{path}.state_dict()", leaves)
    elif depth < _DEEPEST:
        for name, item in _items(value):
            _take_states(item, f"{path}{name}", leaves, depth + 1)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
        yield from ((f".{name}", item) for name, item in list(vars(value).items()))


def _take_text(text: str, leaves: dict[str, Leaf]) -> None:
    """What was printed, and the numbers in it one by one."""
    text = _ADDRESS.sub("0x", text)
    found = _NUMBER.findall(text)
    # Columns are filled with blanks, as many as the number leaves.
    leaves["stdout"] = Leaf(" ".join(_NUMBER.sub("#", text).split()))
    for index, number in enumerate(found):
        path = f"stdout number {index + 1}"
        if re.fullmatch(r"[-+]?\d+", number):
            leaves[path] = Leaf("", exact=np.array(int(number), dtype=object))
        else:
            leaves[path] = Leaf("", number=np.array(float(number)), unit=_unit(number))


def _unit(number: str) -> float:
    """What its last digit counts."""
    digits, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
