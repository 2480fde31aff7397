"""Scripted programs, one per construct: lists, tuples, dicts, optionals,
unions, strings, devices."""

from enum import Enum
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from registry import network, scripted

ROWS = "float32[B,8]"


# ---------------------------------------------------------------------------
# Lists


@scripted()
def script_list_stack():
    """A list that grows in a loop becomes a dim."""

    def forward(self, x):
        out: List[Tensor] = []
        for i in range(5):
            out.append(self.fc(x) * i + x[:, i : i + 1])
        return torch.stack(out, 1)

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted()
def script_list_cat():
    def forward(self, x):
        out = [x]
        for i in range(3):
            out.append(out[-1].roll(1, 1) + i)
        return torch.cat(out, 1), torch.cat(out, 0).sum(1)

    return network(forward), [ROWS]


@scripted()
def script_list_of_batch():
    """One entry per sample, joined again."""

    def forward(self, x):
        out = torch.jit.annotate(List[Tensor], [])
        for i in range(x.size(0)):
            out.append(x[i : i + 1] * (i + 1))
        return torch.cat(out), len(out)

    return network(forward), [ROWS]


@scripted()
def script_list_methods():
    """What a list of integers can do; the sum of it enters the result."""

    def forward(self, x):
        n = x.size(0)
        a = [3, n, 1]
        a.append(4)
        a.insert(1, n + 9)
        a.extend([6, 7])
        last = a.pop()
        first = a.pop(0)
        a.remove(1)
        a.reverse()
        b = a.copy()
        b.sort()
        b[0] = 20
        del b[1]
        c = b + [last] * 2 + a[::-1]
        total = first + c.index(20) + c.count(7)
        if n in a:
            total += 100
        if 20 not in a:
            total += 1000
        total += sum(c) + len(c) + max(c) + min(c)
        a.clear()
        return x + total, c, a, sorted(c) == c, a != b

    return network(forward), [ROWS]


@scripted()
def script_list_slices():
    """Parts of a list of tensors, and writes to places."""

    def forward(self, x):
        columns = list(x.unbind(1))
        head, tail = columns[:3], columns[-2:]
        columns[1] = columns[1] * 10
        columns[-1] = columns[0]
        a, b, c = head
        return torch.stack(columns[::2] + tail, 1), a + b * c

    return network(forward), [ROWS]


@scripted()
def script_list_comprehension():
    def forward(self, x):
        parts = [part.tanh() * 2 for part in x.split(2, 1)]
        widths = [part.size(1) + i for i, part in enumerate(parts)]
        kept = [float(w) for w in widths]
        return torch.cat(parts, 1), widths, sum(kept)

    return network(forward), [ROWS]


@scripted()
def script_list_of_lists():
    def forward(self, x):
        table: List[List[Tensor]] = [[], []]
        for i in range(4):
            table[i % 2].append(x[:, i] * (i + 1))
        out: List[Tensor] = []
        for row in table:
            out.append(torch.stack(row, 1))
        table[0][1] = x[:, 7]
        out.append(torch.stack(table[0], 1))
        return torch.cat(out, 1), table

    return network(forward), [ROWS]


@scripted()
def script_list_shared():
    """Two names of one list, in a list, and through a call."""

    def forward(self, x):
        a = [x]
        b = a
        b.append(x * 2)
        both = [a, b]
        both[0].append(x.sin())
        fill(a, x.cos())
        return torch.stack(b), len(a), a is b

    return network(forward), [ROWS]


def fill(parts: List[Tensor], x: Tensor):
    for i in range(2):
        parts.append(x + i)


@scripted()
def script_list_input():
    """A list of arguments, changed by the callee."""

    class Listed(nn.Module):
        def forward(self, parts: List[Tensor], scales: List[float]):
            total = parts[0] * scales[0]
            for part, scale in zip(parts[1:], scales[1:]):
                total = total + part * scale
            parts.append(total)
            return torch.stack(parts, 1)

    return Listed(), [f"[{ROWS},{ROWS},{ROWS}]", "[0.5,2.0,3.5]"]


@scripted()
def script_list_strings():
    def forward(self, x):
        names = ["sin", "cos", "skip", "exp"]
        for name in names:
            if name == "sin":
                x = x.sin()
            elif name == "cos":
                x = x.cos() + 1
            elif name == "exp":
                x = x.exp()
        return x, names[-1], "cos" in names

    return network(forward), [ROWS]


@scripted()
def script_tolist():
    """Data become a list, and a list becomes data."""

    def forward(self, x):
        row: List[float] = x[0].tolist()
        grid: List[List[int]] = (x * 3).long().tolist()
        total = 0
        for line in grid:
            total += line[0] - line[1]
        return x + torch.tensor(row), torch.tensor(grid) + total

    return network(forward), [ROWS]


@scripted()
def script_item():
    """Numbers read from tensors decide factors, not extents."""

    def forward(self, x, i):
        factor = x.max().item() + float(x[0, 0])
        place = int(i[0])
        return x * factor + x[:, place : place + 1] * place, bool(i[0] > 3)

    return network(forward), [ROWS, "int64[B]{0:8}"]


# ---------------------------------------------------------------------------
# Tuples


@scripted()
def script_tuples():
    """Made, taken apart, compared, sliced, nested."""

    class Tupled(nn.Module):
        def forward(self, pair: Tuple[Tensor, Tuple[Tensor, int]]):
            x, (y, n) = pair
            triple = (x + y, n * 2, "name")
            swapped = triple[1:]
            a, b = y, x
            b, a = a, b
            return triple, swapped, (a - b * swapped[0], (n, n) == (n, 8))

    return Tupled(), [f"({ROWS}, ({ROWS}, 4))"]


@scripted()
def script_tuple_carried():
    """A tuple as the state of a loop and the result of a branch."""

    def forward(self, x):
        state = (x, torch.zeros_like(x), 0)
        for i in range(3):
            h, c, n = state
            c = c * 0.5 + h.tanh()
            state = (h + c, c, n + i)
        if x.size(0) > 3:
            state = (state[1], state[0], state[2])
        return state

    return network(forward), [ROWS]


class Statistics(NamedTuple):
    mean: Tensor
    spread: Tensor
    count: int = 1


@scripted()
def script_named_tuple():
    """By name and by place, with a default, as a result and in a list."""

    def forward(self, x):
        parts = [
            Statistics(x.mean(1), x.std(1), x.size(1)),
            Statistics(spread=x.amin(1), mean=x.amax(1)),
        ]
        total = x
        for part in parts:
            total = total + part.mean.unsqueeze(1) * part[2]
        mean, spread, count = parts[0]
        return total, parts[1], mean / spread + count

    return network(forward), [ROWS]


# ---------------------------------------------------------------------------
# Dicts


@scripted()
def script_dict_methods():
    def forward(self, x):
        d: Dict[str, Tensor] = {"a": x, "b": x * 2}
        d["c"] = d["a"].sin()
        d["a"] = x.cos()
        d.update({"e": x + 5, "b": x - 1})
        d.setdefault("f", x * x)
        d.setdefault("a", x * 100)
        gone = d.pop("c")
        del d["f"]
        other = d.get("nothing")
        total = gone + d.get("e", x)
        if other is None and "b" in d and "c" not in d:
            total = total + len(d)
        for key in d.keys():
            if key != "a":
                total = total + d[key] * 0.5
        for value in d.values():
            total = total * 0.5 + value
        for key, value in d.items():
            if key.startswith("b"):
                total = total - value
        copied = d.copy()
        d.clear()
        return total, copied, len(d)

    return network(forward), [ROWS]


@scripted()
def script_dict_numbers():
    """Integer and float keys, and a table that a loop fills."""

    def forward(self, x):
        squares = {i: x[:, i] * i for i in range(4)}
        table: Dict[int, List[int]] = {}
        for i in range(6):
            key = i % 3
            if key not in table:
                table[key] = [i]
            else:
                table[key].append(i + x.size(0))
        factors: Dict[float, int] = {0.5: 2, 1.5: 3}
        return (torch.stack([squares[3], squares[1], squares[2]], 1), table, x * factors[1.5])

    return network(forward), [ROWS]


@scripted()
def script_dict_input():
    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 6)

        def forward(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
            out: Dict[str, Tensor] = {}
            for key, value in batch.items():
                out[key + "_out"] = self.fc(value)
            if "mask" in batch:
                out["x_out"] = out["x_out"] * 2
            batch["sum"] = batch["x"] + 1
            return out

    return Keyed(), [f"{{'x': {ROWS}, 'y': {ROWS}}}"]


@scripted()
def script_dict_of_lists():
    def forward(self, x):
        groups: Dict[str, List[Tensor]] = {"even": [], "odd": []}
        for i in range(x.size(1)):
            groups["odd" if i % 2 else "even"].append(x[:, i])
        return {name: torch.stack(group, 1) for name, group in groups.items()}

    return network(forward), [ROWS]


# ---------------------------------------------------------------------------
# Optionals, unions, Any


@scripted()
def script_optional_refined():
    """A value that is None until a turn of the loop sets it."""

    def forward(self, x):
        best: Optional[Tensor] = None
        for i in range(4):
            now = x * (i + 1) - i
            if best is None:
                best = now
            else:
                best = torch.maximum(best, now)
        assert best is not None
        return best

    return network(forward), [ROWS]


@scripted()
def script_optional_results():
    """Results, lists and dicts that hold None."""

    def forward(
        self, x
    ) -> Tuple[Optional[Tensor], Optional[Tensor], List[Optional[Tensor]], Optional[int]]:
        one: Optional[Tensor] = None
        two: Optional[Tensor] = x + 1
        number: Optional[int] = None
        if x.size(0) > 3:
            one, two = two, one
            number = x.size(0)
        return one, two, [one, two, x], number

    return network(forward), [ROWS]


@scripted()
def script_optional_numbers():
    class Scaled(nn.Module):
        def forward(
            self,
            x: Tensor,
            scale: Optional[float] = None,
            dims: Optional[List[int]] = None,
            name: str = "sum",
        ):
            if scale is None:
                scale = 0.25
            if dims is None:
                dims = [1]
            y = x * scale
            return y.sum(dims) if name == "sum" else y.mean(dims)

    return Scaled(), [ROWS]


@scripted()
def script_union():
    def forward(self, x):
        values: List[Union[int, Tensor, str]] = [2, x, "text", x.sin(), 3]
        y = x
        for value in values:
            if isinstance(value, int):
                y = y * value
            elif isinstance(value, Tensor):
                y = y + value
            else:
                y = y + len(value)
        return y

    return network(forward), [ROWS]


@scripted()
def script_any():
    def forward(self, x):
        return apply(x, 3) + apply(x, x.cos()) + apply(x, [1.5, 2.5])

    return network(forward), [ROWS]


def apply(x: Tensor, what: Any) -> Tensor:
    if isinstance(what, int):
        return x * what
    elif isinstance(what, Tensor):
        return x + what
    elif torch.jit.isinstance(what, List[float]):
        return x - what[0] * what[1]
    return x


class Mode(Enum):
    ADD = 1
    SCALE = 2


@scripted()
def script_enum():
    class Moded(nn.Module):
        def __init__(self):
            super().__init__()
            self.mode = Mode.SCALE

        def forward(self, x):
            for mode in [Mode.ADD, self.mode]:
                if mode == Mode.ADD:
                    x = x + mode.value
                elif mode is Mode.SCALE:
                    x = x * 3
            return x, self.mode.name

    return Moded(), [ROWS]


# ---------------------------------------------------------------------------
# Strings, devices, types


@scripted()
def script_strings():
    """Strings that the batch enters; they decide branches."""

    def forward(self, x):
        mode = self.mode
        name = f"{mode}-{x.size(0)}"
        words = "relu,tanh,exp".split(",")
        text = " ".join([name.upper(), "%d of %s" % (x.size(1), words[1])])
        text = text.replace("OF", "of").strip() + "!"
        if mode.endswith("x") and mode[1:3] == "el":
            x = x.relu() + text.find("of") * 0.1
        if words[1].startswith("ta") and ord(words[1][0]) == 116:
            x = x.tanh() + len(text)
        return x, text, "{}:{}".format(mode, 2.5), int("12") + float("1.5")

    module = network(forward)
    module.mode = "relux"
    return module, [ROWS]


@scripted()
def script_string_loop():
    """Over the letters of a string, as a parser of a small language."""

    def forward(self, x):
        for letter in "s+c*":
            if letter == "s":
                x = x.sin()
            elif letter == "c":
                x = x.cos()
            elif letter == "+":
                x = x + 1
            else:
                x = x * 2
        return x

    return network(forward), [ROWS]


@scripted()
def script_devices():
    """Devices, element types and layouts as values."""

    def forward(self, x):
        device, dtype = x.device, x.dtype
        y = torch.arange(x.size(1), device=device, dtype=dtype)
        if device == torch.device("cpu") and not x.is_cuda:
            y = y + 1
        z = torch.full_like(x, 0.5, dtype=torch.float64, device=device)
        if device.type == "cpu" and x.layout == torch.strided:
            z = z * 2
        return x * y, z.to(dtype) + x, str(device)

    return network(forward), [ROWS]


@scripted()
def script_complex_numbers():
    def forward(self, x):
        factor = complex(1.5, -2.0)
        z = torch.complex(x, x.cos()) * factor + 2j
        return torch.view_as_real(z), z.abs(), abs(factor)

    return network(forward), [ROWS]


@scripted()
def script_scalar_types():
    """Numbers whose type is known only when it runs."""

    class Scaled(nn.Module):
        def forward(self, x: Tensor, i: Tensor, a: Union[int, float]):
            first = x[0, 0].item()
            y = x * first + i[0].item()
            if isinstance(a, float):
                y = y * a
            return y

    return Scaled(), [ROWS, "int64[B]{0:9}", "1.5"]
