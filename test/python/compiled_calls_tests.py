"""Compiled modules are called as the modules they are made of."""

import collections
import dataclasses
import io
import sys
import threading
import typing
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
import networks
from koila._capture.structure import flatten, is_same, map_tensors


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    name: str = "output"


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor


@dataclasses.dataclass
class Slotted:
    __slots__ = ("logits",)
    logits: torch.Tensor


class Bag(collections.OrderedDict):
    """As transformers' ModelOutput: items are attributes, too."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__.update(items)


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Plain:
    def __init__(self, logits):
        self.logits = logits
        self.more = {"twice": [logits, logits]}


VALUES: dict[str, typing.Callable] = {
    "dataclass": lambda x: Output(x, hidden=x + 1),
    "frozen": Frozen,
    "slots": Slotted,
    "bag": lambda x: Bag(logits=x, hidden=None),
    "named tuple": lambda x: Pair(x, x + 1),
    "values and indices": lambda x: torch.max(x, 1),
    "object": Plain,
    "defaultdict": lambda x: collections.defaultdict(list, logits=[x]),
    "nested": lambda x: {"a": [Output(x), (None, 3, "text")], 2: Pair(x, x * 2)},
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_made_again(name):
    x = torch.randn(4, 3)
    value = VALUES[name](x)
    leaves = []
    node = flatten(value, leaves)
    other: typing.Any = map_tensors(lambda tensor: tensor * 2, value)
    assert type(other) is type(value)
    found = []
    assert is_same(flatten(other, found), node)
    torch.testing.assert_close(found, [leaf * 2 for leaf in leaves])
    if name == "bag":
        assert other.logits is other["logits"]
    if name == "object":
        assert other.more["twice"][0] is other.logits
    if name == "defaultdict":
        assert other["new"] == []


def test_values_that_differ_in_more_than_tensors():
    x = torch.zeros(3)
    for left, right in [
        ([x], (x,)),
        ({"a": x}, {"b": x}),
        ([x, 1], [x, True]),
        ([x, 0.0], [x, -0.0]),
        ([x, x], [x, x.clone()]),
        (Output(x), Output(x, name="other")),
        ([x], [x, None]),
    ]:
        assert not is_same(flatten(left, []), flatten(right, []))
    nan = float("nan")
    assert is_same(flatten([x, nan], []), flatten([x + 1, nan], []))


class Model(nn.Module):
    def __init__(self, make=lambda y: y):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 256)
        self.second = nn.Linear(256, 10)
        self.make = make

    def forward(self, x, scale=1.0, *, mask=None, flip=False):
        y = torch.tanh(self.first(x))
        if mask is not None:
            y = y * mask
        y = self.second(y) * scale
        return self.make(-y if flip else y)


def close(compiled, module, *args, **kwargs):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted, found = module(*args, **kwargs), compiled(*args, **kwargs)
    left, right = [], []
    assert is_same(flatten(found, left), flatten(wanted, right))
    assert type(found) is type(wanted)
    torch.testing.assert_close(left, right)


@pytest.mark.parametrize("name", VALUES)
def test_types_of_results(name):
    module = Model(VALUES[name]).eval()
    x = torch.randn(256, 64)
    compiled = koila.compile(module, x, budget="200KiB")
    assert compiled.tile
    close(compiled, module, x)
    close(compiled, module, x[:37])


def test_types_of_results_of_scripts():
    """TorchScript makes named tuples of a class of its own."""

    class Scripted(nn.Module):
        def forward(self, x: torch.Tensor) -> Pair:
            return Pair(x * 2, x.tanh())

    x = torch.randn(64, 16)
    for inputs in ([x], ["float32[B,16]"]):
        options: dict = {"batch": 64} if inputs == ["float32[B,16]"] else {}
        compiled = koila.compile(Scripted(), *inputs, tile=8, **options)
        assert not isinstance(compiled.source, torch.jit._trace.TopLevelTracedModule)
        close(compiled, Scripted(), x)


def test_arguments_by_name():
    module, x, mask = Model().eval(), torch.randn(256, 64), torch.rand(256, 256)
    compiled = koila.compile(module, x, mask=mask, budget="200KiB")
    tile = compiled.tile
    assert tile and tile < 256
    close(compiled, module, x, mask=mask)
    close(compiled, module, x[:100], mask=mask[:100])
    close(compiled, module, x=x, mask=mask)
    # One kind after the other, and back.
    calls: list[tuple[tuple, dict]] = [
        ((x,), {}),
        ((x, 2.0), {"flip": True}),
        ((x,), {"scale": 2.0, "flip": True, "mask": None}),
        ((x,), {"mask": mask}),
        ((x,), {"mask": mask[:1]}),
    ]
    for args, kwargs in calls:
        close(compiled, module, *args, **kwargs)
        assert compiled.tile


def test_names_of_scripts_and_defaults():
    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, x, mask: torch.Tensor | None = None, power: int = 1):
            y = self.layer(x)
            if mask is not None:
                y = y * mask
            return y**power

    module, x, mask = Scripted(), torch.randn(64, 16), torch.rand(64, 4)
    compiled = koila.compile(module, x, mask=mask, tile=8)
    close(compiled, module, x, mask)
    close(compiled, module, x, mask=mask)
    close(compiled, module, x)
    close(compiled, module, x, power=2)
    step = koila.compile(module, x, torch.randn(64, 4), mask=mask, loss="mse_loss", tile=8)
    target = torch.randn(64, 4)
    loss = step.train_step(x, target, mask=mask)
    wanted = functional.mse_loss(module(x, mask), target)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(
        [weight.grad for weight in module.parameters()],
        list(torch.autograd.grad(wanted, list(module.parameters()))),
    )


def test_objects_as_arguments():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, batch, *rest, **more):
            return self.layer(batch["x"]) * more["factor"] + sum(rest)

    module, x = Reader().eval(), torch.randn(64, 16)
    given: tuple[tuple, dict] = (Bag(x=x, name="a"), x[:, :4], 1.0), {"factor": 2.0}
    compiled = koila.compile(module, *given[0], tile=8, **given[1])
    assert compiled.tile == 8
    close(compiled, module, *given[0], **given[1])
    report = koila.analyze(module, *given[0], **given[1])
    assert report.peak and koila.max_batch(module, *given[0], budget="64KiB", **given[1])


def test_unknown_names():
    with pytest.raises(TypeError, match="'buget' is no option, and forward"):
        koila.compile(Model(), torch.randn(8, 64), buget="1MiB")
    with pytest.raises(koila.CompileError, match="does not take these inputs: missing"):
        koila.compile(Model(), mask=torch.randn(8, 64), tile=2)


def test_wrong_arguments_are_those_of_the_module():
    module, x = Model().eval(), torch.randn(256, 64)
    for compiled in (koila.compile(module, x, budget="200KiB"), koila.compile(module, x, tile=8)):
        for args in [(), (x, 1.0, x), ("text",), (None,), (x.numpy(),), (x[:, :63],), (x.long(),)]:
            with torch.no_grad():
                with pytest.raises(Exception) as wanted:
                    module(*args)
                with warnings.catch_warnings(), pytest.raises(wanted.type) as found:
                    warnings.simplefilter("ignore")
                    compiled(*args)
            assert str(found.value).splitlines()[0] == str(wanted.value).splitlines()[0]


def test_errors_of_a_call():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(16, 64)

        def forward(self, i):
            return self.table(i).tanh()

    module, i = Lookup(), torch.randint(16, (256,))
    compiled = koila.compile(module, i, budget="80KiB")
    i[200] = 16
    with torch.no_grad(), pytest.raises(IndexError, match="index out of range in self"):
        compiled(i)


def test_hooks_of_all_modules():
    module, x = Model().eval(), torch.randn(256, 64)
    compiled = koila.compile(module, x, budget="200KiB")
    seen = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda part, args, result: seen.append(type(part).__name__)
    )
    try:
        with torch.no_grad():
            module(x)
            wanted, seen[:] = list(seen), []
            close_to = compiled(x)
    finally:
        handle.remove()
    assert seen == wanted == ["Linear", "Linear", "Model"]
    with torch.no_grad():
        torch.testing.assert_close(close_to, module(x))


def test_hooks_of_its_own():
    x = torch.randn(256, 64)
    compiled = koila.compile(Model().eval(), x, budget="200KiB")
    seen = []
    compiled.register_forward_hook(lambda part, args, result: seen.append(result.shape))
    with torch.no_grad():
        compiled(x)
    assert seen == [(256, 10)]


def test_parts_of_a_sequential():
    module = networks.mlp()
    compiled = koila.compile(module, torch.randn(64, 64), tile=8)
    assert compiled[0] is module[0] and compiled[-1] is module[-1]  # type: ignore[index]
    assert len(compiled) == 3 and list(compiled) == list(module)
    assert bool(koila.compile(Model().eval(), torch.randn(64, 64), tile=8))
    other = koila.compile(Model().eval(), torch.randn(64, 64), tile=8)
    with pytest.raises(TypeError, match="has no len"):
        len(other)


def test_other_compilers():
    x = torch.randn(64, 64)
    compiled = koila.compile(Model().eval(), x, tile=8)
    for work in (
        lambda: torch.export.export(compiled, (x,)),
        lambda: torch.jit.trace(compiled, x),
        lambda: torch.jit.script(compiled),
    ):
        with warnings.catch_warnings(), pytest.raises(koila.CompileError, match=r"\.original"):
            warnings.simplefilter("ignore")
            work()
    # As a part of another module it is what it was made of.
    whole = nn.Sequential(compiled, nn.ReLU())
    small = koila.compile(whole, x, tile=16)
    with torch.no_grad():
        torch.testing.assert_close(small(x), whole(x))


def test_threads_share_a_module():
    module = Model().eval()
    compiled = koila.compile(module, torch.randn(8, 64), budget="200KiB")
    sizes = [8, 100, 256, 300]
    data = [torch.randn(size, 64) for size in sizes]
    found = {}

    def serve(place):
        with torch.no_grad():
            for _ in range(5):
                found[place] = compiled(data[place])

    threads = [threading.Thread(target=serve, args=(place,)) for place in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for place, x in enumerate(data):
        torch.testing.assert_close(found[place], module(x).detach())


def test_classes_of_a_function():
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a": x.tanh()}

    x = torch.randn(64, 16)
    compiled = koila.compile(Local(), x, tile=8)
    close(compiled, Local(), x)
    buffer = io.BytesIO()
    torch.jit.save(compiled.script, buffer)
    assert buffer.tell()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
