"""What lives after a step: as much after the last of STEPS (by default 200) as
after the tenth, and nothing that plain PyTorch has freed. Python does not look for
cycles meanwhile."""

import copy
import gc
import os
import weakref

import pytest

from measure import Memory

memory = Memory()

import torch
from torch import nn
from torch.nn import functional as F

import koila

BUDGET = 200 << 10
STEPS = int(os.environ.get("STEPS", "200"))


@pytest.fixture(autouse=True)
def no_cycles():
    gc.collect()
    gc.disable()
    torch.manual_seed(0)
    yield
    gc.enable()


class Net(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, 64), nn.ReLU(inplace=inplace), nn.Linear(64, 64), nn.ReLU(inplace=inplace)
        )
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(F.dropout(self.body(x), 0.2, self.training))


class Loop:
    """A script's state, and one of its steps."""

    def __init__(self, inplace=False):
        self.model = Net(inplace)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def batch(self):
        return torch.randn(256, 8), torch.randint(4, (256,))

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Metrics(Loop):
    def step(self):
        x, y = koila.lazy(*self.batch(), batch=0, budget=BUDGET)
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        if torch.isnan(loss):
            raise ValueError
        self.update(loss)
        return (logits.argmax(1) == y).float().mean().item(), loss.item()


class Totals(Loop):
    """Read every hundredth step."""

    def __init__(self):
        super().__init__(inplace=True)
        self.right, self.total, self.steps = torch.zeros(()), 0, 0

    def step(self):
        x, y = koila.lazy(*self.batch(), batch=0, budget=BUDGET)
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        self.total += loss.detach()
        self.right += (logits.argmax(1) == y).sum()
        self.update(loss)
        self.steps += 1
        if self.steps % 100 == 0:
            float(self.total), self.right.item()


class Evaluation(Loop):
    def step(self):
        with torch.no_grad():
            x, y = koila.lazy(*self.batch(), batch=0, budget=BUDGET)
            self.model.eval()
            logits = self.model(x)
            logits[:, 0].mul_(2.0)
            return F.cross_entropy(logits, y)


class Adversarial(Loop):
    """The noise is no lazy tensor."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 8))
        self.other = torch.optim.Adam(self.generator.parameters())

    def step(self):
        x = koila.lazy(self.batch()[0], batch=0, budget=BUDGET)
        fake = self.generator(torch.randn(256, 4))
        loss = F.softplus(-self.model(x)).mean() + F.softplus(self.model(fake.detach())).mean()
        self.update(loss)
        self.other.zero_grad()
        (-self.model(fake).mean()).backward()
        assert koila.last().tile is not None
        self.other.step()


class Hooks(Loop):
    def step(self):
        x, y = koila.lazy(*self.batch(), batch=0, budget=BUDGET)
        hidden = self.model.body(x)
        hidden.retain_grad()
        loss = F.cross_entropy(self.model.head(hidden), y)
        self.update(loss)
        return hidden.grad.norm().item(), hidden[:, 0].detach()


class Annealed(Loop):
    """A number that is another one in each step."""

    weight = 1.0

    def step(self):
        x, y = koila.lazy(*self.batch(), batch=0, budget=BUDGET)
        logits = self.model(x)
        self.weight *= 0.999
        self.update(F.cross_entropy(logits, y) + self.weight * logits.square().mean())


@pytest.mark.parametrize("kind", [Metrics, Totals, Evaluation, Adversarial, Hooks, Annealed])
def test_the_last_step_holds_what_the_tenth_held(kind):
    loop = kind()
    seen = {}
    for number in range(1, STEPS + 1):
        kept = loop.step()
        if number in (10, STEPS // 2, STEPS):
            seen[number] = memory.read()[0], len(gc.get_objects())
    del kept
    live, objects = zip(*seen.values(), strict=True)
    # Results that are held, of another size by chance: none.
    assert max(live) - min(live) <= 64, seen
    # Lists of weak references are cleaned now and then, and have grown by then; a
    # leak is one a step or more.
    assert objects[2] - objects[1] < STEPS // 4, seen


def test_a_list_that_grows_is_seen():
    """The control of the test above."""
    loop, kept, seen = Metrics(), [], []
    for _ in range(30):
        kept.append(torch.tensor(loop.step()))
        seen.append(memory.read()[0])
    assert seen[-1] - seen[9] > 64


@pytest.mark.parametrize("budget", [BUDGET, "1TiB"])
def test_a_batch_goes_with_its_names(budget):
    """Also where memory was written to through a view, and of it others look."""
    model = Net()

    def step():
        plain = torch.randn(256, 8)
        x = koila.lazy(plain, batch=0, budget=budget)
        hidden = model.body(x) + 1
        hidden[:, 0].mul_(2.0)
        first, rest = hidden[:, :4], hidden[:, 4:]
        goal = hidden.detach().softmax(1)
        kept = torch.multinomial(goal, 1), first.detach().clone()
        (first.mean() + rest.square().mean()).backward()
        return weakref.ref(plain), [item.sum().item() for item in kept]

    step()
    for _ in range(3):
        batch, _ = step()
        assert batch() is None


def test_views_of_what_is_computed_take_no_memory():
    model = Net().eval()
    x = koila.lazy(torch.randn(256, 8), batch=0, budget=BUDGET)
    stats = model.body(x)
    mean, deviation = stats[:, :32], stats[:, 32:]
    stats.square().mean().backward()
    assert koila.last().tile is not None
    before = memory.read()[0]
    parts = [part.detach().untyped_storage() for part in (stats, mean, deviation)]
    assert len({storage.data_ptr() for storage in parts}) == 1
    assert memory.read()[0] == before


def test_hooks_leave_no_graph():
    model = Net()
    x = koila.lazy(torch.randn(256, 8), batch=0, budget="1TiB")
    hidden = model.body(x)
    hidden.register_hook(lambda gradient: None)
    loss = model.head(hidden).square().mean()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_the_same_tensor_stays_plain_by_its_plain_name():
    """As do batches of other lengths, and calls that record nothing."""
    model = Net()
    plain = torch.randn(64, 8)
    x = koila.lazy(plain, batch=0, budget=BUDGET)
    held = model(x)
    assert type(model(plain)) is torch.Tensor
    assert type(model(torch.randn(63, 8))) is torch.Tensor
    with torch.no_grad():
        assert type(model(torch.randn(64, 8))) is torch.Tensor
    assert isinstance(model(torch.randn(64, 8)), koila.LazyTensor)
    del held, x
    assert type(model(torch.randn(64, 8))) is torch.Tensor


def test_noise_gives_what_it_would_have_given():
    model, generator = Net().double(), nn.Linear(4, 8).double()
    twins = copy.deepcopy((model, generator))
    data = torch.randn(256, 8).double()

    def step(model, generator, x):
        torch.manual_seed(1)
        fake = generator(torch.randn(256, 4).double())
        (F.softplus(-model(x)).mean() + F.softplus(model(fake)).mean()).backward()
        return [p.grad for p in (*model.parameters(), *generator.parameters())]

    wanted = step(*twins, data)
    found = step(model, generator, koila.lazy(data, batch=0, budget=BUDGET))
    assert koila.last().tile is not None
    for mine, plain in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, plain)
