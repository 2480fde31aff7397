"""Makes the programs of the import tests.

Usage: small_models.py FOLDER

Each is as small as what it shows; those with a name that starts with `bad_`
must be refused.
"""

import pathlib
import sys
import warnings
from typing import List, NamedTuple, Optional

import torch
from torch import nn

warnings.filterwarnings("ignore")


class Sizes(nn.Module):
    """A trace computes sizes with 0-dim tensors."""

    def forward(self, x):
        return x.view(x.size(0) * 2 // 2 - 1 + 1, -1)


class ScriptedSizes(nn.Module):
    def forward(self, x):
        return x.view([x.size()[0] * 2, -1])


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

    def forward(self, x, flag: bool = True,
                others: Optional[List[torch.Tensor]] = None,
                mode: str = "nearest"):
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


class BadArgument(nn.Module):
    def forward(self, x):
        return x.relu_()


class BadView(nn.Module):
    def forward(self, x):
        y = x + 1
        row = y[0]
        y.relu_()
        return row * y


class BadListView(nn.Module):
    def forward(self, x):
        y = x + 1
        left, right = y.split([2, 2], 1)
        left.relu_()
        return y


class BadUnsaidView(nn.Module):
    """The schema of einsum does not say that this is a view. Both are
    returned, since LibTorch itself drops the write otherwise."""

    def forward(self, x):
        y = x + 1
        turned = torch.einsum("ij->ji", y)
        return y, turned.relu_()


class BadBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class BadBranch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return x + 1


class BadAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.calls


class BadAppend(nn.Module):
    def forward(self, x):
        parts = [x]
        parts.append(x + 1)
        return torch.cat(parts)


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

    def trace(name, module):
        program = torch.jit.trace(module.eval(), torch.randn(3, 4),
                                  check_trace=False)
        torch.jit.save(program, folder / f"{name}.pt")

    def script(name, module):
        torch.jit.save(torch.jit.script(module.eval()), folder / f"{name}.pt")

    trace("sizes", Sizes())
    script("scripted_sizes", ScriptedSizes())
    script("values", Values())
    trace("in_place", InPlace())
    trace("equal", Equal())
    trace("bad_argument", BadArgument())
    trace("bad_view", BadView())
    trace("bad_list_view", BadListView())
    trace("bad_unsaid_view", BadUnsaidView())
    trace("bad_buffer", BadBuffer())
    script("bad_branch", BadBranch())
    script("bad_attribute", BadAttribute())
    script("bad_append", BadAppend())
    script("bad_state", BadState())


if __name__ == "__main__":
    main()
