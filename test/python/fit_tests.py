"""koila.fit sets the tile of what is compiled: nothing is compiled, results stay, and the
peak is what the module's table says."""

import copy
import itertools
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


def deep():
    """A step whose smallest tile keeps much for its backward pass."""
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24), nn.Tanh()]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(20 * 24, 4))
    return module, torch.randn(6, 20, 24), torch.randint(0, 4, (6,))


def test_a_plan_that_changes_with_the_budget():
    """Parts of the forward pass run again, which a larger budget makes needless."""
    module, x, target = deep()

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


def gradients_of(program, x, target):
    """Of a step, and what it takes."""
    for weight in program.parameters():
        weight.grad = torch.zeros_like(weight)
    found, _ = peak_of(lambda: program.train_step(x, target))
    return found, [weight.grad for weight in program.parameters()]


def check_gradients(found, module, x, target):
    plain = copy.deepcopy(module)
    plain.zero_grad()
    functional.cross_entropy(plain(x), target).backward()
    for gradient, weight in zip(found, plain.parameters(), strict=True):
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def several():
    """A step with several plans, the module it was made of, its call, and the plans."""
    module, x, target = deep()
    compiled = koila.compile(
        module, x, target, loss="cross_entropy", budget="150KiB", plans=4, check=False
    )
    plans = json.loads(compiled.script.koila_tiles)["plans"]
    assert 2 < len(plans) <= 4 and plans[0]["budget_bytes"] == 150 << 10
    assert compiled.report.data["plans"] == plans
    return compiled, module, (x, target), plans


def least_of(plan):
    return min(row["budget_bytes"] for row in plan["by_tile"])


def test_plans_of_a_compiled_module(several, compiles_no_more):
    compiled, module, call, plans = several
    compiles_no_more()
    shares, peaks = [], {}
    for place in sorted(range(len(plans)), key=lambda place: least_of(plans[place])):
        plan = plans[place]
        # Each is there for the budgets from what it needs on.
        for budget in {least_of(plan), plan["budget_bytes"]}:
            tile = fit(compiled, budget)
            assert compiled.script.koila_plan == place and compiled.script.koila_tile == tile
            (row,) = [row for row in plan["by_tile"] if row["tile"] == tile]
            assert compiled.report.peak == row["peak_bytes"]
            assert compiled.report.data["by_tile"] == plan["by_tile"]
        shares.append(compiled.report.data.get("recomputed_share", 0))
        fit(compiled, least_of(plan))
        found, gradients = gradients_of(compiled, *call)
        check_gradients(gradients, module, *call)
        assert abs(found - compiled.report.peak) <= SLACK, (place, found)
        peaks[place] = found
    # A larger budget has less run again.
    assert shares == sorted(shares, reverse=True) and shares[-1] == 0 and shares[-2] > 0, shares
    # The control: the figures of another plan are others.
    for place in range(1, len(plans)):
        other = min(row["peak_bytes"] for row in plans[place]["by_tile"])
        assert abs(peaks[0] - other) > SLACK, place


def test_plans_and_budgets(several):
    compiled, module, call, plans = several
    script = compiled.script
    ordered = sorted(range(len(plans)), key=lambda place: least_of(plans[place]))
    least = least_of(plans[ordered[0]])
    with pytest.raises(koila.BudgetError, match=r"no tile of train_step.* new compilation") as info:
        koila.fit(script, least - 1)
    assert info.value.smallest_budget == least
    # It is the least that there is.
    with pytest.raises(koila.BudgetError) as info:
        koila.compile(module, *call, loss="cross_entropy", budget=least - 1, check=False)
    assert info.value.smallest_budget == least
    for below, above in itertools.pairwise(ordered):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", koila.KoilaWarning)
            koila.fit(script, least_of(plans[above]) - 1)
        assert script.koila_plan == below
    replan = plans[ordered[0]]["replan_bytes"]
    if replan < least_of(plans[ordered[1]]):
        with pytest.warns(koila.KoilaWarning, match="on a new compilation runs less of it again"):
            koila.fit(script, replan)
    for wrong in (-1, len(plans)):
        script.koila_plan = wrong
        with pytest.raises(torch.jit.Error, match=f"koila: koila_plan is {wrong}; it is the place"):
            script.train_step(*call)
    with pytest.raises(AttributeError, match=r"koila\.fit\(module, budget\) sets it"):
        compiled.koila_plan = 0
    fit(script, plans[0]["budget_bytes"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"plans": 5, "budget": "1MiB"}, "plans=5 is no number from 1 to 4"),
        ({"plans": True, "budget": "1MiB"}, "plans=True is no number"),
        ({"plans": 2, "tile": 4}, "plans=2 belongs to a budget"),
    ],
)
def test_plans_that_are_refused(arguments, reason):
    with pytest.raises(koila.CompileError, match=reason):
        koila.compile(Wide().eval(), torch.randn(BATCH, 16), **arguments)


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
