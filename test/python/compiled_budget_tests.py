"""Compiled modules keep their budget in calls that they were not compiled for, or say
that they do not."""

import sys
import types
import typing
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
import networks
from koila._capture.program import Program
from koila._compile import program_selection
from koila._compile.choose_form import choose
from koila._compile.specialized_module import Specialization
from koila._execute import errors
from memory_counter import peak_of


class Wide(nn.Module):
    """A sample needs 4 KiB, and its result 40 bytes."""

    def __init__(self, results=10):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(16, 512)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(512, results)

    def forward(self, x):
        return self.second(self.drop(self.first(x).tanh()))


BUDGET = 1 << 20
SLACK = 4096


def run(function, *args, **kwargs):
    """The result; the peak must be within the budget, in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        peak, result = peak_of(lambda: function(*args, **kwargs))
    assert peak <= BUDGET + SLACK
    return result


def test_batches_beyond_the_promise():
    module = Wide().eval()
    x = torch.randn(4096, 16)
    whole = koila.compile(module, x[:64], budget=BUDGET)
    assert whole.tile is None
    small = koila.compile(module, x[:1024], budget=BUDGET)
    assert small.tile
    with torch.no_grad():
        for compiled in (whole, small):
            for size in (64, 1000, 4096, 300, 1):
                found = run(compiled, x[:size])
                torch.testing.assert_close(found, module(x[:size]))
    assert whole.tile and whole.report.data["promise"]["holds_to"] >= 4096


@pytest.mark.parametrize(
    ("text", "runs_out"),
    [
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB.", True),
        ("expected a matrix", False),
    ],
)
def test_a_tile_that_runs_out_of_memory(monkeypatch, text, runs_out):
    """What needs more than a tile does not run for it. TorchScript raises a plain
    RuntimeError there."""
    module, calls = Wide().eval(), []
    x = torch.randn(1024, 16)
    compiled = koila.compile(module, x, budget=BUDGET)
    error = RuntimeError(f"The following operation failed in the TorchScript interpreter.\n{text}")

    def fail(*_):
        raise error

    monkeypatch.setattr(Specialization, "run", fail)
    monkeypatch.setattr(
        type(compiled), "_run_original", lambda *_: calls.append("whole") or x, raising=True
    )
    monkeypatch.setattr(errors, "_run_eagerly", lambda run: calls.append("again"))
    with torch.no_grad():
        if runs_out:
            with (
                pytest.warns(koila.KoilaWarning, match="memory ran out with"),
                pytest.raises(torch.OutOfMemoryError) as caught,
            ):
                compiled(x)
            assert caught.value.__cause__ is error
        else:
            compiled(x)
    # And below koila.lazy.
    with pytest.raises(RuntimeError) as caught:
        run: typing.Any = types.SimpleNamespace(program=Program([], []))
        errors.as_eager(run, fail)
    assert caught.value is error
    assert calls == ([] if runs_out else ["whole", "again"])


def test_growing_batches_are_not_compiled_each_time(monkeypatch):
    made = []
    specialize = program_selection.specialize
    monkeypatch.setattr(
        program_selection, "specialize", lambda *a, **k: made.append(1) or specialize(*a, **k)
    )
    module = Wide().eval()
    compiled = koila.compile(module, torch.randn(100, 16), budget=BUDGET)
    with torch.no_grad():
        for size in range(101, 1000, 9):
            compiled(torch.randn(size, 16))
    assert 1 <= len(made) <= 4


def test_compiling_keeps_the_budget_of_what_python_holds():
    """Names keep what a program would let go: figures of the program say less."""

    class Named(Wide):
        def forward(self, x):
            first = self.first(x)
            second = first.tanh()
            third = second * 2
            fourth = third + 1
            return self.second(fourth)

    module, x = Named().eval(), torch.randn(4096, 16)
    compiled = run(lambda: koila.compile(module, x, budget=BUDGET))
    with torch.no_grad():
        torch.testing.assert_close(run(compiled, x), module(x))


def test_results_that_are_too_large():
    module = Wide(results=1024).eval()
    x = torch.randn(2048, 16)
    compiled = koila.compile(module, x[:64], budget=BUDGET)
    with torch.no_grad():
        with pytest.warns(koila.KoilaWarning, match="a batch of 1024 needs 4.0. MiB in tiles"):
            found = compiled(x[:1024])
        torch.testing.assert_close(found, module(x[:1024]))
        # Once is enough; and it is still as little as there can be.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            peak, found = peak_of(lambda: compiled(x))
        torch.testing.assert_close(found, module(x))
        assert peak < found.nbytes + BUDGET // 2


def test_steps_of_larger_batches():
    module = Wide()
    module.drop.eval()
    x, y = torch.randn(4096, 16), torch.randint(10, (4096,))
    step = koila.compile(module, x[:64], y[:64], loss="cross_entropy", budget=BUDGET)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
    for size in (64, 4096, 777):
        module.zero_grad(set_to_none=False)
        loss = run(step.train_step, x[:size], y[:size])
        wanted = functional.cross_entropy(module(x[:size]), y[:size])
        torch.testing.assert_close(loss, wanted.detach())
        torch.testing.assert_close(
            [weight.grad for weight in module.parameters()],
            list(torch.autograd.grad(wanted, list(module.parameters()))),
            rtol=1e-4,
            atol=1e-6,
        )


def test_validation_of_a_module_for_steps():
    module = Wide()
    module.drop.eval()
    x, y = torch.randn(4096, 16), torch.randint(10, (4096,))
    step = koila.compile(module, x, y, loss="cross_entropy", budget=BUDGET)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
    for mode in (True, False):
        module.first.train(mode)
        run(step.train_step, x, y)
        with torch.no_grad():
            torch.testing.assert_close(run(step, x), module(x))
        with torch.inference_mode():
            torch.testing.assert_close(run(step, x), module(x))


@pytest.mark.parametrize("trains", [False, True])
def test_forward_with_gradients(trains):
    """The user's own loss of what a compiled module returns."""
    module = Wide()
    module.drop.eval()
    x, y = torch.randn(4096, 16), torch.randint(10, (4096,))
    targets: dict = {"loss": "cross_entropy"} if trains else {}
    compiled = koila.compile(module, x, *([y] if trains else []), budget=BUDGET, **targets)
    wanted = functional.cross_entropy(module(x), y, label_smoothing=0.1)
    gradients = torch.autograd.grad(wanted, list(module.parameters()))
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)

    def step():
        loss = functional.cross_entropy(compiled(x), y, label_smoothing=0.1)
        loss.backward()
        return loss.item()

    torch.testing.assert_close(run(step), wanted.item(), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        [weight.grad for weight in module.parameters()], list(gradients), rtol=1e-4, atol=1e-6
    )


def test_autocast():
    module, x = Wide().eval(), torch.randn(4096, 16)
    compiled = koila.compile(module, x, budget=BUDGET)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = module(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = compiled(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)


def test_transforms_of_functions():
    module, x = Wide().eval(), torch.randn(4096, 16)
    compiled = koila.compile(module, x, budget=BUDGET)
    with torch.no_grad(), pytest.warns(koila.KoilaWarning, match="torch.func"):
        torch.testing.assert_close(torch.func.vmap(compiled)(x[:, None]), module(x[:, None]))


def test_lazy_arguments():
    """Nothing is said twice: they are recorded as they are."""
    module, x = Wide().eval(), torch.randn(4096, 16)
    compiled = koila.compile(module, x, budget=BUDGET)
    with torch.no_grad():
        found = run(lambda: koila.run(compiled(koila.lazy(x, batch=0, budget=BUDGET))))
        torch.testing.assert_close(found, module(x))


def test_dropout_in_a_call():
    """What tiles refuse is recorded: the masks are those of PyTorch."""
    module, x = Wide().eval(), torch.randn(4096, 16)
    compiled = koila.compile(module, x, budget=BUDGET)
    module.train()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        found = compiled(x)
        torch.manual_seed(3)
        torch.testing.assert_close(found, module(x))


def test_what_cannot_be_split_is_said():
    class Mixing(nn.Module):
        def forward(self, x):
            return x - x.exp().cumsum(0).log()

    module, x = Mixing(), torch.randn(4096, 128)
    compiled = koila.compile(module, x[:64], budget=BUDGET)
    with torch.no_grad():
        with pytest.warns(koila.KoilaWarning, match=r"a batch of 4096 needs 4\.00 MiB whole"):
            found = compiled(x)
        torch.testing.assert_close(found, module(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(x)


def test_less_is_free(monkeypatch):
    free = [64 << 20]
    monkeypatch.setattr(koila.memory, "free", lambda device="cpu": free[0])
    monkeypatch.setattr(koila.memory, "_RECENT", 0)
    module, x = Wide().eval(), torch.randn(4096, 16)
    compiled = koila.compile(module, x)
    assert compiled.tile is None
    free[0] = BUDGET
    with torch.no_grad():
        torch.testing.assert_close(run(compiled, x), module(x))
    assert compiled.tile


def test_a_module_that_changes_with_each_call(monkeypatch):
    monkeypatch.setattr(program_selection, "_MOST_COMPILED", 3)

    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = 1.0

        def forward(self, x):
            return torch.tanh(x * self.rate)

    module, x = Annealed(), torch.randn(4096, 128)
    compiled = koila.compile(module, x, budget=3 << 20)
    with torch.no_grad():
        for step in range(6):
            module.rate = 1.0 / (step + 2)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                torch.testing.assert_close(compiled(x), module(x))
    assert compiled._selection._compiled == 3


def test_guards_that_raise():
    module = networks.mlp()
    x, _ = networks.batch()
    compiled = koila.compile(module, x, budget="100KiB", guard="raise")
    with torch.no_grad():
        compiled(torch.randn(200, 64))  # no other kind of call
        with pytest.raises(koila.CompileError, match="argument 0 is float64"):
            compiled(x.double())
    with pytest.raises(koila.CompileError, match="grad mode is on"):
        compiled(x)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))


class Forms:
    """A module whose scripted form no tile fits."""

    is_script = False
    can_trace = True

    def __init__(self, refuses_trace=False):
        self.refuses_trace = refuses_trace
        self.told = []
        self.warn_of = self.told.append

    def script(self):
        return "scripted"

    def trace(self):
        return "traced"

    def use(self, form):
        if form == "scripted":
            raise koila.BudgetError("no tile fits")
        if self.refuses_trace:
            raise koila.CompileError("it cannot be tiled")
        return form


def test_a_budget_that_the_scripted_form_does_not_fit_is_tried_on_a_trace():
    forms = Forms()
    assert choose(typing.cast(typing.Any, forms), forms.use) == "traced"
    assert forms.told == ["traced"]
    forms = Forms(refuses_trace=True)
    with pytest.raises(koila.BudgetError, match="no tile fits"):
        choose(typing.cast(typing.Any, forms), forms.use)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_two_towers_need_what_their_loss_takes(depth):
    """Both results, both gradients and one more: no layer is there beside them."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one, self.two = (
                nn.Sequential(
                    *(
                        layer
                        for _ in range(depth)
                        for layer in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
                    )
                )
                for _ in range(2)
            )

        def forward(self, x, y):
            return functional.smooth_l1_loss(self.one(x), self.two(y))

    x, y = torch.randn(256, 6), torch.randn(256, 6)
    with pytest.raises(koila.BudgetError) as caught:
        koila.compile(Towers(), x, y, mode="train", budget=1, threads=1)
    assert caught.value.smallest_budget < 5.5 * x.nbytes
