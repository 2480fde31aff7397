"""Random calls of PyTorch's operators, by family: what the oracles of the tests and
``koila check-op`` compare koila's models with."""

from __future__ import annotations

import importlib
import pkgutil

from koila._generators.generator import MakeCase

__all__ = ["load_generators"]


def load_generators() -> dict[str, MakeCase]:
    """What makes calls of an operator, by its schema name as ``aten::add.Tensor``; the
    families in the order of their names. ValueError if two have one operator."""
    found: dict[str, MakeCase] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        family = importlib.import_module(f"{__name__}.{module.name}")
        for name, make in getattr(family, "GENERATORS", {}).items():
            if name in found:
                raise ValueError(f"{name} has generators in two families")
            found[name] = make
    return found
