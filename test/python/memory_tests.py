"""What budget="auto" leaves, and what koila itself takes."""

import gc
import subprocess
import sys
import threading

import pytest
import torch

import koila
from koila import gpus, memory

MIB = 1 << 20


@pytest.mark.parametrize(
    "free,budget",
    [
        (1600 * MIB, 1500 * MIB),
        (320 * MIB, 288 * MIB),
        (60 * MIB, 30 * MIB),
        (20 * MIB, 10 * MIB),
        (0, 0),
    ],
)
def test_a_part_stays_free(monkeypatch, free, budget):
    monkeypatch.delenv("KOILA_BUDGET", raising=False)
    monkeypatch.setattr(memory, "free", lambda device="cpu": free)
    assert memory.budget_bytes("auto") == budget
    # What was asked for is what there is.
    assert memory.budget_bytes("64MiB") == 64 * MIB
    monkeypatch.setenv("KOILA_BUDGET", "5MiB")
    assert memory.budget_bytes("auto") == 5 * MIB


def test_what_was_free_a_moment_ago(monkeypatch):
    asked = []
    monkeypatch.delenv("KOILA_BUDGET", raising=False)
    monkeypatch.setattr(memory, "free", lambda device="cpu": asked.append(device) or 320 * MIB)
    monkeypatch.setattr(memory, "_recent", {})
    assert [memory.recent_budget_bytes("auto") for _ in range(100)] == [288 * MIB] * 100
    assert len(asked) == 1
    monkeypatch.setattr(memory, "_RECENT", -1.0)
    assert memory.recent_budget_bytes("auto") == 288 * MIB and len(asked) == 2


def test_what_a_gpu_has(monkeypatch):
    """PyTorch tells the limit of a process by the device's number alone."""
    left = {0: 4 * MIB, 1: 50 * MIB}

    def get_fraction(device):
        return [1.0, 0.25][torch._utils._get_device_index(device)]

    for name, answer in {
        "is_available": lambda: True,
        "current_device": lambda: 1,
        "mem_get_info": lambda device=1: (left[torch.device(device).index], 100 * MIB),
        "memory_allocated": lambda device=1: 20 * MIB,
        "memory_reserved": lambda device=1: 30 * MIB,
        "get_per_process_memory_fraction": get_fraction,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    assert memory.free("cuda:0") == 14 * MIB
    assert memory.free("cuda") == memory.free("cuda:1") == gpus.free_memory() == 5 * MIB


LIMITED = """
import pathlib, resource, sys, warnings
import torch
from torch import nn
import koila

class Traced(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 4))
    def forward(self, *inputs):
        return self.layers(inputs[0])

warnings.simplefilter("error", koila.KoilaWarning)
warnings.simplefilter("ignore", DeprecationWarning)
torch.manual_seed(0)
model = Traced().eval() if sys.argv[1] == "traced" else Traced().eval().layers
x = torch.randn(65536, 16)
with torch.no_grad():
    wanted = torch.cat([model(part) for part in x.split(4096)])
koila.memory.free()  # loads the compiler
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with torch.no_grad():
    compiled = koila.compile(model, x)
    assert torch.allclose(compiled(x), wanted, rtol=1e-4, atol=1e-5)
    largest = koila.max_batch(model, x)
    model(x[:largest])
print(compiled.tile, largest, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("kind", ["scripted", "traced"])
def test_a_limit_of_the_address_space(kind):
    """60 MiB, of which the batch alone would take 1 GiB, and imports of all of
    PyTorch 70 MiB: it is compiled, compared and run in what there is."""
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, kind], capture_output=True, text=True, check=False
    )
    assert not run.returncode, run.stderr
    tile, largest, imported = run.stdout.split()
    assert 256 <= int(tile) <= 2048 and 256 < int(largest) < 4096 and imported == "False"


def test_free_is_not_less_than_nothing():
    assert koila.memory.free() > 0


def test_garbage_of_before_is_not_taken_from_what_is_counted():
    cycle: list[object] = [torch.zeros(1000)]
    cycle.append(cycle)
    del cycle
    with memory.CountedMemory() as counted:
        kept = [[index] for index in range(100_000)]
        tensor = torch.zeros(500)
    assert counted.get_peak() == 2000 and gc.isenabled()
    del kept, tensor


def test_one_count_inside_of_another():
    """The inner one begins anew, the outer one does not; afterwards both stay as they are."""
    with memory.CountedMemory() as outer:
        large = torch.empty(MIB, dtype=torch.uint8)
        del large
        with memory.CountedMemory() as inner:
            small = torch.empty(MIB // 4, dtype=torch.uint8)
            assert inner.get_peak() == MIB // 4
        assert outer.get_peak() == MIB
        more = torch.empty(MIB, dtype=torch.uint8)
        assert (inner.get_peak(), outer.get_peak()) == (MIB // 4, MIB + MIB // 4)
    del more, small
    later = torch.empty(8 * MIB, dtype=torch.uint8)
    assert (inner.get_peak(), outer.get_peak()) == (MIB // 4, MIB + MIB // 4)
    del later


def test_beside_other_threads_what_they_take_is_not_counted():
    started, done = threading.Event(), threading.Event()

    def take():
        while not done.is_set():
            tensor = torch.empty(8 * MIB, dtype=torch.uint8)
            started.set()
            del tensor

    thread = threading.Thread(target=take)
    thread.start()
    try:
        started.wait()
        with memory.CountedMemory() as counted:
            tensor = torch.empty(MIB, dtype=torch.uint8)
            started.clear()
            started.wait()
        assert (counted.get_peak(), counted.get_live()) == (MIB, MIB)
    finally:
        done.set()
        thread.join()
    del tensor
