"""koila check-op of PyTorch's operators: models agree, and each planted mistake is caught."""

import itertools

import pytest
import torch

import koila
from koila._check import asking, known
from koila.memory import AllocatorEvent, record_events

# Calls of each that take a second or less.
CALLS = 8


@pytest.mark.parametrize(
    "op",
    [
        "relu",
        "aten::add.Tensor",
        "torch.ops.aten.layer_norm",
        torch.ops.aten.topk,
        torch.ops.aten.softmax.int,
        "aten::conv2d",
        "aten::cat",
        "aten::index.Tensor",
        "aten::linear",
        "aten::scaled_dot_product_attention",
        "aten::cumsum_",
    ],
    ids=str,
)
def test_models_agree(op):
    found = koila.check_op(op, calls=CALLS, threads=1)
    assert found.agrees, str(found)
    findings = {finding.kind: finding for finding in found.findings}
    assert list(findings) == ["shape", "storage", "batch", "forward", "saved", "backward"]
    assert findings["shape"].runs >= CALLS
    for kind in ("forward", "saved"):
        # Of convolutions some processors have bounds alone.
        is_bound = any("gives a bound: the convolution" in text for text in findings[kind].others)
        assert findings[kind].runs >= 3 or is_bound, str(found)


def test_threads_are_those_that_are_asked_for():
    before = torch.get_num_threads()
    seen = []
    original = asking._compiler.list_events

    def list_events(*args, **kwargs):
        seen.append(torch.get_num_threads())
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking._compiler, "list_events", list_events)
        assert koila.check_op("aten::mm", calls=4, threads=3).agrees
    assert set(seen[1:]) == {3} and torch.get_num_threads() == before


FORKED = """
def work(x: Tensor):
    return (x + x) * x

def call(x: Tensor):
    return torch.jit.wait(torch.jit.fork(work, x))
"""


def test_blocks_of_all_threads_are_seen():
    """A part of the program runs in a thread of PyTorch."""
    call = torch.jit.CompilationUnit(FORKED).call
    x = torch.ones(64)
    call(x)
    found, events = record_events(lambda: call(x))
    assert [event for event in events if event.bytes == 256] == [
        AllocatorEvent(False, 0, 256),
        AllocatorEvent(False, 1, 256),
        AllocatorEvent(True, 0, 256),
    ]
    del found


# The control: what koila says, changed.


def plant(patch, change, mode="inference"):
    original = asking._compiler.list_events

    def list_events(*args, **kwargs):
        report, listed = original(*args, **kwargs)
        if kwargs.get("mode", "inference") == mode:
            change(report, listed)
        return report, listed

    patch.setattr(asking._compiler, "list_events", list_events)


def swap_blocks(report, listed):
    """The bytes of the first two blocks of each line; what is there at the worst moment
    stays the same."""
    lines = {}
    for event in listed["events"]:
        if event["action"] == "alloc":
            lines.setdefault((event["location"] or {}).get("line"), []).append(event)
    sizes = {}
    for first, second, *_ in (blocks for blocks in lines.values() if len(blocks) > 1):
        sizes.update({first["id"]: second["bytes"], second["id"]: first["bytes"]})
    for event in listed["events"]:
        event["bytes"] = sizes.get(event["id"], event["bytes"])


def add_byte(report, listed):
    report["peak_bytes"] += 1
    for entry in report["timeline"]:
        entry["transient_bytes"] += 1


def free_byte(report, listed):
    """A bound that is too low."""
    for entry in report["timeline"]:
        entry["transient_bytes"] -= 1
        report["inexact"].append({"reason": "no reason", "bound": True, **entry})


@pytest.mark.parametrize(
    "kind, mode, change, text",
    [
        ("forward", "inference", swap_blocks, "says that other blocks come and go than do (blocks"),
        ("forward", "inference", add_byte, "bytes are held at the worst moment, results among"),
        ("forward", "inference", free_byte, "says that at most"),
        ("saved", "forward-with-grad", add_byte, "bytes are held at the worst moment, results"),
        ("backward", "train", add_byte, "at the worst moment, of the step with its backward"),
    ],
)
def test_a_wrong_figure_is_caught(kind, mode, change, text, monkeypatch):
    plant(monkeypatch, change, mode)
    found = koila.check_op("aten::add.Scalar", calls=CALLS, threads=1)
    problems = {f.kind: f.problem for f in found.findings if f.problem}
    assert list(problems) == [kind] and text in problems[kind], problems
    # With the call, and both lists.
    assert "(blocks: says +0:" in problems[kind] and "; there are +0:" in problems[kind]
    assert ", of (" in problems[kind] and "add(" in problems[kind]
    assert f"{kind:9} WRONG: " in str(found)


def change_dims(result):
    result["dims"] = [*result["dims"][:-1], "3"]


@pytest.mark.parametrize(
    "kind, change, text",
    [
        ("shape", change_dims, "PyTorch has"),
        ("shape", lambda result: result.update(element="f64"), "is f64, PyTorch has torch."),
        ("shape", lambda result: result.update(strides=["7"] * 9), "strides"),
        ("storage", lambda result: result.update(storage="shared"), "PyTorch allocates it"),
        ("batch", lambda result: result.update(batch="free"), "but the pieces differ"),
        ("batch", lambda result: result.update(batch="at(9, 1)"), "raises IndexError"),
    ],
)
def test_a_wrong_rule_is_caught(kind, change, text, monkeypatch):
    original = known.ask_facts

    def ask_facts(cases):
        facts, refused = original(cases)
        for fact in facts.values():
            change(fact["results"][0])
        return facts, refused

    monkeypatch.setattr(known, "ask_facts", ask_facts)
    found = koila.check_op("aten::relu", "float32[B,2,4]", threads=1)
    problems = {f.kind: f.problem for f in found.findings if f.problem}
    assert list(problems) == [kind], problems


def test_given_inputs():
    found = koila.check_op("aten::relu", "float32[B,3,4]")
    assert found.agrees and len(found.calls) == 3
    assert found.calls[1] == "p0 = transpose(x0, -1, -2); r = relu(p0) for float32[B,4,3]"
    found = koila.check_op("aten::cat", "[float32[B,3], float32[B,2]]", "1")
    assert found.agrees and found.calls == ["r = cat([x0, x1], 1) for float32[B,3] float32[B,2]"]
    # There is no generator of it, and there are several results.
    found = koila.check_op("aten::gelu", "float32[4,B]", "'tanh'")
    assert found.agrees and "approximate='tanh'" in found.calls[0]
    found = koila.check_op("aten::split.Tensor", "float32[B,4]", "2", "1")
    assert found.agrees and found.calls[0].startswith("r0, r1 = split(x0, 2, 1)")
    assert {finding.kind: finding.runs for finding in found.findings}["shape"] >= 4


def test_operands_that_are_cast_and_expanded():
    """Casts of indices go from the last one on; the gradient of a tensor that is expanded
    to more dims has the strides of these."""
    index = "[int32[3]{0:4}, int32[3]{0:5}]"
    assert koila.check_op("aten::index.Tensor", "float32[4,5]", index, threads=1).agrees
    inputs = "float32[4,5]", "float32[3,4,5]", "-3"
    found = koila.check_op("aten::cosine_similarity", *inputs, threads=1)
    assert found.agrees, str(found)
    # Of a number, too, which has dim -1.
    found = koila.check_op("aten::var_mean.correction", threads=1)
    assert found.agrees and any("var_mean(x0, [-1]" in call for call in found.calls), str(found)


@pytest.mark.parametrize(
    "op, inputs, options, text",
    [
        ("aten::foo", [], {}, "PyTorch knows no operator 'aten::foo'"),
        ("nothing", [], {}, "PyTorch knows no operator 'aten::nothing'"),
        ("aten::add", [], {}, "several overloads: give one of 'aten::add.Tensor', 'aten::add.Sc"),
        ("aten::sum.dim_DimnameList", [], {}, "PyTorch knows no operator"),
        ("aten::view.dtype", [], {}, "draws no calls of 'aten::view.dtype' .* ScalarType dtype"),
        ("aten::relu", ["floats[B]"], {}, "is no spec"),
        ("aten::relu", ["float32[B]", "1"], {}, "2 inputs, and 'aten::relu' has 1 arg"),
        ("aten::mm", ["float32[2,3]", "float32[2,3]"], {}, "PyTorch does not take r = mm"),
        ("aten::add.Tensor", ["float32[B]", "3"], {}, "is a call of 'aten::add.Scalar', not of"),
        ("aten::equal", ["float32[B]", "float32[B]"], {}, "gives no tensors"),
        ("aten::relu", [], {"device": "cuda"}, "device=cuda: runs are measured on the CPU"),
        ("aten::relu", [], {"device": "tpu"}, "device=tpu; there are those of cpu, cuda"),
        ("aten::relu", [], {"threads": 0}, "threads=0 is no number from 1 to 4096"),
        ("aten::relu", [], {"calls": 0}, "calls=0 is no number"),
        (torch.relu, [], {}, "is no operator"),
    ],
)
def test_refusals(op, inputs, options, text):
    with pytest.raises(koila.KoilaError, match=text):
        koila.check_op(op, *inputs, **options)


_library = torch.library.Library("rulesof_known", "DEF")
_library.define("doubled(Tensor x) -> Tensor")
_library.impl("doubled", lambda x: x + x, "CompositeExplicitAutograd")


def test_an_operator_without_rules():
    with pytest.raises(koila.KoilaError, match=r"has no models of .*doubled': koila.register"):
        koila.check_op("rulesof_known::doubled", "float32[B,4]")
    with pytest.raises(koila.KoilaError, match=r"draws no calls of .* told by koila.register"):
        koila.check_op("rulesof_known::doubled")


def test_a_call_that_is_carried_through_is_a_problem(monkeypatch):
    original = known.ask_facts

    def ask_facts(cases):
        facts, refused = original(cases)
        facts[1] = {"op": "koila.torch_op"}
        return facts, refused

    monkeypatch.setattr(known, "ask_facts", ask_facts)
    found = koila.check_op("aten::relu", "float32[B,3,4]")
    assert "carries the call through without a rule, of (p0 = " in found.findings[0].problem


def test_a_call_that_koila_refuses_is_a_problem(monkeypatch):
    original = asking._compiler.describe_values
    calls = itertools.count()

    def describe_values(script, inputs):
        if next(calls) == 0:
            raise koila.CompileError("not today", koila.Location("<string>", 2))
        return original(script, inputs)

    monkeypatch.setattr(asking._compiler, "describe_values", describe_values)
    found = koila.check_op("aten::relu", "float32[B,3]")
    assert "refuses the call (not today)" in found.findings[0].problem


def test_grad_mode_and_executor_stay():
    before = torch._C._jit_set_profiling_mode(True)
    try:
        with torch.enable_grad():
            assert koila.check_op("aten::neg", calls=2).agrees
            assert torch.is_grad_enabled()
        assert torch._C._jit_set_profiling_mode(True)
    finally:
        torch._C._jit_set_profiling_mode(before)
