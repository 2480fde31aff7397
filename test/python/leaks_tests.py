"""What is left of compilations, analyses and calls of max_batch: nothing."""

import ctypes
import gc
import io
import itertools
import os
import re
import warnings

import pytest
import torch
from torch import nn

import koila
from koila._capture import owned_traces

# 10 calls, and then as many; 1000 in the long run.
CALLS = int(os.environ.get("CALLS", "25"))
# Bytes per call that may stay: 1,000 calls keep at most 8 MB.
MOST = 8000


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.norm = nn.LayerNorm(128)
        self.second = nn.Linear(128, 10)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


class Traced(Network):
    """TorchScript has no ``*args``."""

    def forward(self, *inputs):
        return super().forward(inputs[0])


def make_class():
    """A module of a class of its own, as a function that defines one makes."""

    class Local(Network):
        pass

    return Local()


SAME = {kind: kind().eval() for kind in (Network, Traced)}
MODULES = {
    "same": lambda: SAME[Network],
    "fresh": lambda: Network().eval(),
    "traced": lambda: SAME[Traced],
    "traced fresh": lambda: Traced().eval(),
    "script": lambda: torch.jit.script(SAME[Network]),
    "train": Network,
}
X, Y = torch.randn(64, 64), torch.randint(0, 10, (64,))


def compile_and_call(module):
    compiled = koila.compile(module, X, budget="60KiB")
    with torch.no_grad():
        compiled(X)
        compiled(X[:50])


def compile_and_step(module):
    compiled = koila.compile(module, X, Y, loss="cross_entropy", budget="800KiB")
    compiled.train_step(X, Y)
    module.zero_grad()


def compile_too_small(module):
    with pytest.raises(koila.BudgetError):
        koila.compile(module, X, budget="1KiB")


def compile_whole(module):
    koila.compile(module, X, budget="1GiB")


def analyze(module):
    koila.analyze(module, X)


def analyze_step(module):
    koila.analyze(module, X, Y, mode="train", loss="cross_entropy")


def max_batch(module):
    koila.max_batch(module, X, budget="1MiB")


WORK = [
    compile_and_call,
    compile_and_step,
    compile_too_small,
    compile_whole,
    analyze,
    analyze_step,
    max_batch,
]


class Mallinfo(ctypes.Structure):
    """Of mallinfo2(3)."""

    NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = Mallinfo


def heap_bytes():
    info = LIBC.mallinfo2()
    return info.uordblks + info.hblkhd


def resident_bytes():
    LIBC.malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(work, modules, calls, measure=heap_bytes):
    """Bytes that ``measure`` has more after ``calls`` calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, make in enumerate(itertools.cycle(modules)):
            if number == max(10, 2 * len(modules)):
                gc.collect()
                before = measure()
            if number == max(10, 2 * len(modules)) + calls:
                gc.collect()
                return measure() - before
            work(make())


@pytest.mark.parametrize("work", WORK)
def test_heap(work):
    assert grown(work, MODULES.values(), CALLS) < MOST * CALLS


@pytest.mark.parametrize("work", [compile_and_call, compile_and_step, analyze, max_batch])
@pytest.mark.skipif(CALLS < 100, reason="pages say little of a few calls")
def test_resident(work):
    assert grown(work, MODULES.values(), CALLS, resident_bytes) < MOST * CALLS


@pytest.mark.parametrize("kind", [Network, Traced])
def test_nothing_waits_for_a_garbage_collection(kind):
    module = SAME[kind]

    def work():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile_and_call(module)
            analyze(module)

    for _ in range(3):
        work()
    gc.collect()
    gc.disable()
    try:
        before = heap_bytes()
        for _ in range(5):
            work()
        # Of what PyTorch's own scripting leaves for it.
        assert heap_bytes() - before < 5 * 50_000
    finally:
        gc.enable()


def test_a_class_of_its_own_keeps_what_scripting_keeps():
    """Types of classes stay in PyTorch for as long as the process."""
    plain = grown(torch.jit.script, [make_class], 10)
    assert grown(lambda module: koila.compile(module, X, budget="60KiB"), [make_class], 10) < (
        1.2 * plain + 10 * MOST
    )


def test_the_control_is_seen():
    """What keeps 10 KB a call is over the limit."""
    kept = []
    leak = lambda module: (kept.append(bytearray(10_000)), analyze(module))
    assert grown(leak, [MODULES["same"]], CALLS) > MOST * CALLS


class Exports(nn.Module):
    """A part with a method that is scripted."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64))

    @torch.jit.export
    def scaled(self, x):
        return x * self.weight

    def forward(self, x):
        return self.scaled(x)


class Parts(nn.Module):
    """All that a traced module may consist of."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64, bias=False)
        self.again = self.first
        self.norm = nn.BatchNorm1d(64)
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(64, 64), nn.Tanh()))
        self.exports = Exports()
        self.absent = None
        self.register_module("none", None)
        self.register_parameter("nothing", None)
        self.register_buffer("shift", torch.rand(64))
        self.register_buffer("hidden", torch.rand(64), persistent=False)
        self.layers = nn.ModuleDict({"a": nn.Linear(64, 10), "b": nn.Dropout()})

    def forward(self, x):
        x = self.exports(self.scripted(self.norm(self.again(self.first(x)))))
        return self.layers["b"](self.layers["a"](x + self.shift + self.hidden))


def test_a_trace_is_what_pytorch_makes():
    module = Parts().eval()
    module.norm.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = owned_traces.trace(module, (X,))
        plain = torch.jit.trace(module, (X,), check_trace=False)
    for names in (
        lambda m: list(m.state_dict()),
        lambda m: [name for name, _ in m.named_parameters(remove_duplicate=False)],
        lambda m: [name for name, _ in m.named_buffers(remove_duplicate=False)],
        lambda m: [name for name, _ in m.named_modules(remove_duplicate=False)],
        lambda m: [part.training for part in m.modules()],
        lambda m: re.sub(r"___torch_mangle_\d+\.", "", str(m.inlined_graph)),
    ):
        assert names(own) == names(plain)
    assert own.first.weight is module.first.weight
    assert own.norm.running_mean is module.norm.running_mean
    file = io.BytesIO()
    torch.jit.save(own, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    statistics = module.norm.running_mean.clone()
    results = []
    for traced in (own, plain, loaded):
        results.append(traced(X))
        module.norm.running_mean.copy_(statistics)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@torch.jit.script
class Doubled:
    def __init__(self, value: torch.Tensor):
        self.value = value

    def get(self) -> torch.Tensor:
        return self.value * 2


class UsesClass(Network):
    @torch.jit.export
    def scaled(self, x: torch.Tensor):
        return Doubled(x).get()


@pytest.mark.parametrize("is_part", [False, True])
def test_the_original_outlives_its_copies(is_part):
    """Methods of a class of a loaded file run after all but what was compiled is
    gone, also of a part from another file."""
    module = UsesClass().eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module), file)
        file.seek(0)
        loaded = torch.jit.load(file)
        if is_part:
            loaded = torch.jit.script(nn.Sequential(loaded))
        script = koila.compile(loaded, X, tile=8).script
        del loaded
        gc.collect()
        kept = [torch.jit.script(Network()) for _ in range(20)]  # where the file's was
    part = getattr(script, "0") if is_part else script
    with torch.no_grad():
        torch.testing.assert_close(script(X), module(X))
        torch.testing.assert_close(part.scaled(X), 2 * X)
    assert kept
