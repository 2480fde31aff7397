"""What a compiled module has read: whether a change of it is seen."""

import collections
import functools
import re
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

import koila
from koila._capture.guards import Guarded, are_all_unchanged
from koila._capture.reads import CodeReads

SCALE = 2.0
TABLE: dict = {"gain": [1.0, 2.0], "name": "a"}
OFFSETS = np.array([0.5, 1.5])
SHIFT = torch.tensor([1.0])


def activate(x):
    return x * 2


@functools.lru_cache(maxsize=4)
def cached_gain():
    return SCALE


class Settings:
    gain = 1.0

    @staticmethod
    def apply(x):
        return x * Settings.gain


class Base(nn.Module):
    bias = 1.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 4)


class Values(Guarded):
    """Of one object."""

    def __init__(self, value):
        self.value = value
        super().__init__()

    def _read(self, reading):
        return {"value": reading.freeze(self.value)}

    def _describe(self, name, was, now):
        return "changed"


CHANGES = {
    "item of a list": ([1, 2.5], lambda value: value.__setitem__(1, 3)),
    "length of a list": ([1], lambda value: value.append(2)),
    "order of a dict": ({1: 2, 3: 4}, lambda value: value.update({1: value.pop(1)})),
    "value in a dict": ({"a": {"b": (1, [2])}}, lambda value: value["a"]["b"][1].append(1)),
    "set": ({1, 2}, lambda value: (value.add(3), value.remove(2))),
    "a long list": (list(range(10**5)), lambda value: value.__setitem__(777, -1)),
    "array": (np.zeros((3, 2)), lambda value: value.__setitem__((1, 1), 1)),
    "strided array": (np.zeros((4, 4))[::2, ::2], lambda value: value.__setitem__((1, 1), 1)),
    "tensor": (torch.zeros(3), lambda value: value.add_(1)),
    "settings": (types.SimpleNamespace(a=[1]), lambda value: value.a.append(2)),
    "attribute": (types.SimpleNamespace(a=1), lambda value: setattr(value, "a", 2)),
    "True is not 1": ([1], lambda value: value.__setitem__(0, True)),
    "-0.0 is not 0.0": ([0.0], lambda value: value.__setitem__(0, -0.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen(name):
    value, change = CHANGES[name]
    values = Values(value)
    quick = are_all_unchanged([values])
    assert quick() and values.find_change() is None
    change(value)
    assert not quick() and values.find_change() == "changed"


def test_what_is_equal_is_no_change():
    value = {"a": 10.0**3, "b": [float("nan")]}
    values = Values(value)
    quick = are_all_unchanged([values])
    value["a"] = float("1000")  # another object
    value["b"] = [float("nan")]
    assert not quick()
    assert values.find_change() is None
    # From now on these are the ones.
    assert are_all_unchanged([values])()


def test_objects_that_refer_to_each_other():
    one, other = types.SimpleNamespace(), types.SimpleNamespace()
    one.other, other.one = other, one
    values = Values([one, other])
    assert values.find_change() is None
    other.more = 1
    assert values.find_change() == "changed"


def test_code_of_others_is_not_asked():
    class Eager:
        def __getattr__(self, name):
            raise RuntimeError(name)

    assert Values([Eager()]).find_change() is None


def forward_constant(self, x):
    return self.layer(x) * SCALE


def forward_table(self, x):
    return self.layer(x) * TABLE["gain"][1]


def forward_function(self, x):
    return activate(self.layer(x))


def forward_class(self, x):
    return Settings.apply(self.layer(x))


def forward_own(self, x):
    return self.layer(x) + self.bias


def forward_array(self, x):
    return self.layer(x) * float(OFFSETS.sum())


def forward_tensor(self, x):
    return self.layer(x) + SHIFT


def forward_file(self, x):
    return self.layer(x) * settings_file.SCALE


def forward_inner(self, x):
    return sum((lambda y: y * SCALE)(part) for part in self.layer(x).chunk(2, dim=1))


def forward_cached(self, x):
    return self.layer(x) * cached_gain()


def make_closure():
    gain = 2.0

    def forward(self, x):
        return self.layer(x) * gain

    def change(value):
        nonlocal gain
        gain = value

    return forward, change


settings_file = types.ModuleType("settings_file")
settings_file.SCALE = 2.0  # type: ignore[attr-defined]
forward_closure, change_closure = make_closure()


def put(owner, name, value):
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


HERE = sys.modules[__name__]
READS = [
    (forward_constant, put(HERE, "SCALE", 3.0), "'SCALE' of .* was 2.0 .* and is 3.0"),
    (forward_table, lambda m: TABLE["gain"].__setitem__(1, 5.0), "'TABLE' of"),
    (forward_function, put(HERE, "activate", torch.tanh), "'activate' of"),
    (forward_class, put(Settings, "gain", 4.0), "'gain' of class Settings was 1.0"),
    (forward_own, put(Base, "bias", 4.0), "'bias' of class .* was 1.0"),
    (forward_array, lambda m: m.setattr(HERE, "OFFSETS", OFFSETS * 2), "'OFFSETS' of"),
    (forward_tensor, lambda m: SHIFT.add_(1), "'SHIFT' of"),
    (forward_file, put(settings_file, "SCALE", 3.0), "'SCALE' of settings_file was 2.0"),
    (forward_inner, put(HERE, "SCALE", 3.0), "'SCALE' of"),
    (forward_cached, put(HERE, "SCALE", 3.0), "'SCALE' of"),
    (forward_closure, lambda m: change_closure(3.0), "'gain' around forward"),
]


@pytest.mark.parametrize("case", READS, ids=lambda case: case[0].__name__)
def test_what_code_reads(case, monkeypatch):
    forward, change, text = case
    kind = type("Model", (Base,), {"forward": forward})
    module = kind()
    reads = CodeReads(module)
    assert reads.find_change() is None
    change(monkeypatch)
    found = reads.find_change()
    assert found is not None and re.match(text, found), found


def test_closures_of_one_name():
    """Each has its own variable; a function that a part holds is followed, too."""

    def make(gain):
        def scale(x):
            return x * gain

        def change(value):
            nonlocal gain
            gain = value

        return scale, change

    (first, change_first), (second, change_second) = make(1.0), make(2.0)

    class Both(Base):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return self.second(self.first(self.layer(x)))

    for change in (change_first, change_second):
        reads = CodeReads(Both())
        assert reads.find_change() is None
        change(5.0)
        assert re.match("'gain' around scale.* is 5.0", reads.find_change())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [READS[0], *READS[2:9]], ids=lambda case: case[0].__name__)
def test_calls_after_a_change(case, monkeypatch):
    """The whole of it: results are those of the module as it is now."""
    forward, change, _ = case
    module = type("Model", (Base,), {"forward": forward})().eval()
    x = torch.randn(64, 8)
    with torch.no_grad():
        before = module(x)
        compiled = koila.compile(module, x, tile=8)
        torch.testing.assert_close(compiled(x), before)
        change(monkeypatch)
        wanted = module(x)
        assert not torch.allclose(wanted, before)
        torch.testing.assert_close(compiled(x), wanted)
        assert compiled.tile == 8


def test_libraries_are_not_followed():
    """What is read is of the user: not all that PyTorch names."""
    reads = CodeReads(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4)))
    assert reads.guards == []


def test_what_forward_changes_itself():
    counts = collections.Counter()

    class Counting(nn.Module):
        def forward(self, *inputs):
            counts["calls"] += 1
            return inputs[0].tanh()

    class Numbered(nn.Module):
        def forward(self, *inputs):
            global CALLS
            CALLS += 1
            return inputs[0].tanh()

    x = torch.randn(64, 8)
    with pytest.warns(koila.KoilaWarning, match="forward\\(\\) changes 'counts' around forward"):
        compiled = koila.compile(Counting(), x, tile=8)
    torch.testing.assert_close(compiled(x), x.tanh())
    with pytest.raises(koila.CompileError) as caught:
        koila.compile(Numbered(), x, tile=8)
    assert "forward() changes 'CALLS' of" in caught.value.notes[0]


CALLS = 0


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))
