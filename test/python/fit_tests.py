"""koila.fit sets the tile of what is compiled: nothing is compiled, results stay, and the
peak is what the module's table says."""

import copy
import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
from koila import _compiler
from memory_counter import peak_of

BATCH = 256
# Below 1 MiB measured peaks may be off by that.
SLACK = 4096


class Wide(nn.Module):
    """A sample needs 4 KiB, and its result 40 bytes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(16, 512)
        self.second = nn.Linear(512, 10)

    def forward(self, x):
        return self.second(self.first(x).tanh())


@pytest.fixture
def compiles_no_more(monkeypatch):
    """From when it is called on."""

    def forbid():
        for name in ("compile_script", "compile_file", "analyze_script"):
            monkeypatch.setattr(_compiler, name, lambda *args, **kwargs: pytest.fail("compiled"))

    return forbid


def equal(found, wanted):
    torch.testing.assert_close(found, wanted)
    assert not torch.allclose(wanted, wanted.roll(1, 0))


def rows_of(script):
    return json.loads(script.koila_tiles)["by_tile"]


def fit(module, budget):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return koila.fit(module, budget)


def best(rows, budget):
    fitting = [row["tile"] for row in rows if row["budget_bytes"] <= budget]
    return max(fitting, key=lambda tile: (tile != BATCH, tile))


def test_a_compiled_module(compiles_no_more, tmp_path):
    module, x = Wide().eval(), torch.randn(BATCH, 16)
    compiled = koila.compile(module, x, budget="200KiB")
    rows = rows_of(compiled.script)
    assert compiled.report.data["by_tile"] == rows and len(rows) > 4
    compiles_no_more()
    with torch.no_grad():
        wanted = module(x)
        for row in rows:
            budget = row["budget_bytes"]
            assert fit(compiled, budget) == compiled.tile == best(rows, budget)
            found, result = peak_of(lambda: compiled(x))
            equal(result, wanted)
            (now,) = [other for other in rows if other["tile"] == compiled.tile]
            assert abs(found - now["peak_bytes"]) <= SLACK, (row, found)
            assert found <= budget + SLACK
            assert compiled.report.peak == now["peak_bytes"]
            promise = compiled.report.data["promise"]
            assert promise["budget_bytes"] == budget and promise["tile"] == compiled.tile
            assert promise["holds_to"] == BATCH
    # The control: tiles differ in what they take.
    assert rows[-1]["peak_bytes"] > 8 * rows[0]["peak_bytes"]


def test_a_file(compiles_no_more, tmp_path):
    module, x = Wide().eval(), torch.randn(BATCH, 16)
    koila.compile(module, x, budget="200KiB").save(tmp_path / "wide.pt")
    loaded = torch.jit.load(tmp_path / "wide.pt")
    compiles_no_more()
    with torch.no_grad():
        wanted = module(x)
        for row in rows_of(loaded):
            tile = fit(loaded, row["budget_bytes"])
            assert tile == loaded.koila_tile == best(rows_of(loaded), row["budget_bytes"])
            equal(loaded(x), wanted)
    assert fit(loaded, "64MiB") == max(row["tile"] for row in rows_of(loaded)[:-1])


def test_what_is_saved_afterwards(tmp_path):
    module, x = Wide().eval(), torch.randn(BATCH, 16)
    compiled = koila.compile(module, x, budget="200KiB")
    before = compiled.tile
    assert fit(compiled, "500KiB") > before
    compiled.save(tmp_path / "wide.pt")
    loaded = torch.jit.load(tmp_path / "wide.pt")
    assert loaded.koila_tile == compiled.tile
    # Another call, and copies, have the budget as well.
    twin = copy.deepcopy(compiled)
    with torch.no_grad():
        equal(twin(x), module(x))
        larger = torch.randn(4 * BATCH, 16)
        found, result = peak_of(lambda: compiled(larger))
    equal(result, module(larger).detach())
    assert found <= (500 << 10) + SLACK


def test_a_step(compiles_no_more, tmp_path):
    module, x = Wide(), torch.randn(BATCH, 16)
    target = torch.randint(0, 10, (BATCH,))
    compiled = koila.compile(module, x, target, loss="cross_entropy", budget="300KiB")
    plain = copy.deepcopy(module)
    functional.cross_entropy(plain(x), target).backward()
    compiled.save(tmp_path / "step.pt")
    loaded = torch.jit.load(tmp_path / "step.pt")
    rows = rows_of(loaded)
    compiles_no_more()
    for row in rows:
        for program in (compiled, loaded):
            fit(program, row["budget_bytes"])
            for weight in program.parameters():
                weight.grad = torch.zeros_like(weight)
            found, _ = peak_of(lambda program=program: program.train_step(x, target))
            for weight, wanted in zip(program.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(weight.grad, wanted.grad, rtol=1e-4, atol=1e-6)
                assert wanted.grad.abs().max() > 1e-3
        assert loaded.koila_tile == compiled.tile
        assert found <= row["budget_bytes"] + SLACK, (row, found)


def test_budgets_that_need_a_compilation():
    module, x = Wide().eval(), torch.randn(BATCH, 16)
    compiled = koila.compile(module, x, budget="200KiB")
    before, least = compiled.tile, min(row["budget_bytes"] for row in rows_of(compiled.script))
    for program in (compiled, compiled.script):
        with pytest.raises(
            koila.BudgetError, match=r"no tile of forward.* a new compilation"
        ) as info:
            koila.fit(program, least - 1)
        assert info.value.smallest_budget == least
    assert compiled.tile == compiled.script.koila_tile == before
    assert fit(compiled, least) == 1
    # Not split: whatever is enough changes nothing, and less needs tiles.
    whole = koila.compile(module, x, budget="64MiB")
    assert whole.tile is None and fit(whole, whole.report.peak) is None
    with pytest.raises(koila.BudgetError, match=r"is not split, and takes .* a new compilation"):
        koila.fit(whole, whole.report.peak - 1)
    with pytest.raises(koila.KoilaError, match="has no koila_tile"):
        koila.fit(whole.script, "1MiB")


def test_a_plan_that_changes_with_the_budget():
    """Parts of the forward pass run again, which a larger budget makes needless."""
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24), nn.Tanh()]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(20 * 24, 4))
    x, target = torch.randn(6, 20, 24), torch.randint(0, 4, (6,))

    def build(budget):
        return koila.compile(module, x, target, loss="cross_entropy", budget=budget, check=False)

    with pytest.raises(koila.BudgetError) as info:
        build(1)
    compiled = build(info.value.smallest_budget)
    assert compiled.report.data["recompute"] == "auto"
    replan = compiled.report.data["replan_bytes"]
    assert replan > info.value.smallest_budget
    fit(compiled, replan - 1)
    with pytest.warns(koila.KoilaWarning, match="on a new compilation runs less of it again"):
        koila.fit(compiled, replan)
    again = build(replan)
    shares = [each.report.data.get("recomputed_share", 0) for each in (compiled, again)]
    assert shares[1] < shares[0], shares


def test_what_is_no_compiled_module():
    with pytest.raises(TypeError, match=r"give it to koila\.compile first"):
        koila.fit(Wide(), "1MiB")
    plain = torch.jit.script(Wide())
    with pytest.raises(koila.KoilaError, match="has no koila_tile"):
        koila.fit(plain, "1MiB")
    open_batch = koila.compile(Wide().eval(), "float32[B,16]", tile=8)
    with pytest.raises(koila.KoilaError, match="it is not known what the tiles take"):
        koila.fit(open_batch, "1MiB")
    script = koila.compile(Wide().eval(), torch.randn(20, 16), tile=8).script
    for text in ("{}", "[]", "tiles", '{"function": "f", "batch": {"value": 8}, "by_tile": []}'):
        script.koila_tiles = text
        with pytest.raises(koila.KoilaError, match="koila_tiles is not as koila writes it"):
            koila.fit(script, "1MiB")
    x = torch.randn(20, 16)
    open_batch.script.koila_tile = 4
    with torch.no_grad():
        equal(open_batch.script(x), open_batch.original(x))


def test_free_memory(monkeypatch):
    module, x = Wide().eval(), torch.randn(BATCH, 16)
    compiled = koila.compile(module, x, budget="200KiB")
    monkeypatch.setenv("KOILA_BUDGET", "500KiB")
    assert koila.fit(compiled) == fit(compiled, "500KiB")
