"""Makes the programs of the import tests.

Usage: small_models.py FOLDER

Each is as small as what it shows; those with a name that starts with `bad_`
must be refused.
"""

import math
import pathlib
import sys
import warnings
from enum import Enum
from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import nn

warnings.filterwarnings("ignore")


class Sizes(nn.Module):
    """A trace computes sizes with 0-dim tensors."""

    def forward(self, x):
        return x.view(x.size(0) * 2 // 2 - 1 + 1, -1)


class HeldSizes(nn.Module):
    """A trace keeps the sizes until they are used."""

    def forward(self, x):
        batch, rows = x.size(0), x.size(1)
        return x.relu().view(batch * rows, -1)


class Divided(nn.Module):
    """Sizes divided by sizes, which may be zero for all that a trace knows."""

    def forward(self, x):
        rows, window = x.size(1), x.size(2)
        missing = (window - rows % window) % window
        padded = nn.functional.pad(x, (0, 0, 0, missing))
        windows = padded.size(1) // window
        split = padded.view(x.size(0) * windows, window, window)
        return split.relu().view(split.size(0) // windows, windows, window, window)


class ScriptedDivided(Divided):
    """The same with integers."""


class ComparedSamples(nn.Module):
    """What broadcasts must not become the extents of the example."""

    def forward(self, x):
        labels = x.argmax(1)
        return labels.unsqueeze(0) == labels.unsqueeze(1), x.unsqueeze(0) < x.unsqueeze(1)


class CountedSteps(nn.Module):
    """A trace shares the constant between the counter and sizes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
        y = x.exp()
        return y.view(y.size(0), 2, (y.size(1) - 1 + 1) // 2) * 2


class Norms(nn.Module):
    """Norms that are those of vectors under another name."""

    def forward(self, x):
        rows = torch.linalg.norm(x, dim=-1) * torch.linalg.norm(x, ord=1, dim=-1)
        return rows + torch.linalg.norm(x) + torch.linalg.matrix_norm(x.unsqueeze(1))


class ScriptedSizes(nn.Module):
    def forward(self, x):
        return x.view([x.size()[0] * 2, -1])


class RoundedSizes(nn.Module):
    """Extents that were floating-point numbers on the way."""

    def forward(self, x):
        columns = int(math.ceil(x.size(1) / 4) * 1.5)
        # On a device that is not literal: no rule, but a kernel on shapes.
        mask = torch.full((columns, columns), float("-inf"), device=x.device)
        return x.view(-1, columns), x[:, : int(x.size(0) / 2)], mask


class Pair(NamedTuple):
    sum: torch.Tensor
    count: int


class Values(nn.Module):
    """What is no tensor."""

    scale: float

    def __init__(self):
        super().__init__()
        self.scale = 2.5
        self.steps = [1, 2]

    def forward(
        self,
        x,
        flag: bool = True,
        others: Optional[List[torch.Tensor]] = None,
        mode: str = "nearest",
    ):
        rows = x.size(0)
        both = torch.cat([x, x.relu()], dim=1) * self.scale
        return Pair(both + self.steps[0], rows), x.to(torch.float64), [x, both]


class InPlace(nn.Module):
    """Writes to tensors that nothing else sees."""

    def forward(self, x):
        y = (x + 1).relu_().i0_()
        y += x
        return y


class Equal(nn.Module):
    """Two equal tensors, of which one is written."""

    def forward(self, x):
        written = x.exp().i0_()
        return written + x.exp()


class SeenArgument(nn.Module):
    def forward(self, x):
        return x.relu_()


class SeenView(nn.Module):
    def forward(self, x):
        y = x + 1
        row = y[0]
        y.relu_()
        return row * y


class SeenListView(nn.Module):
    def forward(self, x):
        y = x + 1
        left, right = y.split([2, 2], 1)
        left.relu_()
        return y


class Parts(nn.Module):
    """A cell as tracing shows it: gates are chunks that are written."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(4, 3), nn.GRUCell(3, 3)

    def forward(self, x):
        state, cell = self.lstm(x)
        return self.gru(state, cell)


class PartsOfParts(nn.Module):
    """Halves of quarters, of a tensor of which nobody reads the whole."""

    def forward(self, x):
        left, right = (x + 1).t().reshape(2, -1).chunk(2, 1)
        first, second = left.unsqueeze(0).unbind(1)
        first.relu_()
        second.mul_(2)
        return first + second - right.sum()


class SeenWhole(nn.Module):
    """Read after a part was written, through a view from before."""

    def forward(self, x):
        y = x + 1
        seen = y.t()
        left, right = y.chunk(2, 1)
        left.relu_()
        return left + right + seen.sum()


class SeenOtherParts(nn.Module):
    """Parts of two splits overlap."""

    def forward(self, x):
        y = x + 1
        left, right = y.chunk(2, 1)
        first, middle, last = y.split([1, 2, 1], 1)
        left.relu_()
        return right + middle.sum()


class SeenRepeated(nn.Module):
    """Rows of an expanded tensor are all the same memory."""

    def forward(self, x):
        y = x[:1].exp().expand(4, 4)
        one, two, three, four = y.unbind(0)
        one.add_(1)
        return x + two


class SeenUnsaidView(nn.Module):
    """The schema of einsum does not say that this is a view. Both are
    returned, since LibTorch itself drops the write otherwise."""

    def forward(self, x):
        y = x + 1
        turned = torch.einsum("ij->ji", y)
        return y, turned.relu_()


class LostWrite(nn.Module):
    """type_as hands on its operand, which its schema does not say: PyTorch
    loses the write where it inlines the call."""

    def same(self, x, y):
        # type: (torch.Tensor, torch.Tensor) -> torch.Tensor
        return x.type_as(y)

    def forward(self, x):
        y = x + 1
        self.same(y, x).mul_(2)
        return torch.relu(y) + torch.exp(x) * torch.exp(x)


class SeenReread(nn.Module):
    """The same operation before and after a write to what it reads."""

    def forward(self, x):
        before = x.exp()
        x[:, 0] = 7.0
        return before, x.exp()


class SeenDims(nn.Module):
    """The tensor loses a dim for everybody who has it."""

    def forward(self, x):
        x.squeeze_(1)
        return x + 1


class SeenBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class UnreadUpdate(nn.Module):
    """Statistics that are updated for the next call: PyTorch's executor leaves a call out
    whose result nobody reads."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        x = torch.relu(x)
        self.norm(x)
        return x * 2


class ChangedSizes(nn.Module):
    """A list of numbers under two names, changed in a loop."""

    def forward(self, x):
        sizes: List[int] = [2, 8]
        same = sizes
        for i in range(2):
            same[1] = 4
            same = sizes
        sizes[0] = -1
        return x.reshape(sizes)


class ChangedAttribute(nn.Module):
    """A list of numbers of the module, which one of its readers changes."""

    def __init__(self):
        super().__init__()
        self.order = [0, 2, 1]

    def forward(self, x):
        self.order[1] = 1
        self.order[2] = 0
        self.order[0] = 2
        return x.unsqueeze(1).permute(self.order)


class Pace(Enum):
    SLOW = 1
    FAST = 3


class LiteralAttributes(nn.Module):
    """Attributes that are tuples, lists that are only read, and a member of an enum."""

    patch: Tuple[int, int]
    grid: Tuple[Tuple[int, float], str, bool]

    def __init__(self):
        super().__init__()
        self.patch = (2, 3)
        self.grid = ((2, 0.5), "rows", True)
        self.window = [3, 2]
        self.steps = ["add", "double"]
        self.pace = Pace.FAST

    def forward(self, x):
        window = self.window.copy()
        window[0] = window[0] * 7
        for step in self.steps:
            x = x + 1 if step == "add" else x * 2
        if self.pace == Pace.SLOW:
            x = x.sin()
        if self.grid[1] == "rows":
            x = x.view(-1, self.patch[0], self.patch[1])
        if self.grid[0][1] < 1.0 and self.grid[2]:
            y = x.transpose(1, 2).exp()
            # Equal on purpose, for -cse.
            x = (y.exp() + y.exp()) / window[0]
        rows, columns = self.patch
        return x.reshape(-1, self.window[0], rows * columns // self.grid[0][0])


class SharedList(nn.Module):
    """A list with two names, of which one is written."""

    def __init__(self):
        super().__init__()
        self.sizes = [2]
        self.steps = [2]

    @torch.jit.export
    def share(self):
        self.steps = self.sizes

    def forward(self, x):
        self.steps[0] = 3
        return x.reshape(-1, self.sizes[0])


@torch.jit.script
class Box:
    def __init__(self, width: int):
        self.width = width


class ChosenObject(nn.Module):
    """An attribute of an object is written under another name."""

    def __init__(self):
        super().__init__()
        self.first = Box(2)
        self.second = Box(2)

    def forward(self, x):
        box = self.first
        if x.size(0) > 1:
            box = self.second
        box.width = 3
        return x.reshape(-1, self.second.width)


class ReplacedObject(nn.Module):
    """The same, where an attribute becomes the other object."""

    def __init__(self):
        super().__init__()
        self.first = Box(2)
        self.second = Box(2)

    def forward(self, x):
        self.first = self.second
        self.first.width = 3
        return x.reshape(-1, self.second.width)


class BadState(nn.Module):
    """Runs code when it is loaded."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]

    def forward(self, x):
        return x * self.weight


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def trace(name, module, *shape):
        program = torch.jit.trace(module.eval(), torch.randn(shape or (3, 4)), check_trace=False)
        torch.jit.save(program, folder / f"{name}.pt")

    def script(name, module):
        torch.jit.save(torch.jit.script(module.eval()), folder / f"{name}.pt")

    trace("sizes", Sizes())
    trace("held_sizes", HeldSizes(), 3, 4, 4)
    trace("divided", Divided(), 3, 5, 4)
    script("scripted_divided", ScriptedDivided())

    trace("compared_samples", ComparedSamples())
    trace("counted_steps", CountedSteps())
    trace("norms", Norms())
    script("scripted_sizes", ScriptedSizes())
    script("rounded_sizes", RoundedSizes())
    script("values", Values())
    trace("in_place", InPlace())
    trace("equal", Equal())
    trace("seen_argument", SeenArgument())
    trace("seen_view", SeenView())
    trace("seen_list_view", SeenListView())
    trace("parts", Parts())
    trace("parts_of_parts", PartsOfParts())
    trace("seen_whole", SeenWhole())
    trace("seen_other_parts", SeenOtherParts())
    trace("seen_repeated", SeenRepeated())
    trace("seen_unsaid_view", SeenUnsaidView())
    trace("seen_buffer", SeenBuffer())
    trace("seen_reread", SeenReread())
    trace("bad_dims", SeenDims())
    script("lost_write", LostWrite())
    torch.jit.trace(UnreadUpdate(), torch.randn(3, 4)).save(folder / "unread_update.pt")
    script("changed_sizes", ChangedSizes())
    script("changed_attribute", ChangedAttribute())
    script("literal_attributes", LiteralAttributes())
    shared = torch.jit.script(SharedList().eval())
    shared.share()
    torch.jit.save(shared, folder / "shared_list.pt")
    script("chosen_object", ChosenObject())
    script("replaced_object", ReplacedObject())
    script("bad_state", BadState())


if __name__ == "__main__":
    main()
