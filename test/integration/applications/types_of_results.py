"""Modules that return named tuples, dataclasses, a dict with attributes, and nests of them."""

# points: 4
# catches: silent, wrong, keeps

import collections
import dataclasses
from typing import NamedTuple

import torch
from torch import nn

BUDGET = 1 << 20


class Boxes(NamedTuple):
    corners: torch.Tensor
    scores: torch.Tensor


@dataclasses.dataclass
class Encoded:
    mean: torch.Tensor
    deviation: torch.Tensor
    note: str = "from the encoder"


class ModelOutput(collections.OrderedDict):
    """As transformers has it: keys are attributes, what is None is no key."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self):
        return tuple(self[key] for key in self)


@dataclasses.dataclass
class ClassifierOutput(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
    hidden: tuple = None


class Model(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(32, 512), nn.GELU())
        self.second, self.third = nn.Linear(512, 4), nn.Linear(512, 2)
        self.make = make

    def forward(self, x):
        hidden = self.first(x)
        return self.make(self.second(hidden), self.third(hidden))


def make_output(first, second):
    return ClassifierOutput(logits=first, hidden=(second, second * 2))


def make_nest(first, second):
    return {"boxes": Boxes(first, second), "more": [Encoded(second, first), (first,)]}


def application(koila, app):
    x = torch.randn(1024, 32, generator=torch.Generator().manual_seed(1))
    results = {}
    for make in (Boxes, Encoded, make_output, make_nest):
        torch.manual_seed(0)
        compiled = koila.compile(Model(make).eval(), x, budget=BUDGET)
        with torch.no_grad():
            for size in (1024, 700):
                with app.within(BUDGET, strict=True):
                    output = compiled(x[:size])
                results[make.__name__, size] = output
        if make is make_output:
            results["attributes"] = output.logits, output["hidden"], output[0], output.loss
        if make is Boxes:
            corners, scores = output
            results["unpacked"] = corners.sum(), scores.sum()
    return results
