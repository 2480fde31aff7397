import warnings

import pytest
import torch

import koila
import networks
from koila import _compiler

SPEC = "float32[B,64]"


def script(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module)


def trace(module, example):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, example)


@pytest.mark.parametrize("how", ["script", "trace"])
def test_tensors_are_shared(how):
    module = networks.mlp()
    x, _ = networks.batch()
    source = script(module) if how == "script" else trace(module, x[:2])
    compiled = _compiler.compile_script(source, [SPEC], batch={"B": 64}, budget="40KiB")
    assert compiled.tile == 16
    assert compiled.report["peak_bytes"] <= 40 * 1024
    pairs = zip(module.parameters(), compiled.module.parameters(), strict=True)
    assert all(a is b for a, b in pairs)
    with torch.no_grad():
        torch.testing.assert_close(compiled.module(x), module(x))
        module[0].weight.mul_(2)
        torch.testing.assert_close(compiled.module(x), module(x))
    # The caller's module stays as it was.
    assert not hasattr(source, "forward_untiled")


def test_train_step():
    module = networks.mlp()
    x, y = networks.batch()
    compiled = _compiler.compile_script(
        script(module),
        [SPEC, "int64[B]{0:10}"],
        batch={"B": 64},
        mode="train",
        loss="cross_entropy",
        tile=8,
        optimizer="adamw(lr=1e-3,foreach=true)",
    )
    loss = compiled.module.train_step(x, y)
    found = [p.grad for p in module.parameters()]
    wanted_loss = torch.nn.functional.cross_entropy(module(x), y)
    wanted = torch.autograd.grad(wanted_loss, list(module.parameters()))
    torch.testing.assert_close(loss, wanted_loss.detach())
    torch.testing.assert_close(found, list(wanted))
    again, gradients = compiled.module.grads(x, y)
    torch.testing.assert_close(again, loss)
    torch.testing.assert_close(gradients, list(wanted))


def test_module_that_returns_its_loss():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 1)

        def forward(self, x):
            return self.linear(x).square().mean()

    module = Loss()
    x, _ = networks.batch()
    compiled = _compiler.compile_script(
        script(module), [SPEC], batch={"B": 64}, mode="train", loss="", tile=8
    )
    compiled.module.train_step(x)
    wanted = torch.autograd.grad(module(x), list(module.parameters()))
    torch.testing.assert_close([p.grad for p in module.parameters()], list(wanted))


def test_budget_error():
    with pytest.raises(koila.BudgetError) as caught:
        _compiler.compile_script(script(networks.mlp()), [SPEC], batch={"B": 64}, budget=2000)
    smallest = caught.value.smallest_budget
    assert any("live at the peak" in note for note in caught.value.notes)
    found = _compiler.compile_script(
        script(networks.mlp()), [SPEC], batch={"B": 64}, budget=smallest
    )
    assert found.report["peak_bytes"] == smallest
    with pytest.raises(koila.BudgetError):
        _compiler.compile_script(
            script(networks.mlp()), [SPEC], batch={"B": 64}, budget=smallest - 1
        )


def test_a_budget_that_cannot_be_promised():
    source = script(torch.nn.Conv2d(3, 8, 3))
    with pytest.raises(koila.UnpromisedError, match=r"conv2d.*give tile=N instead"):
        _compiler.compile_script(
            source, ["float32[B,3,9,9]"], batch={"B": 8}, budget="1MiB", device="cuda"
        )
    # What no tile can have is another matter, whatever is known.
    with pytest.raises(koila.CompileError, match="mixes samples") as caught:
        _compiler.compile_script(
            script(networks.Softmax()), ["float32[B,4]"], batch={"B": 8}, tile=2, device="cuda"
        )
    assert not isinstance(caught.value, koila.UnpromisedError)


def test_enough_memory_means_no_split():
    compiled = _compiler.compile_script(
        script(networks.mlp()), [SPEC], batch={"B": 64}, budget="1GiB"
    )
    assert compiled.tile is None


def test_refusal_names_the_line():
    with pytest.raises(koila.CompileError, match="softmax over dim 0 mixes samples") as caught:
        _compiler.compile_script(script(networks.Softmax()), ["float32[B,4]"], batch={}, tile=2)
    line = networks.line_of(networks.Softmax.forward)
    assert caught.value.location == koila.Location(networks.__file__, line)
    assert str(caught.value).startswith(f"{networks.__file__}:{line}: ")


@pytest.mark.parametrize(
    ("inputs", "options", "why"),
    [
        (["float32[B"], {"tile": 8}, r"expected '\]'"),
        (["float32[B,63]"], {"tile": 8}, "the weight takes 64 features"),
        ([SPEC, SPEC], {"tile": 8}, "too many inputs"),
        ([], {"tile": 8}, "needs an input"),
        ([SPEC], {"tile": 3}, "no power of two"),
        ([SPEC], {"tile": 8, "budget": 1000}, "give either"),
        ([SPEC], {}, "give either"),
        ([SPEC], {"budget": "1 furlong"}, "furlong"),
        ([SPEC], {"tile": 8, "random": "maybe"}, "random='maybe': it is one of"),
        ([SPEC], {"tile": 8, "optimizer": "a}b"}, "braces"),
        ([SPEC], {"tile": 8, "mode": "trian"}, "mode='trian': it is one of"),
        ([SPEC], {"tile": 8, "loss": "mse_loss"}, 'belongs to mode="train"'),
        ([SPEC], {"tile": 8, "mode": "train", "loss": "nosuch"}, "the losses are"),
        ([SPEC], {"tile": 8, "method": "backward"}, "backward"),
    ],
)
def test_errors(inputs, options, why):
    with pytest.raises(koila.CompileError, match=why):
        _compiler.compile_script(script(networks.mlp()), inputs, batch={"B": 64}, **options)


def test_value_of_the_batch_is_needed():
    with pytest.raises(koila.CompileError, match="budget needs a value for symbol 'B'"):
        _compiler.compile_script(script(networks.mlp()), [SPEC], batch={}, budget=10**6)


def test_no_script_module():
    with pytest.raises(TypeError, match=r"expected a torch\.jit\.ScriptModule, not Sequential"):
        _compiler.compile_script(networks.mlp(), [SPEC], batch={"B": 64}, tile=8)


def test_rewritten_module_is_refused():
    compiled = _compiler.compile_script(script(networks.mlp()), [SPEC], batch={"B": 64}, tile=8)
    with pytest.raises(koila.CompileError, match="rewritten 'forward' already"):
        _compiler.compile_script(compiled.module, [SPEC], batch={"B": 64}, tile=8)


def test_guard_warns_and_raises():
    # The warning of a program that was never in a file has a place.
    module = networks.mlp()
    x, _ = networks.batch()
    compiled = _compiler.compile_script(script(module), [SPEC], batch={"B": 64}, tile=8)
    with pytest.warns(UserWarning, match="grad mode is on"):
        torch.testing.assert_close(compiled.module(x), module(x))
    strict = _compiler.compile_script(
        script(module), [SPEC], batch={"B": 64}, tile=8, guard="raise"
    )
    with torch.no_grad(), pytest.raises(torch.jit.Error, match="dim 1 is not 64"):
        strict.module(x[:, :32])


def test_same_figures_as_from_a_file(tmp_path):
    path = str(tmp_path / "model.pt")
    source = script(networks.mlp())
    source.save(path)
    for mode, loss, inputs in (
        ("inference", None, [SPEC]),
        ("train", "cross_entropy", [SPEC, "int64[B]{0:10}"]),
    ):
        reports = [
            _compiler.analyze_script(what, inputs, batch={"B": 64}, mode=mode, loss=loss)
            for what in (source, path)
        ]
        for key in ("peak_bytes", "batch_pieces", "exact", "floor_bytes"):
            assert reports[0][key] == reports[1][key], key
    assert reports[0]["exact"]


def test_largest_batch():
    source = script(networks.mlp())
    report = _compiler.analyze_script(source, [SPEC], batch={"B": 64}, budget=2048 * 40)
    assert (report["peak_bytes"], report["max_batch"]) == (131072, 40)


def test_remarks():
    compiled = _compiler.compile_script(
        script(networks.mlp()), [SPEC], batch={"B": 64}, budget="40KiB"
    )
    chosen = [r for r in compiled.remarks if r.kind == "Passed"]
    assert chosen[-1].message == "the largest tile that fits the budget"
    assert chosen[-1].arguments["Tile"] == "16"
