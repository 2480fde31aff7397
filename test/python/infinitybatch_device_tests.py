"""koila.compat.infinitybatch with a model on another device, whose memory is capped."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from koila.compat import infinitybatch
from stand_in_device import DEVICE, memory


class Digits(nn.Module):
    def __init__(self, with_dropout=True):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Linear(4 * 169, 10)
        self.drop = nn.Dropout(0.5 if with_dropout else 0.0)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return F.log_softmax(self.second(self.drop(x.flatten(1))), 1)


def make_batch(count):
    torch.manual_seed(1)
    return torch.randn(count, 1, 28, 28), torch.randint(10, (count,))


def build(batches, with_dropout):
    model = Digits(with_dropout)
    ib = infinitybatch.InfinityBatch(
        model, torch.optim.SGD(model.parameters(), lr=0.1), nn.NLLLoss(), batches, verbose=False
    )
    ib.changemodeldevice(DEVICE)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return ib


def test_the_device_is_one():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=DEVICE) + torch.ones(2)
    assert torch.ones(2).to(DEVICE).device == DEVICE
    with pytest.raises(torch.OutOfMemoryError):
        memory.measure(lambda: torch.ones(129).to(DEVICE), 1023)
    assert memory.measure(lambda: torch.ones(129).to(DEVICE), 1024) == 1024


def test_a_fifth_of_the_memory():
    images, labels = make_batch(64)
    plain = build([], False)

    def step():
        F.nll_loss(plain.model(images.to(DEVICE)).cpu(), labels).backward()

    untiled = memory.measure(step)
    ib = build([(images, labels)], False)

    def pieces():
        loss = ib.criterion(ib.batch_(images), labels)
        assert loss.device.type == "cpu"
        loss.backward()

    tiled = memory.measure(pieces, untiled // 5)
    assert tiled <= untiled // 5 and 1 <= ib.tile < 64
    for one, other in zip(ib.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad.cpu())
    assert all(weight.device == DEVICE for weight in ib.model.parameters())


def test_a_batch_that_the_device_cannot_hold():
    batches = [make_batch(256)]
    room = batches[0][0].nbytes // 2
    ib, wanted = build(batches, False), Digits(False)
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    right = []
    for images, labels in batches * 3:
        loss = F.nll_loss(wanted(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append(loss.item())
    with pytest.raises(torch.OutOfMemoryError):
        memory.measure(lambda: batches[0][0].to(DEVICE), room)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of convolutions on a GPU nobody knows the workspace.
        warnings.filterwarnings("ignore", ".*without a promise that they fit")
        memory.measure(lambda: ib(3), room)
    assert 1 <= ib.tile < 256
    assert [value for epoch in ib.losses for value, _ in epoch] == pytest.approx(right, rel=1e-4)
    for one, other in zip(ib.model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert ib.outputs[-1][-1].device.type == "cpu"
    # And without a graph.
    found = {}
    memory.measure(lambda: found.update(ib.eval()), room)
    assert found["loss"] == pytest.approx(F.nll_loss(wanted(batches[0][0]), batches[0][1]).item())


def test_dropout_is_the_same_in_both_passes():
    images, labels = make_batch(24)
    ib, right = build([], True), Digits()
    room = 2 * images.nbytes
    torch.manual_seed(2)
    loss = {}
    memory.measure(
        lambda: loss.update(it=F.nll_loss(ib.batch_(images), labels)) or loss["it"].backward(),
        room,
    )
    assert ib.tile < 24
    torch.manual_seed(2)
    wanted = F.nll_loss(torch.cat([right(part) for part in images.split(ib.tile)]), labels)
    wanted.backward()
    torch.testing.assert_close(loss["it"], wanted)
    for one, other in zip(ib.model.parameters(), right.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)


def test_optimizers_move_along():
    batches = [make_batch(8)]
    model, wanted = Digits(False), Digits(False)
    optimizer = torch.optim.Adam(model.parameters())
    ib = infinitybatch.InfinityBatch(model, optimizer, nn.NLLLoss(), batches, verbose=False)
    other = torch.optim.Adam(wanted.parameters())
    for _ in range(2):
        F.nll_loss(wanted(batches[0][0]), batches[0][1]).backward()
        other.step()
        other.zero_grad()
    ib.epoch()
    ib.changemodeldevice(DEVICE)
    assert ib.forward_device == DEVICE
    ib.epoch()
    for one, right in zip(model.parameters(), wanted.parameters(), strict=True):
        assert one.device == DEVICE
        torch.testing.assert_close(one.cpu(), right)
