"""Scripted programs, one per construct: branches, loops, early exits, raise,
print. Extents differ from each other and from the batch."""

import math
import warnings
from typing import List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from registry import network, scripted

ROWS = "float32[B,8]"


# ---------------------------------------------------------------------------
# Branches


@scripted()
def script_if_extent():
    """Decided by an extent that is a number."""

    def forward(self, x):
        if x.size(1) == 8:
            y = self.one(x)
        else:
            y = self.two(x)
        return y.tanh()

    return network(forward, one=nn.Linear(8, 6), two=nn.Linear(9, 6)), [ROWS]


@scripted()
def script_if_batch():
    """Decided by the batch; one extent either way."""

    def forward(self, x):
        if x.size(0) % 2 == 0:
            y = x.sin() + 1
        else:
            y = x.cos() * 2
        return self.head(y), y

    return network(forward, head=nn.Linear(8, 4)), [ROWS]


@scripted(decided="the batch decides in more ways than an expression")
def script_if_batch_extents():
    """Decided by the batch, with an extent of its own in each branch."""

    def forward(self, x):
        if x.size(0) > 4:
            y = x[:, :4]
        else:
            y = x[:, 2:]
        return y * y, y.sum(1)

    return network(forward), [ROWS]


@scripted()
def script_if_rank():
    def forward(self, x):
        if x.dim() == 2:
            x = x.unsqueeze(1)
        y = self.conv(x)
        if x.ndim == 4:
            y = y.squeeze(1)
        return y

    return network(forward, conv=nn.Conv1d(1, 4, 3)), [ROWS]


@scripted()
def script_if_training():
    """Not taken: the module is in eval mode."""

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            y = y + torch.randn_like(y)
        return y

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted(training=True)
def script_if_training_on():
    """The same question to a module in training mode, and a submodule that
    asks it too."""

    def forward(self, x):
        y = self.drop(self.fc(x))
        if self.training:
            y = y * 2 + torch.rand_like(y)
        return y

    return network(forward, fc=nn.Linear(8, 6), drop=nn.Dropout(0.25)), [ROWS]


def with_mask():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor, mask: Optional[Tensor] = None):
            y = self.fc(x)
            if mask is not None:
                y = y.masked_fill(mask, 0.0)
            else:
                y = y.relu()
            return y + x

    return Masked()


@scripted()
def script_if_none():
    return with_mask(), [ROWS, "none"]


@scripted()
def script_if_not_none():
    return with_mask(), [ROWS, "bool[B,8]"]


@scripted()
def script_if_dtype():
    def forward(self, x, i):
        if not i.is_floating_point():
            i = i.to(x.dtype) / 4
        if x.dtype == torch.float64:
            x = x.float()
        return x + i, x.dtype == torch.float32

    return network(forward), [ROWS, "int64[B,8]{0:9}"]


@scripted()
def script_if_data():
    """Decided by data; one type and shape either way."""

    def forward(self, x):
        if bool(x.sum() > 0):
            y = self.fc(x)
        else:
            y = x @ self.fc.weight.t() - 1
        return y.exp(), y

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted(decided="the sum of the data")
def script_if_data_extents():
    def forward(self, x):
        if bool(x.sum() > 0):
            y = x[:, 1:]
        else:
            y = x[:, :5]
        return y.sigmoid(), y.sum(1)

    return network(forward), [ROWS]


@scripted(decided="the sum of the data, even the rank")
def script_if_data_rank():
    def forward(self, x):
        if bool(x.sum() > 0):
            y = x.unsqueeze(1)
        else:
            y = x * 2
        return y.flatten(1).sigmoid()

    return network(forward), [ROWS]


@scripted(decided="the sum of the data, even the element type")
def script_if_data_element():
    def forward(self, x):
        if bool(x.sum() > 0):
            y = (x * 10).to(torch.int64)
        else:
            y = x.double()
        return y + 1

    return network(forward), [ROWS]


@scripted()
def script_if_per_sample():
    """Each sample takes a branch of its own."""

    def forward(self, x):
        rows: List[Tensor] = []
        for i in range(x.size(0)):
            row = x[i]
            if bool(row[0] > 0):
                row = row.sin()
            elif bool(row[1] > 0):
                row = row.cos() + 3
            rows.append(row)
        return torch.stack(rows)

    return network(forward), [ROWS]


@scripted()
def script_if_nested():
    """Values that only some of the branches define, and branches in
    branches."""

    def forward(self, x):
        scale = 1.0
        y = x
        if x.size(1) > 4:
            z = self.fc(x)
            if bool(z.mean() > 0):
                y = z.relu()
                scale = 2.0
            else:
                y = z.abs()
                if x.size(0) > 3:
                    scale = 3.0
        return y * scale, scale

    return network(forward, fc=nn.Linear(8, 8)), [ROWS]


@scripted()
def script_if_without_results():
    """Branches that only write."""

    def forward(self, x):
        seen: List[int] = []
        y = x * 2
        if x.size(0) > 3:
            y.add_(1)
            seen.append(x.size(0))
        else:
            y.mul_(3)
        return y, seen

    return network(forward), [ROWS]


@scripted()
def script_if_type():
    """A type decides when it is scripted, a Union when it runs."""

    class Typed(nn.Module):
        def forward(self, x: Tensor, scale: Union[int, float, None] = 2.5):
            if isinstance(scale, int):
                y = x + scale
            elif isinstance(scale, float):
                y = x * scale
            else:
                y = x.exp()
            if isinstance(x, Tensor):
                y = y + x
            return y

    return Typed(), [ROWS, "3"]


@scripted()
def script_conditional_expressions():
    def forward(self, x, flag: bool):
        n = 3 if flag else 5
        y = x.sin() if x.size(1) > 7 and flag else x.cos()
        z = y if flag or bool(y.sum() > 100) else x
        return z * n, not flag

    return network(forward), [ROWS, "true"]


@scripted()
def script_short_circuit():
    """The right side of `and` and `or` must not be asked."""

    def forward(self, x, mask: Optional[Tensor]):
        if mask is not None and mask.size(1) == 8:
            x = x * mask
        if x.size(1) == 8 or bool(x[100, 100] > 0):
            x = x + 1
        if 0 < x.size(0) < 100:
            x = x.tanh()
        return x

    return network(forward), [ROWS, "none"]


# ---------------------------------------------------------------------------
# Loops


@scripted()
def script_for_range():
    def forward(self, x):
        for i in range(4):
            x = self.fc(x).tanh() + i
        return x

    return network(forward, fc=nn.Linear(8, 8)), [ROWS]


@scripted()
def script_for_steps():
    """Ranges with a start, a step, a negative step, and none at all."""

    def forward(self, x):
        y = x
        for i in range(1, 8, 2):
            y = y + x[:, i : i + 1]
        for i in range(6, 0, -3):
            y = y * (i + 1)
        for i in range(5, 5):
            y = y * 0
        return y

    return network(forward), [ROWS]


@scripted()
def script_for_batch():
    """As many turns as samples."""

    def forward(self, x):
        state = torch.zeros(8)
        rows: List[Tensor] = []
        for i in range(x.size(0)):
            state = state * 0.5 + x[i]
            rows.append(state)
        return torch.stack(rows), state

    return network(forward), [ROWS]


@scripted()
def script_for_tensor():
    """Over the rows of a tensor."""

    def forward(self, x):
        total = torch.zeros(8)
        out: List[Tensor] = []
        for row in x:
            total = total + row.exp()
            out.append(total.log())
        return torch.stack(out)

    return network(forward), [ROWS]


@scripted()
def script_for_zip_enumerate():
    def forward(self, x):
        parts = x.split(4, 1)
        out: List[Tensor] = []
        for i, (part, scale) in enumerate(zip(parts, [2.0, 3.0])):
            out.append(part * scale + i)
        for i, part in enumerate(parts, 5):
            out[0] = out[0] + part * i
        return torch.cat(out, 1)

    return network(forward), [ROWS]


@scripted()
def script_for_extent_carried():
    """Integers, floats and bools are carried from turn to turn."""

    def forward(self, x):
        count, scale, odd = 0, 1.0, False
        for i in range(x.size(1)):
            count += i
            scale = scale * 1.25
            odd = not odd
        y = x * scale + count
        if odd:
            y = y * 0
        return y, count, scale, odd

    return network(forward), [ROWS]


@scripted()
def script_while_counter():
    def forward(self, x):
        i = 0
        while i < 3:
            x = self.fc(x).relu() + x
            i += 1
        return x, i

    return network(forward, fc=nn.Linear(8, 8)), [ROWS]


@scripted(decided="the number of turns")
def script_while_extent():
    """Halves an extent until it is small."""

    def forward(self, x):
        while x.size(1) > 3:
            x = x[:, ::2] + x[:, 1::2]
        return x.tanh()

    return network(forward), ["float32[B,32]"]


@scripted()
def script_while_data():
    """Data decide how often; the shape is a fixed point."""

    def forward(self, x):
        turns = 0
        while bool(x.norm() > 1.0) and turns < 50:
            x = x * 0.75
            turns += 1
        return x, turns

    return network(forward), [ROWS]


@scripted()
def script_while_true():
    def forward(self, x):
        i = 0
        while True:
            x = x * 1.5
            i += 1
            if i > 4:
                break
        return x

    return network(forward), [ROWS]


@scripted()
def script_break_continue():
    def forward(self, x):
        y = x
        for i in range(8):
            if i % 3 == 0:
                continue
            if i > 5:
                break
            y = y + x[:, i : i + 1] * i
        return y

    return network(forward), [ROWS]


@scripted()
def script_break_on_data():
    """The loop stops where the data say so."""

    def forward(self, x):
        last = x[:, 0]
        for i in range(x.size(1)):
            column = x[:, i]
            if bool(column.max() > 1.2):
                last = column * (i + 1)
                break
        return last

    return network(forward), [ROWS]


@scripted()
def script_early_return():
    def forward(self, x):
        if x.size(0) == 2:
            return x.sin()
        y = self.fc(x)
        if bool(y.sum() > 0):
            return y.relu() + x
        return y + x.cos()

    return network(forward, fc=nn.Linear(8, 8)), [ROWS]


@scripted()
def script_return_in_loop():
    """Leaves two loops at once."""

    def forward(self, x) -> Tuple[Tensor, int]:
        for i in range(4):
            for j in range(4):
                x = x + 0.25
                if bool(x.mean() > 1.0):
                    return x * (j + 1), i
        return x, -1

    return network(forward), [ROWS]


@scripted()
def script_nested_loops():
    """All pairs, triangle only; the inner bound is the outer counter."""

    def forward(self, x):
        total = torch.zeros(x.size(0))
        for i in range(x.size(1)):
            for j in range(i):
                total = total + x[:, i] * x[:, j]
        return total

    return network(forward), ["float32[B,6]"]


@scripted(decided="the number of turns")
def script_loop_grows():
    """A tensor that gets longer with every turn."""

    def forward(self, x):
        y = x
        for i in range(3):
            y = torch.cat([y, x * (i + 2)], 1)
        return y.cumsum(1)

    return network(forward), [ROWS]


@scripted(decided="the number of turns")
def script_loop_changes_rank():
    def forward(self, x):
        for _ in range(3):
            x = x.unsqueeze(1).tanh()
        return x.flatten(1)

    return network(forward), [ROWS]


@scripted(decided="whether there is a turn at all")
def script_loop_second_turn():
    """The extent of the first turn is not that of the others, which is a fixed
    point."""

    def forward(self, x):
        state = x[:, :1]
        for i in range(3):
            state = x * state.mean(1, keepdim=True) + i
        return state

    return network(forward), [ROWS]


@scripted()
def script_fixed_point():
    """Power iteration: vectors of one shape, normed in every turn."""

    def forward(self, x):
        matrix = x.unsqueeze(2) * x.unsqueeze(1) + torch.eye(8)
        vector = torch.ones(x.size(0), 8, 1)
        for _ in range(6):
            vector = matrix @ vector
            vector = vector / vector.norm(2, dim=1, keepdim=True)
        return vector.squeeze(2)

    return network(forward), [ROWS]


@scripted()
def script_convergence():
    """Newton's method for square roots, until nothing moves any more."""

    def forward(self, x):
        a = x.abs() + 0.5
        root, steps = a, 0
        for _ in range(20):
            better = 0.5 * (root + a / root)
            done = bool((better - root).abs().max() < 1e-4)
            root = better
            steps += 1
            if done:
                break
        return root, steps

    return network(forward), [ROWS]


@scripted()
def script_greedy_decoding():
    """Each token follows from the last; a fixed number of steps."""

    def forward(self, tokens, steps: int):
        out = [tokens]
        hidden = torch.zeros(tokens.size(0), 16)
        for _ in range(steps):
            hidden = torch.tanh(self.mix(hidden) + self.table(tokens))
            tokens = self.head(hidden).argmax(1)
            out.append(tokens)
        return torch.stack(out, 1), hidden

    return network(
        forward, table=nn.Embedding(500, 16), mix=nn.Linear(16, 16), head=nn.Linear(16, 500)
    ), ["int64[B]{0:500}", "4"]


@scripted(decided="when all samples have ended")
def script_decode_until_end():
    def forward(self, tokens):
        out = tokens.unsqueeze(1)
        ended = tokens < 20
        while not bool(ended.all()) and out.size(1) < 12:
            scores = self.head(self.table(out).sum(1))
            token = scores.argmax(1).masked_fill(ended, 0)
            ended = ended | (token < 20)
            out = torch.cat([out, token.unsqueeze(1)], 1)
        return out

    return network(forward, table=nn.Embedding(100, 16), head=nn.Linear(16, 100)), [
        "int64[B]{20:100}"
    ]


@scripted()
def script_beam_search():
    """Four beams per sample; places are gathered along the beams."""

    def forward(self, start):
        batch = start.size(0)
        tokens = start.unsqueeze(1).repeat(1, 4)
        scores = torch.tensor([0.0, -1e9, -1e9, -1e9]).repeat(batch, 1)
        history: List[Tensor] = [tokens]
        for _ in range(3):
            logits = self.head(self.table(tokens)).log_softmax(-1)
            total = (scores.unsqueeze(2) + logits).flatten(1)
            scores, flat = total.topk(4, dim=1)
            beam = torch.div(flat, 200, rounding_mode="floor")
            tokens = flat % 200
            history = [part.gather(1, beam) for part in history]
            history.append(tokens)
        return torch.stack(history, 2), scores

    return network(forward, table=nn.Embedding(200, 16), head=nn.Linear(16, 200)), [
        "int64[B]{0:200}"
    ]


# ---------------------------------------------------------------------------
# Raising, printing, warning, grad mode


@scripted(raises=("float32[B,9]",))
def script_raise():
    def forward(self, x):
        if x.size(1) != 8:
            raise ValueError("expected 8 columns")
        return self.fc(x)

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted(raises=("float32[B,8]{-2:-1}",))
def script_raise_on_data():
    """In a branch that gives no value, from a formatted message."""

    def forward(self, x):
        if bool(x.max() > 0):
            y = x.log1p()
        else:
            raise RuntimeError(f"no positive number in {x.size(1)} columns")
        return y.nan_to_num(0.5)

    return network(forward), [ROWS]


@scripted(raises=("float32[B,4]",))
def script_raise_in_loop():
    def forward(self, x):
        y = x[:, 0]
        for i in range(6):
            if i >= x.size(1):
                raise IndexError("too few columns")
            y = y * 0.5 + x[:, i]
        return y

    return network(forward), [ROWS]


@scripted(raises=("float32[B,7]",))
def script_assert():
    def forward(self, x):
        assert x.dim() == 2, "rows and columns"
        assert x.size(1) % 2 == 0, f"{x.size(1)} columns are no pairs"
        return x.reshape(x.size(0), -1, 2).prod(2)

    return network(forward), [ROWS]


@scripted()
def script_print():
    """Order and text of what is printed."""

    def forward(self, x):
        print("rows", x.size(0), 1.5, True, None)
        for i in range(2):
            print("turn", i, [i, i + 1], "of", 2)
        y = x * 2
        if x.size(0) > 3:
            print("many")
        print(y[0, :2])
        return y

    return network(forward), [ROWS]


@scripted()
def script_warn():
    def forward(self, x):
        if x.size(1) == 8:
            warnings.warn("eight columns")
        return x.sinh()

    return network(forward), [ROWS]


@scripted()
def script_no_grad():
    """With grad mode on, the second result needs no gradient."""

    def forward(self, x):
        y = self.fc(x)
        with torch.no_grad():
            z = self.fc(x * 2).relu()
            w = z + 1
        return y, w, y + z

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted()
def script_grad_mode():
    """Asks for grad mode, and sets it by hand."""

    def forward(self, x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = self.fc(x)
        torch.set_grad_enabled(True)
        z = self.fc(y @ self.back)
        torch.set_grad_enabled(before)
        if torch.is_grad_enabled():
            z = z + 1
        return y, z, z.detach() * 2

    return network(forward, fc=nn.Linear(8, 6), back=torch.randn(6, 8)), [ROWS]


@scripted()
def script_gradient():
    """A gradient inside of the program."""

    def forward(self, x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        x = x.detach().requires_grad_(True)
        energy = (self.fc(x) ** 2).sum()
        gradient = torch.autograd.grad([energy], [x])[0]
        torch.set_grad_enabled(before)
        assert gradient is not None
        return x.detach() - 0.1 * gradient

    return network(forward, fc=nn.Linear(8, 6)), [ROWS]


@scripted()
def script_numbers():
    """Arithmetic of Python numbers, decided by the batch."""

    def forward(self, x):
        n = x.size(0)
        a = n // 2 + n % 3 - -n * 2
        b = math.sqrt(float(n)) + math.floor(n / 2) + math.pi
        c = max(n, 4) + min(n, 4) + abs(-n) + int(b) + round(b)
        d = (n << 2) | (n & 1) ^ 3
        e = 2**n + divmod(n, 4)[1]
        return x * b + a, a, b, c, d, e, float(n) / 3, n > 3

    return network(forward), [ROWS]


@scripted()
def script_extent_arithmetic():
    """Extents made of extents, in tensors and lists."""

    def forward(self, x):
        b, c = x.shape
        half = c // 2
        y = x.view(b, half, 2).transpose(1, 2).reshape(2 * b, half)
        z = x.new_ones([b + 1, half - 1]) * x.mean()
        sizes = list(x.shape)
        sizes[1] = sizes[1] // 4
        sizes.append(4)
        return y, z, x.reshape(sizes).sum(2), x.numel()

    return network(forward), [ROWS]
