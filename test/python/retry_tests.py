"""koila.retry: sizes that shrink and grow, and what is taken back in between."""

import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila import retry

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("XPU out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("Stand-in out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)."),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("HIP error: hipErrorOutOfMemory"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED"),
    RuntimeError("miopenStatusAllocFailed"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate"
        " memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    RuntimeError(
        "The following operation failed in the TorchScript interpreter.\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"
    ),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
]
OTHERS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned memory"),
    RuntimeError("unsupported memory format option"),
    RuntimeError("view size is not compatible with input tensor's size and stride: memory"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_ARCH"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"),
    RuntimeError("out of range"),
    ValueError("CUDA out of memory."),
    KeyboardInterrupt(),
]  # fmt: skip


def fail():
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_errors_of_every_vendor(error):
    assert retry.is_out_of_memory(error)
    sizes = []

    def body(size):
        sizes.append(size)
        if size > 1:
            raise error

    retry.Retry().batch(body, 2)
    assert sizes == [2, 1]


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_errors_that_only_mention_memory(error):
    assert not retry.is_out_of_memory(error)

    def body(size):
        raise error

    with pytest.raises(type(error)):
        retry.Retry().batch(body, 2)


@pytest.mark.parametrize(
    "text",
    [
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "cuFFT error: CUFFT_INTERNAL_ERROR",
        "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ],
)
def test_internal_errors_of_libraries(monkeypatch, text):
    """What they say on a full device, and of much else."""
    free, reserved, asked = {0: 1 << 30, 1: 1 << 30, 2: 0}, {0: 0, 1: 5, 2: 0}, []

    def tell(index):
        asked.append(index)
        if free[index] is None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return free[index], 80 << 30

    for name, answer in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 3,
        "memory_reserved": reserved.get,
        "mem_get_info": tell,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    error, sizes = RuntimeError(text), []

    def body(size):
        sizes.append(size)
        if size > 1:
            raise error

    with pytest.raises(RuntimeError, match=text[:10]):
        retry.Retry().batch(body, 2)
    # One that is not in use is not asked: that would start a context there.
    assert asked == [0, 1]
    free[1] = 3 << 20
    sizes.clear()
    retry.Retry().batch(body, 2)
    assert sizes == [2, 1]
    assert not retry.is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"))
    free[0] = None
    assert not retry.is_out_of_memory(error)


def test_the_host_runs_out():
    code = (
        "import resource, torch\n"
        "from koila import retry\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**28,) * 2)\n"
        "total = 0\n"
        "def body(start, end):\n"
        "    global total\n"
        "    total += int(torch.ones(end - start, 2**20).sum() / 2**20)\n"
        "retry.range(body, 0, 200, 512)\n"
        "assert total == 200, total\n"
        "try:\n"
        "    retry.Retry(minimum=128).batch(lambda size: torch.ones(size, 2**20), 256)\n"
        "    raise SystemExit('nothing was raised')\n"
        "except RuntimeError as error:\n"
        "    assert 'allocate memory' in str(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_factor_and_minimum():
    sizes = []

    def body(size):
        sizes.append(size)
        fail()

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        retry.Retry(factor=1.5, minimum=3).batch(body, 10)
    assert sizes == [10, 6, 4, 3]
    # A factor that would not make it smaller does.
    sizes.clear()
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        retry.Retry(factor=1.01).batch(body, 3)
    assert sizes == [3, 2, 1]
    for name, make in (
        ("factor", lambda: retry.Retry(factor=1)),
        ("minimum", lambda: retry.Retry(minimum=0)),
        ("growth", lambda: retry.Retry(growth=0)),
    ):
        with pytest.raises(koila.KoilaError, match=f"{name}="):
            make()
    with pytest.raises(koila.KoilaError, match="a size of 0"):
        retry.batch(body, 0)


def test_sizes_grow_again_and_wait_longer_after_each_failure():
    sizes = []

    def body(start, end):
        sizes.append(end - start)
        if end - start > 4:
            fail()

    retry.Retry(growth=2).range(body, 0, 44, 8)
    # Twice 4 fits, then 8 is tried; after that four times, then eight times.
    assert sizes == [8, 4, 4, 8, 4, 4, 4, 4, 8, 4, 4, 4, 4, 4]
    sizes.clear()
    retry.Retry().range(body, 0, 24, 8)
    assert sizes == [8, 4, 4, 4, 4, 4, 4]


def test_it_grows_up_to_what_is_asked_for():
    sizes, most = [], 4

    def body(size):
        sizes.append(size)
        if size > most:
            fail()

    retrying = retry.Retry(growth=1)
    for turn in range(5):
        most = 4 if turn == 0 else 100
        retrying.batch(body, 10)
    assert sizes == [10, 5, 2, 4, 8, 10, 10]


def test_each_function_has_its_size():
    retrying, sizes = retry.Retry(), []

    def first(size):
        sizes.append(size)
        if size > 2:
            fail()

    for _ in range(2):
        retrying.batch(first, 4)
        retrying.batch(lambda size: sizes.append(-size), 8)
    assert sizes == [4, 2, -8, 2, -8]
    # The next to use koila.retry itself knows nothing of it.
    retry.batch(first, 4)
    assert sizes[-2:] == [4, 2]


def test_who_is_told():
    told = []

    def tell(text, size, smaller):
        told.append((text, size, smaller))

    def body(size):
        if size > 2:
            fail()

    retry.Retry(on_retry=tell).batch(body, 8)
    assert [(size, smaller) for _, size, smaller in told] == [(8, 4), (4, 2)]
    assert told[0][0].startswith("CUDA out of memory.")


def test_results_and_chunks():
    def whole(size, a, *, b):
        return size, a, b

    assert retry.batch(whole, 4, 1, b=2) == (4, 1, 2)
    tensor, seen = torch.zeros(5, 2), []

    def body(chunk, start, end, name):
        seen.append((start, end, name))
        chunk += 1

    retry.chunked(body, tensor, 2, "x")
    assert seen == [(0, 2, "x"), (2, 4, "x"), (4, 5, "x")]
    assert torch.equal(tensor, torch.ones(5, 2))
    # A part that is left is done in halves of itself.
    sizes = []

    def odd(start, end):
        sizes.append(end - start)
        if end == 9 and end - start > 1:
            fail()

    retry.Retry().range(odd, 0, 9, 6)
    assert sizes == [6, 3, 1, 1, 1]


def test_a_failed_call_has_let_its_tensors_go():
    alive = []

    def body(size):
        if alive:
            alive.append(alive[0]())
            return
        tensor = torch.zeros(100)
        alive.append(weakref.ref(tensor))
        fail()

    retry.Retry().batch(body, 2)
    assert alive[1] is None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.dropout(self.norm(x), 0.5))


def accumulate(make_retry, fails):
    """Gradients, buffers and a tensor that were added to in parts, of which one fails
    first after its work."""
    torch.manual_seed(0)
    net, data = Net(), torch.randn(12, 6)
    total = torch.zeros(())
    net(torch.randn(4, 6)).sum().backward()
    failed = []

    def body(start, end):
        loss = net(data[start:end]).square().sum()
        loss.backward()
        total.add_(loss.detach())
        if fails and end - start > 3 and not failed:
            failed.append(start)
            fail()

    make_retry(net, total).range(body, 0, 12, 6 if fails else 3)
    assert bool(failed) == fails
    return [total, *(p.grad for p in net.parameters()), *net.buffers(), torch.get_rng_state()]


def test_what_a_failed_call_added_is_taken_back():
    def undoing(net, total):
        return retry.Retry(undo=[net, total])

    expected = accumulate(undoing, False)
    found = accumulate(undoing, True)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    # The control: without undo it is there twice.
    twice = accumulate(lambda net, total: retry.Retry(), True)
    assert not torch.equal(twice[0], expected[0])
    assert not torch.allclose(twice[1], expected[1])


def test_a_gradient_that_was_not_there_is_none_again():
    net, data = nn.Linear(2, 1), torch.randn(4, 2)

    def body(size):
        net(data[:size]).sum().backward()
        if size > 1:
            fail()

    retry.Retry(undo=net, minimum=1).batch(body, 2)
    assert torch.allclose(net.weight.grad, data[:1])


@pytest.mark.parametrize("change", ["tensor", "gradient", "first gradient", "buffer"])
def test_strict_refuses_what_it_cannot_take_back(change):
    net, total = Net(), torch.zeros(3)
    statistics = net.norm.running_mean, net.norm.running_var
    if change == "gradient":
        net(torch.randn(4, 6)).sum().backward()

    def body(size):
        if change == "tensor":
            total[:2].add_(1)
        elif change == "buffer":
            with torch.no_grad():
                F.batch_norm(torch.randn(4, 6), *statistics, training=True)
        else:
            net.head(torch.randn(4, 6)).sum().backward()
        if size > 1:
            fail()

    expected = "the gradient of a tensor" if change == "first gradient" else "a tensor"
    with pytest.raises(koila.KoilaError, match=rf"it changed {expected} of shape .*undo="):
        retry.Retry(strict=True).batch(body, 2)
    total.zero_()
    retry.Retry(strict=True, undo=[net, total]).batch(body, 2)
    if change == "tensor":
        assert total.tolist() == [1, 1, 0]


def test_strict_lets_a_function_write_what_is_its_own():
    def body(size):
        made = torch.zeros(3)
        made.add_(1)
        made[0] = 4
        weight = torch.ones(3, requires_grad=True)
        (weight * made).sum().backward()
        if size > 1:
            fail()
        return made

    assert retry.Retry(strict=True).batch(body, 4).tolist() == [4, 1, 1]


def test_a_written_parameter_cannot_be_taken_back():
    net = nn.Linear(2, 1)

    def body(size):
        with torch.no_grad():
            net.weight.add_(1)
        if size > 1:
            fail()

    with pytest.raises(koila.KoilaError, match=r"a parameter of shape .* was written"):
        retry.Retry(undo=net).batch(body, 2)
    weight = net.weight.detach().clone()
    retry.Retry(undo=[net, net.weight]).batch(body, 2)
    assert torch.equal(net.weight, weight + 1)


def test_map_begins_with_what_is_predicted(monkeypatch):
    torch.manual_seed(0)
    net, data = (
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).eval(),
        torch.randn(50, 8),
    )
    sizes = []
    net.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    with torch.no_grad():
        expected = net(data)
        sizes.clear()
        monkeypatch.setenv("KOILA_BUDGET", "6KiB")
        retrying = retry.Retry()
        assert torch.allclose(retrying.map(net, data), expected)
        largest = koila.max_batch(net, data, budget="6KiB")
        # koila's own calls, which predict, came first.
        sizes.clear()
        assert torch.allclose(retrying.map(net, data), expected)
    assert 1 < largest < 50
    assert max(sizes) == largest
    # Of what koila cannot read, nothing is predicted.
    assert torch.equal(retry.map(lambda x: x.flip(1), data, 20), data.flip(1))
    assert retry.map(torch.sin, data[:0]).shape == (0, 8)
