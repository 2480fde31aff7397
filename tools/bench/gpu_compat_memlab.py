"""koila.compat.pytorch_memlab on a GPU: groups of gpu_compat.py."""

import asyncio
import contextlib
import gc
import importlib
import inspect
import io
import os
import pathlib
import sys
import threading
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from gpu_compat_facts import (
    DEVICE,
    MIB,
    TESTS,
    Hoard,
    clear_workspaces,
    describe_error,
    format_bytes,
    group,
    run_pytest,
    summarize,
)  # fmt: skip

COLUMNS = tuple(f"active_bytes.all.{part}" for part in ("allocated", "freed", "peak"))


class ByHand:
    """The figures of a function's lines, read with a trace function of its own."""

    def __init__(self, function):
        self.code = inspect.unwrap(function).__code__
        self.lines, self._calls, self._before = {}, [], None

    def _lap(self):
        stats = torch.cuda.memory_stats()
        torch.cuda.reset_peak_memory_stats()
        now = [stats[name] for name in COLUMNS]
        if self._calls:
            line = self.lines.setdefault(self._calls[-1], [0, 0, 0])
            line[0] += now[0] - self._before[0]
            line[1] += now[1] - self._before[1]
            line[2] = max(line[2], now[2])
        self._before = now

    def _trace(self, frame, event, argument):
        if frame.f_code is not self.code:
            return None
        self._lap()
        self._calls.append(frame.f_lineno)
        return self._trace_lines

    def _trace_lines(self, frame, event, argument):
        if event == "line":
            self._lap()
            self._calls[-1] = frame.f_lineno
        elif event == "return":
            self._lap()
            self._calls.pop()
        return self._trace_lines

    @contextlib.contextmanager
    def reading(self):
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield self.lines
        finally:
            sys.settrace(before)


def read_lines(profiler, function):
    (table,) = profiler.display(function, COLUMNS)._tables
    return {row.number: list(row.figures) for row in table.rows if row.figures[0] is not None}


def on_device(function):
    """Threads that start meanwhile make their tensors there, too."""
    run = threading.Thread.run

    def run_there(self):
        torch.set_default_device(DEVICE)
        run(self)

    threading.Thread.run = run_there
    torch.set_default_device(DEVICE)
    try:
        return function()
    finally:
        torch.set_default_device(None)
        threading.Thread.run = run


@group("`LineProfiler`")
def lines(facts):
    sys.path.insert(0, str(TESTS))
    memlab_functions = importlib.import_module("memlab_functions")
    from koila.compat.pytorch_memlab import LineProfiler, set_target_gpu

    # What a process allocates once.
    asyncio.run(asyncio.sleep(0))
    off_lines = off_total = off_peaks = count = 0
    for function in memlab_functions.FUNCTIONS:

        def check(function=function):
            for _ in range(2):
                function([])
            gc.collect()
            torch.cuda.synchronize()
            start = torch.cuda.memory_allocated()
            held = []
            with LineProfiler(function) as profiler:
                kept = function(held)
            grown = torch.cuda.memory_allocated() - start
            found = read_lines(profiler, function)
            held.clear()
            del kept
            gc.collect()
            again = torch.cuda.memory_allocated()
            with ByHand(function).reading() as wanted:
                kept = function(held)
            del kept
            return start, again, grown, found, wanted

        gc.disable()
        start, again, grown, found, wanted = on_device(check)
        gc.enable()
        total = sum(line[0] - line[1] for line in found.values())
        name = function.__name__
        # Which line runs when a thread allocates is not the same each time.
        is_threaded = name == "threads"
        lines_off = sum(
            abs(found.get(line, [0, 0])[part] - wanted.get(line, [0, 0])[part])
            for line in {*found, *wanted}
            for part in (0, 1)
        )
        peak_off = abs(
            (max(line[2] for line in found.values()) - start)
            - (max(line[2] for line in wanted.values()) - again)
        )
        if is_threaded:
            lines_off = abs(total - sum(line[0] - line[1] for line in wanted.values()))
            peak_off = 0
        count += 1
        off_lines, off_total = off_lines + lines_off, off_total + abs(total - grown)
        off_peaks += peak_off
        if lines_off or total != grown or peak_off:
            facts.say(f"`{name}`", False, f"lines {lines_off}, total {total - grown}, "
                      f"peak {peak_off} bytes off")  # fmt: skip
    facts.say(
        f"{count} functions: allocated and freed by each line, next to `memory_stats` by hand",
        off_lines == 0,
        f"{off_lines} bytes off",
    )
    facts.say(
        f"{count} functions: the increments of all lines, next to `memory_allocated`",
        off_total == 0,
        f"{off_total} bytes off",
    )
    facts.say(
        f"{count} functions: the peak, next to `memory_stats` by hand",
        off_peaks == 0,
        f"{off_peaks} bytes off",
    )
    with LineProfiler(memlab_functions.plain) as profiler:
        on_device(lambda: memlab_functions.plain([]))
    text = str(profiler.display())
    facts.say("the table has `active_bytes`, `reserved_bytes` and the increment",
              "reserved" in text and "4.00K" in text, "1,000 floats are 4.00K there")  # fmt: skip
    text = str(profiler.display(columns=["reserved_bytes.large_pool.peak", "num_ooms"]))
    facts.say("other columns of `memory_stats`", "num_ooms" in text)
    set_target_gpu(0)
    try:
        set_target_gpu(torch.cuda.device_count())
        facts.say("a GPU that there is not", False, "nothing was raised")
    except ValueError as error:
        facts.say(f"a GPU that there is not: {describe_error(error)}", "there is no" in str(error))


@group("`MemReporter`")
def reporter(facts):
    from koila.compat.pytorch_memlab import MemReporter

    device = torch.device("cuda", 0) if DEVICE == "cuda" else torch.device(DEVICE)

    def see(what, make):
        clear_workspaces()
        gc.collect()
        torch.cuda.empty_cache()
        kept = make()
        torch.cuda.synchronize()
        clear_workspaces()
        gc.collect()
        found = MemReporter()
        found.collect_tensor()
        found.get_stats()
        allocated = torch.cuda.memory_allocated()
        seen = found.get_bytes(device)
        facts.say(f"{what}: bytes listed, of those allocated", seen == allocated,
                  f"{seen:,} of {allocated:,}")  # fmt: skip
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            MemReporter().report(device=device)
        said = [x for x in out.getvalue().splitlines() if x.startswith(("Not", "What these"))]
        if seen != allocated:
            print(out.getvalue())
            facts.say(f"{what}: it says how many are not seen", said, "; ".join(said))
        del kept

    def train():
        net = nn.Sequential(nn.Linear(300, 500), nn.ReLU(), nn.Linear(500, 7)).to(DEVICE)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.randn(33, 300, device=DEVICE)).square().mean().backward()
        optimizer.step()
        return net, optimizer

    def convolve():
        net = nn.Sequential(
            nn.Conv2d(3, 9, 3), nn.BatchNorm2d(9), nn.GELU(), nn.MaxPool2d(2), nn.Dropout(0.5)
        ).to(DEVICE)
        return net, net(torch.randn(5, 3, 31, 31, device=DEVICE)).square().sum()

    def attend():
        layer = nn.TransformerEncoderLayer(64, 4, 100, batch_first=True).to(DEVICE)
        return layer, layer(torch.randn(3, 17, 64, device=DEVICE)).sum()

    def recur():
        layer = nn.LSTM(40, 30, num_layers=2).to(DEVICE)
        return layer, layer(torch.randn(11, 3, 40, device=DEVICE))[0].sum()

    def fill_segments():
        # The rest of a segment is given along where it is at most 1 MiB.
        return [torch.ones(size * MIB // 4, device=DEVICE) for size in (11, 19, 3)]

    def view():
        big = torch.ones(10001, device=DEVICE)
        return big[:10], big.view(73, 137), torch.ones(0, device=DEVICE)

    def scatter():
        layer = nn.Embedding(1000, 30, sparse=True).to(DEVICE)
        layer(torch.arange(10, device=DEVICE)).sum().backward()
        return layer, torch.eye(30, device=DEVICE).to_sparse_csr()

    for what, make in (
        ("a step with Adam", train), ("a graph of convolutions", convolve),
        ("a graph of attention", attend), ("a graph of an LSTM", recur),
        ("blocks of 3, 11 and 19 MiB", fill_segments), ("views", view), ("sparse tensors", scatter),
    ):  # fmt: skip
        see(what, make)


def make_training(kind):
    torch.manual_seed(0)
    if kind == "lstm":

        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.last = nn.LSTM(24, 48, 2, dropout=0.2), nn.Linear(48, 10)

            def forward(self, x):
                return self.last(self.lstm(x.flatten(2).transpose(0, 1))[0][-1])

        model = Tagger().to(DEVICE)
    else:
        model = nn.Sequential(
            nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
            nn.Linear(64 * 36, 512), nn.GELU(), nn.Linear(512, 10),
        ).to(DEVICE)  # fmt: skip
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def train_steps(kind, where, aside):
    """Losses, gradients and weights of four steps, stepping aside at ``where``."""
    model, optimizer = make_training(kind)
    kept = []
    for _ in range(4):
        x = torch.randn(64, 3, 8, 8, device=DEVICE).requires_grad_()
        if kind == "lstm":
            x = torch.randn(64, 8, 3, 8, device=DEVICE).requires_grad_()
        loss = F.cross_entropy(model(x), torch.arange(64, device=DEVICE) % 10)
        if where == "graph":
            aside()
        loss.backward()
        if where == "gradients":
            aside()
        optimizer.step()
        if where == "step":
            aside()
        kept += [loss.detach().clone(), x.grad.clone()]
        optimizer.zero_grad(set_to_none=False)
    return kept + [value.clone() for value in model.state_dict().values()]


def measure_dropout_state(kind):
    """The bytes of what cuDNN draws from, which PyTorch keeps where Python cannot see it."""
    from koila.compat.pytorch_memlab import _tensors

    model, _ = make_training(kind)
    shape = (4, 8, 3, 8) if kind == "lstm" else (4, 3, 8, 8)
    saved = _tensors.walk_graphs([model(torch.randn(shape, device=DEVICE)).sum()]).saved
    sizes = {x.tensor.data_ptr(): x.tensor.nbytes for x in saved if x.name == "dropout_state"}
    return sum(size + -size % 512 for size in sizes.values())


@group("`Courtesy`")
def courtesy(facts):
    from koila.compat.pytorch_memlab import Courtesy

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False

    def aside():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Courtesy() as away:
                left = torch.cuda.memory_allocated()
                given = torch.cuda.mem_get_info()[0] - before[1]
                # Somebody else takes all there is.
                Hoard().release()
                said.extend(away.not_moved)
        said.extend(str(item.message) for item in caught)
        seen.append((before[0], left, given))

    for kind in ("convolutions", "lstm"):
        wanted = train_steps(kind, "", None)
        # PyTorch's own: the graph alone shows it.
        dropout = measure_dropout_state(kind)
        for where in ("graph", "gradients", "step"):
            seen, said = [], []
            found = train_steps(kind, where, aside)
            same = all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
            facts.say(
                f"{kind}, with {where} there: four steps aside, and training goes on to the bit",
                same and not said,
                "; ".join(said),
            )
            before, left, given = seen[-1]
            stays = 0 if where == "graph" else dropout
            facts.say(
                f"{kind}, with {where} there: allocated before, and meanwhile"
                + (", which is cuDNN's state of dropout" if stays else ""),
                left == stays and given > 0,
                f"{format_bytes(before)}, {format_bytes(left)}; the driver gets "
                f"{format_bytes(given)} back",
            )
        del wanted, found

    # No room when it comes back.
    tensors = [torch.full((8 * MIB,), float(index), device=DEVICE) for index in range(8)]
    away = Courtesy()
    away.yield_memory()
    with Hoard(100 * MIB):
        try:
            away.restore()
            facts.say("no room to come back", False, "nothing was raised")
        except torch.OutOfMemoryError:
            facts.say(
                "no room to come back: an out-of-memory error, and values are still there",
                [tensor[0].item() for tensor in tensors] == list(range(8)),
            )
    away.restore()
    facts.say(
        "and when there is room, all is back",
        all(tensor.device.type == DEVICE and tensor[-1].item() == index
            for index, tensor in enumerate(tensors)),
    )  # fmt: skip


# It wants a second GPU.
SECOND_GPU = "test_line_report_profile_set_gpu"


@group("pytorch_memlab's own tests")
def memlab_suite(facts):
    folder = pathlib.Path(os.environ["KOILA_MEMLAB_TESTS"])
    sys.path.insert(0, str(TESTS))
    os.chdir(folder)
    options = ["-p", "memlab_suite_plugin", "-rA", "--import-mode=importlib", "."]
    code, out = run_pytest(["-k", "not interrupt", *options])
    failed = [line for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))]
    lacks = torch.cuda.device_count() < 2 and DEVICE == "cuda"
    expected = [SECOND_GPU] if lacks else []
    names = [line.split(" - ")[0].rpartition("::")[2] for line in failed]
    facts.say(
        "version 0.3.2, without the test that interrupts itself"
        + (f", and but for `{SECOND_GPU}`, which wants a second GPU" if lacks else ""),
        names == expected and ("passed" in out),
        summarize(out) + "".join(f"; {x}" for x in failed if SECOND_GPU not in x),
    )
    code, out = run_pytest(["-k", "interrupt", *options])
    facts.say("the test that interrupts itself", code == 2 and "KeyboardInterrupt" in out)
