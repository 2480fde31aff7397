"""koila check-op: right rules agree, and each kind of wrong rule is caught."""

import pytest
import torch

import koila
from koila import check_op
from scaled_gelu import Rules, scaled_gelu

RIGHT = {
    "batch": 0,
    "forward": Rules.forward,
    "saved": Rules.saved,
    "backward": Rules.backward,
}


def check(*inputs, **changed):
    koila.register(scaled_gelu, **{**RIGHT, **changed})
    return check_op(scaled_gelu, *inputs)


def problems(found):
    return {f.kind: f.problem for f in found.findings if f.problem}


def test_right_rules_agree():
    found = check()
    assert problems(found) == {} and found.agrees
    assert all(finding.runs >= 16 for finding in found.findings)
    # Not one layout alone.
    assert any("transposed" in call for call in found.calls)


@pytest.mark.parametrize(
    "kind, wrong, text",
    [
        ("shape", lambda x, scale: x.new_empty(x.shape[0], 3), "says that result 0 is float32"),
        ("shape", lambda x, scale: torch.empty_like(x, dtype=torch.float64), "float64"),
        ("storage", ["x"], "a view of 'x', and it is a new tensor"),
        ("forward", lambda trace, x, scale: None, "bytes are held at the worst moment"),
        ("forward", lambda trace, x, scale: trace.allocate(2 * x.nbytes), "are held at the worst"),
        ("saved", lambda inputs, output: [], "says that autograd keeps 0 bytes"),
        ("saved", lambda inputs, output: [inputs[0], output], "says that autograd keeps"),
        (
            "backward",
            lambda trace, grad, inputs, output: (trace.allocate(inputs[0]), None),
            "bytes are held in the backward pass",
        ),
        ("backward", lambda *told: (Rules.backward(*told)[0] and told[1], None), "it is a new"),
        ("backward", lambda *told: (Rules.backward(*told)[1], None), "gradient of 'x' is None"),
        ("backward", lambda *told: (None, None), "says that 0 bytes are held"),
        ("forward", lambda trace, x, scale: 1 / 0, "raises ZeroDivisionError"),
    ],
)
def test_a_wrong_rule_is_caught(kind, wrong, text):
    found = check(**{kind: wrong})
    assert not found.agrees
    assert text in problems(found)[kind]


_library = torch.library.Library("rulesof", "FRAGMENT")
_library.define("centred(Tensor x) -> Tensor")
_library.impl("centred", lambda x: x - x.mean(0, keepdim=True), "CompositeImplicitAutograd")


def test_a_cross_sample_operator_is_caught():
    koila.register("rulesof::centred", batch=0)
    found = check_op("rulesof::centred")
    assert "samples alone is another than together" in problems(found)["batch"]
    koila.register("rulesof::centred", batch=lambda x: "the mean is of all samples")
    found = check_op("rulesof::centred")
    assert found.agrees
    assert "the mean is of all samples" in str(found)


def test_a_batch_elsewhere_is_caught():
    found = check(batch=lambda x, scale: 1)
    assert "result 0 of samples alone is another than together" in problems(found)["batch"]


def test_what_is_not_registered_is_said():
    found = check(backward=None)
    assert found.agrees
    assert "backward  not registered: not known to koila" in str(found)
    assert found.to_dict()["rules"]["backward"]["runs"] == 0


def test_inputs():
    found = check("float32[B,3,4]", "-1.5")
    assert found.agrees and found.calls[0] == "float32[B,3,4], -1.5"
    for inputs, text in [
        (["float32[B,x]", "1.5"], "an extent is a number, or B"),
        (["float32[B,B]", "1.5"], "one dim is the batch"),
        (["floats[B]", "1.5"], "is no spec"),
        (["float32[B,4]"], "no input for the argument 'scale'"),
        (["float32[B,4]", "1", "2"], "3 inputs, and 'rulesof::scaled_gelu' has 2 arguments"),
    ]:
        with pytest.raises(koila.KoilaError, match=text):
            check(*inputs)


def test_an_operator_that_takes_no_call():
    _library.define("picky(Tensor x) -> Tensor")

    def refuse(x):
        raise RuntimeError("only on Tuesdays")

    _library.impl("picky", refuse, "CPU")
    koila.register("rulesof::picky", batch=0)
    with pytest.raises(koila.KoilaError, match=r"takes none of the calls .*only on Tuesdays"):
        check_op("rulesof::picky")
