"""Ctrl-C at many points of compilations and steps, each followed by a right run."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
from koila._interrupt import held_back, let_through

# Points of each; 50 in the long run.
POINTS = int(os.environ.get("POINTS", "8"))
X, Y = torch.randn(48, 16), torch.randint(0, 4, (48,))


@pytest.fixture(autouse=True)
def ctrl_c():
    """As at a terminal: what runs tests may ignore it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(16, 64)
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(64, 4)

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.norm(self.first(x)))))


class Traced(Network):
    """TorchScript has no ``*args``."""

    def forward(self, *inputs):
        return super().forward(inputs[0])


def fresh(kind):
    """A module of a class that nothing was scripted of yet."""
    return type(kind.__name__, (kind,), {"__module__": __name__})()


@contextlib.contextmanager
def interrupted_at(line):
    """Ctrl-C when that many lines of Python have run; yields the count."""
    count = [0]

    def trace(frame, event, argument):
        if event == "line":
            count[0] += 1
            if count[0] == line:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(None)


@contextlib.contextmanager
def dropped_interrupts():
    """Those that Python drops, since they are raised in a finalizer."""
    dropped, previous = [], sys.unraisablehook

    def note(unraisable):
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            dropped.append(repr(unraisable.object))
        else:
            previous(unraisable)

    sys.unraisablehook = note
    try:
        yield dropped
    finally:
        sys.unraisablehook = previous


@contextlib.contextmanager
def interrupted_after(seconds):
    """Ctrl-C after a time, also within what runs in C++."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
        # The signal may come after the last line.
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, 0)


def surroundings():
    """What an interruption must leave as it is in the process."""
    return (
        signal.getsignal(signal.SIGINT),
        list(warnings.filters),
        warnings.showwarning,
        torch.is_grad_enabled(),
        torch.jit._trace._trace_module_map,
        torch._C._is_tracing(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )


def state(module):
    tensors = [*module.state_dict().values(), torch.get_rng_state()]
    gradients = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    return [tensor.clone() for tensor in tensors], gradients, set(vars(module)) - {"__overloads__"}


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def compile_inference(module):
    return koila.compile(module.eval(), X, tile=8)


def compile_step(module):
    for part in (module.norm, module.drop):
        part.eval()
    return koila.compile(module, X, Y, loss="cross_entropy", tile=8)


def check_inference(compiled):
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), compiled.original(X))


def check_step(compiled):
    found = compiled.grads(X, Y)[1]
    loss = functional.cross_entropy(compiled.original(X), Y)
    wanted = torch.autograd.grad(loss, list(compiled.original.parameters()))
    assert all(gradient.abs().max() > 1e-4 for gradient in wanted)
    torch.testing.assert_close(found, list(wanted), rtol=1e-4, atol=1e-5)


WORK = [(compile_inference, check_inference), (compile_step, check_step)]


@pytest.mark.parametrize("kind", [Network, Traced])
@pytest.mark.parametrize("work,check", WORK)
@pytest.mark.filterwarnings("ignore")
def test_compilations(kind, work, check):
    for _ in range(2):  # what is imported and cached once
        check(work(fresh(kind)))
    with interrupted_at(-1) as lines:
        form = type(work(fresh(kind)).source)
    before, caught, lost = surroundings(), 0, 0
    for point in range(POINTS):
        module = fresh(kind)
        was = state(module)
        # Later ones have some lines less.
        at = 3 + int(0.85 * lines[0] * point / POINTS)
        with dropped_interrupts() as dropped:
            try:
                with interrupted_at(at):
                    work(module)
            except KeyboardInterrupt:
                caught += 1
        lost += len(dropped)
        assert surroundings() == before
        module.train()
        assert same(state(module), was)
        compiled = work(module)
        # Not a trace where it was scripted before.
        assert type(compiled.source) is form
        check(compiled)
    assert caught >= 0.9 * (POINTS - lost)


@pytest.mark.parametrize("kind", [Network, Traced])
@pytest.mark.filterwarnings("ignore")
def test_compilations_in_cpp(kind):
    compile_inference(fresh(kind))
    start = time.perf_counter()
    compile_inference(fresh(kind))
    took = time.perf_counter() - start
    was, caught = surroundings(), 0
    for point in range(POINTS):
        module = fresh(kind)
        try:
            with interrupted_after(took * (point + 0.5) / POINTS):
                compile_inference(module)
        except KeyboardInterrupt:
            caught += 1
        assert surroundings() == was
        check_inference(compile_inference(module))
    assert caught


class Long(Network):
    """A step that is mostly in C++."""

    def __init__(self):
        super().__init__()
        self.second = nn.Sequential(
            *(layer for _ in range(30) for layer in (nn.Linear(64, 64), nn.Tanh())),
            nn.Linear(64, 4),
        )


def run_step(step):
    return step.train_step(X, Y)


def run_lazily(module):
    x, y = koila.lazy(X, Y, budget="100KiB")
    loss = functional.cross_entropy(module(x), y)
    loss.backward()
    return loss


def make_step(module):
    return koila.compile(
        module,
        X,
        Y,
        loss="cross_entropy",
        tile=8,
        random="per-tile",
        batchnorm="per-tile",
    )


def lazily(module):
    for part in (module.norm, module.drop):
        part.eval()
    return module


@pytest.mark.parametrize("make,run", [(make_step, run_step), (lazily, run_lazily)])
@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("in_cpp", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_steps(make, run, accumulates, in_cpp):
    """All of a step or nothing: gradients, statistics and random numbers."""
    module = Long()
    step = make(module)
    start_of_all = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    def begin():
        module.load_state_dict(start_of_all)
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter) if accumulates else None
        torch.manual_seed(1)

    begin()
    run(step)
    begin()
    before = state(module)
    with interrupted_at(-1) as lines:
        run(step)
    after = state(module)
    assert not same(before, after)
    begin()
    start = time.perf_counter()
    run(step)
    took = time.perf_counter() - start
    assert step is module or step.tile == 8
    assert step is not module or koila.last().tile
    around, caught = surroundings(), 0
    for point in range(POINTS):
        begin()
        at = (point + 0.5) / POINTS
        try:
            with interrupted_after(took * at) if in_cpp else interrupted_at(int(lines[0] * at)):
                run(step)
        except KeyboardInterrupt:
            caught += 1
        assert surroundings() == around
        found = state(module)
        assert same(found, before) or same(found, after)
        begin()
        run(step)
        assert same(state(module), after)
    assert caught


FIRST_COMPILATION = """
import os, signal, sys, threading, time, torch
from torch import nn

class Traced(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, *inputs):
        return self.layer(inputs[0]).tanh()

import koila
signal.signal(signal.SIGINT, signal.default_int_handler)
module, x = Traced(), torch.randn(8, 4)
pid, after = os.getpid(), float(sys.argv[1])
if not os.fork():
    time.sleep(after)
    os.kill(pid, signal.SIGINT)
    os._exit(0)
try:
    koila.compile(module, x, tile=2)
    koila.compile(module, x, x, loss="mse_loss", tile=2)
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted", "sympy" in sys.modules, "torch._dynamo" in sys.modules)
with torch.no_grad():
    torch.testing.assert_close(koila.compile(module, x, tile=2)(x), module(x))
print("right")
"""


@pytest.mark.parametrize("point", range(max(1, POINTS // 4)))
def test_what_is_imported_first(point):
    """The first compilation of a process, which imports little."""
    after = 0.05 + 0.8 * (point + 0.5) / max(1, POINTS // 4)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIRST_COMPILATION, str(after)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "interrupted False False\nright\n"


def test_handlers_of_the_program():
    """Signals are handled once each, by whom the program chose, when the block
    has ended, and the block's own error is not lost."""
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with held_back():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
            with held_back():
                assert not seen
            assert not seen
            with let_through():
                assert seen == [signal.SIGUSR1] * 2
                signal.raise_signal(signal.SIGUSR1)
                assert len(seen) == 3
                with held_back():
                    signal.raise_signal(signal.SIGUSR1)
                    assert len(seen) == 3
                assert len(seen) == 4
            signal.raise_signal(signal.SIGUSR1)
            assert len(seen) == 4
        assert len(seen) == 5
        with pytest.raises(KeyboardInterrupt) as caught, held_back():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGUSR1)
            raise ValueError("mine")
        assert len(seen) == 6 and isinstance(caught.value.__context__, ValueError)
        signal.raise_signal(signal.SIGUSR1)
        assert len(seen) == 7
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_other_threads_hold_nothing():
    done = []

    def work():
        with held_back():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_what_is_ignored_stays_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)
