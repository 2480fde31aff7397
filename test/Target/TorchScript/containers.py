"""What lists, tuples and dicts keep alive: figures against measured bytes.

Scripted programs, one per way into a container and out again. A figure that is
said to be exact is what PyTorch allocates, to the byte; of each program it is put
down whether it is. Usage: containers.py [NAME...]
"""

import pathlib
import sys
import tempfile
import warnings

import torch
from torch import Tensor, nn

import memory
from koila import _compiler

BATCH = 5
PROGRAMS = {}


def program(exact=True):
    def register(forward):
        PROGRAMS[forward.__name__] = (forward, exact)
        return forward

    return register


def later(x):
    """Two tensors while the others live, or not."""
    return x.cos().tanh().sum()


# ---------------------------------------------------------------------------
# Lists of views: each keeps the whole tensor


@program()
def chunk_by_index(self, x):
    parts = x.exp().chunk(2, 1)
    first = parts[0]
    return later(x) + first.sum()


@program()
def split_by_index(self, x):
    parts = x.exp().split(32, 1)
    return parts[0].sin() * parts[1]


@program()
def split_sizes_last(self, x):
    parts = x.exp().split_with_sizes([16, 48], 1)
    last = parts[-1]
    return later(x) + last.sum()


@program()
def unbind_by_index(self, x):
    rows = x.exp().unbind(1)
    row = rows[3]
    return later(x) + row.sum()


@program()
def tensor_split_returned(self, x):
    parts = x.exp().tensor_split(2, 1)
    return parts[0], later(x)


@program()
def hsplit_unpacked(self, x):
    left, _ = x.exp().hsplit(2)
    return later(x) + left.sum()


@program()
def unsafe_split_by_index(self, x):
    parts = torch.unsafe_split(x.exp(), 32, 1)
    part = parts[1]
    return later(x) + part.sum()


@program()
def views_of_a_view(self, x):
    half = x.exp().chunk(2, 1)[0]
    part = half.chunk(2, 1)[1].t()
    return later(x) + part.sum()


@program()
def part_of_the_list(self, x):
    parts = x.exp().chunk(4, 1)[1:]
    part = parts[1]
    return later(x) + part.sum()


@program()
def written_view(self, x):
    base = x.exp()
    parts = base.chunk(2, 1)
    part = parts[0].relu_()
    return later(x) + part.sum()


@program()
def gates(self, x):
    parts = x.exp().chunk(4, 1)
    i, f = torch.sigmoid(parts[0]), torch.sigmoid(parts[1])
    return i * torch.tanh(parts[2]) + f * parts[3]


# ---------------------------------------------------------------------------
# Lists, tuples and dicts of tensors


@program()
def list_that_stays(self, x):
    """LibTorch reads what was put there, so that the list keeps nothing."""
    both = [x.exp(), x.sin()]
    first = both[0]
    return later(x) + first.sum()


@program()
def list_of_lists(self, x):
    table = [[x.exp(), x.sin()], [x.cos(), x.tanh()]]
    row = table[0]
    return later(x) + row[1].sum()


@program()
def list_for_its_length(self, x):
    both = [x.exp(), x.sin()]
    return later(x) + len(both)


@program()
def list_of_optionals(self, x):
    some = torch.jit.annotate(list[Tensor | None], [x.exp(), None, x.sin()])
    first = some[0]
    total = later(x)
    if first is not None:
        total = total + first.sum()
    return total


@program()
def dict_that_stays(self, x):
    both = {"a": x.exp(), "b": x.sin()}
    total = both["a"].sum() + later(x)
    return total + both["b"].sum()


@program()
def dict_of_numbers(self, x):
    both = {0: x.exp(), 1: x.sin()}
    second = both[1]
    return later(x) + second.sum()


@program()
def list_of_a_call(self, x):
    both = make_both(x)
    return later(x) + both[0].sum()


def make_both(x) -> list[Tensor]:
    return [x.exp(), x.sin()]


@program()
def sizes(self, x):
    """A list of numbers keeps no tensor."""
    shape = x.exp().size()
    z = x.sin().cos()
    return (torch.relu(x.tanh()) + z).view(shape).sum()


# ---------------------------------------------------------------------------
# Containers that change


@program()
def dict_that_is_filled(self, x):
    filled: dict[str, Tensor] = {"a": x.exp()}
    filled["b"] = x.sin()
    total = filled["a"].sum()
    return total + later(x) + filled["b"].sum()


@program()
def list_that_is_overwritten(self, x):
    both = [x.exp(), x.sin()]
    total = both[0].sum()
    both[0] = later(x)
    return total + both[0]


@program()
def length_of_what_is_filled(self, x):
    filled: list[Tensor] = []
    filled.append(x.exp())
    filled.append(x.sin())
    total = torch.cat(filled, 1).sum()
    return total + later(x) + len(filled)


@program()
def list_of_a_branch(self, x):
    both = [x.exp(), x.sin()] if x.dim() == 2 else [x.cos(), x.tanh()]
    return later(x) + both[0].sum()


# ---------------------------------------------------------------------------
# Tuples that are taken apart: what nothing takes ends with them


def make_nested(x) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    return x.exp(), (torch.cat([x, x.sin()], 1), x.cos())


@program()
def tuple_in_a_tuple(self, x):
    first, (_, last) = make_nested(x)
    return (first + last).sum()


@program()
def tuple_by_two_indices(self, x):
    both = make_nested(x)
    last = both[1][1].tanh()
    return later(x) + last.sum() + both[0].sum()


@program()
def tuple_read_in_a_loop(self, x):
    both = make_nested(x)
    total = x
    for i in range(2):
        total = both[1][1].exp() + i
    return total.sum() + later(x)


@program()
def tuple_of_a_branch(self, x):
    """Of which an attribute decides: what an auxiliary head gives, and nobody takes."""
    both = make_auxiliary(x, self.training)
    return later(x) + both[0].sum()


def make_auxiliary(x, training: bool) -> tuple[Tensor, Tensor]:
    y = x.exp()
    if training:
        return y, torch.cat([y, y.sin()], 1).cos()
    return y, y


@program()
def list_that_only_a_dead_branch_writes(self, x):
    """LibTorch takes all of it away."""
    both = [torch.cat([x, x, x], 1), x]
    if self.training:
        both[0].add_(both[0])
    return later(x)


@program()
def condition_that_an_attribute_decides(self, x):
    """PyTorch computes what is asked first."""
    if bool((torch.cat([x, x, x], 1) > 2.0).any()) or not self.training:
        return later(x)
    return later(x)


@program()
def list_that_is_empty(self, x):
    """LibTorch takes the loop away, and then what only it reads."""
    both: list[Tensor] = []
    unread = torch.cat([x, x, x], 1)
    total = x
    for _part in both:
        total = total + unread.sum()
    return later(x) + total.sum()


# ---------------------------------------------------------------------------
# Not exact, and said so


@program(exact=False)
def made_by_an_operator(self, x):
    made = torch.gradient(x.exp(), dim=1)
    first = made[0]
    return later(x) + first.sum()


@program(exact=False)
def many_at_once(self, x):
    made = torch._foreach_exp([x, x.sin()])
    return later(x) + made[0].sum()


@program()
def grid(self, x):
    axes = torch.meshgrid([x.exp()[:, 0], x[0].sin()], indexing="ij")
    first = axes[0]
    return first + later(x)


# ---------------------------------------------------------------------------


def check(name, folder):
    forward, expected = PROGRAMS[name]
    model = type(name, (nn.Module,), {"forward": forward, "__module__": __name__})()
    path = str(folder / f"{name}.pt")
    torch.jit.script(model).save(path)
    loaded = torch.jit.load(path)
    x = torch.rand(BATCH, 64)
    with torch.no_grad():
        measured = memory.peak_bytes(lambda: loaded(x), calls=1)
    report = _compiler.analyze_script(
        path, ["float32[B,64]"], batch={"B": BATCH}, floor=False, batches=0
    )
    predicted, exact = report["peak_bytes"], report["exact"]
    if exact != expected:
        return "is exact" if exact else f"is not exact: {report['inexact']}"
    if exact and predicted != measured:
        return f"predicted {predicted}, measured {measured}"
    return None


def main():
    warnings.simplefilter("ignore")
    torch._C._jit_set_profiling_mode(False)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or PROGRAMS:
            problem = check(name, pathlib.Path(folder))
            failures += problem is not None
            if problem:
                print(f"{name}: {problem}")
    print(f"{failures} of {len(sys.argv[1:] or PROGRAMS)} programs are wrong")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
