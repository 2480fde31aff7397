"""koila.compat.infinitybatch: the calls of its README, what it gets wrong, and what
its users planned for."""

import csv
import dataclasses
import json
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila import _out_of_memory as out_of_memory
from koila.compat import infinitybatch
from koila.compat.infinitybatch import tiles, tools
from memory_counter import peak_of

InfinityBatch = infinitybatch.InfinityBatch
Error, Warned = infinitybatch.InfinityBatchError, infinitybatch.InfinityBatchWarning


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))


def make_batches(count=3, size=20):
    torch.manual_seed(1)
    return [(torch.randn(size, 3, 4), torch.randint(4, (size,))) for _ in range(count)]


def make(model=None, batches=None, lr=0.1, **options):
    model = make_model() if model is None else model
    return InfinityBatch(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        nn.CrossEntropyLoss(),
        make_batches() if batches is None else batches,
        verbose=False,
        **options,
    )


def train_plainly(model, batches, epochs=1, lr=0.1, criterion=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        for x, t in batches:
            loss = (criterion or nn.CrossEntropyLoss())(model(x), t)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def close(one, other):
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()))


@pytest.fixture
def apart(monkeypatch):
    """The model is on another device than the batch, as far as the trainer knows: the
    machine that runs this has one only."""
    for module in (tiles, sys.modules[InfinityBatch.__module__]):
        monkeypatch.setattr(module, "are_apart", lambda one, other: True)
    # Figures are asked for in one test alone, and take a second.
    monkeypatch.setattr(tiles.Tiler, "_predict", lambda tiler, inputs, count, with_graph: count)


class Capped:
    """A device with room for so many samples with their graph: the first layer runs
    out of memory where there are more."""

    def __init__(self, model, most, most_without=None):
        self.most, self.most_without, self.sizes = most, most_without or most, []
        model.register_forward_pre_hook(self.look)

    def look(self, module, args):
        self.sizes.append(len(args[0]))
        if len(args[0]) > (self.most if torch.is_grad_enabled() else self.most_without):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


# Its README.


@pytest.mark.parametrize("form", ["simple", "epochs", "pieces"])
def test_calls_of_the_readme(form):
    batches = make_batches()
    ib = InfinityBatch(verbose=False)
    ib.model = make_model()
    ib.criterion = nn.CrossEntropyLoss()
    with pytest.warns(Warned, match="`optimier` is taken as `optimizer`"):
        ib.optimier = torch.optim.SGD(ib.model.parameters(), lr=0.1)
    ib.dataloader = batches
    wanted = make_model()
    losses = train_plainly(wanted, batches, 2)
    if form == "simple":
        ib(2)
    elif form == "epochs":
        for _ in range(2):
            ib.epoch()
    else:
        for epoch in range(2):
            for _, targets in ib.dataloader:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    outputs = ib.batch_()
                assert len(caught) == (epoch == 0 and targets is batches[0][1])
                loss = ib.criterion(outputs, targets)
                loss.backward()
                ib.step()
                ib.zero_grad()
    close(ib.model, wanted)
    if form != "pieces":
        assert [[size for _, size in epoch] for epoch in ib.losses] == [[20] * 3] * 2
        found = [value for epoch in ib.losses for value, _ in epoch]
        assert found == pytest.approx(losses)


def test_own_pieces():
    batches = make_batches(1)
    ib, wanted = make(batches=batches), make_model()
    losses = train_plainly(wanted, batches)
    ib.epochstart_()
    for inputs, _ in ib.dataloader:
        assert ib.batch_(inputs).shape == (20, 4)
        assert ib.loss() is None
        ib.backward()
        ib.step()
        ib.zero_grad()
    close(ib.model, wanted)
    assert ib.losses == [[(pytest.approx(losses[0]), 20)]]


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.drop, self.last_drop = nn.Dropout2d(0.25), nn.Dropout(0.5)
        self.hidden, self.last = nn.Linear(16 * 144, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        x = self.drop(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.last(self.last_drop(F.relu(self.hidden(x)))), 1)


def test_example_in_a_fifth_of_the_memory():
    """Random images of MNIST's shape. The original keeps what was saved of all samples."""
    torch.manual_seed(0)
    images, labels = torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
    model = Digits()
    ib = InfinityBatch(model, torch.optim.SGD(model.parameters(), lr=0.0), nn.NLLLoss())

    def plain():
        F.nll_loss(model(images), labels).backward()

    def step():
        ib.criterion(ib.batch_(images), labels).backward()

    def measure(function):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        torch.manual_seed(7)
        return peak_of(function)[0], [weight.grad for weight in model.parameters()]

    untiled, wanted = measure(plain)
    ib.budget = untiled // 5
    peak, found = measure(step)
    assert peak <= untiled // 5
    assert 1 < koila.last().tile < 256
    for gradient, right in zip(found, wanted, strict=True):
        assert (gradient - right).abs().max() <= 1e-4 * right.abs().max()


def test_example():
    """The loop of its example, with a scheduler and an evaluation by hand."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(96, 1, 28, 28), torch.randint(10, (96,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)

    def train(run_epoch):
        torch.manual_seed(1)
        model = Digits()
        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        losses = []
        step = run_epoch(model, optimizer)
        torch.manual_seed(2)
        for _ in range(2):
            model.train()
            step()
            model.eval()
            with torch.no_grad():
                losses += [F.nll_loss(model(x), t, reduction="sum").item() for x, t in loader]
            scheduler.step()
        return losses

    def plain(model, optimizer):
        def step():
            for x, t in loader:
                optimizer.zero_grad()
                F.nll_loss(model(x), t).backward()
                optimizer.step()

        return step

    def tiled(model, optimizer):
        ib = InfinityBatch(verbose=False)
        ib.model, ib.optimizer = model, optimizer
        ib.criterion, ib.dataloader = nn.NLLLoss(), loader
        ib.budget = "2MiB"
        return ib.epoch

    wanted = train(plain)
    assert train(tiled) == pytest.approx(wanted, rel=1e-3)
    assert koila.last().tile < 32


@dataclasses.dataclass
class Sample:
    """A batch that is an object."""

    values: torch.Tensor
    labels: torch.Tensor
    name: str = "x"


@pytest.mark.usefixtures("apart")
def test_a_batch_that_is_an_object():
    batches = make_batches(2)
    ib, wanted = make(batches=[Sample(*batch) for batch in batches]), make_model()
    ib.separate = lambda batch: (batch, batch.labels)
    ib.call = lambda model, batch: model(batch.values)
    capped = Capped(ib.model, 8)
    train_plainly(wanted, batches)
    ib(1)
    close(ib.model, wanted)
    assert ib.tile == 5 and 20 in capped.sizes
    assert isinstance(ib.inputs[-1][-1], Sample) and ib.inputs[-1][-1].name == "x"


def test_counting_parameters_draws_nothing(monkeypatch):
    """On a GPU, either, whose generator is another one."""
    states = [torch.tensor([index]) for index in range(2)]

    class Device:
        @staticmethod
        def get_rng_state(device):
            return states[device.index].clone()

        @staticmethod
        def set_rng_state(state, device):
            states[device.index] = state.clone()

    for name, answer in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "synchronize": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch, "get_device_module", lambda device: Device)
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(make_model(), nn.Dropout(), norm)
    drew = []

    def draw(*_):
        states[1].add_(5)
        drew.append(torch.rand(()))

    model[1].register_forward_hook(draw)
    inputs = make_batches(1)[0][0]
    before, mean = torch.get_rng_state(), norm.running_mean.clone()
    assert tools.count_parameters(model, inputs).total.seconds is not None
    assert len(drew) == 1 and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(norm.running_mean, mean)
    assert [state.item() for state in states] == [0, 1]


# A batch that the device cannot hold.


@pytest.mark.usefixtures("apart")
def test_a_batch_larger_than_the_device():
    batches = make_batches()
    ib, wanted = make(batches=batches), make_model()
    capped = Capped(ib.model, 8)
    train_plainly(wanted, batches, 2)
    ib(2)
    close(ib.model, wanted)
    assert ib.tile == 5  # 20, 10, 5
    # No size that failed is tried again.
    assert max(capped.sizes[len(capped.sizes) // 2 :]) <= 8
    ib.eval()
    with torch.no_grad():
        x = batches[0][0]
        torch.testing.assert_close(ib.batch_(x), wanted(x))


def test_the_first_tile_is_the_predicted_one(monkeypatch, apart):
    monkeypatch.undo()
    for module in (tiles, sys.modules[InfinityBatch.__module__]):
        monkeypatch.setattr(module, "are_apart", lambda one, other: True)
    batches = make_batches(1)
    ib, wanted = make(batches=batches), make_model()
    weights = sum(weight.nbytes for weight in ib.model.parameters())
    ib.budget = koila.analyze(make_model(), *batches[0][:1], mode="forward-with-grad").peak // 3
    ib.budget += weights
    capped = Capped(ib.model, 7)
    train_plainly(wanted, batches)
    ib.epoch()
    close(ib.model, wanted)
    assert ib.tile == 6 and max(capped.sizes) == 6


@pytest.mark.usefixtures("apart")
def test_gradients_need_more_than_outputs():
    batches = make_batches(1)
    ib, wanted = make(batches=batches), make_model()
    Capped(ib.model, 6, 20)
    train_plainly(wanted, batches)
    ib.epoch()
    close(ib.model, wanted)
    assert ib.tile == 5


@pytest.mark.usefixtures("apart")
def test_tiles_draw_the_same_numbers_twice():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
    x = torch.randn(12, 8)
    ib = make(model)
    Capped(model, 4)
    torch.manual_seed(3)
    outputs = ib.batch_(x)
    after = torch.random.get_rng_state()
    torch.manual_seed(3)
    # What three tiles of 3 to 4 draw; the outputs are from the same masks as the gradients.
    tile = ib.tile
    wanted = torch.cat([model(part) for part in x.split(tile)])
    assert torch.equal(torch.random.get_rng_state(), after)
    torch.testing.assert_close(outputs, wanted)
    weights = list(model.parameters())
    right = torch.autograd.grad(wanted.square().sum(), weights)
    torch.testing.assert_close(torch.autograd.grad(outputs.square().sum(), weights), right)
    assert torch.equal(torch.random.get_rng_state(), after)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    "mixing",
    [
        nn.BatchNorm1d(12),
        nn.Softmax(0),
        koila.LazyFunction(lambda x: x, None),
    ],
)
def test_samples_that_are_not_apart_run_whole(mixing):
    class Cumulated(nn.Module):
        def forward(self, x):
            return x.cumsum(0)

    mixing = mixing if isinstance(mixing, nn.Module) else Cumulated()
    batches = make_batches(1)

    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 12), mixing, nn.Linear(12, 4))

    wanted = build()
    state = {name: value.clone() for name, value in wanted.state_dict().items()}
    train_plainly(wanted, batches)
    trained = {name: value.clone() for name, value in wanted.state_dict().items()}
    ib = make(build(), batches)
    ib.model.load_state_dict(state)
    with pytest.warns(Warned, match="depends on the others of the batch"):
        ib.epoch()
    # Statistics were updated once, as by PyTorch alone.
    for name, value in ib.model.state_dict().items():
        torch.testing.assert_close(value, trained[name])


@pytest.mark.usefixtures("apart")
def test_samples_that_are_alike_show_it_too():
    model = nn.Sequential(nn.Linear(12, 4), nn.Softmax(0))
    ib, x = make(model), torch.ones(6, 12)
    with pytest.warns(Warned, match="depends on the others of the batch"):
        outputs = ib.batch_(x)
    torch.testing.assert_close(outputs, model(x))


@pytest.mark.usefixtures("apart")
def test_what_tiles_refuse():
    ib = make()
    with pytest.raises(Error, match="gradients of the inputs"):
        ib.batch_(torch.randn(4, 12, requires_grad=True))
    ib = make(nn.Sequential(nn.Linear(12, 4), nn.Flatten(0)))
    with pytest.raises(Error, match="does not give a row for each sample"):
        ib.batch_(torch.randn(4, 12))
    ib = make()
    outputs = ib.batch_(torch.randn(4, 12))
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(koila.KoilaError, match="a second backward pass"):
        outputs.sum().backward()


@pytest.mark.usefixtures("apart")
def test_autocast_holds_for_both_passes():
    x, t = make_batches(1)[0]
    ib, wanted = make(), make_model()
    Capped(ib.model, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, right = ib.batch_(x), wanted(x)
    assert outputs.dtype == right.dtype == torch.bfloat16
    # Neither backward pass is in the block.
    F.cross_entropy(outputs.float(), t).backward()
    F.cross_entropy(right.float(), t).backward()
    for one, other in zip(ib.model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0.02, atol=0.002)


@pytest.mark.usefixtures("apart")
def test_hooks_see_the_gradient_of_the_whole():
    x, t = make_batches(1)[0]
    seen = []
    for tiled in (False, True):
        model = make_model()
        model[1].weight.register_hook(lambda gradient: seen.append(gradient.clone()))
        ib = make(model)
        if tiled:
            Capped(model, 8)
        F.cross_entropy(ib.batch_(x) if tiled else model(x), t).backward()
    first, second = seen
    torch.testing.assert_close(first, second)


def test_batch_normalisation_on_one_device():
    """Whole, as PyTorch does, with koila's warning if that does not fit."""
    batches = make_batches(2)

    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 12), nn.BatchNorm1d(12), nn.Linear(12, 4))

    wanted = build()
    train_plainly(wanted, batches)
    ib = make(build(), batches)
    ib.epoch()
    for name, value in ib.model.state_dict().items():
        torch.testing.assert_close(value, wanted.state_dict()[name])
    assert int(ib.model[2].num_batches_tracked) == 2


# What it gets wrong.


def test_what_is_missing_is_said():
    with pytest.raises(Error, match="`optimizer` is not set"):
        InfinityBatch(make_model(), verbose=False)(1)
    with pytest.raises(Error, match="gave no batch"):
        make(batches=[]).epoch()
    ib = make()
    with pytest.warns(Warned, match="`backward` comes after `loss`"):
        ib.backward()
    with pytest.raises(Error, match="`loss` comes after `batch_`"):
        ib.loss()
    with pytest.raises(Error, match="the dataloader gave none yet"):
        ib.batch_()
    assert issubclass(Error, RuntimeError) and issubclass(Error, koila.KoilaError)
    assert issubclass(Warned, Warning)


def test_set_once():
    ib = make()
    model, optimizer, criterion = ib.model, ib.optimizer, ib.criterion
    with pytest.warns(Warned, match="`model` can be set once"):
        ib.model = make_model(1)
    with pytest.warns(Warned, match="`optimizer` can be set once"):
        ib.optimizer = torch.optim.SGD(model.parameters(), lr=1)
    with pytest.warns(Warned, match="`criterion` can be set once"):
        ib.criterion = nn.MSELoss()
    assert (ib.model, ib.optimizer, ib.criterion) == (model, optimizer, criterion)
    for name in ("forward_device", "inputs", "outputs", "targets", "losses"):
        with pytest.raises(AttributeError):
            setattr(ib, name, None)
    assert (ib.forward_device, ib.backward_device) == (torch.device("cpu"),) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one device saves memory, too
        InfinityBatch(make_model())
        ib.changemodeldevice("cpu")


def test_containers_keep_one_batch():
    batches = make_batches()
    ib = make(batches=batches)
    ib(2)
    assert [len(epoch) for epoch in ib.inputs] == [0, 1]
    assert torch.equal(ib.inputs[-1][-1], batches[-1][0])
    assert torch.equal(ib.targets[-1][-1], batches[-1][1])
    kept = ib.outputs[-1][-1]
    assert type(kept) is torch.Tensor and kept.grad_fn is None
    ib.clearcontainers_()
    ib.keeps_batches = True
    ib(2)
    assert [len(epoch) for epoch in ib.outputs] == [3, 3]
    ib.clearcontainers_()
    assert ib.inputs == ib.outputs == ib.targets == ib.losses == []


def test_moving_takes_the_optimizer_along():
    model = make_model()
    ib = make(model)
    ib._optimizer = torch.optim.Adam(model.parameters())
    ib.epoch()
    ib.changemodeldevice("meta")
    assert ib.forward_device == torch.device("meta")
    devices = {
        value.device.type
        for state in ib.optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    }
    assert devices == {"meta"}


def test_forgotten_calls_are_noticed():
    def loop(ib, *calls):
        for inputs, targets in ib.dataloader:
            ib.criterion(ib.batch_(inputs), targets).backward()
            for call in calls:
                getattr(ib, call)()

    with pytest.warns(Warned, match="not followed by `zero_grad`") as caught:
        loop(make(), "step")
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(Warned, match="no `step` after 1 batch") as caught:
        loop(make())
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(make(), "step", "zero_grad")
        ib = make()
        ib.accumulate = 4
        loop(ib)
        # By the user's own names.
        ib = make()
        for inputs, targets in ib.dataloader:
            ib.criterion(ib.batch_(inputs), targets).backward()
            ib.optimizer.step()
            ib.optimizer.zero_grad(set_to_none=False)


def test_tools():
    one = torch.tensor([1.0, 2.0])
    assert tools.is_equal_with_error(one, one.clone())
    assert tools.is_equal_with_error(one.double(), one.double() + 5e-8)
    assert not tools.is_equal_with_error(one, one + 1)
    assert tools.is_equal_with_error(torch.tensor(1.0), torch.tensor(1.0))
    assert not tools.is_equal_with_error(torch.tensor(1.0), torch.tensor(2.0))
    assert not tools.is_equal_with_error(one, torch.ones(3))
    assert not tools.is_equal_with_error(one, one * float("nan"))
    assert tools.is_equal_with_error(one / 0, one / 0)
    assert tools.is_equal_with_error(one.requires_grad_(), one * 1, detach=False)
    assert tools.compare_with_error_(1.0, 1.0 + 5e-8)
    assert not tools.compare_with_error_(1.0, 1.1)
    assert tools.is_equal_network(make_model(), make_model())
    assert not tools.is_equal_network(make_model(), make_model(1))
    assert not tools.is_equal_network(make_model(), nn.Linear(2, 2))
    for seed in (None, 5):
        drawn = []
        for _ in range(2):
            tools.determinize(seed)
            drawn.append(torch.rand(3))
        assert torch.equal(*drawn)
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    tools.determinize(be_deterministic=False)
    assert torch.backends.cudnn.benchmark and not torch.equal(torch.rand(3), drawn[0])
    tools.determinize(0)


def test_snapshots(monkeypatch):
    """Of a card of 1000 bytes."""
    with pytest.raises(Error, match="PyTorch finds none"):
        tools.CudaMemorySnapShot()
    properties = type("Properties", (), {"total_memory": 1000})
    figures = {"memory_reserved": 300, "memory_allocated": 100}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    for name, figure in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, figure=figure: figure)
    snapshot = tools.CudaMemorySnapShot("cuda:0")
    assert (snapshot.total, snapshot.reserved, snapshot.allocated) == (1000, 300, 100)
    assert (snapshot.device, snapshot.free_cache) == ("cuda:0", 200)
    with pytest.warns(Warned, match="is not changed"):
        snapshot.total = 1
    assert snapshot.total == 1000
    history = tools.CudaHistory()
    assert str(history) == "CudaHistory is empty."
    history.append("before the first of all epochs")
    assert history[0][0] == "before the first of " and "1000" in str(history)
    with pytest.warns(Warned, match="the name is CudaMemorySnapShot"):
        assert tools.CudaMemorySnapshot().total == 1000


def test_parameters_are_counted():
    layers: Any = [nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 4)]
    model: Any = nn.Sequential(*layers)
    model[2].weight = model[0].weight
    model[2].bias.requires_grad_(False)
    before = model[1].running_mean.clone()
    counts = tools.count_parameters(model, torch.randn(3, 4))
    assert [(row.name, row.elements, row.learnable, row.bytes) for row in counts] == [
        ("", 0, 0, 0),
        ("0", 16, 16, 64),
        ("1", 8, 8, 32),
        ("2", 4, 0, 16),
    ]
    assert counts.total[2:5] == (28, 24, 112) and counts.total.seconds > 0
    assert torch.equal(model[1].running_mean, before)
    assert "BatchNorm1d" in str(counts) and "112 bytes" in str(counts)
    assert [row.name for row in tools.count_parameters(model)] == ["0", "1", "2"]


# What its README plans.


@pytest.mark.parametrize("kind", ["three", "mapping", "named"])
def test_any_structure(kind):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(3, 4), nn.Linear(5, 4)

        def forward(self, a, b):
            return {"sum": self.first(a) + self.second(b), "product": self.first(a)}

    torch.manual_seed(1)
    a, b, t = torch.randn(10, 3), torch.randn(10, 5), torch.randint(4, (10,))
    batch = {
        "three": (a, b, t),
        "mapping": {"a": a, "b": b, "labels": t},
        "named": {"a": a, "b": b, "classes": t},
    }[kind]

    def criterion(outputs, targets):
        return F.cross_entropy(outputs["sum"], targets) + outputs["product"].square().mean()

    wanted = Two()
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    criterion(wanted(a, b), t).backward()
    optimizer.step()
    model = Two()
    ib = InfinityBatch(
        model, torch.optim.SGD(model.parameters(), lr=0.1), criterion, [batch], verbose=False
    )
    if kind == "named":
        with pytest.raises(Error, match="which of a, b, classes are the targets"):
            ib.epoch()
        ib.separate = lambda batch: ({"a": batch["a"], "b": batch["b"]}, batch["classes"])
    ib.epoch()
    close(model, wanted)
    with pytest.raises(Error, match="a pair of inputs and targets"):
        make(batches=[torch.randn(3)]).epoch()


@pytest.mark.parametrize("form", [list, dict])
def test_several_of_each(form):
    batches = make_batches(2)
    wanted = [make_model(0), make_model(1)]
    for x, t in batches:
        F.cross_entropy(wanted[0](x), t).backward()
        (2 * F.cross_entropy(wanted[1](x), t)).backward()
        for model in wanted:
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 0.1 * weight.grad
                    weight.grad = None
    models = [make_model(0), make_model(1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    criteria = [nn.CrossEntropyLoss(), lambda y, t: 2 * F.cross_entropy(y, t)]
    if form is dict:
        parts = [dict(zip("ab", items, strict=True)) for items in (models, criteria)]
    else:
        parts = [models, criteria]
    ib = InfinityBatch(parts[0], optimizers, parts[1], batches, verbose=False)
    ib.epoch()
    for model, right in zip(models, wanted, strict=True):
        close(model, right)


def test_evaluation_leaves_no_trace():
    batches = make_batches()
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Dropout())
    model[2].eval()
    ib = make(model, batches)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = ib.eval(metrics={"right": lambda y, t: (y.argmax(1) == t).float().mean()})
    assert [module.training for module in model] == [True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.eval()
    with torch.no_grad():
        pairs = [(model(x), t) for x, t in batches]
    wanted = sum(float(F.cross_entropy(y, t)) for y, t in pairs) / 3
    right = sum(float((y.argmax(1) == t).float().mean()) for y, t in pairs) / 3
    assert found == {"loss": pytest.approx(wanted), "right": pytest.approx(right)}
    assert all(weight.grad is None for weight in model.parameters())
    with pytest.raises(Error, match="gave no batch"):
        ib.eval([])


def test_callbacks_and_early_stopping():
    ib = make(lr=0.0)
    events = []
    ib.callbacks += [lambda event, ib: events.append(event), infinitybatch.EarlyStopping(2)]
    ib.train(10, evaluate=make_batches(1))
    assert ib.epochs == 3 == len(ib.losses)
    assert events == [
        "train start",
        *(["epoch start", *["batch end"] * 3, "epoch end"] * 3),
        "train end",
    ]
    assert ib.callbacks[1].best == ib.statistics[0]["evaluation"]
    ib = make()
    ib.callbacks.append(lambda event, ib: event == "batch end")
    ib.epoch()
    assert len(ib.losses[0]) == 1


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(12, 8), nn.Dropout(), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.first(x.flatten(1)))))


def test_checkpoints_resume_bit_by_bit(tmp_path):
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(40, 3, 4), torch.randint(4, (40,)))

    def build():
        model = Noisy()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(5)
        sampler = torch.utils.data.RandomSampler(data, generator=generator)
        loader = torch.utils.data.DataLoader(data, batch_size=10, sampler=sampler)
        ib = InfinityBatch(model, optimizer, nn.CrossEntropyLoss(), loader, verbose=False)
        ib.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        ib.callbacks.append(lambda event, ib: event == "epoch end" and scheduler.step())
        return ib, {"scheduler": scheduler, "sampler": sampler}

    torch.manual_seed(9)
    straight, _ = build()
    straight(4)
    torch.manual_seed(9)
    first, others = build()
    first(2)
    path = tmp_path / "training.pt"
    first.checkpoint(path, **others)
    torch.manual_seed(1234)
    second, others = build()
    second.resume(path, **others)
    second(2)
    assert tools.is_equal_network(second.model, straight.model)
    assert second.losses == straight.losses and second.epochs == 4
    for one, other in zip(
        second.optimizer.state.values(), straight.optimizer.state.values(), strict=True
    ):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert second.scaler.get_scale() == straight.scaler.get_scale()
    with pytest.raises(Error, match="differ in sampler"):
        second.resume(path, scheduler=others["scheduler"])
    with pytest.raises(Error, match="neither a state_dict nor a generator"):
        first.checkpoint(loader=[1])
    first.callbacks.append(lambda event, ib: event == "batch end" and ib.checkpoint() and None)
    with pytest.raises(Error, match="between epochs"):
        first.epoch()


def test_statistics_in_files(tmp_path):
    ib = make()
    ib(2)
    ib.save_statistics(tmp_path / "losses.csv")
    with open(tmp_path / "losses.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["epoch"]), int(row["batch"])) for row in rows] == [
        (epoch, batch) for epoch in range(2) for batch in range(3)
    ]
    ib.save_statistics(tmp_path / "losses.json")
    found = json.loads((tmp_path / "losses.json").read_text())
    assert [row["loss"] for row in found["batches"]] == [float(row["loss"]) for row in rows]
    assert found["epochs"][1]["samples"] == 60
    with pytest.raises(Error, match=r"written as \.csv or \.json"):
        ib.save_statistics(tmp_path / "losses.txt")


def test_accumulated_batches_step_together():
    batches = make_batches(3)
    ib, wanted = make(batches=batches), make_model()
    ib.accumulate = 2
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    for place, (x, t) in enumerate(batches):
        F.cross_entropy(wanted(x), t).backward()
        if place:
            optimizer.step()
            optimizer.zero_grad()
    ib.epoch()
    close(ib.model, wanted)


def test_progress_is_printed(capsys):
    ib = make()
    ib.verbose_mode = True
    ib(1)
    printed = capsys.readouterr().out
    assert "Epoch 1 of 1" in printed and "3 batches and 60 samples" in printed
    ib.verbose_mode = False
    ib(1)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("apart")
def test_nothing_is_released_while_tiles_fit(monkeypatch):
    released = []
    monkeypatch.setattr(out_of_memory, "release_cached", lambda: released.append(1))
    ib = make()
    Capped(ib.model, 8)
    ib.epoch()
    assert released and ib.tile == 5
    released.clear()
    ib.epoch()
    assert not released and ib.tile == 5


class Last(nn.Module):
    """The samples are in the second dim, as recurrent layers have them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.LSTM(3, 4)

    def forward(self, x):
        return self.rnn(x)[0][-1]


def test_samples_in_the_second_dim():
    torch.manual_seed(1)
    batches = [(torch.randn(7, 10, 3), torch.randint(4, (10,)))]
    ib, wanted = make(Last(), batches), Last()
    train_plainly(wanted, batches)
    ib.epoch()
    close(ib.model, wanted)


@pytest.mark.usefixtures("apart")
def test_samples_in_the_second_dim_are_refused():
    with pytest.raises(Error, match="does not give a row for each sample"):
        make(Last()).batch_(torch.randn(7, 10, 3))


def test_a_model_on_several_devices_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(Error, match="several devices: cpu, meta"):
        InfinityBatch(model, verbose=False)
