"""What koila 0.1.1 did wrong in training, one check for each.

    seed_failures.py KOILA-OPT FOLDER

It split a batch into powers of two and added the gradients of the parts, of a
graph that it evaluated anew at each use: means were too large, shared tensors
took exponential time and had a dropout at each use, statistics were those of a
part, and chains exceeded the recursion limit.

The loss, all gradients and the statistics of layers after `train_step`, run with
PyTorch alone, are those of one `backward()` over the whole batch in float64. As a
control, each failure is repeated with PyTorch, and has to be noticed.
"""

import copy
import pathlib
import subprocess
import sys
import typing
import warnings

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, DEPTH, OPERATIONS = 5, 50, 10_000


# Modules that return their loss; `wrong` is the failure, where it is one of
# the graph and not of its tiles.


class Mean(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.first = nn.Linear(FEATURES, 7)
        self.second = nn.Linear(7, FEATURES)
        self.loss = loss

    def forward(self, x, t):
        return self.loss(self.second(torch.tanh(self.first(x))), t)


class Residuals(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(DEPTH))

    def forward(self, x, t, wrong=False):
        for level in self.levels:
            x = (x.detach() if wrong else x) + 0.1 * torch.tanh(level(x))
        return F.mse_loss(x, t)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)

    def forward(self, x, t, wrong=False):
        # Two of them, or tiles would draw in the order of the whole batch.
        y = torch.tanh(self.first(F.dropout(x, 0.25)))
        once = F.dropout(y)
        again = F.dropout(y) if wrong else once
        return F.mse_loss(self.second(once) * again, t)


class Normalised(nn.Module):
    def __init__(self, training):
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.norm = nn.BatchNorm1d(FEATURES)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.train(training)

    def forward(self, x, t):
        return F.mse_loss(self.norm(torch.tanh(self.first(x))), t)


class Chain(nn.Module):
    """Each operation has a share in the gradient; the first one is wrong."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(FEATURES) / OPERATIONS)

    def forward(self, x, t, wrong=False):
        y, share = x, x / OPERATIONS
        for index in range(OPERATIONS // 2):
            y = y * self.weight
            y = (y.detach() if wrong and index == 0 else y) + share
        return F.mse_loss(y, t)


# Steps leave gradients in the module and return the loss.


def step_untiled(module, inputs, tile, **options):
    loss = module(*inputs, **options)
    loss.backward()
    return loss.detach()


def step_tiled(module, inputs, tile):
    return module.train_step(*inputs)


def step_wrongly(module, inputs, tile):
    return step_untiled(module, inputs, tile, wrong=True)


def sum_tiles(module, inputs, tile):
    return sum(
        step_untiled(module, rows, tile)
        for rows in zip(*(value.split(tile) for value in inputs), strict=True)
    )


def average_tiles(module, inputs, tile):
    loss = sum_tiles(module, inputs, tile)
    count = len(inputs[0].split(tile))
    for value in module.parameters():
        value.grad /= count
    return loss / count


class Case(typing.NamedTuple):
    modules: list  # what makes them
    control: typing.Callable  # the step that is wrong
    batches: tuple = (9, 1, 8, 13)
    tiles: tuple = (2,)
    random: str = "refuse"


CASES = {
    "mean losses": Case(
        [
            lambda: Mean(F.mse_loss),
            lambda: Mean(lambda y, t: F.cross_entropy(y, t.argmax(1))),
            lambda: Mean(lambda y, t: (y - t).abs().mean()),
        ],
        sum_tiles,
    ),
    "batch of 9": Case([lambda: Mean(F.mse_loss)], average_tiles, batches=(9,), tiles=(2, 4, 8)),
    f"shared residuals of depth {DEPTH}": Case([Residuals], step_wrongly),
    "dropout in shared nodes": Case([Dropped], step_wrongly, random="full-batch-masks"),
    # The mean of equal tiles is right but for their statistics.
    "BatchNorm in training mode": Case(
        [lambda: Normalised(True)],
        average_tiles,
        batches=(8, 13),
    ),
    "BatchNorm after eval()": Case([lambda: Normalised(False)], average_tiles),
    f"chain of {OPERATIONS:,} operations": Case([Chain], step_wrongly, batches=(9,), tiles=(4,)),
}


def make_inputs(batch):
    torch.manual_seed(batch)
    return torch.randn(batch, FEATURES), torch.randn(batch, FEATURES)


def run(step, module, inputs, tile):
    """The loss, the gradients and the statistics by their names."""
    module.zero_grad()
    torch.manual_seed(0)
    loss = step(module, inputs, tile)
    statistics = (pair for pair in module.named_buffers() if pair[1].is_floating_point())
    return {
        "loss": loss,
        **{name: value.grad.clone() for name, value in module.named_parameters()},
        **{name: value.clone() for name, value in statistics},
    }


def find_differences(found, wanted):
    """The names of what is unequal, or not a number."""
    return [
        name
        for name, value in wanted.items()
        if not (found[name] - value).norm() <= 1e-9 * value.norm()
    ]


def compile_step(koila_opt, module, case, path, tile):
    torch.jit.trace(module, make_inputs(3), check_trace=False).save(path)
    target = path.with_suffix(f".{tile}.pt")
    target.unlink(missing_ok=True)
    done = subprocess.run(
        [
            koila_opt,
            path,
            f"--input=x=float64[B,{FEATURES}]",
            f"--input=t=float64[B,{FEATURES}]",
            f"--koila-compile=mode=train tile={tile} random={case.random}",
            "-o",
            target,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def check_step(module, target, batch, tile):
    inputs = make_inputs(batch)
    # Loaded anew: PyTorch optimizes a function in its second call, which for
    # 10,000 operations takes minutes, tiled or not.
    tiled, tiles = torch.jit.load(target), []
    next(tiled.parameters()).register_post_accumulate_grad_hook(tiles.append)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run(step_tiled, tiled, inputs, tile)
    assert not any("koila" in str(entry.message) for entry in caught), caught[0].message
    assert (len(tiles) > 1) == (batch > tile), f"{len(tiles)} tiles"
    different = find_differences(found, run(step_untiled, copy.deepcopy(module), inputs, tile))
    assert not different, f"batch {batch}, tile {tile}: {different}"


def check_control(case, module, tile):
    inputs = make_inputs(case.batches[0])
    module = copy.deepcopy(module)
    wanted = run(step_untiled, module, inputs, tile)
    assert all(value.norm() > 1e-4 for value in wanted.values()), wanted
    # Two at a time, as one sample has no statistics.
    pairs = zip(*(value[:4].split(2) for value in inputs), strict=True)
    first, second = (run(step_untiled, module, pair, tile) for pair in pairs)
    computed = {"loss", *(name for name, _ in module.named_parameters())}
    assert computed <= set(find_differences(first, second)), "samples are equal"
    found = run(case.control, module, inputs, tile)
    gradients = {name for name, _ in module.named_parameters()}
    assert gradients & set(find_differences(found, wanted)), "not caught"


def main(koila_opt, folder):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        for make in case.modules:
            torch.manual_seed(3)
            module = make()
            for tile in case.tiles:
                target = compile_step(koila_opt, module, case, folder / "module.pt", tile)
                for batch in case.batches:
                    check_step(module, target, batch, tile)
                check_control(case, module, tile)
        print(f"{name}: equal, the control is caught", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
