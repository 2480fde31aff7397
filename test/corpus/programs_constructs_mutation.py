"""Scripted programs, one per construct: writes to views, arguments,
parameters, buffers, elements of containers and attributes. Every program
reads what it wrote under another name."""

from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

ROWS = "float32[B,8]"


# ---------------------------------------------------------------------------
# Through views


@scripted()
def script_write_column():
    def forward(self, x):
        y = x * 2
        y[:, 0] = 0
        y[:, -1] = x[:, 1]
        y[0] += 10
        return y, y.sum(1)

    return network(forward), [ROWS]


@scripted()
def script_write_slices():
    """With steps, with a tensor of fewer dims, and with `...`."""

    def forward(self, x):
        y = x.clone()
        y[:, 1:6:2] = torch.tensor([10.0, 20.0, 30.0])
        y[1:, 2] *= 3
        z = y.view(-1, 2, 4)
        z[..., 3] -= 5
        z[:, 1, :2] = y[:, :2]
        return y, z.sum((1, 2))

    return network(forward), [ROWS]


@scripted()
def script_write_index():
    """At places that tensors name, and where a mask is set."""

    def forward(self, x, i, mask):
        y = x.exp()
        y[:, i] = -1.0
        y[mask] = 7.0
        y[torch.arange(x.size(0)), i[0]] += 100
        y.index_put_(
            [torch.tensor([0, 0, 1]), torch.tensor([2, 2, 3])],
            torch.tensor([1.0, 2.0, 4.0]),
            accumulate=True,
        )
        return y

    return network(forward), [ROWS, "int64[3]{0:8}", "bool[B,8]"]


@scripted()
def script_write_chain():
    """Through a view of a view, transposed and cut."""

    def forward(self, x):
        y = x.sin()
        view = y.t()[2:6].unsqueeze(0)
        view.mul_(10)
        view[0, 1].fill_(3)
        y.diagonal().zero_()
        return y, view

    return network(forward), [ROWS]


@scripted()
def script_write_parts():
    """Through what split, unbind and chunk return."""

    def forward(self, x):
        y = x * 1
        a, b = y.split(4, 1)
        a.add_(b)
        for i, column in enumerate(y.unbind(1)):
            column.mul_(i + 1)
        b.clamp_(-1, 1)
        last = y.chunk(4, 1)[-1]
        last.neg_()
        return y, a.sum(1) - b.sum(1)

    return network(forward), [ROWS]


@scripted()
def script_write_base():
    """The base is written, the view is read."""

    def forward(self, x):
        y = x + 1
        rows = y.view(-1)
        half = y[:, :4]
        copied = half.clone()
        y.mul_(2)
        y.relu_()
        return half - copied, rows.sum().expand(x.size(0)) + y[:, 0]

    return network(forward), [ROWS]


@scripted()
def script_view_or_copy():
    """`reshape` is a view here and a copy there; `contiguous` and `to` may
    return their argument."""

    def forward(self, x):
        y = x * 2
        view = y.reshape(-1)
        copied = y.t().reshape(-1)
        same = y.contiguous().to(torch.float32)
        y.add_(1)
        return view.view_as(x), copied.view(8, -1).t(), same

    return network(forward), [ROWS]


@scripted()
def script_view_in_branch():
    """A branch decides whose memory is written."""

    def forward(self, x):
        a, b = x.sin(), x.cos()
        if bool(x.sum() > 0):
            target = a
        else:
            target = b[:, :8]
        target.mul_(100)
        return a, b

    return network(forward), [ROWS]


@scripted()
def script_write_in_loop():
    """A loop fills a tensor column by column, each from the last."""

    def forward(self, x):
        out = x.new_zeros(x.size(0), 6)
        out[:, 0] = x[:, 0]
        for i in range(1, out.size(1)):
            out[:, i] = out[:, i - 1] * 0.5 + x[:, i]
        return out

    return network(forward), [ROWS]


@scripted()
def script_view_carried():
    """A loop carries a view of what it writes."""

    def forward(self, x):
        base = x.clone()
        window = base[:, :2]
        for i in range(3):
            window.add_(i + 1)
            window = base[:, 2 * i + 2 : 2 * i + 4]
            window.add_(base[:, :2])
        return base, window

    return network(forward), [ROWS]


@scripted()
def script_copy_broadcast():
    def forward(self, x):
        y = torch.empty(x.size(0), 3, 8)
        y.copy_(x.unsqueeze(1))
        y[:, 1].copy_(x.flip(1))
        y[:, 2, :].copy_(torch.arange(8))
        y.select(1, 2).copy_(y[:, 0] * 2, non_blocking=False)
        z = torch.zeros(x.size(0), 8, dtype=torch.int64)
        z.copy_(x * 10)
        return y, z

    return network(forward), [ROWS]


@scripted()
def script_overlapping_write():
    """From a part of a tensor to another part of it."""

    def forward(self, x):
        y = x.clone()
        y[:, 1:5] = y[:, :4].clone() * 2
        y[:, 4:] += y[:, :4]
        y[:, :2], y[:, 2:4] = y[:, 2:4] + 1, y[:, :2].exp()
        return y

    return network(forward), [ROWS]


@scripted()
def script_masked_fill():
    def forward(self, x, mask):
        y = x.softmax(1)
        z = y[:, 2:]
        z.masked_fill_(mask[:, 2:], -3)
        y.masked_fill_(y > 0.2, 1.5)
        y.masked_scatter_(mask, x.exp())
        return y, z.sum(1)

    return network(forward), [ROWS, "bool[B,8]"]


@scripted()
def script_scatter():
    def forward(self, x, i):
        one_hot = torch.zeros(x.size(0), 8).scatter_(1, i, 1.0)
        sums = torch.zeros(x.size(0), 8)
        sums.scatter_add_(1, i, x[:, :3])
        view = sums[:, 4:]
        view.index_fill_(1, torch.tensor([1]), 9.0)
        sums.index_add_(1, torch.tensor([0, 2]), x[:, 6:])
        sums.scatter_reduce_(1, i, x[:, 3:6], "amax")
        return one_hot, sums, view * 2

    return network(forward), [ROWS, "int64[B,3]{0:8}"]


@scripted()
def script_shape_in_place():
    """The shape of a tensor changes under two names of it."""

    def forward(self, x):
        y = x * 3
        same = y
        y.unsqueeze_(1)
        y.transpose_(1, 2)
        z = same.squeeze(2)
        same.squeeze_(2)
        y.add_(1)
        return y, z, same

    return network(forward), [ROWS]


@scripted()
def script_in_place_chain():
    """What an in-place operator returns is its argument."""

    def forward(self, x):
        y = x * 0.5
        z = y.add_(1).mul_(x).clamp_(min=-0.5)
        z.sub_(0.25)
        torch.relu_(y)
        w = F.leaky_relu(z - 1, 0.1, inplace=True)
        w += 3
        w /= 2
        return y, z, w

    return network(forward), [ROWS]


@scripted()
def script_used_later():
    """The values of before and after a write both matter."""

    def forward(self, x):
        y = self.fc(x)
        before = y * 2
        late = y.view(-1, 2, 3)
        y.sigmoid_()
        after = y * 2
        y.zero_()
        return before, after, late + before.view_as(late)

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted()
def script_out():
    """Results written to tensors that are there already."""

    def forward(self, x):
        y = torch.empty(x.size(0), 8)
        torch.add(x, 1, out=y)
        z = y[:, :6]
        torch.mm(x, self.weight, out=y[:, 2:])
        buffer = torch.empty(0)
        torch.cat([y, x], 1, out=buffer)
        torch.mul(x, x, out=x[:, :8])
        values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
        torch.topk(x, 3, 1, True, True, values=values, indices=places)
        return y, z * 2, buffer, values, places

    return network(forward, weight=torch.randn(8, 6)), [ROWS]


# ---------------------------------------------------------------------------
# Arguments


@scripted()
def script_write_argument():
    """The caller sees it."""

    def forward(self, x):
        y = x * 2
        x[:, 0] = -1
        x.add_(y)
        return y, x.sum(1)

    return network(forward), [ROWS]


@scripted(same_argument=True)
def script_same_argument():
    """Both arguments are one tensor: a write to one is seen in the other."""

    def forward(self, a, b):
        a.mul_(2)
        c = b + 1
        b[:, 0] = 5
        return c, a - b, a + c

    return network(forward), [ROWS, ROWS]


@scripted()
def script_returned_argument():
    """Results that are arguments, and one that is returned twice."""

    def forward(self, x, y):
        z = x.sin()
        x.add_(1)
        y = y.view(-1)
        return x, z, z[:, 1:], (x, y), [z]

    return network(forward), [ROWS, ROWS]


@scripted()
def script_write_list_element():
    class Elements(nn.Module):
        def forward(self, parts: List[Tensor], named: Dict[str, Tensor]):
            own = [part * 2 for part in parts]
            own[0].add_(1)
            own[1][:, 0] = 3
            first = own[0]
            for part in own:
                part.mul_(first.sum())
            parts[1].zero_()
            parts[0] = own[1]
            named["x"].sub_(2)
            named["x"] = named["x"] * own[0]
            return torch.stack(own, 1), parts[1] + first, named["x"]

    return Elements(), [f"[{ROWS},{ROWS}]", f"{{'x': {ROWS}}}"]


@scripted()
def script_write_tuple_element():
    def forward(self, x):
        pair = (x.sin(), [x.cos(), x.exp()])
        pair[0].add_(1)
        pair[1][0] = pair[0]
        pair[1][0].mul_(2)
        for part in pair[1]:
            part += 0.5
        return pair

    return network(forward), [ROWS]


# ---------------------------------------------------------------------------
# Parameters, buffers, attributes


@scripted()
def script_write_parameter():
    """Under no_grad, as an optimiser does."""

    def forward(self, x):
        before = self.fc(x)
        with torch.no_grad():
            self.fc.weight.mul_(0.5)
            self.fc.weight[0] += x.mean(0)
            self.fc.bias.copy_(before.mean(0))
        return before, self.fc(x)

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted()
def script_write_buffer():
    """A moving average, in place and through a view."""

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.history[1:] = self.history[:-1].clone()
            self.history[0] = self.mean
            self.count += x.size(0)
        return x - self.mean, self.history * 2, self.count.float() + x[:, 0]

    return network(
        forward, mean=torch.zeros(8), history=torch.randn(4, 8), count=torch.tensor(0)
    ), [ROWS]


@scripted(training=True)
def script_batch_norm_training():
    """Running statistics, written by the operator itself."""

    def forward(self, x):
        y = self.norm(self.fc(x))
        return y, self.norm.running_mean * 2, self.norm.num_batches_tracked

    return network(forward, fc=nn.Linear(8, 6), norm=nn.BatchNorm1d(6)), [ROWS]


@scripted()
def script_batch_norm():
    """The branch of training mode is there, and not taken."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
    ), ["float32[B,3,10,10]"]


@scripted(training=True)
def script_dropout_training():
    """Random numbers in the order of the program."""
    return nn.Sequential(
        nn.Linear(8, 12),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Linear(12, 6),
        nn.Dropout(0.25, inplace=True),
    ), [ROWS]


@scripted()
def script_counter():
    """Attributes of every kind of number are written."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.total = 0.0
            self.seen = False
            self.last = ""

        def forward(self, x):
            self.calls += 1
            if self.seen:
                x = x * 2
            self.seen = True
            self.total += x.size(0) * 0.5
            self.last = f"call {self.calls}"
            return x + self.calls, self.total, self.last

    return Counting(), [ROWS]


@scripted()
def script_order_of_effects():
    """Reads between the writes of one attribute; prints in between."""

    class Ordered(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = 1
            self.log: List[int] = [5]

        def bump(self) -> int:
            self.value = self.value * 3
            print("bump", self.value)
            self.log.append(self.value)
            return self.value

        def forward(self, x):
            a = self.value
            b = self.bump()
            for i in range(2):
                if i > 0:
                    self.value -= 1
                x = x * self.bump() + self.log[-2]
            c = self.value
            return x + a, a, b, c, self.log

    return Ordered(), [ROWS]


@scripted()
def script_set_tensor():
    """A tensor attribute and a buffer are replaced, not written."""

    class Replacing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.ones(8))
            self.other = torch.randn(8)

        def forward(self, x):
            old = self.state
            self.state = old * 0.5 + x.mean(0)
            old.add_(100)
            self.other = self.state
            self.state.mul_(2)
            return x * self.other, old

    return Replacing(), [ROWS]


@scripted(decided="how often it was called")
def script_cache():
    """None at first; grows with every call."""

    class Cached(nn.Module):
        cache: Optional[Tensor]

        def __init__(self):
            super().__init__()
            self.cache = None
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            y = self.fc(x).mean(0, keepdim=True)
            cache = self.cache
            if cache is None:
                self.cache = y
            else:
                self.cache = torch.cat([cache, y])
            result = self.cache
            assert result is not None
            return x @ result.t()

    return Cached(), [ROWS]


@scripted()
def script_state_containers():
    """Lists, dicts and tuples that the module holds are changed."""

    class Holding(nn.Module):
        queue: List[Tensor]
        named: Dict[str, Tensor]
        pair: Tuple[int, Tensor]

        def __init__(self):
            super().__init__()
            self.queue = [torch.randn(8)]
            self.named = {"mean": torch.zeros(8)}
            self.pair = (1, torch.randn(8))

        def forward(self, x):
            mean = x.mean(0)
            self.queue.append(mean)
            if len(self.queue) > 2:
                self.queue.pop(0)
            self.named["mean"] += mean
            self.named[f"batch{x.size(0)}"] = mean
            self.pair = (self.pair[0] + 1, self.queue[0])
            total = x * self.pair[0] + self.pair[1]
            for part in self.queue:
                total = total + part
            return total, len(self.named)

    return Holding(), [ROWS]


@scripted()
def script_submodule_state():
    """A submodule's state, written from outside and by its own method."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.level = 1
            self.register_buffer("offset", torch.zeros(8))

        def forward(self, x):
            self.level += 1
            return x * self.level + self.offset

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = Inner(), Inner()
            self.same = self.one

        def forward(self, x):
            y = self.one(x)
            self.same.level = 10
            self.two.offset.add_(x.mean(0))
            self.two.level = self.one.level
            return y + self.one(x) + self.two(x)

    return Outer(), [ROWS]


@scripted()
def script_returned_state():
    """Results that are buffers, or views of them."""

    def forward(self, x):
        self.table[0] = x.mean(0)
        return x @ self.table.t(), self.table, self.table[1]

    return network(forward, table=torch.randn(4, 8)), [ROWS]


@scripted()
def script_state_in_branch():
    """Data decide whether state changes; the write ends in the other mode of
    the next call."""

    class Switching(nn.Module):
        def __init__(self):
            super().__init__()
            self.mode = False
            self.register_buffer("peak", torch.zeros(8))

        def forward(self, x):
            if bool((x.amax(0) > self.peak).any()):
                self.peak = torch.maximum(self.peak, x.amax(0))
                self.mode = not self.mode
            if self.mode:
                return x / (self.peak + 1)
            return x - self.peak

    return Switching(), [ROWS]


@scripted(raises=("float32[B,8]{-2:-1}",))
def script_state_before_raise():
    """What was written before the error stays written."""

    class Guarded(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            x[:, 0] = self.calls
            print("call", self.calls)
            if bool(x[:, 1].max() < -0.5):
                raise RuntimeError(f"call {self.calls}")
            return x * self.calls

    return Guarded(), [ROWS]
