"""The judge of the scripts notices what a wrong koila would do.

Scripts are written here, and in the place of koila.lazy are fakes, each with one
fault.
"""

import json
import pathlib
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import koila
import report as texts
import variants
from execute import execute
from measure import Memory, Recorder
from study import study

HERE = pathlib.Path(__file__).resolve().parent
MEMORY = Memory()

TRAINING = '''
"""Trains and reads losses."""

# koila: tiles

import torch
from torch import nn

import koila

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(),
                      nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
samples = torch.randn(1536, 16)
losses = []
for x in samples.split(512):
    y = x.square().sum(1, keepdim=True)
    x, y = koila.lazy(x, y, batch=0)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(f"loss {loss.item():.4f}")
results = {"losses": losses, "weights": model.state_dict()}
'''

RAISING = """
import torch

import koila

results = {"sums": []}
for number in range(4):
    x = torch.full((256, 1024), float(number))
    x = koila.lazy(x, batch=0)
    results["sums"].append((x + 1).sum().item())
    if number == 2:
        x[0, 1024]
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def judge(path, fake, budget="fits", **options):
    """The verdict on a fake in the place of koila.lazy."""
    found = study(path, MEMORY, [budget], make=lambda _: fake, **options)
    return found.verdicts[budget]


def fault(change):
    """Plain PyTorch, where something else happens, too."""

    def fake(*values, batch=None):
        change()
        return variants.plain(*values)

    return fake


def test_plain_pytorch_is_right(script):
    found = judge(script(TRAINING), variants.plain)
    assert (found.verdict, found.reasons, found.keeps) == ("right", [], [])


def test_sums_in_another_order_are_right(script):
    def flip(*values, batch):
        return tuple(value.flip(batch) for value in values)

    assert judge(script(TRAINING), flip).verdict == "right"


def test_a_budget_that_is_ignored(script):
    found = judge(script(TRAINING), variants.plain, "half")
    assert found.verdict == "silent"
    assert "more than its budget" in found.reasons[0]


def test_a_budget_that_is_kept(script):
    # In the words of PyTorch: samples are added one after the other.
    path = script("""
        import torch
        import koila
        results = []
        for _ in range(3):
            x = koila.lazy(torch.randn(64, 8192), batch=0)
            results.append(x.cosh().exp().sum(1).max().item() if type(x) is torch.Tensor
                           else x.compute())
    """)

    class Rows:
        def __init__(self, rows):
            self.rows = rows

        def compute(self):
            return max(row.cosh().exp_().sum(0).item() for row in self.rows)

    found = judge(path, lambda value, batch: Rows(value), "quarter")
    assert (found.verdict, found.reasons) == ("right", [])


class Greedy(torch.optim.SGD):
    """Takes 4 MiB for a step."""

    def step(self, closure=None):
        torch.empty(1 << 20).fill_(1)
        return super().step(closure)


def measure_step(between=lambda: None, closure=None):
    """What a step of the greedy optimizer adds to a window, in MiB."""
    weight = torch.nn.Parameter(torch.ones(1 << 18))
    optimizer = Greedy([weight], lr=1.0)
    recorder = Recorder(MEMORY)
    with recorder.watching():
        recorder.mark()
        weight.grad = torch.ones_like(weight)
        between()
        optimizer.step(closure)
        optimizer.zero_grad()
        recorder.mark()
    window = recorder.windows[0]
    assert window.gradients == weight.nbytes
    return window.excess / (1 << 20)


def test_what_an_optimizer_takes_is_its_own():
    assert measure_step() < 1
    # Not so what somebody computes before it, or the closure that it is given.
    assert measure_step(closure=lambda: torch.ones(1 << 20).sum()) > 3
    handles = []

    def compute(*_):
        torch.ones(1 << 20).sum()

    def register():
        handles.append(register_optimizer_step_pre_hook(compute))

    assert measure_step(between=register) > 3
    handles.pop().remove()


def test_a_sample_that_is_lost(script):
    found = judge(script(TRAINING), variants.drop)
    assert found.verdict == "wrong"
    assert any("losses" in reason for reason in found.reasons)


def test_values_that_are_a_little_wrong(script):
    def fake(x, y, batch):
        return x, y * 1.0001

    assert judge(script(TRAINING), fake).verdict == "wrong"


def test_what_is_announced(script):
    def fake(*values, batch):
        warnings.warn("this runs whole: no reason", koila.KoilaWarning, stacklevel=2)
        return variants.plain(*values)

    path = script(TRAINING)
    found = judge(path, fake, "half")
    # It names the script, and not the runner.
    assert (found.verdict, found.unlocated) == ("announced", False)
    line = 1 + path.read_text().splitlines().index("    x, y = koila.lazy(x, y, batch=0)")
    assert f"script.py:{line}: this runs whole" in found.warned[0]
    assert judge(path, fake).false_warning


def test_what_is_announced_too_late(script):
    calls = []

    def fake(*values, batch):
        calls.append(1)
        if len(calls) == 3:
            warnings.warn("this runs whole: no reason", koila.KoilaWarning, stacklevel=2)
        return variants.plain(*values)

    assert judge(script(TRAINING), fake, "half").verdict == "silent"


def test_a_warning_without_the_line(script):
    def change():
        warnings.warn_explicit("this runs whole", koila.KoilaWarning, "elsewhere.py", 1)

    assert judge(script(TRAINING), fault(change), "half").unlocated


def test_a_tensor_that_is_kept(script):
    kept = []
    found = judge(script(TRAINING), fault(lambda: kept.append(torch.zeros(1 << 16))))
    assert found.verdict == "right"
    assert [window for window, _ in found.keeps] == [0, 1, 2]
    assert found.keeps[2][1] >= 3 << 18


def test_a_cycle_that_is_kept(script):
    def change():
        cycle: list = [torch.zeros(1 << 16)]
        cycle.append(cycle)

    assert judge(script(TRAINING), fault(change)).keeps


def test_a_draw_too_many(script):
    found = judge(script(TRAINING), fault(lambda: torch.rand(1)))
    assert found.verdict == "wrong"
    assert "get_rng_state" in found.reasons[0]


def test_the_same_exception(script):
    path = script(RAISING)
    run = execute(path, variants.plain, MEMORY)
    assert (run.raised.type, run.raised.line) == ("IndexError", 12)
    assert len(run.windows) == 3
    assert judge(path, variants.plain).verdict == "right"


@pytest.mark.parametrize(
    "error, verdict",
    [(IndexError("other"), "wrong"), (TypeError(), "wrong"), (koila.KoilaError("no"), "refused")],
)
def test_another_exception(script, error, verdict):
    calls = []

    def change():
        calls.append(1)
        if len(calls) == 3:
            raise error

    found = judge(script(RAISING), fault(change))
    assert found.verdict == verdict
    assert "in plain PyTorch line 12: IndexError" in found.reasons[0]


def test_no_exception(script):
    def fake(value, batch):
        return torch.nn.functional.pad(value, (0, 1))

    found = judge(script(RAISING), fake)
    assert found.verdict == "wrong"
    assert "does not raise" in found.reasons[0]


@pytest.mark.parametrize(
    "error, verdict", [(RuntimeError("shape"), "crashed"), (koila.KoilaError("no"), "refused")]
)
def test_an_exception_of_its_own(script, error, verdict):
    def change():
        raise error

    found = judge(script(TRAINING), fault(change))
    assert found.verdict == verdict
    assert found.reasons[0].startswith("line 19: ")


def test_what_takes_too_long(script):
    def change():
        while True:
            pass

    found = judge(script(TRAINING), fault(change), timeout=2)
    assert (found.verdict, "took longer" in found.reasons[0]) == ("crashed", True)


def test_another_number_of_windows(script):
    path = script("""
        import torch
        import koila
        x = koila.lazy(torch.ones(65, 4096), batch=0)
        results = {"sum": 0}
        for part in x.split(64):
            results["sum"] += koila.lazy(part, batch=0).sum().item() * 0
    """)
    found = judge(path, variants.drop)
    assert any("other number of windows" in reason for reason in found.reasons)


def test_numbers_that_are_printed(script):
    path = script("""
        import torch
        import koila
        for x in torch.arange(65536.0).split(32768):
            x = koila.lazy(x, batch=0)
            print(f"mean {x.mean().item():10.1f} of {len(x)}")
        results = {}
    """)
    assert judge(path, variants.plain).verdict == "right"
    found = judge(path, variants.drop)
    assert [reason.partition(":")[0] for reason in found.reasons] == [
        f"stdout number {index}" for index in (1, 2, 3, 4)
    ]
    found = judge(path, lambda value, batch: (print("once"), value)[1])
    assert [reason.partition(":")[0] for reason in found.reasons] == ["stdout"]


def test_lazy_tensors_are_tensors(script):
    path = script("""
        import torch
        import koila
        results = {"kept": []}
        for x in torch.randn(512, 1024).split(128):
            x = koila.lazy(x, batch=0)
            results["kept"].append((x * 2).sum(0))
            results["size"] = x.shape[0]
    """)
    found = study(path, MEMORY, ["fits"]).verdicts["fits"]
    assert (found.verdict, found.reasons) == ("right", [])


def test_controls_and_checks(script):
    found = study(script(TRAINING), MEMORY, [], controls=True, checks=True)
    assert found.missed == []
    assert {text.partition(" ")[0] for text in found.complaints} == {"needs"}
    blind = script("""
        import torch
        import koila
        x = koila.lazy(torch.ones(4, 4), batch=0)
        results = {"constant": 0.0}
    """)
    found = study(blind, MEMORY, [], controls=True, checks=True)
    assert len(found.missed) == 2
    assert any("all zero" in text for text in found.complaints)
    assert not found.is_good()


def test_a_script_that_ends_the_process(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(TRAINING)
    bad.write_text("import os\nos.abort()\n")
    file = tmp_path / "found.json"
    command = [sys.executable, str(HERE / "run_scripts.py"), str(bad), str(good), "--isolate"]
    command += ["--budgets", "fits", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    verdicts = [entry["verdicts"]["fits"] for entry in json.loads(file.read_text())]
    assert [found["verdict"] for found in verdicts] == ["crashed", "right"]
    assert "bad.py" in verdicts[0]["reasons"][0]


def test_the_bar(script):
    found = study(script(TRAINING), MEMORY, ["half"], make=lambda _: variants.plain)
    below = {text for text, good in texts.summary([found], ["half"]) if not good}
    assert below == {"half: 0 of 1 right and within (0%)", "silent: 1"}
    assert "silent" in texts.line(found)
