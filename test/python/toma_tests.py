"""koila.compat.toma: toma's sequences as data, and what toma gets wrong."""

import gc
import importlib
import os
import pathlib
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch

import koila.compat.toma
from koila import retry
from koila.compat import toma
from retry_tests import OTHERS, OUT_OF_MEMORY

SEEDS = os.environ.get("KOILA_SEEDS")
PARTS = ("batchsize_cache", "cpu_memory", "stacktrace", "torch_cuda_memory")
NONE, EVERYWHERE, BY_PLACE = (
    toma.NoBatchsizeCache,
    toma.GlobalBatchsizeCache,
    toma.StacktraceMemoryBatchsizeCache,
)


def fail():
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")


class Fits:
    """A function that fits with sizes up to `most`; what it was called with."""

    def __init__(self, most=16):
        self.most, self.sizes = most, []

        # toma tells functions apart by their code; each of these is another one.
        def call(size):
            self.sizes.append(size)
            if size > self.most:
                fail()
            return size

        self.call = call


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (NONE, [64, 32, 16] * 4),
        (EVERYWHERE, [64, 32, 16, 16, 16, 16]),
        # Three in a loop, then another line.
        (BY_PLACE, [64, 32, 16, 16, 16, 64, 32, 16]),
    ],
)
@pytest.mark.parametrize("form", ["explicit", "decorator"])
def test_batch_sequences(cache, expected, form):
    fits = Fits()
    # Not the cache of the test before.
    place = object()
    if form == "explicit":

        def call():
            return toma.explicit.batch(fits.call, 64, toma_cache_type=cache, toma_context=place)

    else:
        call = toma.batch(fits.call, initial_batchsize=64, cache_type=cache, context=place)
    found = [call() for _ in range(3)]
    found.append(call())
    assert found == [16] * 4
    assert fits.sizes == expected


@pytest.mark.parametrize(
    ("cache", "second"),
    [(NONE, [64, 64, 32, 32, 16, 16]), (EVERYWHERE, [16] * 8), (BY_PLACE, [16] * 8)],
)
def test_range_sequences(cache, second):
    sizes = []

    def body(start, end):
        sizes.append(end - start)
        if end - start > 16 and end - start > 128 - end:
            fail()

    place = object()
    for _ in range(2):
        toma.explicit.range(body, 0, 128, 64, toma_cache_type=cache, toma_context=place)
    assert sizes == [64, 64, 32, 32, 16, 16, *second]


def test_simple_halves_and_raises():
    fits = Fits(12)
    assert toma.simple.batch(fits.call, 100) == 12
    assert fits.sizes == [100, 50, 25, 12]
    with pytest.raises(RuntimeError, match="out of memory"):
        toma.simple.batch(Fits(0).call, 4)
    with pytest.raises(RuntimeError, match="another"):
        toma.simple.batch(lambda size: (_ for _ in ()).throw(RuntimeError("another")), 4)


def test_chunks_are_views_and_the_step_stays_small():
    tensor, seen = torch.zeros(10, 3), []

    def body(chunk, start, end):
        seen.append((start, end))
        if end - start > 4:
            fail()
        chunk += 1

    toma.simple.chunked(body, tensor, 8)
    assert seen == [(0, 8), (0, 4), (4, 8), (8, 10)]
    assert torch.equal(tensor, torch.ones(10, 3))


def test_execute_runs_at_once():
    @toma.execute.chunked(torch.zeros(4, 6), initial_step=2, dimension=1)
    def done(chunk, start, end):
        assert chunk.shape == (4, 2)

    assert done is None

    @toma.execute.batch(initial_batchsize=8)
    def size(batchsize):
        return batchsize

    assert size == 8


# What toma gets wrong.


def test_decorators_pass_dimension_and_context_on():
    shapes = []

    @toma.chunked(initial_step=2, dimension=1)
    def body(chunk, start, end):
        shapes.append(tuple(chunk.shape))

    body(torch.zeros(5, 4))
    assert shapes == [(5, 2), (5, 2)]


def test_decorators_pass_their_context_on():
    made = []

    class Cache(toma.NoBatchsizeCache):
        def __init__(self):
            super().__init__()
            made.append(self)

    def body(*_):
        pass

    uses: list[tuple[Any, dict[str, Any], tuple[Any, ...]]] = [
        (toma.batch, {"initial_batchsize": 1}, ()),
        (toma.range, {"initial_step": 1}, (0, 1)),
        (toma.chunked, {"initial_step": 1}, (torch.zeros(1),)),
    ]
    for decorate, options, args in uses:
        made.clear()
        for context in ("one", "other", "one"):
            place = decorate.__name__, context
            decorate(cache_type=Cache, context=place, **options)(body)(*args)
        # Without it the function's own cache: one.
        assert len(made) == 2, decorate.__name__


def test_further_positional_arguments_arrive():
    seen = []

    @toma.chunked(initial_step=2)
    def body(chunk, start, end, name, other=None):
        seen.append((start, name, other))

    body(torch.zeros(4), "a", other="b")
    assert seen == [(0, "a", "b"), (2, "a", "b")]


@pytest.mark.parametrize("cache", [EVERYWHERE, BY_PLACE])
def test_a_later_call_gets_the_size_that_it_asks_for(cache):
    sizes, place = [], object()
    for size in (4, 64, 8):
        toma.explicit.batch(sizes.append, size, toma_cache_type=cache, toma_context=place)
    assert sizes == [4, 64, 8]
    # After a failure: no more than what fitted, and less where less is asked for.
    fits, place = Fits(16), object()
    for size in (64, 8, 32):
        toma.explicit.batch(fits.call, size, toma_cache_type=cache, toma_context=place)
    assert fits.sizes == [64, 32, 16, 8, 16]


@pytest.fixture
def gpus(monkeypatch):
    """Two; the second is the current one, and others hold memory there."""
    gib = 2**30
    found = {"total": [8 * gib, 24 * gib], "reserved": [gib, 4 * gib], "free": [7 * gib, 15 * gib]}

    def at(name):
        return lambda device=None: found[name][1 if device is None else device]

    for name, answer in {
        "is_available": lambda: True,
        "current_device": lambda: 1,
        "get_device_properties": lambda device: type("", (), {"total_memory": at("total")(device)}),
        "memory_reserved": at("reserved"),
        "mem_get_info": lambda device=None: (at("free")(device), at("total")(device)),
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(toma.cpu_memory, "get_available_cpu_memory", lambda: 2**33)
    return found


def test_memory_of_the_current_device(gpus, monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("allocates to find out"))
    cuda, gib = toma.torch_cuda_memory, 2**30
    assert cuda.get_cuda_total_memory() == 24 * gib
    assert cuda.get_cuda_assumed_available_memory() == 20 * gib
    assert cuda.get_cuda_blocked_memory() == 5 * gib
    assert cuda.get_cuda_available_memory() == 15 * gib


def test_what_others_hold_counts_in_free_memory(gpus, monkeypatch):
    assert BY_PLACE.TRACK_RAM is False
    monkeypatch.setattr(BY_PLACE, "TRACK_RAM", True)
    fits, place = Fits(), object()
    for free in (15, 2):
        gpus["free"][1] = free * 2**30
        toma.explicit.batch(fits.call, 64, toma_context=place, toma_cache_type=BY_PLACE)
    assert fits.sizes == [64, 32, 16, 64, 32, 16]


def test_errors_of_every_vendor():
    for error in OUT_OF_MEMORY:
        assert toma.should_reduce_batch_size(error), error
        sizes = []

        def body(size, error=error, sizes=sizes):
            sizes.append(size)
            if size > 1:
                raise error

        toma.simple.batch(body, 2)
        assert sizes == [2, 1]
    assert not any(map(toma.should_reduce_batch_size, OTHERS))
    snafu = RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear")
    assert toma.is_cudnn_snafu(snafu) and not toma.is_cuda_out_of_memory(snafu)
    assert toma.is_out_of_cpu_memory(MemoryError())


def test_a_body_that_adds_is_undone_by_retry_alone():
    def run(call):
        out = torch.zeros(4)

        def body(start, end):
            out[start:end] += 1
            if end - start > 2:
                fail()

        call(body, out)
        return out.tolist()

    assert run(lambda body, out: toma.simple.range(body, 0, 4, 4)) == [2] * 4
    assert run(lambda body, out: retry.Retry(undo=out).range(body, 0, 4, 4)) == [1] * 4


def test_functions_made_anew_share_what_was_learnt_and_are_not_kept():
    sizes, held = [], []

    def call_once():
        tensor = torch.zeros(3)
        held.append(weakref.ref(tensor))

        def body(size):
            sizes.append((size, tensor.numel()))
            if size > 16:
                fail()

        toma.explicit.batch(body, 64, toma_cache_type=EVERYWHERE)

    for _ in range(2):
        call_once()
    assert [size for size, _ in sizes] == [64, 32, 16, 16]
    assert [reference() for reference in held] == [None, None]


def test_the_default_cache_can_be_set(monkeypatch):
    for owner in (toma, toma.toma, koila.compat.toma):
        monkeypatch.setattr(owner, "DEFAULT_CACHE_TYPE", EVERYWHERE)
        fits = Fits()
        place = object()
        toma.explicit.batch(fits.call, 64, toma_context=place)
        toma.explicit.batch(fits.call, 64, toma_context=place)
        assert fits.sizes == [64, 32, 16, 16]
        monkeypatch.undo()


def test_module_and_class_answer_to_one_import():
    from koila.compat.toma import toma as named

    for name in ("batch", "explicit", "execute", "GlobalBatchsizeCache", "cpu_memory"):
        assert getattr(named, name) is getattr(toma, name)


def test_nothing_is_collected_while_all_goes_well(monkeypatch):
    collected = []
    monkeypatch.setattr(gc, "collect", lambda *_: collected.append(1))
    toma.simple.range(lambda start, end: None, 0, 64, 4)
    toma.explicit.chunked(lambda *_: None, torch.zeros(64), 4)
    assert not collected
    toma.simple.batch(Fits(2).call, 4)
    assert len(collected) == 1


def test_a_failed_call_has_let_its_tensors_go():
    held, found = [], []

    def body(size):
        found.extend(reference() for reference in held)
        tensor = torch.zeros(100)
        held.append(weakref.ref(tensor))
        if size > 2:
            fail()

    toma.simple.batch(body, 4)
    assert found == [None]


def test_free_memory_counts_where_that_is_asked_for(monkeypatch):
    free = [10 * 2**28]
    monkeypatch.setattr(toma.cpu_memory, "get_available_cpu_memory", lambda: free[0])
    for tracks, expected in ((True, [64, 32, 16, 64, 32, 16]), (False, [64, 32, 16, 16])):
        monkeypatch.setattr(BY_PLACE, "TRACK_RAM", tracks)
        fits, place = Fits(), object()
        for amount in (10, 12):
            free[0] = amount * 2**28
            toma.explicit.batch(fits.call, 64, toma_context=place)
        assert fits.sizes == expected


def test_the_limit_of_the_host_can_be_raised_again():
    code = (
        "import resource, torch\n"
        "from koila.compat.toma import cpu_memory, simple\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
        "cpu_memory.get_available_cpu_memory()\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "cpu_memory.set_cpu_memory_limit((used + 2**28) / 2**30)\n"
        "assert cpu_memory.get_available_cpu_memory() <= 2**28\n"
        "sizes = []\n"
        "def body(size):\n"
        "    sizes.append(size)\n"
        "    return torch.zeros(size, 2**20).shape[0]\n"
        "assert simple.batch(body, 512) <= 64, sizes\n"
        "assert sizes[0] == 512 and len(sizes) > 3\n"
        "assert resource.getrlimit(resource.RLIMIT_AS)[1] == hard\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_have_watermarks_of_their_own():
    def depth():
        return len(toma.stacktrace.get_simple_traceback())

    whole = depth()
    with toma.stacktrace.watermark():
        assert depth() == 2
        import threading

        counts = []
        thread = threading.Thread(target=lambda: counts.append(depth()))
        thread.start()
        thread.join()
        assert counts[0] > 2
    assert depth() == whole
    assert toma.stacktrace.set_watermark(depth)() == 1


@pytest.mark.skipif(SEEDS is None, reason="KOILA_SEEDS names no checkouts")
def test_its_own_tests():
    tests = pathlib.Path(SEEDS) / "toma" / "tests"
    # Its benchmark wants a plugin of pytest.
    names = [file for file in sorted(tests.glob("test_*.py")) if file.stem != "test_benchmark"]
    # One of them limits the memory of the process.
    for name in names:
        done = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    sys.modules["toma"] = koila.compat.toma
    for part in PARTS:
        sys.modules[f"toma.{part}"] = importlib.import_module(f"koila.compat.toma.{part}")
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
