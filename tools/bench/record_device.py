"""Records what PyTorch's kernels and its caching allocator do on the GPU at hand.

Usage: record_device.py FILE.json[.gz] [--only E1,E2,...] [--seed 1]

Needs PyTorch and a GPU, and nothing of koila. Each operation runs twice, so that
plans are cached and modules are loaded, and once more under
torch.cuda.memory._record_memory_history; what the allocator was asked for, in
its order, is kept:

    [+, bytes]       an allocation of so many bytes, as requested
    [-, index]       the allocation of that index is freed
    [S+, bytes]      a segment is taken from the driver; [S-, bytes] is given back

The experiments, each a list of rows:

    E1   bytes of the device outside of the allocator, step by step
    E2   workspaces of matrix products: main thread, autograd's thread, a stream
    E3   random allocations and frees, with the whole trace and the segments left
    E4   the same below a limit: what is refused, and what is given back before
    E5   convolutions and their gradients
    E6   batch normalisation
    E7   attention
    E8   reductions and normalisations
    E9   sorting, indexing, counting
    E10  recurrent layers
    E11  optimizers, clipping, autocast
    E12  training steps and inference of whole models, call by call

The file names the card, its capability and multiprocessors, and the versions of
PyTorch, CUDA and cuDNN: a row holds for these alone.
"""

import argparse
import collections
import contextlib
import gc
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda"
ENTRIES = 1_000_000
SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:64")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@contextlib.contextmanager
def traced_allocations(events):
    """Appends what the allocator does inside, as the module's docstring writes it."""
    torch.cuda.synchronize()
    memory = torch.cuda.memory
    memory._record_memory_history(None)
    memory._record_memory_history("all", context=None, max_entries=ENTRIES, clear_history=True)
    try:
        yield
    finally:
        torch.cuda.synchronize()
        trace = memory._snapshot()["device_traces"][torch.cuda.current_device()]
        memory._record_memory_history(None)
        index_of, count = {}, 0
        for entry in trace:
            action, size = entry["action"], entry["size"]
            if action == "alloc":
                index_of[entry["addr"]] = count
                count += 1
                events.append(["+", size])
            elif action == "free_completed":
                # What was there before the trace has no index.
                events.append(["-", index_of.pop(entry["addr"], None)])
            elif action in ("segment_alloc", "segment_map"):
                events.append(["S+", size])
            elif action in ("segment_free", "segment_unmap"):
                events.append(["S-", size])
            elif action == "oom":
                events.append(["oom", size])


def record(function, *, warm=2):
    """The allocations of one call, or the error that PyTorch raises."""
    events = []
    try:
        for _ in range(warm):
            function()
        with traced_allocations(events):
            result = function()
        del result
    except (RuntimeError, NotImplementedError) as error:
        return {"error": str(error).splitlines()[0][:200]}
    return {"events": events}


def make_tensor(*shape, dtype=torch.float32, grad=False):
    tensor = torch.randn(*shape, device=DEVICE, dtype=torch.float32).to(dtype)
    return tensor.requires_grad_(grad)


def record_both(rows, facts, forward, inputs):
    """Two rows: the call with gradients recorded, and its backward pass."""
    rows.append({**facts, "pass": "forward", **record(lambda: forward(*inputs))})
    if "error" in rows[-1]:
        return
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]

    def run_backward():
        result = forward(*inputs)
        result = result[0] if isinstance(result, tuple) else result
        gradient = torch.ones_like(result)
        events = []
        with traced_allocations(events):
            gradients = torch.autograd.grad(result, wanted, gradient)
        del gradients
        return events

    try:
        run_backward()
        run_backward()
        rows.append({**facts, "pass": "backward", "events": run_backward()})
    except RuntimeError as error:
        rows.append({**facts, "pass": "backward", "error": str(error).splitlines()[0][:200]})


def record_layer(rows, facts, layer, x):
    """The same of a layer, with the gradients of its weights."""
    record_both(rows, facts, lambda x, *_: layer(x), (x, *layer.parameters()))


# --- E1: the device outside of the allocator --------------------------------------------------


def measure_outside():
    """Bytes of the card in use that the allocator has not reserved."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def run_outside(_seed):
    """In a process that has used nothing of the device yet."""
    rows = [{"after": "mem_get_info", "bytes": measure_outside()}]

    def note(after, function):
        function()
        gc.collect()
        rows.append({"after": after, "bytes": measure_outside()})

    image = torch.randn(8, 64, 56, 56)
    note("one byte", lambda: torch.empty(1, dtype=torch.uint8, device=DEVICE))
    note("randn", lambda: make_tensor(64))
    a = make_tensor(512, 512)
    note("mm float32", lambda: a @ a)
    half = a.bfloat16()
    note("mm bfloat16", lambda: half @ half)
    x, w = image.to(DEVICE).requires_grad_(), make_tensor(64, 64, 3, 3, grad=True)
    note("conv2d", lambda: F.conv2d(x, w, padding=1))
    note("conv2d backward", lambda: F.conv2d(x, w, padding=1).sum().backward())
    norm = nn.BatchNorm2d(64).to(DEVICE)
    note("batch_norm and backward", lambda: norm(x).sum().backward())
    q = make_tensor(2, 8, 128, 64, dtype=torch.bfloat16, grad=True)
    note("attention", lambda: F.scaled_dot_product_attention(q, q, q))
    note("attention backward", lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
    note("sort", lambda: make_tensor(10000).sort())
    parameter = nn.Parameter(make_tensor(1000))
    parameter.grad = torch.ones_like(parameter)
    note("Adam", lambda: torch.optim.Adam([parameter]).step())
    note("linalg.cholesky", lambda: torch.linalg.cholesky(torch.eye(64, device=DEVICE)))
    note("fft", lambda: torch.fft.rfft2(x.detach()))
    return rows


# --- E2: workspaces of products ---------------------------------------------------------------


def run_workspaces(_seed):
    """In a process that has multiplied nothing yet."""
    a, w = make_tensor(64, 64), make_tensor(64, 64, grad=True)
    rows = [{"call": "mm", **record(lambda: a @ a, warm=0)}]
    rows.append({"call": "mm again", **record(lambda: a @ a, warm=0)})
    loss = (a @ w).sum()
    rows.append({"call": "backward", **record(loss.backward, warm=0)})
    loss = F.linear(a, w, make_tensor(64)).sum()
    rows.append({"call": "backward again", **record(loss.backward, warm=0)})
    stream = torch.cuda.Stream()

    def multiply_there():
        with torch.cuda.stream(stream):
            return a @ a

    rows.append({"call": "mm on a second stream", **record(multiply_there, warm=0)})
    half = a.bfloat16()
    bias = torch.ones(64, device=DEVICE, dtype=torch.bfloat16)
    rows.append(
        {"call": "linear bfloat16 (cuBLASLt)", **record(lambda: F.linear(half, half, bias), warm=0)}
    )
    rows.append({"call": "bmm", **record(lambda: a[None] @ a[None], warm=0)})
    return rows


# --- E3, E4: the allocator --------------------------------------------------------------------


def make_requests(seed, count=2000):
    """Sizes around each threshold of the allocator, with ties; None frees one."""
    draw = random.Random(seed)
    edges = (1, 512, 513, 1 << 20, (1 << 20) + 1, 8519680, 10485760, 10486272, 11534336, 33554432)
    requests, live = [], 0
    for _ in range(count):
        if live and (live > 40 or draw.random() < 0.48):
            requests.append(["-", draw.randrange(live)])
            live -= 1
            continue
        kind = draw.random()
        if kind < 0.35:
            size = draw.choice(edges) + draw.choice((0, 0, -1, 1, 512)) * (kind < 0.2)
        elif kind < 0.7:
            size = draw.randrange(1, 1 << 20)
        elif kind < 0.95:
            size = draw.randrange(1 << 20, 12 << 20)
        else:
            size = draw.randrange(12 << 20, 100 << 20)
        requests.append(["+", max(size, 1)])
        live += 1
    return requests


def replay(requests):
    """Runs them; each live tensor has its place in a list, the last takes a freed one's."""
    live = []
    for action, value in requests:
        if action == "+":
            live.append(torch.empty(value, dtype=torch.uint8, device=DEVICE))
        else:
            live[value], live[-1] = live[-1], live[value]
            live.pop()
    return live


def describe_segments():
    """Segments and blocks that are left, addresses by order of the segments."""
    rows = []
    for segment in torch.cuda.memory._snapshot()["segments"]:
        rows.append(
            {
                "bytes": segment["total_size"],
                "type": segment["segment_type"],
                "blocks": [
                    [block["size"], block.get("requested_size", 0), block["state"]]
                    for block in segment["blocks"]
                ],
            }
        )
    return rows


def run_allocator(seed):
    requests, trace = make_requests(seed), []
    memory = torch.cuda.memory
    memory._record_memory_history("all", context=None, max_entries=ENTRIES)
    live = replay(requests)
    entries = memory._snapshot()["device_traces"][0]
    bases = sorted({entry["addr"] for entry in entries})
    names = {address: index for index, address in enumerate(bases)}
    # Addresses by rank: their order decides ties before PyTorch 2.12.
    trace = [[entry["action"], names[entry["addr"]], entry["size"]] for entry in entries]
    stats = torch.cuda.memory_stats()
    kept = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "segment")
    row = {
        "requests": requests,
        "trace": trace,
        "addresses": [address - bases[0] for address in bases],
        "stats": {
            f"{name}.{part}": stats.get(f"{name}.all.{part}")
            for name in (*kept, "inactive_split_bytes")
            for part in ("current", "peak")
        },
        "segments": describe_segments(),
    }
    del live
    return [row]


def run_limited(seed):
    """Each limit in this process, after everything cached was given back."""
    requests, rows = make_requests(seed, 600), []
    total = torch.cuda.get_device_properties(0).total_memory
    replay(requests)
    peak = torch.cuda.max_memory_reserved()
    for part in (1.02, 1.0, 0.98, 0.9, 0.8, 0.7):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        torch.cuda.set_per_process_memory_fraction(min(part * peak / total, 1.0))
        events = []
        with traced_allocations(events):
            try:
                live, refused = replay(requests), False
                del live
            except torch.OutOfMemoryError:
                refused = True
        stats = torch.cuda.memory_stats()
        rows.append(
            {
                "limit_bytes": int(part * peak / total * total),
                "reserved_peak_without": peak,
                "refused": refused,
                "retries": stats["num_alloc_retries"],
                "reserved_peak": stats["reserved_bytes.all.peak"],
                "events": events,
            }
        )
    torch.cuda.set_per_process_memory_fraction(1.0)
    return [{"requests": requests}, *rows]


# --- E5 to E11: operators ---------------------------------------------------------------------


def list_convolutions():
    """(kind, channels in and out, side, kernel, stride, groups)."""
    for channels, out, side, kernel, stride in (
        (3, 64, 224, 7, 2),
        (3, 32, 224, 3, 2),
        (3, 768, 224, 16, 16),
        (16, 16, 112, 3, 1),
        (64, 64, 56, 3, 1),
        (64, 256, 56, 1, 1),
        (128, 128, 28, 3, 1),
        (256, 512, 28, 1, 2),
        (256, 256, 14, 3, 1),
        (512, 512, 7, 3, 1),
        (512, 2048, 7, 1, 1),
        (64, 64, 56, 5, 1),
    ):
        yield "conv2d", channels, out, side, kernel, stride, 1
    for channels, side, kernel, stride in ((32, 112, 3, 1), (144, 56, 3, 2), (384, 14, 7, 1)):
        yield "conv2d", channels, channels, side, kernel, stride, channels
    yield "conv2d", 128, 128, 28, 3, 1, 32
    for channels, out, side, kernel, stride in ((128, 64, 28, 2, 2), (256, 128, 14, 4, 2)):
        yield "conv_transpose2d", channels, out, side, kernel, stride, 1


def run_convolutions(_seed):
    rows = []
    for kind, channels, out, side, kernel, stride, groups in list_convolutions():
        for batch in (1, 2, 8, 32):
            if batch * channels * side * side > 8 * 64 * 224 * 224:
                continue
            for name, tf32, layout in (
                ("float32", True, "nchw"),
                ("float32", False, "nchw"),
                ("float32", True, "nhwc"),
                ("bfloat16", True, "nchw"),
                ("bfloat16", True, "nhwc"),
                ("float16", True, "nchw"),
            ):
                torch.backends.cudnn.allow_tf32 = tf32
                last = torch.channels_last if layout == "nhwc" else torch.contiguous_format
                x = torch.randn(batch, channels, side, side, device=DEVICE, dtype=DTYPES[name])
                is_turned = kind != "conv2d"
                first, second = (channels, out) if is_turned else (out, channels // groups)
                w = torch.randn(first, second, kernel, kernel, device=DEVICE, dtype=DTYPES[name])
                x = x.contiguous(memory_format=last).requires_grad_()
                w = w.contiguous(memory_format=last).requires_grad_()
                call = F.conv_transpose2d if is_turned else F.conv2d
                facts = {
                    "op": kind, "dtype": name, "tf32": tf32, "layout": layout, "batch": batch,
                    "in": channels, "out": out, "side": side, "kernel": kernel,
                    "stride": stride, "groups": groups,
                }  # fmt: skip
                record_both(
                    rows, facts,
                    lambda x, w, call=call, s=stride, p=kernel // 2 * (kernel < 16), g=groups:
                        call(x, w, None, s, p, groups=g),
                    (x, w),
                )  # fmt: skip
    torch.backends.cudnn.allow_tf32 = True
    return rows


def run_batch_norms(_seed):
    rows = []
    for name, dtype in DTYPES.items():
        for layout in ("nchw", "nhwc"):
            for channels, side in ((3, 112), (64, 56), (512, 7), (2048, 7)):
                for training in (True, False):
                    last = torch.channels_last if layout == "nhwc" else torch.contiguous_format
                    x = torch.randn(8, channels, side, side, device=DEVICE, dtype=dtype)
                    x = x.contiguous(memory_format=last).requires_grad_()
                    norm = nn.BatchNorm2d(channels).to(DEVICE).train(training)
                    facts = {
                        "op": "batch_norm", "dtype": name, "layout": layout, "batch": 8,
                        "channels": channels, "side": side, "training": training,
                    }  # fmt: skip

                    record_layer(rows, facts, norm, x)
    return rows


def run_attention(_seed):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {
        "default": None, "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }  # fmt: skip
    rows = []
    for name in ("float32", "bfloat16", "float16"):
        for width in (64, 80, 128):
            for length, keys in ((1, 512), (128, 128), (1024, 1024), (197, 197)):
                for causal, mask in (
                    (False, None),
                    (True, None),
                    (False, "bool"),
                    (False, "float"),
                ):
                    if causal and length != keys:
                        continue
                    for backend, kernel in backends.items():
                        q = make_tensor(2, 8, length, width, dtype=DTYPES[name], grad=True)
                        k = make_tensor(2, 8, keys, width, dtype=DTYPES[name], grad=True)
                        v = make_tensor(2, 8, keys, width, dtype=DTYPES[name], grad=True)
                        given = None
                        if mask == "bool":
                            given = torch.rand(length, keys, device=DEVICE) > 0.1
                        elif mask == "float":
                            given = make_tensor(length, keys, dtype=DTYPES[name])

                        def call(q, k, v, kernel=kernel, given=given, causal=causal):
                            with sdpa_kernel(kernel) if kernel else contextlib.nullcontext():
                                return F.scaled_dot_product_attention(
                                    q, k, v, given, is_causal=causal
                                )

                        facts = {
                            "op": "attention", "dtype": name, "backend": backend, "width": width,
                            "queries": length, "keys": keys, "causal": causal, "mask": mask,
                        }  # fmt: skip
                        record_both(rows, facts, call, (q, k, v))
    return rows


def run_reductions(_seed):
    rows = []
    for shape in ((1000,), (1 << 20,), (1 << 24,), (4096, 1000), (1000, 4096), (64, 512, 7, 7)):
        x = make_tensor(*shape, grad=True)
        for name in ("sum", "mean", "var", "amax", "norm", "prod", "logsumexp"):
            for dims in ((), (0,), (-1,)):
                if name in ("norm", "prod") and dims:
                    continue
                call = getattr(torch, name)
                arguments = (dims,) if dims else ((0,) if name == "logsumexp" else ())
                if name == "amax" and not dims:
                    arguments = ()
                facts = {"op": name, "shape": shape, "dims": dims}
                record_both(rows, facts, lambda x, c=call, a=arguments: c(x, *a), (x,))
    for count, width in ((1000, 64), (70000, 64), (4096, 768), (70000, 1024)):
        for kind in (nn.LayerNorm, nn.RMSNorm):
            layer = kind(width).to(DEVICE)
            x = make_tensor(count, width, grad=True)
            record_layer(rows, {"op": kind.__name__, "shape": (count, width)}, layer, x)
    for channels, side in ((64, 1), (64, 7), (256, 28)):
        layer = nn.GroupNorm(8, channels).to(DEVICE)
        x = make_tensor(4, channels, side, side, grad=True)
        record_layer(rows, {"op": "GroupNorm", "shape": (4, channels, side, side)}, layer, x)
    return rows


def run_indexing(_seed):
    rows = []

    def add(op, shape, function):
        rows.append({"op": op, "shape": shape, **record(function)})

    for count in (1000, 10_000, 1_000_000):
        x = make_tensor(count)
        table = make_tensor(count // 10, 64)
        whole = torch.randint(count // 10, (count,), device=DEVICE)
        add("sort", (count,), x.sort)
        add("argsort stable", (count,), lambda x=x: x.argsort(stable=True))
        add("topk 10", (count,), lambda x=x: x.topk(10))
        add("cumsum", (count,), lambda x=x: x.cumsum(0))
        add("unique", (count,), whole.unique)
        add("nonzero", (count,), lambda x=x: (x > 0).nonzero())
        add("masked_select", (count,), lambda x=x: x[x > 0])
        add("bincount", (count,), whole.bincount)
        add("index_add", (count, 64), lambda t=table, w=whole: t.index_add(0, w, t[w]))
        add("index_put accumulate", (count, 64),
            lambda t=table, w=whole: t.index_put((w,), t[w], accumulate=True))  # fmt: skip
        trained = table.clone().requires_grad_()
        for name, call in (
            ("index", lambda t, w: t[w]),
            ("embedding", lambda t, w: F.embedding(w, t)),
        ):
            record_both(
                rows, {"op": name, "shape": (count, 64)},
                lambda t, call=call, w=whole: call(t, w), (trained,),
            )  # fmt: skip
    for shape in ((64, 1000), (64, 5000), (200, 5000)):
        x = make_tensor(*shape)
        add("sort dim", shape, lambda x=x: x.sort(-1))
        add("topk dim", shape, lambda x=x: x.topk(5, -1))
        add("cumsum dim", shape, lambda x=x: x.cumsum(-1))
    return rows


def run_recurrent(_seed):
    rows = []
    for kind in (nn.LSTM, nn.GRU):
        for layers, width, dropout in ((1, 64, 0.0), (2, 128, 0.0), (2, 128, 0.5)):
            layer = kind(32, width, layers, dropout=dropout, batch_first=True).to(DEVICE)
            x = make_tensor(8, 20, 32, grad=True)
            facts = {"op": kind.__name__, "layers": layers, "width": width, "dropout": dropout}
            record_layer(rows, facts, layer, x)
    return rows


def run_optimizers(_seed):
    rows = []
    choices: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "SGD": lambda p: torch.optim.SGD(p, 0.1),
        "SGD momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        "SGD weight decay": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
        "Adam": torch.optim.Adam,
        "Adam weight decay": lambda p: torch.optim.Adam(p, weight_decay=0.1),
        "AdamW": torch.optim.AdamW,
        "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
        "AdamW not foreach": lambda p: torch.optim.AdamW(p, foreach=False),
        "RMSprop": torch.optim.RMSprop,
        "Adagrad": torch.optim.Adagrad,
    }
    for name, make in choices.items():
        net = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10)).to(DEVICE)
        optimizer = make(net.parameters())
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        for which in ("first", "second"):
            rows.append({"op": name, "step": which, **record(optimizer.step, warm=0)})
    net = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10)).to(DEVICE)
    x = make_tensor(32, 300)
    net(x).sum().backward()
    rows.append({
        "op": "clip_grad_norm_",
        **record(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0)),
    })  # fmt: skip

    def run_autocast():
        net.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = net(x).float().sum()
        loss.backward()

    rows.append({"op": "autocast step", **record(run_autocast)})
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(net.parameters(), 0.1)

    def run_scaled():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            loss = net(x).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    rows.append({"op": "GradScaler step", **record(run_scaled)})
    return rows


# --- E12: whole models ------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rest = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.rest(x)


class Decoder(nn.Module):
    """A small GPT: 4 blocks, 8 heads, width 256."""

    def __init__(self, width=256, heads=8, blocks=4, words=1000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.cell = nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, 20)

    def forward(self, tokens):
        return self.head(self.cell(self.embed(tokens))[0])


def list_models():
    torch.manual_seed(0)
    tokens = torch.randint(1000, (8, 128), device=DEVICE)
    yield (
        "mlp",
        nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        ),
        torch.randn(128, 784, device=DEVICE),
    )
    yield "decoder", Decoder(), tokens
    yield "tagger", Tagger(), tokens
    try:
        import torchvision
    except ImportError:
        return
    image = torch.randn(16, 3, 224, 224, device=DEVICE)
    for name in ("resnet18", "resnet50", "mobilenet_v2", "vgg11", "vit_b_16", "convnext_tiny"):
        yield name, getattr(torchvision.models, name)(num_classes=10), image


def run_models(_seed):
    rows = []
    for name, model, given in list_models():
        model = model.to(DEVICE)
        for mode in ("inference", "step"):
            model.train(mode == "step")
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)

            def call(model=model, given=given, mode=mode, optimizer=optimizer):
                if mode == "inference":
                    with torch.no_grad():
                        return model(given)
                optimizer.zero_grad(set_to_none=True)
                model(given).float().square().mean().backward()
                optimizer.step()
                return None

            for turn in range(3):
                gc.collect()
                torch.cuda.reset_peak_memory_stats()
                before, events = torch.cuda.memory_allocated(), []
                with traced_allocations(events):
                    result = call()
                    del result
                stats = torch.cuda.memory_stats()
                rows.append(
                    {
                        "model": name, "mode": mode, "call": turn + 1,
                        "shape": list(given.shape), "allocated_before": before,
                        "allocated_peak": stats["allocated_bytes.all.peak"],
                        "requested_peak": stats["requested_bytes.all.peak"],
                        "reserved_peak": stats["reserved_bytes.all.peak"],
                        "outside": measure_outside(),
                        "events": events if turn == 2 else [],
                    }
                )  # fmt: skip
        del model, optimizer
        gc.collect()
        torch.cuda.empty_cache()
    return rows


# --- All of them ------------------------------------------------------------------------------

EXPERIMENTS = {
    "E1": run_outside, "E2": run_workspaces, "E3": run_allocator, "E4": run_limited,
    "E5": run_convolutions, "E6": run_batch_norms, "E7": run_attention, "E8": run_reductions,
    "E9": run_indexing, "E10": run_recurrent, "E11": run_optimizers, "E12": run_models,
}  # fmt: skip


def describe_device():
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": list(torch.cuda.get_device_capability()),
        "multiprocessors": properties.multi_processor_count,
        "threads_per_multiprocessor": properties.max_threads_per_multi_processor,
        "total_bytes": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def run_one(name, setting, seed):
    """In a process of its own: nothing is cached, loaded or planned yet."""
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
    command = [sys.executable, __file__, "-", "--only", name, "--seed", str(seed), "--alone"]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return [{"error": f"{name} ended with {run.returncode}"}]
    return [{**({"setting": setting} if setting else {}), **row} for row in json.loads(run.stdout)]


def write(record_of_device, file):
    text = json.dumps(record_of_device, separators=(",", ":"))
    if file.suffix == ".gz":
        # No time of writing inside: the same record gives the same file.
        file.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        file.write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(EXPERIMENTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    unknown = [name for name in wanted if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment is called {unknown[0]}; there are {', '.join(EXPERIMENTS)}")
    if not torch.cuda.is_available():
        sys.exit("error: PyTorch sees no GPU here; this records one")
    if arguments.alone:
        print(json.dumps(EXPERIMENTS[wanted[0]](arguments.seed)))
        return
    result = collections.OrderedDict(device=describe_device())
    for name in wanted:
        start = time.monotonic()
        settings = SETTINGS if name == "E3" else ("",)
        result[name] = [
            row for setting in settings for row in run_one(name, setting, arguments.seed)
        ]
        failed = sum("error" in row for row in result[name])
        print(
            f"{name}: {len(result[name])} rows, {failed} errors, {time.monotonic() - start:.1f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        write(result, arguments.file)


if __name__ == "__main__":
    main()
