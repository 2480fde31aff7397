"""koila.compat.pytorch_memlab: a process that steps aside.

There is no accelerator here: tensors leave "cpu", the device that stands in, by the
same moves.
"""

import pytest
import torch
from torch import nn

import koila
from koila import _C
from koila.compat.pytorch_memlab import Courtesy, _sources
from koila.compat.pytorch_memlab.courtesy import _Moved
from memlab_fixtures import collect, freeze  # noqa: F401


def make_courtesy():
    return Courtesy(devices=["cpu"])


def make_training(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
    )
    model.append(nn.Linear(8 * 36, 10))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def train(courtesy, where):
    """The losses and weights of four steps, stepping aside at ``where``."""
    model, optimizer = make_training(0)
    losses = []
    for step in range(4):
        x = torch.randn(4, 3, 8, 8)
        x.requires_grad_()
        loss = nn.functional.cross_entropy(model(x), torch.arange(4))
        if where == "graph" and step % 2:
            courtesy.yield_memory()
            assert loss.item() > 0
            courtesy.restore()
        loss.backward()
        if where == "backward" and step == 1:
            with courtesy:
                torch.randn(1000).sum()
            torch.manual_seed(step)
        else:
            torch.manual_seed(step)
        optimizer.step()
        if where == "step" and step == 2:
            with pytest.raises(ZeroDivisionError), courtesy:
                raise ZeroDivisionError
        losses.append(loss.detach().clone())
        losses.append(x.grad.clone())
        optimizer.zero_grad()
    return losses + [value.clone() for value in model.state_dict().values()]


@pytest.mark.parametrize("where", ["graph", "backward", "step"])
def test_training_goes_on_to_the_bit(where):
    wanted = train(None, "")
    got = train(make_courtesy(), where)
    for one, other in zip(wanted, got, strict=True):
        assert torch.equal(one, other)


def test_all_of_it_leaves():
    _sources.count_cpu()
    model, optimizer = make_training(1)
    x = torch.ones(4, 3, 8, 8, requires_grad=True)
    nn.functional.cross_entropy(model(x), torch.arange(4)).backward()
    optimizer.step()
    loss = (model(x).exp() * x.sum()).sum()
    y = torch.ones(1000, requires_grad=True)
    retained = y * 2
    retained.retain_grad()
    retained.sum().backward()
    storages = [t.untyped_storage() for t in [*model.parameters(), x, x.grad, retained.grad]]
    storages += [t.untyped_storage() for s in optimizer.state.values() for t in s.values()]
    saved = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    assert saved.name() == "ExpBackward0"
    storages.append(saved._raw_saved_result.data.untyped_storage())
    sizes = [storage.nbytes() for storage in storages]
    pointers = [p.untyped_storage()._cdata for p in model.parameters()]
    courtesy = make_courtesy()
    with courtesy:
        assert all(storage.nbytes() == 0 for storage in storages)
        assert model[0].weight.grad.shape == (8, 3, 3, 3)
        assert torch.equal(y, torch.ones(1000))
        assert courtesy.loc_map[y] == torch.device("cpu")
        # What the graph saved is away.
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert [storage.nbytes() for storage in storages] == sizes
    assert [p.untyped_storage()._cdata for p in model.parameters()] == pointers
    loss.backward()
    # A parameter without gradient is none of the original's errors.
    courtesy.restore()
    for p in model.parameters():
        p.grad = None
    with courtesy:
        courtesy.yield_memory()


def test_views_and_kinds_of_tensors():
    big = torch.arange(100.0)
    views = [big[10:20], big.view(10, 10).t(), big[::3], big[5:5]]
    imaginary = torch.randn(5, dtype=torch.complex64).conj()
    negative = imaginary.imag
    sparse = torch.eye(5).to_sparse()
    small = [torch.arange(3, dtype=t) for t in (torch.uint8, torch.bfloat16, torch.int64)]
    scalar, wide = torch.tensor(5.0), torch.ones(1).expand(10)
    everything = [big, *views, imaginary, negative, sparse, *small, scalar, wide]
    wanted = [t.detach().clone() for t in everything]
    strides = [t.stride() for t in everything if t is not sparse]
    with make_courtesy():
        for one, other in zip(everything, wanted, strict=True):
            assert torch.equal(one.to_dense(), other.to_dense())
        # Writes are not lost, and views see them.
        big[10] = -1
        assert views[0][0] == -1
    assert big[10] == -1
    assert views[0][0] == -1
    big[10] = 10
    for one, other in zip(everything, wanted, strict=True):
        assert torch.equal(one.to_dense(), other.to_dense()) and one.layout == other.layout
    assert [t.stride() for t in everything if t is not sparse] == strides
    assert views[0].data_ptr() == big.data_ptr() + 40
    assert imaginary.is_conj() and negative.is_neg()
    big[11] = 7
    assert views[0][1] == 7


def test_what_happens_meanwhile():
    """Tensors that die, that are made, that get other memory."""
    dies, changes = torch.ones(1000), nn.Parameter(torch.ones(10))
    courtesy = make_courtesy()
    courtesy.yield_memory()
    del dies
    changes.data = torch.full((20,), 3.0)
    made = torch.ones(5)
    courtesy.restore()
    assert torch.equal(changes.data, torch.full((20,), 3.0)) and torch.equal(made, torch.ones(5))
    assert changes.requires_grad
    # A write to what a graph saved is one afterwards, too.
    x, factor = torch.ones(5, requires_grad=True), torch.ones(5)
    one, other = (x * factor).sum(), (x * 2).exp().sum()
    with courtesy:
        factor.add_(1)
    other.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        one.backward()


def test_no_room_for_it(monkeypatch):
    """On the host: nothing moved. On the device: it can be tried again."""
    tensors = [torch.full((100,), float(i)) for i in range(5)]
    pointers = [t.data_ptr() for t in tensors]
    real, calls = _Moved.__init__, []

    def fail(self, storage):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        real(self, storage)

    monkeypatch.setattr(_Moved, "__init__", fail)
    courtesy = make_courtesy()
    with pytest.raises(MemoryError):
        courtesy.yield_memory()
    assert [t.data_ptr() for t in tensors] == pointers
    courtesy.yield_memory()
    back, calls = _Moved.come_back, []

    def fail_again(self):
        calls.append(1)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        back(self)

    monkeypatch.setattr(_Moved, "come_back", fail_again)
    with pytest.raises(torch.OutOfMemoryError):
        courtesy.restore()
    assert [t[0].item() for t in tensors] == [0, 1, 2, 3, 4]
    courtesy.restore()
    assert [t[-1].item() for t in tensors] == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Sparse CSR")
def test_what_stays_is_said():
    import numpy as np

    array, rows = torch.from_numpy(np.ones(5)), torch.eye(5).to_sparse_csr()
    values = rows.values()
    base = torch.ones(20, requires_grad=True) * 1
    base[:10].mul_(base[10:].detach().clone())
    with pytest.warns(koila.KoilaWarning, match="1 CopySlices") as told:
        courtesy = make_courtesy()
        courtesy.yield_memory()
    assert "belongs to somebody else" in str(told[0].message)
    assert "layout torch.sparse_csr" in str(told[0].message)
    assert "shares memory with one that stays" in str(told[0].message)
    assert rows.to_dense().sum() == values.sum() == 5
    courtesy.restore()
    base.sum().backward()
    assert array.sum() == 5


def test_workspaces_and_caches_go(monkeypatch):
    """cuBLAS's, which PyTorch keeps: else they are most of what stays of a small model."""
    cleared: list[str] = []

    class Device:
        @staticmethod
        def empty_cache():
            cleared.append("cache")

    class Storage:
        device = torch.device("cuda", 0)

    class Moved:
        storage = Storage

    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append("cuBLAS"), raising=False
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: Device)
    courtesy = Courtesy()
    courtesy._moved = {1: Moved, 2: Moved}  # type: ignore[dict-item]
    courtesy._empty_caches()
    # What they gave back lies in the cache.
    assert cleared == ["cuBLAS", "cache"]


def test_scripted_modules_and_default():
    model = torch.jit.script(nn.Linear(3, 3))
    weight = model.weight.detach().clone()
    storage = model.weight.untyped_storage()
    with make_courtesy():
        assert storage.nbytes() == 0 and torch.equal(model.weight, weight)
    assert storage.nbytes() == 36 and torch.equal(model.weight, weight)
    # Nothing is on an accelerator.
    live = _C.cpu_memory()[0]
    with Courtesy() as courtesy:
        assert not courtesy.loc_map and _C.cpu_memory()[0] == live
