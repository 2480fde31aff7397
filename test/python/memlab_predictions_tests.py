"""koila.compat.pytorch_memlab: predicted figures beside measured ones."""

import copy
import gc
import os
import re
import subprocess
import sys
import time
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from koila._errors import KoilaError
from koila._isolated import isolated
from koila.compat.pytorch_memlab import LineProfiler
from koila.compat.pytorch_memlab.line_profiler import _predictions

PEAK = ("predicted_bytes.call.peak", "measured_bytes.call.peak")


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.second = nn.Linear(256, 10)

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x)
        return self.second(x)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x)
        x = torch.relu(x)
        x = nn.functional.max_pool2d(x, 2)
        x = x.flatten(1)
        return self.head(x)


class Residual(nn.Module):
    """A module of the user's in another."""

    def __init__(self):
        super().__init__()
        self.inner = MLP()
        self.skip = nn.Linear(64, 10)

    def forward(self, x):
        h = self.inner(x)
        return h + self.skip(x)


class Deep(nn.Module):
    """A module that calls another of its own class."""

    def __init__(self, depth):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.inner = Deep(depth - 1) if depth else nn.Identity()

    def forward(self, x):
        x = self.linear(x)
        return self.inner(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        parts = [nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32)]
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return self.parts(x)


PROGRAMS = {
    "MLP": (MLP, (48, 64)),
    "CNN": (CNN, (6, 3, 8, 8)),
    "Residual": (Residual, (48, 64)),
    "Deep": (lambda: Deep(3), (40, 32)),
    "Encoder": (Encoder, (12, 5, 32)),
}


@pytest.fixture(autouse=True)
def no_garbage():
    """What is collected meanwhile would be taken off what a line holds."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def get_columns(profiler, func, columns=PEAK):
    """The figures of lines that have all columns."""
    (table,) = profiler.display(func, columns)._tables
    rows = {row.number: row.figures for row in table.rows}
    return {line: figures for line, figures in rows.items() if None not in figures}


def get_notes(profiler, func):
    (table,) = profiler.display(func)._tables
    return list(table.notes)


def get_difference(profiler, func):
    """Predicted less measured, of the peak of a call."""
    figures = get_columns(profiler, func).values()
    assert figures, get_notes(profiler, func)
    predicted, measured = (max(column) for column in zip(*figures, strict=True))
    assert predicted > 0
    return predicted - measured


def profile_call(name, grad):
    torch.manual_seed(0)
    make, shape = PROGRAMS[name]
    module, x = make().train(grad), torch.randn(shape)
    forward = type(module).forward

    def work():
        with torch.set_grad_enabled(grad):
            return module(x)

    work()  # What a process allocates once.
    with LineProfiler(forward, work, predict=True) as profiler:
        work()
    return profiler, forward, work


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "grad"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_byte_off(name, grad):
    profiler, forward, work = profile_call(name, grad)
    # In Python each caller holds what it calls the next one with, which autograd does, too.
    held = 2 * 40 * 32 * 4 if name == "Deep" and not grad else 0
    assert get_difference(profiler, work) == -held
    assert get_difference(profiler, forward) == -held
    if name in ("MLP", "CNN"):
        # Of each line.
        for line, (predicted, measured) in get_columns(profiler, forward).items():
            assert predicted == measured, line
    mode = "forward-with-grad" if grad else "inference"
    shape = str(list(PROGRAMS[name][1])).replace(" ", "")
    assert any(f"{shape}), {mode}" in note for note in get_notes(profiler, forward))


@pytest.mark.parametrize("wrong", [1, -4])
def test_a_wrong_prediction_is_seen(wrong, monkeypatch):
    right = _predictions.report_call

    def report_call(*args, **kwargs):
        data = copy.deepcopy(right(*args, **kwargs))
        top = max(data["timeline"], key=lambda entry: entry["live_bytes"])
        top["transient_bytes"] += wrong
        data["peak_bytes"] += wrong
        return data

    monkeypatch.setattr(_predictions, "report_call", report_call)
    module, x = MLP(), torch.randn(48, 64)

    def work():
        return module(x)

    with LineProfiler(MLP.forward, work, predict=True) as profiler:
        kept = work()
    assert get_difference(profiler, MLP.forward) == wrong
    assert get_difference(profiler, work) == wrong
    del kept


def test_increments():
    """What stays after a line, and what the call leaves."""
    module, x = MLP(), torch.randn(48, 64)
    with LineProfiler(MLP.forward, predict=True) as profiler:
        kept = module(x)
    columns = [
        f"{how}_bytes.call.{part}"
        for part in ("current", "increment")
        for how in ("predicted", "measured")
    ]
    lines = list(get_columns(profiler, MLP.forward, columns).values())
    wide, narrow = 48 * 256 * 4, 48 * 10 * 4
    # Of relu autograd saves the result, of linear the input.
    assert lines == [
        (wide, wide, wide, wide),
        (wide, wide, 0, 0),
        (wide + narrow, wide + narrow, narrow, narrow),
    ]
    del kept


def test_the_largest_call_is_shown():
    module = MLP()
    with LineProfiler(MLP.forward, predict=True) as profiler, torch.no_grad():
        for size in (4, 64, 16, 5, 6, 7, 128, 4):
            module(torch.randn(size, 64))
    assert get_difference(profiler, MLP.forward) == 0
    assert max(get_columns(profiler, MLP.forward).values())[0] == 2 * 128 * 256 * 4
    (note,) = get_notes(profiler, MLP.forward)
    assert "MLP(float32[128,64]), inference" in note
    assert "the largest of 7 kinds of calls, of which 2" in note


def test_training():
    """A step: what backward and the optimizer do is measured, and not predicted."""
    torch.manual_seed(0)
    module, x = MLP(), torch.randn(32, 64)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()

    with LineProfiler(step, MLP.forward, predict=True) as profiler:
        for _ in range(3):
            step()
    assert get_difference(profiler, MLP.forward) == 0
    first = step.__code__.co_firstlineno
    assert list(get_columns(profiler, step)) == [first + 2]
    assert get_difference(profiler, step) == 0


def test_names_and_defaults():
    class Scaled(MLP):
        def forward(self, x, scale: float = 2.0, *, mask=None):
            x = self.first(x) * scale
            return self.second(x)

    module, x = Scaled(), torch.randn(20, 64)
    with LineProfiler(Scaled.forward, predict=True) as profiler, torch.no_grad():
        module(x=x, scale=3.0)
    assert get_difference(profiler, Scaled.forward) == 0
    assert "Scaled(float32[20,64], 3.0" in get_notes(profiler, Scaled.forward)[0]


def test_lines_that_call_modules_of_a_library():
    head = nn.Sequential(nn.Linear(64, 32), nn.Tanh())

    def work(x):
        x = head(x)
        return x * 2

    with LineProfiler(work, predict=True) as profiler, torch.no_grad():
        work(torch.randn(100, 64))
    first = work.__code__.co_firstlineno
    assert get_columns(profiler, work) == {first + 1: (2 * 100 * 32 * 4, 2 * 100 * 32 * 4)}
    assert "Sequential(float32[100,64]), inference" in get_notes(profiler, work)[0]


class ByValue(nn.Module):
    """No TorchScript, and no trace that holds for two batches."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        parts = {name: value for name, value in [("a", self.linear(x)), ("b", x)]}
        return sum(parts.values()) * float(len(list(x)))


def test_what_cannot_be_analysed():
    module = ByValue()

    def work(size):
        return module(torch.randn(size, 4))

    with LineProfiler(work, ByValue.forward, predict=True) as profiler, torch.no_grad():
        for size in (5, 6, 7):
            work(size)
    shown = str(profiler.display())
    # Once, with the reason and the place; what it calls is predicted.
    (reason,) = re.findall(r"not predicted: ByValue.*", shown)
    assert "TorchScript cannot express ByValue" in reason
    assert f"{__file__}:{ByValue.forward.__code__.co_firstlineno + 2}" in reason
    assert not get_columns(profiler, work)
    assert list(get_columns(profiler, ByValue.forward)) == [
        ByValue.forward.__code__.co_firstlineno + 1
    ]
    # What is measured is there as ever.
    assert "active_bytes" in shown


def raise_in_analysis(*args, **kwargs):
    raise ValueError("a reason")


def die_in_analysis(*args, **kwargs):
    os.abort()


def wait_in_analysis(*args, **kwargs):
    time.sleep(100)


@pytest.mark.parametrize(
    ("report_call", "reason"),
    [
        (raise_in_analysis, "a reason"),
        (die_in_analysis, "crashed"),
        (wait_in_analysis, "more than 0 seconds"),
    ],
)
def test_an_analysis_that_fails(report_call, reason, monkeypatch):
    monkeypatch.setattr(_predictions, "report_call", report_call)
    monkeypatch.setattr(_predictions, "_PATIENCE", 0.2 if "wait" in report_call.__name__ else 60)
    module = MLP()
    with LineProfiler(MLP.forward, predict=True) as profiler:
        module(torch.randn(4, 64))
    assert any(reason in note for note in get_notes(profiler, MLP.forward))
    assert "predicted_bytes" not in str(profiler.display())


def run_autocast(module, x):
    with torch.autocast("cpu"):
        return module(x)


def run_checkpointed(module, x):
    return checkpoint(module, x, use_reentrant=False)


def run_on_meta(module, x):
    with torch.device("meta"):
        return module(x)


def run_traced(module, x):
    return torch.jit.trace(module, x, check_trace=False)(x)


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (run_autocast, "autocast"),
        (run_checkpointed, "hooks pack"),
        (run_on_meta, "DeviceContext"),
        (run_traced, "PyTorch traces it"),
        (lambda module, x: module(x.as_subclass(Tagged)), "an argument is a Tagged"),
        (lambda module, x: torch.func.vmap(module)(x), "torch.func"),
    ],
    ids=["autocast", "checkpoint", "device", "trace", "subclass", "vmap"],
)
def test_calls_of_which_figures_are_not_known(run, reason):
    module, x = MLP(), torch.randn(4, 64)
    with LineProfiler(MLP.forward, predict=True) as profiler:
        run(module, x)
    assert any(reason in note for note in get_notes(profiler, MLP.forward))
    assert "predicted_bytes" not in str(profiler.display())


class Odd(MLP):
    """Of which nobody can ask for the parameters."""

    def parameters(self, recurse=True):
        raise LookupError("not here")


def test_a_module_that_cannot_be_asked():
    """It runs as without a profiler."""
    module = Odd()
    with LineProfiler(Odd.forward, predict=True) as profiler:
        assert module(torch.randn(4, 64)).shape == (4, 10)
    assert any("LookupError: not here" in note for note in get_notes(profiler, Odd.forward))


def test_nothing_is_kept_alive():
    """Neither arguments nor modules, and the measured figures are those without."""

    def work():
        module, x = CNN(), torch.randn(4, 3, 8, 8)
        seen.extend(map(weakref.ref, (module, x, module.head.weight)))
        y = module(x)
        del module, x
        return y.sum()

    figures = []
    for predict in (False, True, True):
        seen: list = []
        with LineProfiler(work, CNN.forward, predict=predict) as profiler:
            work()
        assert [one() for one in seen] == [None] * 3
        names = [f"active_bytes.all.{part}" for part in ("increment", "allocated", "freed")]
        figures.append([get_columns(profiler, function, names) for function in (work, CNN.forward)])
    assert figures[0] == figures[1] == figures[2]


SCRIPT = """\
import hashlib
import random
import sys
import numpy
import torch
from torch import nn

calls = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x, *, flip=False):
        calls.append(x.shape)
        print("forward", len(calls))
        x = self.drop(torch.relu(self.norm(self.conv(x))))
        parts = {name: value for name, value in [("a", x), ("b", -x)]}
        return self.head(parts["b" if flip else "a"].flatten(1))

def main():
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(3):
        out = net(torch.randn(4, 3, 8, 8), flip=bool(step % 2))
        loss = nn.functional.cross_entropy(out, torch.randint(0, 5, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        net.eval()(torch.randn(2, 3, 8, 8), flip=True)
    values = [*net.state_dict().values(), *(p.grad for p in net.parameters()), torch.rand(3)]
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in values))
    print(digest.hexdigest(), random.random(), numpy.random.rand(), len(calls))

if __name__ == "__main__":
    main()
"""


def test_a_script_computes_the_same(tmp_path):
    """Parameters, running statistics, gradients, all generators, what it prints."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command, "script.py"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.partition("## <module>")

    plain, _, _ = run()
    said, _, tables = run("-m", "koila", "profile", "-o", "page.html")
    assert said == plain
    assert len(plain.splitlines()) == 5 and plain.splitlines()[-1].endswith(" 4")
    assert re.search(r"predicted: Net\(float32\[4,3,8,8\].*forward-with-grad", tables)
    assert "predicted_bytes" in tables
    page = (tmp_path / "page.html").read_text()
    assert "predicted_bytes.call.peak" in page and "<p>predicted: Net(" in page
    said, _, tables = run("-m", "koila", "profile", "--measure-only")
    assert said == plain and "predicted" not in tables


def test_isolated(tmp_path, capfd):
    """A copy of the process that leaves nothing behind."""
    tensor, kept = torch.zeros(3), []
    file = (tmp_path / "log").open("w")

    def work():
        tensor.add_(1)
        kept.append(1)
        torch.rand(3)
        print("printed")
        os.write(1, b"written")
        try:
            file.write("text" * 10000)
            file.flush()
        except OSError:
            pass
        return tensor.sum().item(), torch.get_num_threads()

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    assert isolated(work, 60) == (3.0, 1)
    assert not kept and tensor.sum() == 0
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    file.close()
    assert (tmp_path / "log").read_text() == ""
    assert capfd.readouterr() == ("", "")
    with pytest.raises(KoilaError, match="why"):
        isolated(lambda: (_ for _ in ()).throw(KoilaError("why")), 60)
    # The program's own children are not waited for.
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    assert isolated(lambda: 7, 60) == 7
    assert child.wait() == 0
