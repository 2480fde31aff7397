"""koila.compat.pytorch_memlab: memory of lines."""

import asyncio
import ctypes
import gc
import pathlib
import sys
import threading
import warnings

import pytest
import torch

import koila
import memlab_functions as functions
from koila import _C
from koila.compat import pytorch_memlab
from koila.compat.pytorch_memlab import (
    LineProfiler,
    _sources,
    profile,
    profile_every,
    set_target_gpu,
)
from koila.compat.pytorch_memlab.line_profiler.profile import global_line_profiler

INCREMENT = "active_bytes.all.increment"


def get_lines(profiler, func, column=INCREMENT):
    (table,) = profiler.display(func, [column])._tables
    return {row.number: row.figures[0] for row in table.rows if row.figures[0] is not None}


def get_total(profiler, func, column=INCREMENT):
    return sum(get_lines(profiler, func, column).values())


def get_live():
    return _C.cpu_memory()[0]


@pytest.fixture(autouse=True)
def no_trace():
    before = sys.gettrace()
    yield
    pytorch_memlab.clear_global_line_profiler()
    assert sys.gettrace() is before and threading.gettrace() is None


# ----------------------------------------------------------------------------
# Figures
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("function", functions.FUNCTIONS, ids=lambda f: f.__name__)
def test_lines_add_up(function):
    """To the counter of koila-run, which hears of the thread's blocks by itself."""
    function([])  # What a process allocates once.
    library = ctypes.CDLL(
        str(pathlib.Path(koila.__file__).parents[2] / "lib" / "libkoila-counter.so")
    )
    peak, live = ctypes.c_int64(), ctypes.c_int64()
    held: list = []
    gc.collect()
    gc.disable()
    try:
        with LineProfiler(function) as profiler:
            before = get_live()
            library.koilaCounterStart()
            kept = function(held)
            library.koilaCounterStop(ctypes.byref(peak), ctypes.byref(live))
            after = get_live()
    finally:
        gc.enable()
    total = get_total(profiler, function)
    assert total == after - before
    if function is functions.threads:
        assert total == live.value + 3 * 4 * (111 + 222)
    else:
        assert total == live.value
        most = max(get_lines(profiler, function, "active_bytes.all.peak").values(), default=before)
        assert most - before == peak.value
    allocated = get_total(profiler, function, "active_bytes.all.allocated")
    assert allocated - get_total(profiler, function, "active_bytes.all.freed") == total
    del kept


def test_each_line_has_its_own():
    def work():
        a = torch.ones(1000)
        b = torch.ones(500)
        torch.ones(3000)
        del a
        return b

    with LineProfiler(work) as profiler:
        start = get_live()
        kept = work()
    first = work.__code__.co_firstlineno
    assert get_lines(profiler, work) == {
        first: 0,
        first + 1: 4000,
        first + 2: 2000,
        first + 3: 0,
        first + 4: -4000,
        first + 5: 0,
    }
    peaks = get_lines(profiler, work, "active_bytes.all.peak")
    assert [peaks[first + i] - start for i in range(6)] == [0, 4000, 6000, 18000, 6000, 2000]
    live = get_lines(profiler, work, "active_bytes.all.current")
    assert [live[first + i] - start for i in range(6)] == [0, 4000, 6000, 6000, 2000, 2000]
    blocks = get_lines(profiler, work, "allocation.all.allocated")
    assert [blocks[first + i] for i in range(6)] == [0, 1, 1, 1, 0, 0]
    del kept


def test_nested_calls_count_in_both():
    with LineProfiler(functions.nested, functions.plain, functions.loops) as profiler:
        start = get_live()
        kept = functions.nested([])
    first = functions.nested.__code__.co_firstlineno
    assert get_lines(profiler, functions.nested)[first + 1] == 8000
    assert get_total(profiler, functions.plain) == 8000
    assert get_total(profiler, functions.loops) == get_lines(profiler, functions.nested)[first + 2]
    peaks = get_lines(profiler, functions.nested, "active_bytes.all.peak")
    assert peaks[first + 2] - start == 8000 + 4 * (100 + 200 + 300 + 400 + 500) + 12000
    del kept


def test_recursion_counts_once():
    with LineProfiler(functions.recurses) as profiler:
        start = get_live()
        kept = functions.recurses([])
    assert get_total(profiler, functions.recurses) == 4 * 100 * 21 == get_live() - start
    first = functions.recurses.__code__.co_firstlineno
    # The line that calls has the peak of what it calls.
    peaks = get_lines(profiler, functions.recurses, "active_bytes.all.peak")
    assert peaks[first + 3] - start == 4 * 100 * 21 + 16000
    assert get_lines(profiler, functions.recurses)[first + 3] == 0
    del kept


def test_generators_and_coroutines():
    """What others do while they wait is theirs."""
    with LineProfiler(functions.generator) as profiler:
        values, others = [], []
        for value in functions.generator([]):
            values.append(value)
            others.append(torch.ones(10000))
    assert get_total(profiler, functions.generator) == 4 * (50 + 100 + 150 + 200 + 7)

    def ends():
        try:
            yield torch.ones(10)
        finally:
            values.append(torch.ones(1000))

    with LineProfiler(ends) as profiler:
        closed, thrown, dropped = ends(), ends(), ends()
        values += [next(closed), next(thrown), next(dropped)]
        closed.close()
        with pytest.raises(KeyError):
            thrown.throw(KeyError)
        del dropped
    assert get_total(profiler, ends) == 3 * 4040

    async def waits():
        a = torch.ones(100)
        await asyncio.sleep(0)
        return a

    async def main():
        first, second = asyncio.ensure_future(waits()), asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        big = torch.ones(10000)
        return await first, await second, big

    with LineProfiler(waits) as profiler:
        kept = asyncio.run(main())
    assert get_total(profiler, waits) == 800
    del kept


def test_threads():
    """Each has its own; what a thread does that started before counts for the line
    that runs."""
    ready, go, done = threading.Event(), threading.Event(), threading.Event()
    held = []

    def other():
        ready.set()
        go.wait()
        held.append(torch.ones(12345))
        done.set()

    def waits():
        go.set()
        done.wait()
        return torch.ones(1)

    older = threading.Thread(target=other)
    older.start()
    ready.wait()
    with LineProfiler(waits) as profiler:
        kept = waits()
    older.join()
    assert get_total(profiler, waits) == 4 * 12346
    del kept

    barrier = threading.Barrier(2)

    def work(size):
        for _ in range(20):
            barrier.wait()
            held.append(torch.ones(size))
            torch.ones(size * 2)

    def one():
        work(100)

    def two():
        work(7)

    with LineProfiler(one, two) as profiler:
        threads = [threading.Thread(target=function) for function in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert get_total(profiler, one) == 20 * 400
    assert get_total(profiler, two) == 20 * 28
    # Not for threads that start later.
    assert threading.gettrace() is None


def test_memory_is_bounded():
    def work(count):
        for _ in range(count):
            torch.ones(1)

    with LineProfiler(work) as profiler:
        work(1000)
        (record,) = profiler._records.values()
        assert len(record.lines) == 3
        assert len(next(iter(record.lines.values())).figures) == 8
    first = work.__code__.co_firstlineno
    assert get_lines(profiler, work, "allocation.all.allocated")[first + 2] == 1000


# ----------------------------------------------------------------------------
# Beside others
# ----------------------------------------------------------------------------


def test_profilers_side_by_side():
    def work():
        return torch.ones(100)

    with LineProfiler(work) as outer:
        one = work()
        with LineProfiler(work) as inner:
            two = work()
        three = work()
    assert get_total(outer, work) == 1200 and get_total(inner, work) == 400
    outer.enable()
    outer.enable()
    four = work()
    outer.disable()
    five = work()
    assert get_total(outer, work) == 1600
    del one, two, three, four, five


def test_a_trace_function_is_called_and_put_back():
    seen = []

    def tracer(frame, event, argument):
        seen.append((frame.f_code.co_name, event))
        return tracer

    def work():
        a = torch.ones(100)
        return a

    def plain():
        return 1

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with LineProfiler(work) as profiler:
            kept = work()
            plain()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert get_total(profiler, work) == 400
    assert [event for name, event in seen if name == "work"] == ["call", "line", "line", "return"]
    assert ("plain", "line") in seen
    del kept


def test_a_trace_function_that_puts_itself_back():
    """As those of coverage tools in C do."""
    calls = []

    def tracer(frame, event, argument):
        calls.append(event)
        sys.settrace(tracer)

    def work():
        return torch.ones(100)

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with LineProfiler(work) as profiler:
            kept = work(), work()
    finally:
        sys.settrace(before)
    assert get_total(profiler, work) == 800 and calls
    del kept


def test_a_trace_function_that_takes_over_stays():
    def tracer(frame, event, argument):
        return None

    def work():
        sys.settrace(tracer)

    before = sys.gettrace()
    try:
        with LineProfiler(work):
            work()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


# ----------------------------------------------------------------------------
# What is profiled
# ----------------------------------------------------------------------------


def test_what_is_behind_a_decorator():
    net = functions.Net()
    for what in (functions.Net.forward, net.forward, net):
        with LineProfiler(what) as profiler:
            out = net(torch.ones(8, 16))
        assert "hidden = self.layers[1](hidden)" in str(profiler.display())
        assert get_total(profiler, what) > 0
        del out
    with pytest.warns(UserWarning, match="no lines in Python"):
        LineProfiler(torch.ones)


def test_never_called():
    def work():
        pass

    def other():
        pass

    profiler = LineProfiler(work)
    assert str(profiler.display()).splitlines()[0].endswith("work")
    with profiler:
        other()
    for func in (None, work, work.__qualname__, [work.__qualname__]):
        assert "never called" in str(profiler.display(func))
        assert "never called" in profiler.display(func)._repr_html_()
    with pytest.raises(ValueError, match=r"is not profiled; there are: .*work"):
        profiler.display(other)
    with pytest.raises(ValueError, match="is not profiled"):
        profiler.display("nobody")
    profiler.print_stats()
    assert str(LineProfiler().display()) == "No data collected\n"
    assert LineProfiler().display()._repr_html_() == "<p>No data collected</p>"


def test_columns():
    def work():
        return torch.ones(100)

    with LineProfiler(work) as profiler:
        work()
    for wrong in ("active_bytes", "active_bytes.all.top", "reserved_bytes.large_pool.peak"):
        with pytest.raises(ValueError, match=r"there are: .*allocation\.all\.freed"):
            profiler.display(columns=[wrong])
        with pytest.raises(ValueError, match="there are: "):
            profile_every(columns=[wrong])(work)
        with pytest.raises(ValueError, match="there are: "):
            profile(work, columns=[wrong])
    options = next(iter(profiler._records.values())).lines
    (source,) = {source for _, source in options}
    parts = ("current", "peak", "allocated", "freed", "increment")
    stems = ("active_bytes", "allocated_bytes", "active", "allocation")
    assert set(source.get_columns()) == {f"{s}.all.{p}" for s in stems for p in parts}
    for column in source.get_columns():
        text = str(profiler.display(columns=[column]))
        assert "return torch.ones(100)" in text and column.split(".")[0] in text


def test_page():
    def work():
        a, b = torch.ones(1000), "<b>&amp;"
        return a, b

    with LineProfiler(work) as profiler:
        kept = work()
    page = profiler.display()._repr_html_()
    assert "&lt;b&gt;&amp;amp;" in page and "<b>" not in page
    assert "background-color:rgba(214,69,48,0.60)" in page and "3.91K" in page
    assert "http" not in page and "<script" not in page
    del kept


def test_target():
    def work():
        set_target_gpu(torch.device("cpu"))
        kept.append(torch.ones(100))
        set_target_gpu(0)
        kept.append(torch.ones(100))

    kept: list = []
    profiled = profile(work)
    profiled()
    assert profiled is work
    assert get_total(global_line_profiler, work) == 800
    with pytest.raises(ValueError, match="on the CPU and on CUDA devices, not on meta"):
        set_target_gpu("meta")
    with pytest.raises(TypeError):
        set_target_gpu(None)
    set_target_gpu(0)


def test_a_gpu(monkeypatch):
    """Its columns, read from ``torch.cuda.memory_stats``; no GPU is needed here."""
    stats = {"active_bytes.all.peak": 0, "active_bytes.all.allocated": 0}
    stats.update({"active_bytes.all.freed": 0, "reserved_bytes.all.peak": 0, "num_ooms": 0})

    def reset(device):
        assert device == torch.device("cuda", 1)
        stats["active_bytes.all.peak"] = get_held()
        stats["reserved_bytes.all.peak"] = 4096

    def get_held():
        return stats["active_bytes.all.allocated"] - stats["active_bytes.all.freed"]

    def allocate(size):
        stats["active_bytes.all.allocated"] += size
        stats["active_bytes.all.peak"] = max(stats["active_bytes.all.peak"], get_held())

    def release(size):
        stats["active_bytes.all.freed"] += size

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: dict(stats))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)

    def work():
        allocate(512)
        allocate(2048), release(2048)
        release(512)

    with LineProfiler(work, target_gpu=1) as profiler:
        work()
        work()
    first = work.__code__.co_firstlineno
    assert get_lines(profiler, work) == {first: 0, first + 1: 1024, first + 2: 0, first + 3: -1024}
    text = str(profiler.display())
    assert [line.split()[:3] for line in text.splitlines() if "allocate(2048)" in line] == [
        ["2.50K", "4.00K", "0.00B"]
    ]
    for wrong in (2, "cuda:2"):
        with pytest.raises(ValueError, match=r"there is no cuda:2: PyTorch finds 2 GPU"):
            LineProfiler(work, target_gpu=wrong).enable()
        with pytest.raises(ValueError, match="there is no cuda:2"):
            set_target_gpu(wrong)
    _sources._sources.pop(torch.device("cuda", 1))


# ----------------------------------------------------------------------------
# Decorators, and when they print
# ----------------------------------------------------------------------------


def test_every_so_many(capsys):
    held = []

    @profile_every(2)
    def work(size):
        held.append(torch.ones(size))

    @profile_every(1, enable=False)
    def silent():
        pass

    work(1000), silent()
    assert capsys.readouterr().out == ""
    work(1000)
    assert "7.81K" in capsys.readouterr().out
    # Since it last printed.
    work(250), work(250)
    assert "1.95K" in capsys.readouterr().out
    with pytest.raises(TypeError, match="ones"):
        work("no size")
    assert "def work(size)" in capsys.readouterr().out
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            profile_every(wrong)
    with pytest.raises(TypeError):
        profile_every("2")  # type: ignore[arg-type]


def test_every_kind_of_function(capsys):
    @profile_every()
    async def waits():
        await asyncio.sleep(0)
        return torch.ones(1000)

    @profile_every()
    def yields():
        sent = yield torch.ones(1000)
        assert sent == 5
        return 7

    @profile_every()
    async def streams():
        for _ in range(2):
            got.append((yield torch.ones(1000)))

    @profile_every()
    def recurses(depth):
        return recurses(depth - 1) if depth else torch.ones(1000)

    async def main():
        stream = streams()
        one = await anext(stream)
        two = await stream.asend(6)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return one, two, await waits()

    got: list = []
    kept = asyncio.run(main())
    assert got == [6, None]
    assert asyncio.iscoroutinefunction(waits)
    generator = yields()
    kept += (next(generator),)
    with pytest.raises(StopIteration, match="7"):
        generator.send(5)
    kept += (recurses(3),)
    out = capsys.readouterr().out
    for name in ("waits", "yields", "streams"):
        assert out.count(f".{name}\n") == 1
    assert out.count(".recurses\n") == 1
    assert out.count("3.91K") >= 3 and "7.81K" in out
    del kept


def test_wrong_targets_warn_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with LineProfiler(functions.plain, target_gpu=3):
            functions.plain([])


def test_two_gpus_at_once(monkeypatch):
    stems = [f"active_bytes.all.{part}" for part in ("current", "peak", "allocated", "freed")]
    stats = [dict.fromkeys(stems, 0) for _ in range(2)]
    for name, answer in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "init": lambda: None,
        "memory_stats": lambda device: dict(stats[device.index]),
        "reset_peak_memory_stats": lambda device: None,
        "empty_cache": lambda: pytest.fail("changes what is measured"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)

    def work():
        stats[0]["active_bytes.all.allocated"] += 512
        stats[1]["active_bytes.all.allocated"] += 2048

    with LineProfiler(work, target_gpu=0) as first, LineProfiler(work, target_gpu=1) as second:
        work()
    assert (get_total(first, work), get_total(second, work)) == (512, 2048)
    for index in range(2):
        _sources._sources.pop(torch.device("cuda", index))
