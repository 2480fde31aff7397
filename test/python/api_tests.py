import contextlib
import copy
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
import networks
from memory_counter import peak_of


def close(compiled, module, x):
    """Equal, in tiles, and not by chance."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found, wanted = compiled(x), module(x)
    torch.testing.assert_close(found, wanted)
    assert wanted.abs().max() > 0
    assert not torch.allclose(wanted, wanted.roll(1, 0))


def test_import_is_quiet_and_brings_little():
    """What takes long to load comes when it is asked for."""
    code = (
        "import torch, sys; before = set(sys.modules); import koila; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before}); "
        "late = ('koila._C', 'koila.compat', 'torch._dynamo', 'torch._inductor', 'sympy'); "
        "assert not {*late} & (set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert not set(done.stdout.split()) & {"matplotlib", "numpy", "IPython", "pandas"}


def test_analyze():
    x, _ = networks.batch()
    report = koila.analyze(networks.mlp(), x)
    assert report.peak == 131072
    assert report.exact
    assert report.by_module == {"0": 65536, "1": 65536}
    assert sum(report.by_line.values()) == 131072
    assert [entry["op"] for entry in report.timeline] == [
        "koila.linear",
        "koila.relu",
        "koila.linear",
    ]
    assert koila.analyze(networks.mlp(), x, batch=128).peak == 262144
    assert koila.analyze(networks.mlp(), "float32[N,64]", batch=64).peak == 131072
    assert koila.analyze(networks.mlp(), "float32[B,64]").peak is None


def test_analyze_training():
    x, y = networks.batch()
    plain = koila.analyze(networks.mlp(), x, y, mode="train", loss="cross_entropy")
    absent = koila.analyze(networks.mlp(), x, y, mode="train", loss="cross_entropy", grads="absent")
    assert plain.exact
    assert absent.peak > plain.peak > 131072
    assert plain.data["gradient_bytes"] == plain.data["parameter_bytes"]


def test_max_batch():
    x, _ = networks.batch()
    module = networks.mlp()
    assert koila.max_batch(module, x, budget="100KiB") == 50
    assert koila.max_batch(module, x, budget=50 * 2048 - 1) == 49
    assert koila.max_batch(module, x, budget=10) == 0
    report = koila.analyze(module, x)
    assert report.max_batch("100KiB") == 50
    assert report.min_budget(50) == 50 * 2048
    assert report.min_budget(500) == 500 * 2048


def test_compile_inference():
    module = networks.mlp()
    x, _ = networks.batch()
    compiled = koila.compile(module, x, budget="40KiB")
    assert compiled.tile == 16
    assert compiled.report.peak <= 40 * 1024
    close(compiled, module, x)
    close(compiled, module, networks.batch(37)[0])
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), module.parameters(), strict=True))


def test_compile_training():
    module = networks.mlp()
    x, y = networks.batch()
    compiled = koila.compile(module, x, y, loss="cross_entropy", budget="150KiB")
    assert compiled.tile is not None
    loss = compiled.train_step(x, y)
    wanted_loss = functional.cross_entropy(module(x), y)
    wanted = list(torch.autograd.grad(wanted_loss, list(module.parameters())))
    torch.testing.assert_close([p.grad for p in module.parameters()], wanted)
    torch.testing.assert_close(loss, wanted_loss.detach())
    torch.testing.assert_close(compiled.grads(x, y)[1], wanted)
    # A call is the module's own.
    assert compiled(x).grad_fn is not None


def test_replaced_parameters_are_bound_again():
    module = networks.mlp()
    x, y = networks.batch()
    compiled = koila.compile(module, x, tile=16)
    trained = koila.compile(module, x, y, loss="cross_entropy", tile=16)
    module[0].weight = nn.Parameter(torch.randn(256, 64))
    close(compiled, module, x)
    module.load_state_dict(
        {key: torch.randn_like(value) for key, value in module.state_dict().items()}, assign=True
    )
    close(compiled, module, x)
    trained.train_step(x, y)
    wanted = torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters()))
    torch.testing.assert_close([p.grad for p in module.parameters()], list(wanted))
    module[0].weight = nn.Parameter(torch.randn(256, 64, dtype=torch.float64))
    # As the module itself says.
    with torch.no_grad(), pytest.raises(RuntimeError, match="same dtype"):
        compiled(x)
    module.double()
    close(compiled, module, x.double())


def test_state_of_the_original_is_followed():
    module = nn.Sequential(nn.Linear(64, 8), nn.Dropout(0.5)).eval()
    x, _ = networks.batch()
    compiled = koila.compile(module, x, tile=16)
    module.train()
    assert compiled.training
    with pytest.warns(UserWarning, match="running the untiled program"), torch.no_grad():
        compiled(x)
    compiled.eval()
    assert not module[1].training
    close(compiled, module, x)
    module[1].p = 0.25
    with pytest.raises(koila.CompileError, match=r"'1\.p' was 0\.5"):
        compiled.save("never.pt")
    close(compiled, module, x)


def test_unscriptable_is_traced():
    torch.manual_seed(0)
    module = networks.Unscriptable().eval()
    x = torch.randn(16, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = koila.compile(module, x, tile=4)
    close(compiled, module, torch.randn(11, 4))
    with pytest.raises(koila.CompileError, match="cannot express Unscriptable") as caught:
        koila.compile(module, "float32[B,4]", batch=16, tile=4)
    assert caught.value.location.file == networks.__file__
    assert "example tensors" in caught.value.notes[0]


def test_trace_that_holds_for_one_batch_is_refused():
    with pytest.raises(koila.CompileError, match="cannot express FixedBatch") as caught:
        koila.compile(networks.FixedBatch().eval(), torch.randn(8, 4), tile=2)
    assert "is wrong for a batch of 2" in caught.value.notes[0]


def test_trace_that_decides_by_value_is_announced():
    with pytest.warns(koila.KoilaWarning, match="by values of tensors") as caught:
        koila.compile(networks.ByValue().eval(), torch.randn(8, 4), tile=2)
    warning = next(w for w in caught if w.category is koila.KoilaWarning)
    assert warning.filename == networks.__file__
    assert warning.lineno == networks.line_of(networks.ByValue.forward)


def test_refusal_names_the_line():
    with pytest.raises(koila.CompileError, match="mixes samples") as caught:
        koila.compile(networks.Softmax(), torch.randn(8, 4), tile=2)
    assert caught.value.location.line == networks.line_of(networks.Softmax.forward)


@pytest.mark.parametrize("batchnorm", ["exact", "refuse"])
def test_compiling_leaves_statistics_alone(batchnorm):
    module = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8))
    before = module[1].running_mean.clone()  # type: ignore[operator]
    x, y = networks.batch()
    refused = pytest.raises(koila.CompileError, match="batch")
    with refused if batchnorm == "refuse" else contextlib.nullcontext():
        koila.compile(module, x, y % 8, loss="cross_entropy", tile=8, batchnorm=batchnorm)
    # Looking at a module does not change it.
    torch.testing.assert_close(module[1].running_mean, before, rtol=0, atol=0)
    assert int(module[1].num_batches_tracked) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, networks.OwnBatchNorm])
def test_averages_over_all_calls(kind):
    torch.manual_seed(0)
    module = networks.Loss(nn.Sequential(nn.Linear(6, 8), kind(8, momentum=None)))
    plain = copy.deepcopy(module)
    example = torch.randn(8, 6), torch.randn(8, 8)
    if kind is networks.OwnBatchNorm:
        # A trace has the factor of its first call.
        with pytest.raises(koila.CompileError) as caught:
            koila.compile(module, *example, mode="train", tile=2)
        assert any("over all calls (momentum=None)" in note for note in caught.value.notes)
        return
    compiled = koila.compile(module, *example, mode="train", tile=2)
    for call in range(3):
        x, y = torch.randn(9, 6) * (call + 1), torch.randn(9, 8)
        compiled.train_step(x, y)
        plain(x, y).backward()
        for found, wanted in zip(module.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_module_that_takes_no_few_samples():
    torch.manual_seed(0)
    module = networks.Hardest()
    plain = copy.deepcopy(module)
    compiled = koila.compile(module, *networks.rows(16), mode="train", tile=4)
    x, y = networks.rows(13)
    compiled.train_step(x, y)
    plain(x, y).backward()
    for found, wanted in zip(module.parameters(), plain.parameters(), strict=True):
        assert wanted.grad.abs().max() > 1e-3
        torch.testing.assert_close(found.grad, wanted.grad)


def test_the_check_finds_a_wrong_program(monkeypatch):
    from koila import _compiler

    compile_script = _compiler.compile_script

    def wrong(script, *arguments, **options):
        other = torch.jit.script(networks.mlp())
        with torch.no_grad():
            next(p for n, p in other.named_parameters() if n == "2.bias").add_(1)
        return compile_script(other, *arguments, **options)

    monkeypatch.setattr(_compiler, "compile_script", wrong)
    x, _ = networks.batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        monkeypatch.setattr("koila._compile.staleness._bind", lambda *_: [])
        with pytest.raises(koila.CompileError, match="checked on 2 samples"):
            koila.compile(networks.mlp(), x, tile=16)
        koila.compile(networks.mlp(), x, tile=16, check=False)


def test_a_trace_is_taken_where_it_is_known_exactly():
    module, x = networks.Printing(), torch.randn(16, 4)
    assert not koila.analyze(module, "float32[B,4]", batch=16).data["exact"]
    report = koila.analyze(module, x)
    assert report.data["exact"]
    traced = torch.jit.trace(module, torch.randn(3, 4))
    with torch.no_grad(), torch.jit.optimized_execution(False):
        assert peak_of(lambda: traced(x))[0] == report.peak


def wide_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 10)).eval()


@pytest.mark.parametrize("loss", [None, "cross_entropy"])
def test_the_check_keeps_the_budget(loss):
    """Of what compiling allocates the check is most; a whole tile and a half,
    and both sets of gradients, would not fit."""
    module = wide_mlp()
    inputs = networks.batch(256)[: 2 if loss else 1]
    options = {"mode": "train", "loss": loss, "grads": "absent"} if loss else {}
    report = koila.analyze(module, *inputs, **options).data
    smallest, whole = report["floor_bytes"], report["peak_bytes"]
    for budget in ((smallest + whole) // 2, whole - 1):
        peak, compiled = peak_of(
            lambda b=budget: koila.compile(module, *inputs, budget=b, **options)
        )
        assert 1 < compiled.tile < 256
        assert budget // 4 < peak <= budget
    if loss:
        with pytest.warns(koila.KoilaWarning, match="not compared with the original"):
            koila.compile(module, *inputs, budget=smallest, **options)


@pytest.mark.parametrize("optimizer", ["sgd(momentum=0.9)", "adamw"])
def test_what_is_free_lasts_for_all_steps(monkeypatch, optimizer):
    """Gradients and the optimizer's state come after the memory was asked for."""
    x, y = networks.batch(256)
    make = {"sgd(momentum=0.9)": lambda p: torch.optim.SGD(p, momentum=0.9)}

    def train(budget):
        module = wide_mlp()
        step = koila.compile(
            module, x, y, loss="cross_entropy", optimizer=optimizer, budget=budget, check=False
        )
        assert step.tile and step.tile < 256
        trainer = make.get(optimizer, torch.optim.AdamW)(module.parameters())
        for _ in range(3):
            trainer.zero_grad()
            step.train_step(x, y)
            trainer.step()

    weights = sum(p.nbytes for p in wide_mlp().parameters())
    free = weights * 6
    monkeypatch.setattr(koila.memory, "free", lambda device: free)
    monkeypatch.setattr(koila.memory, "_BESIDE", 0)
    assert weights * 4 < peak_of(lambda: train("auto"))[0] - weights <= free
    # As a bound of what a step allocates, gradients and state apart, it is less.
    assert peak_of(lambda: train(free))[0] - weights > free


def test_hooks_of_weights():
    """They are for the gradient of the whole batch."""
    module = networks.mlp()
    x, y = networks.batch()
    step = koila.compile(module, x, y, loss="cross_entropy", tile=16)
    functional.cross_entropy(module(x), y).backward()
    wanted = module[0].weight.grad.norm().item()
    module.zero_grad()
    seen = []
    handle = module[0].weight.register_hook(lambda gradient: seen.append(gradient.norm().item()))
    with pytest.warns(koila.KoilaWarning, match="a weight has hooks"):
        step.train_step(x, y)
    assert seen == pytest.approx([wanted])
    handle.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step.train_step(x, y)
    strict = koila.compile(module, x, y, loss="cross_entropy", tile=16, guard="raise")
    module[2].bias.register_post_accumulate_grad_hook(lambda weight: None)
    with pytest.raises(koila.CompileError, match="a weight has hooks"):
        strict.train_step(x, y)


def test_files(tmp_path):
    module = networks.mlp()
    x, y = networks.batch()
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module).save(path)
    assert koila.analyze(path, "float32[B,64]", batch=64).peak == 131072
    compiled = koila.compile(str(path), x, tile=8)
    close(compiled, module, x)
    saved = tmp_path / "tiled.pt"
    compiled.save(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(saved)
    close(loaded, module, x)
    # The file says what it is.
    assert koila.analyze(saved, batch=64).peak == compiled.report.peak
    steps = tmp_path / "steps.pt"
    trained = koila.compile(module, x, y, loss="cross_entropy", tile=8)
    with torch.no_grad():
        module[0].weight.add_(1)
    trained.save(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(steps)
    torch.testing.assert_close(
        loaded.train_step(x, y), functional.cross_entropy(module(x), y).detach()
    )
    with pytest.raises(koila.CompileError, match="nope"):
        koila.compile(tmp_path / "nope.pt", x, tile=8)
    (tmp_path / "bad.pt").write_bytes(b"no archive")
    with pytest.raises(koila.CompileError, match=r"bad\.pt"):
        koila.compile(tmp_path / "bad.pt", x, tile=8)


def test_budgets(monkeypatch):
    module = networks.mlp()
    x, _ = networks.batch()
    monkeypatch.setenv("KOILA_BUDGET", "40KiB")
    assert koila.compile(module, x).tile == 16
    assert koila.compile(module, x, budget="1GiB").tile is None
    assert koila.max_batch(module, x) == 20
    monkeypatch.setenv("KOILA_BUDGET", "much")
    with pytest.raises(koila.KoilaError, match="KOILA_BUDGET='much'"):
        koila.compile(module, x)
    monkeypatch.delenv("KOILA_BUDGET")
    assert koila.compile(module, x).tile is None
    assert 0 < koila.memory.free() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(koila.KoilaError, match="device of type 'meta'"):
        koila.memory.free("meta")
    with pytest.raises(koila.KoilaError, match="no number of bytes"):
        koila.compile(module, x, budget=1.5)  # type: ignore[arg-type]


def test_free_memory_of_a_gpu(monkeypatch):
    """By PyTorch's figures, here of a card of 1000 bytes."""
    figures = {"mem_get_info": (400, 1000), "memory_allocated": 100, "memory_reserved": 250}
    for name, figure in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, figure=figure: figure)
    for fraction, free in [(1.0, 550), (0.5, 400), (0.05, 0)]:
        monkeypatch.setattr(
            torch.cuda, "get_per_process_memory_fraction", lambda device, f=fraction: f
        )
        assert koila.memory.free("cuda:0") == free


def test_free_memory_of_a_limited_process():
    script = """
import resource
import koila
koila.memory.free()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = int(status["VmSize"].split()[0]) * 1024 + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(koila.memory.free())
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 100 << 20 < int(done.stdout) <= 200 << 20


def test_other_inputs():
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, factor: float, mask: torch.Tensor | None = None):
            y = x * factor
            return y if mask is None else y + mask

    module = Net()
    x = torch.randn(8, 4)
    compiled = koila.compile(module, x, 2.0, None, tile=2)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, 2.0, None), x * 2)
    with pytest.raises(koila.CompileError, match="not both"):
        koila.compile(module, "float32[B,4]", 2.0, tile=2)
    with pytest.raises(koila.CompileError, match="type object cannot be described"):
        koila.compile(module, x, object(), tile=2)
    with pytest.raises(TypeError, match=r"expected an nn\.Module"):
        koila.analyze(5, x)  # type: ignore[arg-type]


def test_training_errors():
    x, y = networks.batch()
    compiled = koila.compile(networks.mlp(), x, tile=8)
    with pytest.raises(koila.CompileError, match="needs a loss"):
        compiled.train_step(x, y)
    with pytest.raises(koila.CompileError, match="and a target"):
        koila.compile(networks.mlp(), x, loss="cross_entropy", tile=8)
    with pytest.raises(koila.CompileError, match="compiled for"):
        koila.compile(networks.mlp(), x, mode="forward-with-grad", tile=8)


def test_the_profiling_executor_is_not_used():
    """Figures hold without it; other programs of the process keep it."""
    layers = [layer for _ in range(4) for layer in (nn.Sigmoid(), nn.Tanh())]
    module = nn.Sequential(nn.Linear(8, 8), *layers)
    x = torch.randn(16, 8)
    step = koila.compile(module, x, x, loss="mse_loss", budget="1GiB")

    def differentiates(program):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                program()
        return "DifferentiableGraph" in str(torch.jit.last_executed_optimized_graph())

    script = torch.jit.script(module)
    assert differentiates(lambda: script(x))
    assert not differentiates(lambda: step.train_step(x, x))
