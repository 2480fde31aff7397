"""Values as programs pass and return them: tensors, in containers and objects."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

__all__ = [
    "Constant",
    "Container",
    "Leaf",
    "Node",
    "attributes_of",
    "flatten",
    "is_same",
    "map_tensors",
    "rebuild",
]


class Leaf(NamedTuple):
    """The tensor with this number; one that is there twice has one number."""

    place: int


class Constant(NamedTuple):
    """Anything that holds no tensor."""

    value: Any


class Container(NamedTuple):
    """A list, tuple or dict, with the keys of its parts, or another object, of
    its own class; ``attributes`` are those of the object."""

    kind: type
    keys: tuple[Any, ...] | None
    parts: tuple[Node, ...]
    attributes: tuple[tuple[str, Node], ...]
    # Of a defaultdict.
    factory: Any = None


Node = Leaf | Constant | Container

_ATOMS = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device}
# Objects hold tensors no deeper than this.
_DEEPEST = 8
_OPAQUE = (
    type,
    nn.Module,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
)


def flatten(value: Any, leaves: list[Any], kinds: tuple[type, ...] = (torch.Tensor,)) -> Node:
    """What holds the tensors of ``value``, or objects of other ``kinds``, which are
    added to ``leaves``."""
    return _flatten(value, leaves, {}, kinds, 0)


def _flatten(
    value: Any, leaves: list[Any], places: dict[int, int], kinds: tuple[type, ...], depth: int
) -> Node:
    if isinstance(value, kinds):
        place = places.setdefault(id(value), len(leaves))
        if place == len(leaves):
            leaves.append(value)
        return Leaf(place)
    if type(value) in _ATOMS or depth >= _DEEPEST:
        return Constant(value)

    keys: tuple[Any, ...] | None = None
    parts: tuple[Node, ...] = ()
    attributes: tuple[tuple[str, Node], ...] = ()
    is_container = isinstance(value, (list, tuple, dict))
    if isinstance(value, dict):
        keys = tuple(value)
        parts = tuple([_flatten(item, leaves, places, kinds, depth + 1) for item in value.values()])
    elif is_container:
        parts = tuple([_flatten(item, leaves, places, kinds, depth + 1) for item in value])
    elif isinstance(value, _OPAQUE):
        return Constant(value)
    # What Python has of its own has no attributes.
    named = {} if type(value) in (list, tuple, dict) else _list_attributes(value)
    if named:
        found = [_flatten(item, leaves, places, kinds, depth + 1) for item in named.values()]
        attributes = tuple(zip(named, found, strict=True))
    if not is_container and all(isinstance(node, Constant) for _, node in attributes):
        # Of an object that holds no tensor nothing is made anew.
        return Constant(value)
    factory = value.default_factory if isinstance(value, collections.defaultdict) else None
    return Container(type(value), keys, parts, attributes, factory)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Those of the object itself, without asking code of its class."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _list_attributes(value: Any) -> dict[str, Any]:
    found = dict(attributes_of(value) or ())
    if dataclasses.is_dataclass(value):
        # With slots it has no __dict__.
        for item in dataclasses.fields(value):
            if item.name not in found and hasattr(value, item.name):
                found[item.name] = getattr(value, item.name)
    return found


def rebuild(node: Node, leaves: Any) -> Any:
    """A value like the one that was flattened, of other tensors."""
    if isinstance(node, Leaf):
        return leaves[node.place]
    if isinstance(node, Constant):
        return node.value
    kind = node.kind
    parts = [rebuild(part, leaves) for part in node.parts]
    made: Any
    if issubclass(kind, dict):
        made = kind.__new__(kind)
        base: Any = collections.OrderedDict if issubclass(kind, collections.OrderedDict) else dict
        for key, part in zip(node.keys or (), parts, strict=True):
            base.__setitem__(made, key, part)
        if node.factory is not None:
            made.default_factory = node.factory
    elif issubclass(kind, list):
        made = kind.__new__(kind)
        list.extend(made, parts)
    elif hasattr(kind, "n_sequence_fields"):
        make: Any = kind  # as torch.max() returns
        made = make(parts)
    elif issubclass(kind, tuple):
        # Also of a named tuple, which has a constructor of its own.
        made = tuple.__new__(kind, parts)
    else:
        made = object.__new__(kind)
    for name, part in node.attributes:
        object.__setattr__(made, name, rebuild(part, leaves))
    return made


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A value like this one, of what the function makes of its tensors."""
    leaves: list[torch.Tensor] = []
    node = flatten(value, leaves)
    return rebuild(node, [function(leaf) for leaf in leaves])


def is_same(left: Node, right: Node) -> bool:
    """Whether two values differ in nothing but their tensors."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Leaf):
        return left == right
    if isinstance(left, Constant):
        return left is right or _is_same_constant(left.value, right.value)  # type: ignore[union-attr]
    assert isinstance(left, Container) and isinstance(right, Container)
    return (
        left.kind is right.kind
        and left.keys == right.keys
        and len(left.parts) == len(right.parts)
        and [name for name, _ in left.attributes] == [name for name, _ in right.attributes]
        and all(map(is_same, _children(left), _children(right)))
    )


def _children(node: Container) -> Iterator[Node]:
    yield from node.parts
    yield from (part for _, part in node.attributes)


def _is_same_constant(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, (float, complex)):
        return repr(left) == repr(right)  # 0.0 is not -0.0, and nan is nan
    return isinstance(left, (int, str, bytes, torch.dtype, torch.device)) and left == right
