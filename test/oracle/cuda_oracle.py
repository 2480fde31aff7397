#!/usr/bin/env python3
"""Compares the kernel models of CUDA with what a GPU was seen to allocate.

Usage: cuda_oracle.py RECORD.json.gz [--only E6,...] [--rows REGEX] [--every N]
           [--least SHARE] [--wrong] [--verbose]

RECORD is what tools/bench/record_device.py wrote. Of each row that koila can read, the
list of allocations and frees is compared in order: whether a block comes or goes, which
one, and its bytes as requested. What was there before the call may go at any time: of
that nothing is compared. Segments are the allocator's (caching_allocator.py).

Columns: rows; equal; WRONG: koila says that each event is exact, and the lists differ;
inexact: it says that it does not know the figure, or each block; refused. WRONG must be
0, and of the rows at least SHARE equal. --wrong makes one block of each of koila's lists
larger by a byte, which must be seen.
"""

import argparse
import collections
import functools
import gzip
import json
import pathlib
import re
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from koila import _compiler
from koila._errors import KoilaError

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench")]

import gpu_capture

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
COLUMNS = ["rows", "equal", "WRONG", "inexact", "refused"]


class Call(nn.Module):
    """A call of ``function`` with tensors of which gradients are asked, and its
    gradient, which comes as a tensor of its own."""

    def __init__(self, function, tensors, result):
        super().__init__()
        self.function = function
        self.given = nn.ParameterList(tensors)
        self.register_buffer("weights", torch.ones_like(result))
        self.steps = False

    def forward(self, x):
        tensors = [*self.given]
        result = self.function(*tensors)
        result = result[0] if isinstance(result, tuple) else result
        if not self.steps:
            return result
        # The gradient is a tensor of its own, as torch.autograd.grad() was given.
        return (result * self.weights).sum() + x.sum()


def number(events):
    """Blocks by the order in which they come; those from before are left out."""
    ids, listed = {}, []
    for kind, block, size in events:
        if kind == "+":
            ids[block] = len(ids)
            listed.append(("+", ids[block], size))
        elif block in ids:
            listed.append(("-", ids[block], 0))
    return listed


def read_recorded(events):
    """The same of a record."""
    count, listed = 0, []
    for kind, value in events:
        if kind == "+":
            listed.append(("+", count, value))
            count += 1
        elif kind == "-" and value is not None:
            listed.append(("-", value, 0))
    return number(listed)


def read_said(events, holds):
    """Of koila's events those that ``holds`` accepts, and whether all are exact."""
    chosen = [event for event in events if event["action"] != "share" and holds(event)]
    listed = [
        ("+" if event["action"] == "alloc" else "-", event["id"], event["bytes"])
        for event in chosen
    ]
    return number(listed), all(event["exact"] for event in chosen)


def trim(events, live):
    """Without the frees of blocks that the caller drops: of ``live`` ones."""
    return [event for event in events if event[0] == "+" or event[1] not in live]


def list_results(events):
    """The blocks that are there at the end."""
    left = {event[1] for event in events if event[0] == "+"}
    return left - {event[1] for event in events if event[0] == "-"}


def batch_norm(row):
    last = torch.channels_last if row["layout"] == "nhwc" else torch.contiguous_format
    shape = (row["batch"], row["channels"], row["side"], row["side"])
    x = torch.randn(shape).to(DTYPES[row["dtype"]]).contiguous(memory_format=last)
    norm = nn.BatchNorm2d(row["channels"]).train(row["training"])
    return norm, x


def reduction(row):
    x = torch.randn(row["shape"])
    if row["op"] in ("LayerNorm", "RMSNorm"):
        return getattr(nn, row["op"])(row["shape"][-1]), x
    if row["op"] == "GroupNorm":
        return nn.GroupNorm(8, row["shape"][1]), x
    dims = row["dims"]
    function = getattr(torch, row["op"])
    arguments = (tuple(dims),) if dims else ((0,) if row["op"] == "logsumexp" else ())
    return (lambda x: function(x, *arguments)), x


def convolution(row):
    last = torch.channels_last if row["layout"] == "nhwc" else torch.contiguous_format
    shape = (row["batch"], row["in"], row["side"], row["side"])
    is_turned = row["op"] != "conv2d"
    first, second = (
        (row["in"], row["out"]) if is_turned else (row["out"], row["in"] // row["groups"])
    )
    x = torch.randn(shape).to(DTYPES[row["dtype"]]).contiguous(memory_format=last)
    w = torch.randn(first, second, row["kernel"], row["kernel"]).to(DTYPES[row["dtype"]])
    w = w.contiguous(memory_format=last)
    call = F.conv_transpose2d if is_turned else F.conv2d
    padding = row["kernel"] // 2 * (row["kernel"] < 16)
    function = lambda x, w: call(x, w, None, row["stride"], padding, groups=row["groups"])  # noqa: E731
    return function, x, w


def leave_workspaces(events):
    """Without the workspaces of cuDNN, of more than 8 MiB, which are not counted."""
    workspaces = {block for kind, block, size in events if kind == "+" and size > 1 << 23}
    return number([event for event in events if event[1] not in workspaces])


def sum_up(events):
    """Bytes at most, and at the end: the gradients of the weights of recurrent layers are
    views of one block, which koila lists one by one."""
    sizes, live, most = {}, 0, 0
    for kind, block, size in events:
        if kind == "+":
            sizes[block] = size
        live += size if kind == "+" else -sizes[block]
        most = max(most, live)
    return [("most", 0, most), ("last", 0, live)]


def find_card(row, device):
    """The card on which a kernel of attention runs where none is asked for; None: others
    than these do. Of the recorded rows an A100 makes as many parts as the recorded card."""
    if row.get("backend", "default") == "default":
        return device
    usual = "flash" if row["mask"] is None else "efficient"
    is_usual = row["dtype"] != "float32" and row["backend"] == usual
    return "a100-sxm4-40gb" if is_usual else None


def attention(row):
    shapes = [(2, 8, row[which], row["width"]) for which in ("queries", "keys", "keys")]
    q, k, v = (torch.randn(shape).to(DTYPES[row["dtype"]]) for shape in shapes)
    if row["dtype"] == "float32" or row["backend"] == "efficient":
        # So that what it gives is by position on a CPU, too.
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    given = None
    if row["mask"] == "bool":
        given = torch.rand(row["queries"], row["keys"]) > 0.1
    elif row["mask"] == "float":
        given = torch.randn(row["queries"], row["keys"]).to(DTYPES[row["dtype"]])
    causal = row["causal"]

    def call(q, k, v):
        # autograd.grad() was asked: what a leaf makes of its gradient is not in the
        # record, and comes after these views.
        q, k, v = (each.transpose(0, 1).transpose(0, 1) for each in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=causal)

    return (
        call,
        q,
        k,
        v,
    )


def indexing(row):
    count, width = row["shape"][0], row["shape"][-1]
    table = torch.randn(count // 10, 64)
    whole = torch.randint(count // 10, (count,))
    x = torch.randn(row["shape"])
    calls = {
        "sort": (lambda x: x.sort(), x),
        "argsort stable": (lambda x: x.argsort(stable=True), x),
        "topk 10": (lambda x: x.topk(10), x),
        "cumsum": (lambda x: x.cumsum(0), x),
        "index": (lambda t: t[whole], table),
        "embedding": (lambda t: F.embedding(whole, t), table),
        "sort dim": (lambda x: x.sort(-1), x),
        "topk dim": (lambda x: x.topk(5, -1), x),
        "cumsum dim": (lambda x: x.cumsum(-1), x),
        "index_add": (lambda t: t.index_add(0, whole, t[whole]), table),
    }
    del width
    return calls.get(row["op"])


def recurrent(row):
    layer = getattr(nn, row["op"])(
        32, row["width"], row["layers"], dropout=row["dropout"], batch_first=True
    )
    # On a GPU flatten_parameters() puts all weights into one block.
    weights = list(layer.parameters())
    block = torch.cat([weight.detach().flatten() for weight in weights])
    parts = block.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part.view_as(weight)
    return layer, torch.randn(8, 20, 32)


#: Experiments of which nothing is computed: meta tensors are captured.
ON_META = {"E5", "E6", "E8"}
#: What a row of an experiment calls: a function or layer, and tensors.
CALLS = {
    "E5": convolution,
    "E6": batch_norm,
    "E7": attention,
    "E8": reduction,
    "E9": indexing,
    "E10": recurrent,
}


OPTIMIZERS = {
    "SGD": "sgd(lr=0.1)",
    "SGD momentum": "sgd(lr=0.1,momentum=0.9)",
    "SGD weight decay": "sgd(lr=0.1,momentum=0.9,weight_decay=0.1)",
    "Adam": "adam",
    "Adam weight decay": "adam(weight_decay=0.1)",
    "AdamW": "adamw",
    "AdamW not foreach": "adamw(foreach=false)",
    "RMSprop": "rmsprop",
    "Adagrad": "adagrad",
}


class Net(nn.Module):
    """Whose weights the recorded optimizers change."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10))

    def forward(self, x):
        return self.net(x).sum()


def compare_step(row, device):
    """The step of an optimizer."""
    optimizer = OPTIMIZERS[row["op"]]
    report, said = _compiler.list_events(
        torch.jit.trace(Net(), (torch.ones(3, 300),), check_trace=False),
        ["float32[B,300]"],
        batch={"B": 3},
        mode="train",
        grads="absent" if row["step"] == "first" else "present",
        optimizer=optimizer,
        device=device,
    )
    name = f"{optimizer.split('(')[0]}.step()"
    found, exact = read_said(said["events"], lambda event: event["op"] == name)
    return found, read_recorded(row["events"]), exact and report["exact"], []


class Loss(nn.Module):
    """The mean of the squares of what a model gives."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).float().square().mean()


def make_mlp():
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def compare_model(row, device):
    """A whole call or training step; gradients are there before neither."""
    trains = row["mode"] == "step"
    model = Loss(make_mlp()) if trains else make_mlp()
    batch, *dims = row["shape"]
    report, said = _compiler.list_events(
        torch.jit.trace(model, (torch.ones(3, *dims),), check_trace=False),
        [f"float32[B,{','.join(map(str, dims))}]"],
        batch={"B": batch},
        mode="train" if trains else "inference",
        grads="absent" if trains else "present",
        device=device,
    )
    found, exact = read_said(said["events"], lambda event: True)
    # What the call gives goes when the caller says so.
    wanted = trim(read_recorded(row["events"]), list_results(found))
    return found, wanted, exact and report["exact"], []


def make_program(made):
    function, *tensors = made
    result = function(*tensors)
    result = result[0] if isinstance(result, tuple) else result
    if tensors[0].dim() == 4 and tensors[0].is_contiguous(memory_format=torch.channels_last):
        # As kernels lay it out; convolutions of meta tensors do not.
        result = result.contiguous(memory_format=torch.channels_last)
    if isinstance(function, nn.Module):
        layer = function

        class Layer(Call):
            def __init__(self):
                super().__init__(None, tensors, result)
                self.layer = layer

            def forward(self, x):
                made = self.layer(*self.given)
                made = made[0] if isinstance(made, tuple) else made
                return made if not self.steps else (made * self.weights).sum() + x.sum()

        return Layer()
    return Call(function, tensors, result)


def predict(program, is_backward, device, traces={}):  # noqa: B006
    """koila's events of a call, or of its backward pass."""
    program.steps = is_backward
    key = (id(program), is_backward)
    if key not in traces:
        traces.clear()
        traces[key] = gpu_capture.trace(program, (torch.ones(3, device=program.weights.device),))
    return _compiler.list_events(
        traces[key],
        ["float32[B]"],
        batch={"B": 3},
        mode="train" if is_backward else "forward-with-grad",
        grads="absent" if is_backward else "present",
        device=device,
    )


def compare(row, made, device):
    program = make_program(made)
    is_backward = row["pass"] == "backward" if "pass" in row else False
    report, said = predict(program, is_backward, device)
    events = said["events"]
    # The last step, a product and sums, is the test's own.
    foreign = ("koila.mul", "koila.sum", "koila.add", "koila.backward", "koila.transpose")
    if is_backward:
        last = "(backward)"
        found, exact = read_said(
            events,
            lambda event: event["op"].endswith(last) and not event["op"].startswith(foreign),
        )
    else:
        found, exact = read_said(events, lambda event: True)
    wanted = read_recorded(row["events"])
    is_recurrent = row["op"] in ("LSTM", "GRU")
    if is_recurrent:
        wanted = leave_workspaces(wanted)
    # Results and gradients go when the caller says so.
    found = trim(found, list_results(wanted)) if not is_backward else found
    if is_recurrent:
        found, wanted = sum_up(found), sum_up(wanted)
    doubts = [f"{entry['op']}: {entry['reason']}" for entry in report["inexact"]]
    return found, wanted, exact and report["exact"], doubts


def find_evaluation(experiment, row, device):
    """What compares a row; None where koila has nothing to compare."""
    if experiment == "E11":
        return functools.partial(compare_step, row, device) if row["op"] in OPTIMIZERS else None
    if experiment == "E12":
        is_known = row["model"] == "mlp" and row["events"]
        return functools.partial(compare_model, row, device) if is_known else None
    card = find_card(row, device)
    # Nothing is computed of what a capture on meta tensors records.
    where = "meta" if experiment in ON_META and "transpose" not in row["op"] else "cpu"
    with torch.device(where):
        made = CALLS[experiment](row) if card else None
    return functools.partial(compare, row, made, card) if made else None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record")
    parser.add_argument("--only", default=",".join(CALLS))
    parser.add_argument("--rows", default="", help="only rows whose text has this pattern")
    parser.add_argument("--every", type=int, default=1, help="only each Nth row")
    parser.add_argument("--device", default="h100-80gb-hbm3")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with gzip.open(options.record) as file:
        recorded = json.load(file)
    totals = collections.Counter()
    print(f"{'':24}" + "".join(f"{name:>9}" for name in COLUMNS))
    for experiment in options.only.split(","):
        by_op = collections.defaultdict(collections.Counter)
        for row in recorded[experiment][:: options.every]:
            name = " ".join(
                str(row[key]) for key in ("op", "model", "mode", "pass", "step") if key in row
            )
            facts = " ".join(f"{k}={v}" for k, v in row.items() if k not in ("events", "op"))
            if "events" not in row or not re.search(options.rows, f"{name} {facts}"):
                continue
            evaluate = find_evaluation(experiment, row, options.device)
            if evaluate is None:
                continue
            counts = by_op[f"{experiment} {name}"]
            counts["rows"] += 1
            try:
                found, wanted, exact, doubts = evaluate()
            except (KoilaError, RuntimeError) as error:
                counts["refused"] += 1
                if options.verbose:
                    print(f"refused {name} {facts}: {str(error).splitlines()[0]}")
                continue
            if options.wrong and found:
                kind, block, size = found[0]
                found[0] = kind, block, size + 1
            verdict = "equal" if found == wanted else "WRONG" if exact else "inexact"
            counts[verdict] += 1
            if options.verbose and verdict != "equal":
                print(f"{verdict} {name} {facts}")
                print(f"    said     {found}\n    recorded {wanted}")
                for doubt in doubts:
                    print(f"    {doubt}")
        for name, counts in by_op.items():
            print(f"{name:24}" + "".join(f"{counts[column]:9}" for column in COLUMNS))
            totals += counts
    print(f"{'all':24}" + "".join(f"{totals[column]:9}" for column in COLUMNS))
    share = totals["equal"] / max(totals["rows"], 1)
    print(f"equal: {100 * share:.1f} %")
    if options.wrong:
        sys.exit(totals["equal"] > 0)
    if totals["WRONG"]:
        sys.exit(f"error: {totals['WRONG']} rows are said to be exact and differ")
    if share < options.least:
        sys.exit(f"error: less than {100 * options.least:.1f} % are equal")


if __name__ == "__main__":
    main()
