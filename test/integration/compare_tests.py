"""Values and states that differ are told from those that are equal."""

import pytest
import torch
from torch import nn

import compare
import snapshot


def difference(change):
    """What is said of a module and its optimizer after a change."""

    def state():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=0.9)
        model(torch.randn(4, 2)).square().sum().backward()
        optimizer.step()
        return {"results": {}, "objects": [model, {"optimizer": optimizer}]}

    plain, other = state(), state()
    model, optimizer = other["objects"][0], other["objects"][1]["optimizer"]
    with torch.no_grad():
        change(model, optimizer)
    return compare.compare(snapshot.take(other, ""), snapshot.take(plain, ""), [])


def test_state_that_is_equal():
    assert difference(lambda model, optimizer: None) == []


@pytest.mark.parametrize(
    "change, where",
    [
        (lambda model, _: model[0].bias.add_(1e-3), "objects[0].0.bias:"),
        (lambda model, _: model[0].bias.grad.mul_(1.001), "objects[0].0.bias.grad:"),
        (lambda model, _: model[0].zero_grad(), "objects[0].0.weight.grad:"),
        (lambda model, _: model[0].bias.requires_grad_(False), "objects[0].0.bias:"),
        (lambda model, _: model[1].eval(), "objects[0].1.training:"),
        (lambda model, _: model[1].num_batches_tracked.add_(1), "num_batches_tracked:"),
        (lambda model, _: model[1].running_mean.mul_(1.001), "running_mean:"),
        (lambda _, optimizer: optimizer.state.clear(), "optimizer"),
        (lambda _, optimizer: optimizer.param_groups[0].update(lr=2.0), "['lr']:"),
    ],
)
def test_state_that_differs(change, where):
    assert any(where in reason for reason in difference(change))


@pytest.mark.parametrize(
    "found, plain, right",
    [
        (1.0 + 1e-8, 1.0, True),
        (1.0 + 1e-5, 1.0, False),
        (1, 1.0, False),
        (True, 1, False),
        (1, 1, True),
        (2, 1, False),
        (None, None, True),
        (None, 0, False),
        ("a", "b", False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("nan"), False),
        (torch.zeros(2), torch.zeros(2, 1), False),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), False),
        (torch.zeros(2), torch.zeros(2).numpy(), False),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        ([1, 2], (1, 2), False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
    ],
)
def test_values(found, plain, right):
    ours, theirs = (snapshot.take({"results": value}, "") for value in (found, plain))
    assert (compare.compare(ours, theirs, []) == []) == right


def test_rounding_is_measured():
    plain, found, other = (snapshot.take({"results": value}, "") for value in (1.0, 1.01, 1.001))
    assert compare.compare(found, plain, [])
    assert not compare.compare(found, plain, [other])
