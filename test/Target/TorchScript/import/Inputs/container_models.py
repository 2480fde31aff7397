"""Makes programs that fill lists and dicts, for containers.test.

Usage: container_models.py FOLDER

All take float32[B,4].
"""

import pathlib
import sys
from collections import OrderedDict
from typing import Dict, List

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FilledDict(nn.Module):
    """As segmentation models collect features; names decide what is kept."""

    def __init__(self):
        super().__init__()
        self.names = {"1": "out", "3": "aux"}

    def forward(self, x):
        kept: Dict[str, Tensor] = OrderedDict()
        for name in ("0", "1"):
            x = torch.cat([x, x], 1)
            if name in self.names:
                kept[self.names[name]] = x
        result: Dict[str, Tensor] = OrderedDict()
        # Equal, so that --cse changes the program.
        result["out"] = kept["out"].sum(1) + kept["out"].sum(1)
        if "aux" in kept:
            result["aux"] = kept["aux"]
        result["out"] = result["out"].unsqueeze(0)
        total = x.sum()
        for value in result.values():
            total = total + value.sum()
        return result["out"], total


class ChangedNames(nn.Module):
    """The control: the names are not what the archive has."""

    def __init__(self):
        super().__init__()
        self.names = {"1": "out"}

    def forward(self, x):
        if x.size(0) > 3:
            self.names["0"] = "first"
        y = x
        if "0" in self.names:
            y = x.sum(1)
        return y + 1


class KeptList(nn.Module):
    """A list inside of another one changes under both names."""

    def forward(self, x):
        a = [x]
        a.append(x * 2)
        both = [a]
        both.append(a)
        both[0].append(x.sin())
        same = torch.full([1], int(a is both[0]))
        return torch.stack(a), torch.stack(both[1]), same


class PutList(nn.Module):
    """A list that is put into others, and grows afterwards."""

    def forward(self, x):
        table: List[List[Tensor]] = []
        a = [x]
        for i in range(2):
            table.append(a)
        a.append(x * 2)
        return torch.cat(table[1])


class Grown(nn.Module):
    """As many as the loops turn."""

    def forward(self, x):
        five = [x]
        rows: List[Tensor] = []
        for i in range(2):
            for j in range(2):
                five.append(five[-1].roll(1, 1) + i * j)
        for i in range(x.size(0)):
            rows.append(x[i])
        return torch.stack(five, 1), torch.cat(five, 1), torch.stack(rows)


class GrownBeforeAndAfter(nn.Module):
    """What comes later, or inside of the loop, is not in it yet."""

    def forward(self, x):
        out = [x]
        for i in range(3):
            out.append(x)
        four = torch.cat(out, 1)
        total = x.sum()
        for i in range(2):
            out.append(x.sin())
            total = total + torch.cat(out, 1).sum()
        return four, torch.cat(out, 1), total


class GrownInBranch(nn.Module):
    """Nobody knows how often."""

    def forward(self, x):
        out = [x]
        for i in range(3):
            if bool(x.sum() > i):
                out.append(x)
        return torch.cat(out), torch.cat(out, 1)


class Widening(nn.Module):
    """Each element is as wide as its turn says, and so is none of them."""

    def forward(self, x):
        out: List[Tensor] = []
        for i in range(3):
            out.append(x[:, i:])
        return torch.cat(out, 1), out[1].exp(), out[-1].sin()


class Shrinking(nn.Module):
    """Other changes than growing."""

    def forward(self, x):
        out = [x]
        for i in range(3):
            out.append(x + i)
        last = out.pop()
        out[0] = x[:, :2]
        return torch.stack(out[1:]), last.exp(), out[0].sin()


def outside(parts: List[Tensor], x: Tensor) -> None:
    for i in range(2):
        parts.append(x[:, : i + 1])


class Shared(nn.Module):
    """Two names, and a branch that chooses between two lists."""

    def forward(self, x):
        a, b = [x], [x]
        for i in range(2):
            a.append(x + i)
        chosen = a
        if bool(x.sum() > 0):
            chosen = b
        outside(chosen, x)
        return torch.cat(a, 1), torch.cat(b, 1), a[0].sin()


class Popped(nn.Module):
    """As Shrinking, where the elements do not tell."""

    def forward(self, x):
        out = [x]
        for i in range(3):
            out.append(x + i)
        last = out.pop()
        return torch.cat(out, 1), last.exp()


class Skips(nn.Module):
    """What is put into a list is taken out again, as in a U-Net."""

    def forward(self, x):
        skips = [x]
        skips.append(x.exp())
        skips.append(x[:, 1:])
        last = skips.pop()
        first = skips.pop(0)
        return torch.cat([last, skips.pop(-1)], 1), first.sin()


class SkipsLeft(nn.Module):
    """The list keeps one that nobody takes out."""

    def forward(self, x):
        skips = [x.cos(), x.sin()]
        y = (x + 1).exp()
        skips.append(y)
        return skips.pop() + 1


class Repeated(nn.Module):
    """How often the factor is in the list, the rank says."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1)

    def forward(self, x):
        y = self.convolution(x.view(-1, 1, 2, 2))
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear")
        return F.interpolate(y, size=3)


class Layers(nn.Module):
    """Layers that have their weights in a list, too."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2, dropout=0.1, batch_first=True)
        self.gru = nn.GRU(3, 5)

    def forward(self, x):
        y = self.lstm(x.unsqueeze(1))[0]
        return self.gru(y.transpose(0, 1))[0].exp()


class Escaping(nn.Module):
    """An attribute is the list from some time on, and it changes there."""

    kept: List[Tensor]

    def __init__(self):
        super().__init__()
        self.kept = [torch.zeros(2)]

    def forward(self, x):
        out = [x]
        for i in range(2):
            out.append(x)
        self.kept = out
        self.kept.append(x.sum(0))
        return out[-1].exp(), torch.stack(self.kept[:2])


class Given(nn.Module):
    """The attribute is a list of others from the start."""

    kept: List[Tensor]

    def __init__(self):
        super().__init__()
        self.kept = [torch.zeros(2)]

    def forward(self, x):
        out = self.kept
        for i in range(2):
            out.append(x)
        return out[0].exp(), x.sin()


class Never(nn.Module):
    """A list that nothing is ever put into decides a branch."""

    def forward(self, x):
        out: List[Tensor] = []
        if x.dim() > 2:
            out.append(x)
        if len(out) > 0:
            y = torch.cat(out)
        else:
            y = x.exp()
        return y


class Nested(nn.Module):
    """A list inside of one changes after it was put there."""

    def forward(self, x):
        table = {"a": [x], "b": [x]}
        for i in range(2):
            table["a" if i % 2 == 0 else "b"].append(x + i)
        return torch.cat(table["a"]), torch.cat(table["a"], 1)


class Split(nn.Module):
    """Parts by a place that a loop computes; how many there are may follow
    from the batch."""

    def forward(self, x):
        parts = x.split(2, 1)
        total = x[:, :2]
        for i in range(len(parts)):
            total = total + parts[i]
        return total, torch.cat(x.split(1000)[:1]), x.chunk(2)[0].sin()


class Moved(nn.Module):
    """Parts of a list of sizes."""

    def forward(self, x):
        sizes = x.shape[-1:] + [1, min(x.size(0), 1000)]
        return x.sum(0).expand(sizes[::-1])


class Carried(nn.Module):
    """Tuples that loops carry and branches merge."""

    def forward(self, x):
        state = (x, torch.zeros_like(x), x)
        for i in range(3):
            h, c, w = state
            state = (h + c, c * 0.5, torch.cat([w, w], 1)[:, : i + 1])
        return state[0].exp(), state[1].sin(), state[2].cos()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for module in (
        FilledDict,
        ChangedNames,
        KeptList,
        PutList,
        Grown,
        GrownBeforeAndAfter,
        GrownInBranch,
        Widening,
        Shrinking,
        Popped,
        Skips,
        SkipsLeft,
        Repeated,
        Layers,
        Shared,
        Escaping,
        Given,
        Never,
        Nested,
        Split,
        Moved,
        Carried,
    ):
        torch.jit.script(module().eval()).save(str(folder / f"{module.__name__}.pt"))


if __name__ == "__main__":
    main()
