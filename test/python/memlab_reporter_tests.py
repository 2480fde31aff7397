"""koila.compat.pytorch_memlab: which tensors take memory."""

import gc
import re
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from koila import _C
from koila.compat.pytorch_memlab import MemReporter, _sources, _tensors, mem_reporter
from koila.compat.pytorch_memlab.utils import readable_size
from memlab_fixtures import collect, freeze  # noqa: F401

CPU = torch.device("cpu")


def get_rows(reporter):
    """Bytes by name, as the reporter has them now; the sum is the allocator's."""
    reporter.collect_tensor()
    reporter.get_stats()
    rows = {}
    for name, _, _, amount in reporter.device_tensor_stat[CPU]:
        rows[name] = rows.get(name, 0) + amount
    return rows


class Held:
    """Tensors where no name leads."""

    def __init__(self, *tensors):
        self.__dict__["hidden"] = [[[[tensors]]]]


def test_parameters_gradients_state(capsys):
    model = nn.Linear(1024, 1024)
    reporter = MemReporter(model)
    optimizer = torch.optim.Adam(model.parameters())
    reporter.add_optimizer(optimizer)
    model(torch.ones(2, 1024)).sum().backward()
    optimizer.step()
    rows = get_rows(reporter)
    for name in ("weight", "weight.grad", "Adam.weight.exp_avg", "Adam.weight.exp_avg_sq"):
        assert rows[name] == 4 << 20
        assert rows[name.replace("weight", "bias")] == 4096
    reporter.report()
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("Adam.weight.exp_avg ")]
    assert line.split()[1:] == ["(1024,", "1024)", "4.00M"]
    assert "Storage on cpu" in out and "The allocated memory on cpu" in out
    # Without a model.
    other = MemReporter()
    other.add_optimizer(optimizer)
    del model
    optimizer.zero_grad()
    names = get_rows(other)
    assert "Adam.param0.exp_avg" in names or "Adam.weight.exp_avg" in names


def test_the_sum_is_the_allocators():
    """What the counter hears of between two reports is what they differ by."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 10))
    before = MemReporter(model)
    before.report()
    live = _C.cpu_memory()[0]
    loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.arange(32) % 10)
    after = MemReporter(model)
    after.report()
    assert after.difference(before).bytes[CPU] == _C.cpu_memory()[0] - live
    loss.backward()
    last = MemReporter(model)
    last.report()
    assert (last - before).bytes[CPU] == _C.cpu_memory()[0] - live


def test_what_autograd_saved(capsys):
    """The "lost memory" of the original's README: 2 of 8 MiB."""
    linear = nn.Linear(1024, 1024)
    inp = torch.ones(512, 1024)
    reporter = MemReporter(linear)
    start = get_rows(reporter)
    out = linear(inp * (inp + 2)).mean()
    rows = get_rows(reporter)
    assert rows["AddmmBackward0.mat1 (saved)"] == 2 << 20
    assert sum(rows.values()) - sum(start.values()) == (2 << 20) + 4
    out.backward()
    assert not any("saved" in name for name in get_rows(reporter))
    # What a node made, which Python has no tensor of.
    x = torch.ones(1000, requires_grad=True)
    total = x.exp().sum()
    rows = get_rows(reporter)
    assert rows["ExpBackward0.result (saved)"] == 4000

    # Hooks are not called.
    def refuse(packed) -> torch.Tensor:
        raise AssertionError

    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t, 1), refuse):
        packed = (x * 2).exp()
    ran = []
    outer = checkpoint(lambda t: ran.append(1) or t.exp().sin(), x, use_reentrant=False)
    capsys.readouterr()
    reporter.report()
    assert ran == [1]
    # What Python cannot look into is named.
    base = x * 1
    base[:10].mul_(x[10:20])
    reporter.report()
    assert "cannot be seen: 1 CopySlices" in capsys.readouterr().out
    del total, packed, outer


def test_lists_that_a_backward_pass_has_freed():
    x = torch.ones(5, requires_grad=True)
    picked = x[torch.tensor([0, 2])]
    rows = get_rows(MemReporter())
    assert rows["IndexBackward0.indices[0] (saved)"] == 16
    picked.sum().backward()
    assert not any(name.startswith("IndexBackward0") for name in get_rows(MemReporter()))
    del picked


class CudaStorage:
    """As far as the reporter asks."""

    device = torch.device("cuda", 0)

    def __init__(self, address, size):
        self._cdata, self.data_ptr, self.nbytes = address, lambda: address, lambda: size


def test_blocks_of_cuda(monkeypatch):
    """What the allocator has given, which may be more than a multiple of 512 bytes."""
    mib = 1 << 20
    blocks = [
        {"state": "active_allocated", "size": 20 * mib},
        {"state": "inactive", "size": 5 * mib},
        {"state": "active_allocated", "size": 512},
    ]
    snapshot = [{"address": 1 << 30, "blocks": blocks[:1]}, {"address": 0, "blocks": blocks[1:]}]
    for name, answer in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "memory_snapshot": lambda: snapshot,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    found = mem_reporter._get_cuda_blocks()
    reporter = MemReporter()
    for name, address, size in (
        ("big", 1 << 30, 19 * mib),
        ("view", 1 << 30, 19 * mib),
        ("small", 5 * mib, 12),
        ("foreign", 77, 1000),
    ):
        part = mem_reporter._get_part(
            _tensors.Part(CudaStorage(address, size), 0, size),  # type: ignore[arg-type]
            found,
        )
        reporter._entries.append(mem_reporter._Entry(name, (), 1, CudaStorage.device, [part]))
    reporter.get_stats()
    rows = {name: amount for name, _, _, amount in reporter.device_tensor_stat[CudaStorage.device]}
    assert rows == {"big": 20 * mib, "view": 0, "small": 512, "foreign": 1024}


def test_views_and_shared_storages(capsys):
    big = torch.ones(10000)
    view, rest = big[:10], Held(big[20:30], big.view(100, 100))
    alone = torch.ones(5000)[100:110].detach()
    reporter = MemReporter()
    rows = get_rows(reporter)
    assert (rows["big"], rows["view"]) == (40000, 0)
    # A small view of what nobody else has.
    assert (rows["alone"], rows["(rest of alone)"]) == (40, 20000 - 40)
    reporter.report(verbose=True)
    assert "view(->big)" in capsys.readouterr().out
    lstm = nn.LSTM(16, 32)
    flat = torch.cat([p.detach().flatten() for p in lstm.parameters()])
    offset = 0
    for p in lstm.parameters():
        p.data = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    reporter = MemReporter(lstm)
    rows = get_rows(reporter)
    for name, p in lstm.named_parameters():
        assert rows[name] == p.numel() * 4
    assert rows["flat"] == 0
    expanded = torch.ones(1).expand(1000)
    empty = torch.empty(0, 5)
    rows = get_rows(reporter)
    assert rows["expanded"] == 4 and rows["empty"] == 0
    del view, alone, expanded, empty, rest


@pytest.mark.filterwarnings("ignore")
def test_sparse_and_small_types():
    embedding = nn.Embedding(1000, 64, sparse=True)
    embedding(torch.arange(8)).sum().backward()
    coo = torch.eye(100).to_sparse()
    csr = torch.eye(100).to_sparse_csr()
    quarters = torch.quantize_per_tensor(torch.ones(100), 1.0, 0, torch.quint4x2)
    half, flags = torch.ones(100, dtype=torch.bfloat16), torch.ones(100, dtype=torch.bool)
    wide = torch.ones(100, dtype=torch.complex128)
    rows = get_rows(MemReporter(embedding))
    assert rows["weight.grad"] == 8 * 64 * 4 + 8 * 8
    assert rows["coo"] == 100 * (2 * 8 + 4)
    assert rows["csr"] == 101 * 8 + 100 * 8 + 100 * 4
    assert rows["quarters"] == 50
    assert (rows["half"], rows["flags"], rows["wide"]) == (200, 100, 1600)
    del quarters, half, flags, wide, coo, csr


def test_tied_weights_show_both_names():
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    model(torch.ones(1, 64)).sum().backward()
    rows = get_rows(MemReporter(model))
    assert rows["0.weight = 1.weight"] == 64 * 64 * 4
    assert rows["0.weight.grad = 1.weight.grad"] == 64 * 64 * 4


def test_a_dead_tensors_name_is_nobodys():
    model = nn.Linear(8, 8)
    reporter = MemReporter(model)
    for _ in range(5):
        model.weight.grad = torch.ones(8, 8)
        assert "weight.grad" in get_rows(reporter)
        model.weight.grad = None
        other = Held(torch.ones(8, 8))
        names = get_rows(reporter)
        assert "weight.grad" not in names and any(n.startswith("Tensor") for n in names)
        del other
    old = model.weight
    model.weight = nn.Parameter(torch.ones(3, 3))
    assert get_rows(reporter)["weight"] > 0
    del old


def test_names_of_variables():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = [torch.ones(7)]

    layer, state = Layer(), {"hidden": torch.ones(11)}

    def inner():
        mine = torch.ones(13)
        reporter = MemReporter()
        reporter.collect_tensor()
        reporter.get_stats()
        del mine
        return {name: amount for name, _, _, amount in reporter.device_tensor_stat[CPU]}

    rows = inner()
    assert rows["mine"] == 52 and rows["state['hidden']"] == 44 and rows["layer.cache[0]"] == 28
    del layer, state


def test_nothing_is_kept_alive():
    model = nn.Linear(8, 8)
    reporter = MemReporter(model)
    x = torch.ones(100, requires_grad=True)
    out = (x * x).exp()
    references = [weakref.ref(one) for one in (x, out, model, model.weight)]
    own = locals()
    reporter.report()
    assert own["x"] is x  # Somebody's copy of the variables stays.
    del own
    live = _C.cpu_memory()[0]
    reporter.report()
    assert _C.cpu_memory()[0] == live
    del x, out, model
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    reporter.print_stats()


def test_devices(capsys):
    ghost = torch.ones(5, device="meta")
    reporter = MemReporter()
    reporter.report(device=torch.device("meta"))
    out = capsys.readouterr().out
    assert "Storage on meta" in out and "Storage on cpu" not in out
    reporter.print_stats(target_device="cpu")
    assert "Storage on cpu" in capsys.readouterr().out
    assert reporter.get_bytes("meta") == 0
    del ghost


def test_differences():
    kept = [torch.ones(1000)]
    before = MemReporter()
    before.report()
    more = torch.ones(500)
    other = [Held(torch.ones(7, 11)), Held(torch.ones(7, 11))]
    kept.clear()
    after = MemReporter()
    after.report()
    difference = after - before
    assert difference.bytes[CPU] == 2000 + 2 * 308 - 4000
    rows = {(name, size): (count, amount) for _, name, size, count, amount in difference.rows}
    assert rows["more", (500,)] == (1, 2000)
    assert rows["kept[0]", (1000,)] == (-1, -4000)
    assert rows["Tensor", (7, 11)] == (2, 616)
    assert "-3.91K" in str(difference) and "(x2)" in str(difference)
    del more, other


@pytest.mark.parametrize(
    "size,text",
    [(0, "0.00B"), (1536, "1.50K"), (4 << 20, "4.00M"), (-400, "-400.00B"), (float("nan"), "")],
)
def test_readable_sizes(size, text):
    assert readable_size(size) == text


def test_total_counts_each_element_once(capsys):
    def get_total():
        MemReporter().report(device="cpu")
        found = re.search(r"Total Tensors: (\d+) \((\d+) elements\)", capsys.readouterr().out)
        return [int(n) for n in found.groups()] if found else [0, 0]

    tensors, elements = get_total()
    big = torch.ones(10, 10)
    view = big[:3]
    assert get_total() == [tensors + 2, elements + 100]
    del big, view
    flat = torch.ones(100)
    halves = flat[:50].detach(), flat[50:].detach()
    del flat
    assert get_total() == [tensors + 2, elements + 100]
    del halves


def test_what_cuda_reserves_is_told(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 4 << 20)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 64 << 20)
    MemReporter()._print_allocated(torch.device("cuda", 0))
    assert "Reserved by PyTorch on cuda:0: 64.00M" in capsys.readouterr().out


@pytest.mark.parametrize("more, text", [(4000, "Not seen: 3.91K"), (-4000, "reporter: 3.91K")])
def test_what_nobody_names_is_told(monkeypatch, capsys, more, text):
    kept = torch.ones(2000)
    reporter = MemReporter()
    reporter.collect_tensor()
    reporter.get_stats()
    monkeypatch.setattr(_sources, "get_cpu_bytes", lambda: reporter.get_bytes(CPU) + more)
    reporter.print_stats()
    assert text in capsys.readouterr().out
    del kept


def test_fake_tensors_beside():
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    real = torch.ones(50)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5, 7))
    reporter = MemReporter()
    rows = get_rows(reporter)
    assert rows["real"] == 200 and "fake" not in rows
    reporter.print_stats()
    del fake, real


def test_import_asks_nothing_of_cuda_and_needs_torch_alone():
    code = (
        "import sys, warnings\n"
        "sys.modules['pandas'] = sys.modules['calmsize'] = sys.modules['IPython'] = None\n"
        "import torch\n"
        "warnings.filterwarnings('error', message='.*TypedStorage.*')\n"
        "def refuse(*_, **__): raise AssertionError('CUDA was asked')\n"
        "for name in 'init _lazy_init memory_stats reset_peak_memory_stats empty_cache'.split():\n"
        "    setattr(torch.cuda, name, refuse)\n"
        "torch.cuda.is_available = lambda: True\n"
        "from koila.compat.pytorch_memlab import Courtesy, LineProfiler, MemReporter\n"
        "Courtesy(), MemReporter(torch.nn.Linear(2, 2)).report()\n"
        "def work(): return torch.ones(1000)\n"
        "with LineProfiler(work, target_gpu=torch.device('cpu')) as p: work()\n"
        "assert '3.91K' in str(p.display()) and '<table>' in p.display()._repr_html_()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
