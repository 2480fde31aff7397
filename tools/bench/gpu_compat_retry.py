"""koila.retry and koila.compat.toma on a GPU: groups of gpu_compat.py."""

import gc
import importlib
import os
import pathlib
import re
import sys
import weakref

import torch
from torch import nn
from torch.nn import functional as F

from gpu_compat_facts import (
    DEVICE,
    GIB,
    MIB,
    Hoard,
    describe_error,
    format_bytes,
    group,
    limited,
    run_pytest,
    shorten,
    summarize,
)  # fmt: skip


@group("Errors that say that memory ran out")
def errors(facts):
    from koila.retry import is_out_of_memory

    def see(what, call, expected=True):
        try:
            call()
        except Exception as error:
            found = is_out_of_memory(error)
            facts.say(f"{what}: {describe_error(error)}", found == expected)
        else:
            facts.say(what, False, "nothing was raised")
        gc.collect()
        torch.cuda.empty_cache()

    def fill(count):
        return torch.ones(count, dtype=torch.uint8, device=DEVICE)

    with limited(256 * MIB):
        see("a limit of the process", lambda: fill(300 * MIB))
    total = torch.cuda.mem_get_info()[1]
    see("more than the device has", lambda: fill(total + GIB))
    with Hoard():
        see("a device that somebody else fills", lambda: fill(64 * MIB))
    scripted = torch.jit.script(script_fill)
    with limited(256 * MIB):
        see("inside of TorchScript", lambda: scripted(300 * MIB, torch.device(DEVICE)))
        weight = torch.ones(16 * MIB, device=DEVICE, requires_grad=True)  # 64 MiB
        see("in a backward pass", lambda: Burst.apply(weight, 512 * MIB).sum().backward())
    see("no such index", lambda: torch.ones(2, device=DEVICE)[3], expected=False)
    see("another device", lambda: torch.ones(2, device=DEVICE) + torch.ones(2), expected=False)


def script_fill(count: int, device: torch.device):
    return torch.ones([count], dtype=torch.uint8, device=device)


class Burst(torch.autograd.Function):
    """Needs memory in the backward pass alone."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x * 1

    @staticmethod
    def backward(ctx, above):
        torch.empty(ctx.count, dtype=torch.uint8, device=above.device)
        return above, None


def make_library_call(name):
    """A call that makes a handle or a plan of a library when it is made first, with its
    operands there already; and its result."""
    x = torch.ones(64, 64, device=DEVICE)
    if name == "cuBLAS":
        return (lambda: x @ x), torch.full((64, 64), 64.0)
    if name == "cuBLASLt":
        bias = torch.ones(64, device=DEVICE)
        return (lambda: F.linear(x, x, bias)), torch.full((64, 64), 65.0)
    if name == "cuDNN":
        images = torch.ones(2, 3, 16, 16, device=DEVICE)
        weight = torch.ones(4, 3, 3, 3, device=DEVICE)
        return (lambda: F.conv2d(images, weight)), torch.full((2, 4, 14, 14), 27.0)
    if name == "cuDNN, LSTM":
        lstm, series = nn.LSTM(8, 8), torch.ones(5, 2, 8)
        wanted, lstm = lstm(series)[0], lstm.to(DEVICE)
        series = series.to(DEVICE)
        return (lambda: lstm(series)[0]), wanted
    if name == "cuFFT":
        return (lambda: torch.fft.fft(x).real), torch.fft.fft(torch.ones(64, 64)).real
    if name == "cuSOLVER":
        eye = torch.eye(64, device=DEVICE)
        return (lambda: torch.linalg.cholesky(eye)), torch.eye(64)
    if name == "cuSPARSE":
        sparse = torch.eye(64).to_sparse_csr().to(DEVICE)
        return (lambda: sparse @ x), torch.ones(64, 64)
    assert name == "a kernel's module"
    return (lambda: torch.special.bessel_j0(x)), torch.special.bessel_j0(torch.ones(64, 64))


def check_library(facts, name, spare):
    """A library's first call where nothing is left but ``spare`` bytes in PyTorch's
    cache; the body frees the rest when it runs again."""
    from koila import retry

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    call, wanted = make_library_call(name)
    if spare:
        torch.empty(spare, dtype=torch.uint8, device=DEVICE)
    torch.cuda.synchronize()
    hoard, sizes, texts, took = Hoard(), [], [], []

    def body(size):
        sizes.append(size)
        if size == 1:
            # Somebody else has ended.
            hoard.release()
        free = torch.cuda.mem_get_info()[0]
        result = call()
        torch.cuda.synchronize()
        took.append(free - torch.cuda.mem_get_info()[0])
        return result

    what = f"{name}, {format_bytes(spare)} in the cache" if spare else f"{name}, nothing left"
    retrying = retry.Retry(on_retry=lambda text, *_: texts.append(text))
    try:
        result = retrying.batch(body, 2)
    except Exception as error:
        facts.say(f"{what}: {describe_error(error)}", False, "not taken for what it is")
        return
    said = shorten(texts[0]) if texts else "has what it needs"
    same = torch.allclose(result.cpu(), wanted, atol=1e-5)
    figure = f"takes {format_bytes(took[-1])} of the driver"
    if texts:
        figure = f"right when it runs again; then it {figure}"
    facts.say(f"{what}: {said}", same and sizes == ([2, 1] if texts else [2]), figure)


LIBRARIES = (
    "cuBLAS", "cuBLASLt", "cuDNN", "cuDNN, LSTM", "cuFFT", "cuSOLVER", "cuSPARSE",
    "a kernel's module",
)  # fmt: skip


def make_library_group(name, spare):
    def check(facts):
        check_library(facts, name, spare)

    check.__name__ = f"library_{re.sub('[^a-z]', '', name.lower())}_{spare // MIB}"
    return group("Libraries without memory")(check)


for _name in LIBRARIES:
    for _spare in (0, 128 * MIB):
        make_library_group(_name, _spare)


def find_power(room, unit):
    """The largest power of two of which two tensors of that many units fit."""
    power = 1
    while 4 * power * unit <= room:
        power *= 2
    return power


@group("Sizes that fit")
def sizes(facts):
    from koila import memory, retry
    from koila.compat import toma

    # Each call has a context of its own: no cache tells it of the one before.
    def retry_batch(body, size):
        return retry.Retry().batch(body, size)

    def explicit_batch(body, size):
        return toma.explicit.batch(body, size, toma_context=object())

    def decorated(body, size):
        return toma.batch(body, initial_batchsize=size, context=object())()

    def executed(body, size):
        return toma.execute.batch(size, context=object())(body)

    forms = {
        "koila.retry.batch": retry_batch,
        "toma.simple.batch": toma.simple.batch,
        "toma.explicit.batch": explicit_batch,
        "@toma.batch": decorated,
        "toma.execute.batch": executed,
    }

    def check(form, call, unit, first, room, kind):
        entered, failed, alive = [], [], []

        def body(size):
            alive.append([reference() for reference in failed])
            entered.append((size, torch.cuda.memory_allocated()))
            one = torch.full((size * unit // 4,), 1.0, device=DEVICE)
            failed.append(weakref.ref(one))
            two = one * 2
            assert two[-1].item() == 2
            return size

        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        found = call(body, first)
        after = torch.cuda.memory_allocated()
        wanted = find_power(room, unit)
        facts.say(
            f"`{form}`, {kind}: the largest power of two that fits",
            found == wanted,
            f"{found} of {first} x {format_bytes(2 * unit)}",
        )
        facts.say(
            f"`{form}`, {kind}: bytes after, and at each attempt, less those before",
            after == before
            and {count for _, count in entered} == {before}
            and all(item is None for items in alive for item in items),
            f"{after - before}, {max(count for _, count in entered) - before}",
        )

    for form, call in forms.items():
        with limited(1200 * MIB):
            check(form, call, 8 * MIB, 1024, 1200 * MIB, "a limit of the process")
    torch.cuda.empty_cache()
    room = memory.free(DEVICE)
    for form in ("koila.retry.batch", "toma.simple.batch"):
        check(form, forms[form], 128 * MIB, 4096, room, "the whole device")
    torch.cuda.empty_cache()
    with Hoard(3 * GIB):
        check("koila.retry.batch", forms["koila.retry.batch"], 8 * MIB, 4096,
              memory.free(DEVICE), "a device that somebody else fills")  # fmt: skip

    # Figures of what is free.
    for kind, make in (
        ("a limit of the process", limited),
        ("a device that somebody else fills", Hoard),
    ):
        torch.cuda.empty_cache()
        with make(700 * MIB):
            free = memory.free(DEVICE)
            fitting = (free - 4 * MIB) // (2 * MIB) * (2 * MIB)
            torch.empty(fitting, dtype=torch.uint8, device=DEVICE)
            torch.cuda.empty_cache()
            try:
                torch.empty(free + 4 * MIB, dtype=torch.uint8, device=DEVICE)
                over = True
            except torch.OutOfMemoryError:
                over = False
            torch.cuda.empty_cache()
            facts.say(
                f"`koila.memory.free`, {kind}: so much can be had, within 4 MiB",
                not over,
                format_bytes(free),
            )
    from koila import gpus

    held = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    del held
    facts.say(
        "`koila.gpus`: the driver's free bytes and those in the cache",
        gpus.nvidia_free_memory() == torch.cuda.mem_get_info()[0]
        and gpus.torch_free_memory() >= 64 * MIB
        and gpus.free_memory() >= gpus.nvidia_free_memory(),
        f"{format_bytes(gpus.nvidia_free_memory())}, {format_bytes(gpus.torch_free_memory())}",
    )
    cuda = toma.torch_cuda_memory
    facts.say(
        "`toma.torch_cuda_memory`: available, assumed available and blocked fit together",
        cuda.get_cuda_available_memory() + cuda.get_cuda_blocked_memory()
        == cuda.get_cuda_assumed_available_memory()
        and abs(cuda.get_cuda_available_memory() - torch.cuda.mem_get_info()[0]) <= MIB,
        format_bytes(cuda.get_cuda_available_memory()),
    )


@group("Examples of toma's README, and what is taken back")
def functions(facts):
    from koila import retry
    from koila.compat.toma import toma

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    net = nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 8)).to(DEVICE)
    data = torch.randn(16384, 256, device=DEVICE)
    with torch.no_grad():
        wanted = torch.cat([net(part) for part in data.split(512)])
        net(data[:1])
    tried = []

    @toma.batch(initial_batchsize=16384)
    def run_inference(batchsize, model, dataset):
        tried.append(batchsize)
        with torch.no_grad():
            return torch.cat([model(part) for part in dataset.split(batchsize)])

    with limited(100 * MIB):
        found = run_inference(net, data)
    facts.say("`@toma.batch`: inference", torch.allclose(found, wanted, atol=1e-5), tried)
    tried.clear()

    @toma.chunked(initial_step=8192)
    def compute_result(out, start, end):
        tried.append(end - start)
        with torch.no_grad():
            out[:] = net(data[start:end])

    result = torch.empty(16384, 8, device=DEVICE)
    with limited(100 * MIB):
        compute_result(result)
    facts.say("`@toma.chunked`: writes into parts", torch.allclose(result, wanted, atol=1e-5),
              sorted(set(tried), reverse=True))  # fmt: skip
    tried.clear()

    @toma.range(initial_step=1024)
    def reduce_data(start, end, out, one, two):
        tried.append(end - start)
        out[start:end] = (one[start:end, None] * two).sum(1)

    one = torch.arange(1024.0, device=DEVICE)
    two = torch.arange(65536, device=DEVICE).remainder(7).float()
    out = torch.empty(1024, device=DEVICE)
    with limited(100 * MIB):
        reduce_data(0, 1024, out, one, two)
    facts.say("`@toma.range`: a reduction", torch.allclose(out, one * two.sum()),
              sorted(set(tried), reverse=True))  # fmt: skip
    tried.clear()
    total = torch.zeros(8, device=DEVICE, dtype=torch.float64)
    with limited(100 * MIB), torch.no_grad():

        @toma.execute.chunked(data, initial_step=8192)
        def compute(chunk, start, end):
            tried.append(end - start)
            total.add_(net(chunk).double().sum(0))

    facts.say(
        "`toma.execute.chunked`: a sum",
        torch.allclose(total, wanted.double().sum(0), rtol=1e-4),
        sorted(set(tried), reverse=True),
    )

    with limited(100 * MIB), torch.no_grad():
        found = retry.map(net, data)
    facts.say("`koila.retry.map`", torch.allclose(found, wanted, atol=1e-5))
    check_undo(facts, retry)
    tried, done = [], []

    def grow(start, end):
        tried.append(end - start)
        with limited(600 * MIB if start >= 16 else 200 * MIB):
            torch.empty((end - start) * 64 * MIB, dtype=torch.uint8, device=DEVICE)
        done.append(end - start)

    retry.Retry(growth=2).range(grow, 0, 96, 8)
    facts.say(
        "`growth=2`: sizes grow when memory is there again",
        tried[0] == 8 and min(tried) == 2 and done[-1] > 2 and sum(done) == 96,
        tried,
    )


def check_undo(facts, retry):
    """A step that runs out of memory in its backward pass, when one layer has its
    gradients."""

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64, track_running_stats=True)
            self.last = nn.Linear(64, 1)

        def forward(self, x, burst):
            return self.last(F.dropout(self.norm(Burst.apply(self.first(x), burst)), 0.3))

    def make():
        torch.manual_seed(3)
        return Steps().to(DEVICE)

    x = torch.randn(64, 64, device=DEVICE)

    def run(model, is_short):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        torch.manual_seed(4)
        sizes = []

        def body(start, end):
            sizes.append(end - start)
            # The second time it is called there is room.
            burst = 512 * MIB if is_short and len(sizes) == 1 else 0
            model(x[start:end], burst).square().sum().backward()

        with limited(256 * MIB):
            retry.Retry(undo=[model]).range(body, 0, 64, 64 if is_short else 32)
        values = [weight.grad for weight in model.parameters()] + list(model.buffers())
        return sizes, [value.clone() for value in values]

    sizes, found = run(make(), True)
    plain, wanted = run(make(), False)
    facts.say(
        "`Retry(undo=model)`: gradients, statistics and dropout as if nothing had failed",
        all(map(torch.equal, found, wanted)) and sizes == [64, 32, 32] and plain == [32, 32],
        "equal to the bit",
    )
    strict = retry.Retry(strict=True)
    target = torch.zeros(8, device=DEVICE)

    def changes(size):
        target.add_(1)
        torch.empty(512 * MIB if size > 1 else 1, dtype=torch.uint8, device=DEVICE)

    import koila

    try:
        with limited(256 * MIB):
            strict.batch(changes, 2)
        facts.say("`Retry(strict=True)`: names what was changed", False, "ran again")
    except koila.KoilaError as error:
        facts.say("`Retry(strict=True)`: names what was changed", "shape [8]" in str(error))


@group("toma's own tests")
def toma_suite(facts):
    import koila.compat.toma

    folder = pathlib.Path(os.environ["KOILA_SEEDS"]) / "toma" / "tests"
    sys.modules["toma"] = koila.compat.toma
    for part in ("batchsize_cache", "cpu_memory", "stacktrace", "torch_cuda_memory"):
        sys.modules[f"toma.{part}"] = importlib.import_module(f"koila.compat.toma.{part}")
    # Two of them want 64 GiB to be more than there is.
    torch.cuda.set_per_process_memory_fraction(32 * GIB / torch.cuda.mem_get_info()[1])
    # One of them limits the memory of the process, and comes last.
    files = sorted(folder.glob("test_*.py"), key=lambda file: file.stem == "test_cpu_mem_limit")
    for file in files:
        if file.stem != "test_benchmark":
            code, out = run_pytest([str(file)])
            what = f"`{file.name}`, under a limit of 32 GiB"
            failed = [line for line in out.splitlines() if line.startswith("FAILED")]
            facts.say(what, code == 0, "; ".join([summarize(out), *failed]))
