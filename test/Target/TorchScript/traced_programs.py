"""How branches, loops and lists are run: figures against measured bytes.

Scripted programs of what people write, each with a figure that must be exact, or a
bound where said so, and what PyTorch allocates, to the byte, at several batches: some
turn as often as there are samples. Of loops that turn as often as data say the figure
is a bound that PyTorch stays below. Usage: traced_programs.py [NAME...]
"""

import copy
import pathlib
import sys
import tempfile
import warnings
from enum import Enum

import torch
from torch import Tensor, nn

import memory
from koila import _compiler

BATCHES = (2, 5)
PROGRAMS, BOUNDS, DECIDED, GRADIENTS, FIRST, LATE = [], [], [], [], [], []


def program(cls):
    PROGRAMS.append(cls)
    return cls


def assigns(cls):
    """What an attribute held before the call goes, so that the figure is a bound:
    later calls free what the profiler has not seen before."""
    BOUNDS.append(cls)
    return program(cls)


def recorded(cls):
    """Also with gradients."""
    GRADIENTS.append(cls)
    return cls


def decided(cls):
    """Data decide how often a loop turns."""
    DECIDED.append(cls)
    return assigns(cls)


@program
class ListOfSteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(64, 64)

    def forward(self, x):
        states: list[Tensor] = []
        h = torch.zeros_like(x)
        for _ in range(4):
            h = torch.tanh(self.cell(x) + h)
            states.append(h)
        return torch.stack(states).mean(0)


@program
class SkipsInReverse(nn.Module):
    def forward(self, x):
        skips: list[Tensor] = []
        for scale in [1.0, 2.0, 3.0]:
            x = torch.sin(x * scale)
            skips.append(x)
        while len(skips) > 0:
            x = torch.cat([x, skips.pop()], dim=1)
        return x


@program
class TurnsPerSample(nn.Module):
    def forward(self, x):
        rows: list[Tensor] = []
        for i in range(x.size(0)):
            rows.append(x[i].exp())
        return torch.stack(rows)


@program
class StopsEarly(nn.Module):
    def forward(self, x):
        y = x.exp()
        for i in range(10):
            if i == 3:
                break
            y = torch.cat([y, y[:, :8]], dim=1)
        return y.sin()


@program
class ReturnsEarly(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep = False

    def forward(self, x, mask: Tensor | None = None):
        y = x.exp()
        if mask is None and not self.deep:
            return y.cos().tanh()
        return (y * 2).sin()


@program
class KeptByABranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = True

    def forward(self, x):
        y = x.exp()
        if self.wide:
            z = y.sum(1, keepdim=True) * x
            z = torch.cat([z, z], dim=1).sin()
        else:
            z = y
        return z


@program
class KeptByALoop(nn.Module):
    def forward(self, x):
        y, z = x.exp(), x
        for i in range(3):
            if i == 0:
                z = z + y
            z = torch.cat([z, z], dim=1)
        return z


@program
class DictMethods(nn.Module):
    def forward(self, x):
        parts: dict[str, Tensor] = {"a": x.sin()}
        parts.update({"b": x.cos(), "a": x.exp()})
        gone = parts.pop("b")
        total = gone + parts["a"]
        for value in parts.values():
            total = total * value
        return total.tanh()


@torch.jit.script
class Average:
    def __init__(self, start: Tensor):
        self.value = start
        self.count = 1

    def add(self, x: Tensor):
        self.value = self.value + x
        self.count += 1


@program
class KeepsAnAverage(nn.Module):
    def forward(self, x):
        average = Average(x.exp())
        for i in range(3):
            average.add(x * i)
        return average.value / average.count


@program
class HandsOverWhatNobodyReads(nn.Module):
    """What a turn made last lives until the next one starts."""

    def forward(self, x):
        _last = x
        for _ in range(2):
            for scale in [1.0, 2.0]:
                _last = torch.cat([x, x, x], 1)
                x = torch.sin(x * scale) + x
        return x


@program
class ShiftedWindows(nn.Module):
    """As transformers of windows: pads by numbers from a tuple, shifts in a copy of a
    list, a table by indices, of which the second list begins with None."""

    window: tuple[int, int]
    rows: Tensor

    def __init__(self):
        super().__init__()
        self.window, self.shift = (4, 5), [1, 2]
        self.table = nn.Parameter(torch.rand(9, 65))
        self.register_buffer("rows", torch.arange(18) % 9)

    def forward(self, x):
        pads: list[int] = []
        for i in range(2):
            pads.append((self.window[i] - x.size(1) % self.window[i]) % self.window[i])
        y = nn.functional.pad(x, [0, pads[1]])
        shift = self.shift.copy()
        if self.window[1] >= y.size(1):
            shift[1] = 0
        if sum(shift) > 0:
            y = torch.roll(y, [-shift[1]], [1])
        mask = torch.zeros_like(y)
        mask[:, : self.window[0]] = 1.0
        return y * mask + self.table[self.rows].mean(0), self.table[:, self.rows]


@assigns
class MovingAverage(nn.Module):
    """Two of them: what a buffer held goes, what it is given stays."""

    mean: Tensor
    seen: Tensor

    def __init__(self, size: int = 64):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("seen", torch.tensor(0))
        self.inner = MovingAverage(256) if size == 64 else nn.Identity()
        self.head = nn.Linear(64, 256)

    def forward(self, x):
        with torch.no_grad():
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.seen += 1
        y = x - self.mean
        if x.size(1) == 64:
            y = self.inner(self.head(y))
        return y * self.seen


@assigns
class KeepsWhatItMade(nn.Module):
    """What is assigned first goes, what is assigned last stays: a list, too, of which
    one element is a view."""

    both: list[Tensor]

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(0)
        self.both = []

    def forward(self, x):
        self.last = torch.cat([x, x, x]).exp()
        self.last = x.sin()
        y = torch.cat([x, x]).cos()
        self.both = [y[0], x.tan()]
        return (x * 2).exp().sum()


@assigns
class Forgets(nn.Module):
    """What the attribute held goes, and nothing comes in its place."""

    cache: Tensor | None

    def __init__(self):
        super().__init__()
        self.cache = torch.zeros(256)

    def forward(self, x):
        self.cache = None
        return x.exp().sum()


@program
class OverRows(nn.Module):
    def forward(self, x):
        total = torch.zeros(64)
        for row in x:
            total = total + row.exp()
        return total


@assigns
class Queue(nn.Module):
    """As large after each call as before it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.zeros(16, 64))
        self.place = 0

    def forward(self, x):
        self.queue = torch.cat([x.sin(), self.queue])[:16]
        self.place = (self.place + x.size(0)) % 16
        return x @ self.queue.t()


def first(cls):
    """The figure holds for the first call only."""
    FIRST.append(cls)
    return program(cls)


def late(cls):
    """The figure is that of calls from the third on."""
    LATE.append(cls)
    return program(cls)


@decided
class Halves(nn.Module):
    """Each turn needs what the others need, and the one before it."""

    def forward(self, x):
        while float(x.sum()) > 1.0:
            wide = torch.cat([x, x, x, x]).exp()
            x = x * 0.5 + wide[0] * 0.0
        return x


@decided
class HandsOnWhatIsLarge(nn.Module):
    """A turn makes what it needs while it has a view of what the last one made."""

    def forward(self, x):
        for _ in range(int(x.sum())):
            x = torch.cat([x, x, x])[: x.size(0)] * 0.5
            x = torch.cat([x, x, x, x])[: x.size(0)]
        return x.exp()


@decided
class TwoBefore(nn.Module):
    """Of two variables one has what was made two turns before."""

    def forward(self, x):
        last, now = x + 1, x + 2
        while float(now.sum()) < 1e6:
            following = last * 3 + now
            last = now
            now = following
        return now + last


@decided
class StartsAnew(nn.Module):
    """What the inner loop starts with each time is there all the while."""

    def forward(self, x):
        first = torch.cat([x, x, x, x]).exp()
        total = x.sum()
        for _ in range(int(total)):
            y = first
            for _ in range(int(total)):
                y = y * 0.5
            total = total + y.sum()
        return total


@decided
class LoopsInLoops(nn.Module):
    def forward(self, x):
        y = x.cos()
        while float(y.sum()) > 1.0:
            z = y.sin()
            for _ in range(int(y.sum()) // 8 + 3):
                z = torch.cat([z, y]).exp()[: y.size(0)]
            y = y * 0.25 + z * 0.0
        return y


@recorded
@program
class SelfAttention(nn.Module):
    """Which asks whether the query is the key."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        y = x.unflatten(1, (2, 32))
        mask = torch.triu(torch.full((2, 2), float("-inf")), diagonal=1)
        return self.attention(y, y, y, attn_mask=mask)[0]


@program
class DividesByANumber(nn.Module):
    def forward(self, x):
        return x / x.max().item() + x.argmax().item()


@recorded
@program
class FeaturesByName(nn.Module):
    """The caller gives them."""

    inputs = ("{'a': float32[B,64], 'b': float32[B,32]}",)

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(96, 8)

    @staticmethod
    def make(batch):
        return ({"a": torch.rand(batch, 64), "b": torch.rand(batch, 32)},)

    def forward(self, features: dict[str, Tensor]):
        parts: list[Tensor] = []
        for name in ["b", "a", "missing"]:
            if name in features:
                parts.append(features[name].sin())
        return self.head(torch.cat(parts, 1))


@assigns
class AddsToTheCallers(nn.Module):
    """Who may see it, or have given a copy."""

    inputs = ("[float32[B,64], float32[B,64]]",)

    @staticmethod
    def make(batch):
        return ([torch.rand(batch, 64), torch.rand(batch, 64)],)

    def forward(self, rows: list[Tensor]):
        rows.append(rows[0].exp())
        return torch.cat(rows, 1).sin().sum() + len(rows)


@assigns
class ReplacesTheCallers(nn.Module):
    """What was there goes."""

    inputs = ("{'a': float32[B,64]}",)

    @staticmethod
    def make(batch):
        return ({"a": torch.rand(batch, 64)},)

    def forward(self, features: dict[str, Tensor]):
        features["a"] = torch.cat([features["a"], features["a"]]).exp()
        return features["a"].sin().sum() + len(features)


@recorded
@assigns
class KeepsActivations(nn.Module):
    """In a dict and a list that nobody reads."""

    seen: dict[str, Tensor]
    last: list[Tensor]

    def __init__(self):
        super().__init__()
        self.seen = torch.jit.annotate(dict[str, Tensor], {})
        self.last = []
        self.one, self.two = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        y = self.one(x).tanh()
        self.seen["one"] = y
        self.last.append(y.detach().mean(0))
        return self.two(y).sum()


@recorded
@assigns
class AveragesWithoutGradients(nn.Module):
    """Of which one statement is recorded, but not its operands."""

    mean: Tensor
    square: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(128))
        self.register_buffer("square", torch.zeros(128))
        self.one = nn.Linear(64, 128)

    def forward(self, x):
        y = self.one(x)
        with torch.no_grad():
            wide = torch.cat([y, y, y]).exp()
            self.mean = 0.9 * self.mean + 0.1 * wide.mean(0)
        self.square = 0.9 * self.square + 0.1 * (y.detach() ** 2).mean(0)
        return ((y - self.mean) / (self.square + 1)).exp()


@program
class WritesInto(nn.Module):
    """With `out=`: tensors that are there, or whose storage comes with it."""

    def forward(self, x):
        y = torch.empty(x.size(0), 128)
        torch.cat([x, x], dim=1, out=y)
        torch.mul(y, y, out=y)
        torch.exp(x, out=y.view(-1, 64)[: x.size(0)])
        z = torch.empty(0)
        torch.stack([y, y], out=z)
        return z.sum(0)


@program
class GivenNumbers(nn.Module):
    """A default and a list of numbers decide what is computed."""

    inputs = ("float32[B,64]", "[2, 0, 3, 1]")

    @staticmethod
    def make(batch):
        return torch.rand(batch, 64), [2, 0, 3, 1]

    def forward(self, x, widths: list[int], share: float = 0.9):
        y = x * 2
        if share < 1.0:
            y = torch.cat([y, y])
        for width in widths:
            y = torch.cat([y, y[:, :width]], 1)
        return y.exp()


@recorded
@program
class AddsNothing(nn.Module):
    """LibTorch drops what changes nothing where the type stays: not of floats, and not
    where somebody could tell."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 128)

    def forward(self, x):
        y = (self.head(x) + 0) * 1.0
        z = torch.cat([y, y * 1], 1).exp() - 0
        return z / 1, x * 1


@program
class InReverse(nn.Module):
    """Parts of a list that an operator gave: their strides are those of views."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        steps = x.view(-1, 8, 8).unbind(1)
        h = x.new_zeros(x.size(0), 6)
        for i in range(len(steps) - 1, -1, -1):
            h = self.cell(steps[i], h)
        return h


@program
class ToTheSizeOf(nn.Module):
    def forward(self, x):
        images = x.view(-1, 4, 4, 4)
        levels = [images.exp(), images[..., :2, :2].exp()]
        for i in range(len(levels) - 2, -1, -1):
            size = levels[i].shape[-2:]
            levels.append(levels[i] + nn.functional.interpolate(levels[-1], size=size))
        return levels[-1].sin()


class Pace(Enum):
    SLOW = 1
    FAST = 3


@program
class DecidedByTexts(nn.Module):
    """A list of texts and a member of an enum that are attributes, a dict of numbers."""

    def __init__(self):
        super().__init__()
        self.names = ["sin", "exp"]
        self.pace = Pace.FAST
        self.weights = {"sin": 1.0, "exp": 0.5}

    def forward(self, x):
        parts: list[Tensor] = []
        for name in self.names:
            y = x.sin() if name == "sin" else x.exp()
            parts.append(y * self.weights[name])
        y = torch.cat(parts, 1)
        if self.pace == Pace.SLOW:
            y = torch.cat([y, y])
        return y.tanh()


@decided
class WhereItHolds(nn.Module):
    """As many as data say, at most as many as there are."""

    def forward(self, x):
        found: list[Tensor] = []
        for row in x.unbind(0):
            keep = torch.where(row > -1)[0]
            found.append(row[keep].exp())
        rows, _ = torch.where(x > -1)
        return torch.cat(found), rows + 1


@decided
class GreedyDecoding(nn.Module):
    """Ends early where data say so: lists and tensors grow with each turn."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(10, 64), nn.GRUCell(64, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x, most: int = 6):
        words: list[Tensor] = []
        path = torch.zeros(x.size(0), 1, dtype=torch.long)
        for _ in range(most):
            x = self.cell(self.embed(path[:, -1]), x)
            word = self.head(x).argmax(1)
            words.append(word)
            path = torch.cat([path, word.unsqueeze(1)], 1)
            if bool((word > 100).all()):
                break
        return torch.stack(words, 1), path


@decided
class KeepsSome(nn.Module):
    """Each way that data may choose; one raises."""

    best: Tensor

    def __init__(self):
        super().__init__()
        self.best = torch.zeros(64)

    def forward(self, x):
        rows: list[Tensor] = []
        for row in x:
            if bool(row.sum() > -1.0):
                rows.append(row.exp())
        mean = torch.stack(rows).mean(0)
        if bool(torch.isnan(mean).any()):
            raise ValueError("not a number")
        if bool(mean.sum() > self.best.sum()):
            self.best = mean
        return torch.cat(rows) - 1


@assigns
class StateOfTheLastCall(nn.Module):
    """Which is not there at first, or of another size."""

    state: Tensor | None
    last: Tensor

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(64, 32)
        self.state, self.last, self.starts = None, torch.zeros(0), True

    def forward(self, x):
        h = self.state
        if h is None:
            h = torch.cat([torch.zeros(x.size(0), 32)] * 4)[: x.size(0)]
        if self.starts:
            h = torch.cat([h, h]).exp()[: x.size(0)]
        h = self.cell(x, h)
        y = h * self.last.sum()
        self.state, self.last, self.starts = h, y, False
        return y.exp()


@assigns
class PairOfTheLastCall(nn.Module):
    """A tuple, which is not there at first."""

    state: tuple[Tensor, Tensor] | None

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 16)
        self.state = None

    def forward(self, x):
        state = self.state
        if state is None:
            state = (torch.zeros(x.size(0), 16), torch.zeros(x.size(0) * 8, 16)[: x.size(0)])
        state = self.cell(x, state)
        self.state = (state[0], state[1])
        return state[0].exp()


@program
class MadeByTheFirstCall(nn.Module):
    """Later ones find it, and assign nothing."""

    scale: Tensor | None

    def __init__(self):
        super().__init__()
        self.scale, self.mode = None, "start"

    def forward(self, x):
        if self.mode == "start":
            self.scale, self.mode = torch.cat([x, x, x, x]).exp().sum(0), "go"
        scale = self.scale
        assert scale is not None
        return x.exp() * scale


@late
class TwoCallsBefore(nn.Module):
    """The second call does not find yet what the third does."""

    last: Tensor | None
    before: Tensor | None

    def __init__(self):
        super().__init__()
        self.last, self.before = None, None

    def forward(self, x):
        before = self.before
        y = torch.cat([x, x, x, x]).sin()[: x.size(0)] if before is None else x + before
        self.before = self.last
        self.last = x.cos()
        return y


@program
class SomeOfAList(nn.Module):
    def forward(self, x, most: int = 2):
        parts = [x.sin(), x.cos(), x.exp()]
        return torch.stack(parts[:most]).mean(0)


@program
class ForEachPart(nn.Module):
    """How many parts there are, the batch decides."""

    def forward(self, x):
        return torch.stack([part.mean(0)[:, None] * x[0] for part in x.tanh().split(2, 0)])


class OfOneOrMore(nn.Module):
    def forward(self, x: Tensor | list[Tensor]):
        parts = [x] if isinstance(x, Tensor) else x
        return torch.cat(parts, 1).relu()[:, :64]


@program
class TakesOneOrMore(nn.Module):
    """Which type an argument has is known where the call is inlined."""

    def __init__(self):
        super().__init__()
        self.layer = OfOneOrMore()

    def forward(self, x):
        parts = [self.layer(x)]
        for _ in range(3):
            parts.append(self.layer(parts))
        return torch.stack(parts).sum(0)


@first
class Grows(nn.Module):
    """No two calls find the same: the figure is that of the first."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(0, 64))

    def forward(self, x):
        self.cache = torch.cat([self.cache, x])
        return (x @ self.cache.t()).softmax(1) @ self.cache


def compare(cls, path, batch, grad):
    loaded = torch.jit.load(path)
    inputs = getattr(cls, "inputs", ("float32[B,64]",))
    given = cls.make(batch) if hasattr(cls, "make") else (torch.rand(batch, 64),)

    def call():
        # A list or dict of the caller is as it was before.
        return loaded(*(value if torch.is_tensor(value) else copy.copy(value) for value in given))

    with torch.set_grad_enabled(grad):
        measured = memory.peak_bytes(call, calls=1)
    report = _compiler.analyze_script(
        path,
        list(inputs),
        batch={"B": batch},
        mode="forward-with-grad" if grad else "inference",
        floor=False,
        batches=0,
    )
    doubts = report["inexact"]
    where = f"at {batch}" + (" with gradients" if grad else "")
    if cls in LATE:
        says = any("does not find yet" in doubt["reason"] for doubt in doubts)
        return None if says else f"does not say that it holds for later calls {where}: {doubts}"
    if cls in FIRST:
        if not any("figure of the first call" in doubt["reason"] for doubt in doubts):
            return f"does not say that it holds for the first call {where}: {doubts}"
        fresh = torch.jit.load(path)
        with torch.set_grad_enabled(grad):
            measured = memory.peak_bytes(lambda: fresh(*given), calls=1, warm=False)
        if report["peak_bytes"] != measured:
            return f"predicted {report['peak_bytes']} {where}, measured {measured}"
        return None
    if bool(doubts) != (cls in BOUNDS) or not all(doubt["bound"] for doubt in doubts):
        return f"not exact {where}: {doubts}" if doubts else f"exact {where}"
    if cls in DECIDED and measured <= report["peak_bytes"] <= 2 * measured:
        return None
    if report["peak_bytes"] != measured:
        return f"predicted {report['peak_bytes']} {where}, measured {measured}"
    return None


def check(cls, folder):
    path = str(folder / f"{cls.__name__}.pt")
    torch.jit.script(cls().eval()).save(path)
    modes = [False, True] if cls in GRADIENTS else [False]
    problems = [compare(cls, path, batch, grad) for batch in BATCHES for grad in modes]
    return [problem for problem in problems if problem]


def main():
    warnings.simplefilter("ignore")
    torch._C._jit_set_profiling_mode(False)
    names = sys.argv[1:]
    chosen = [cls for cls in PROGRAMS if not names or cls.__name__ in names]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for cls in chosen:
            problems = check(cls, pathlib.Path(folder))
            failures += bool(problems)
            for problem in problems:
                print(f"{cls.__name__}: {problem}")
    print(f"{failures} of {len(chosen)} programs are wrong")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
