"""How long kernels take on this machine, by which plans choose what to run again.

``koila bench --calibrate`` measures them once, in a process apart whose heap stays warm, and
keeps them in the user's cache folder, by processor, instruction set, threads and version of
PyTorch. Steps are planned by the table that is there; none is measured within a step.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from koila._errors import KoilaError, KoilaWarning
from koila._temporary import write_text

__all__ = ["WARM_HEAP", "calibrate", "describe_machine", "find_table", "measure", "table_path"]

#: What glibc keeps of memory that is freed: pages that are mapped afresh would be part of times.
WARM_HEAP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "34359738368",
    "MALLOC_TOP_PAD_": "67108864",
}
_MEASURE = "import koila._costs, sys; koila._costs.measure(int(sys.argv[1]))"
# Seconds.
_EACH = 0.6
_MOST = 120.0

#: What a table has the times of.
FAMILIES = ("product", "convolution", "depthwise_convolution", "pooling", "byte", "call")

#: Name, family, operations, bytes read and written, and the call.
_Kernel = tuple[str, str, float, int, Callable[[], object]]


def describe_machine(threads: int) -> str:
    """What a table is of, as reports name it."""
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA") or torch.backends.cpu.get_cpu_capability()
    counted = f"{threads} thread{'s' * (threads != 1)}"
    return f"{_processor()}, {isa}, {counted}, PyTorch {torch.__version__.partition('+')[0]}"


@functools.cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def table_path(threads: int) -> str:
    """Where the table of this machine is, or would be."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    key = hashlib.sha256(describe_machine(threads).encode()).hexdigest()[:16]
    return os.path.join(folder, "koila", f"costs-{key}.json")


def find_table(threads: int) -> str | None:
    """The table of this machine; None where nobody has measured it. What is there and
    is no table that koila reads is said, and not used: times promise nothing."""
    path = table_path(threads)
    # What an option of a pass cannot say is no place for a table.
    if not os.path.isfile(path) or set(path) & set("{}'\""):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        times = [table["picoseconds"][family] for family in FAMILIES]
        if table["schema"] == 1 and all(0 < float(found) < math.inf for found in times):
            return path
    except (OSError, ValueError, KeyError, TypeError):
        pass
    warnings.warn(
        f"'{path}' is no table of times; steps are planned by estimates: measure this "
        "machine again by `koila bench --calibrate`",
        KoilaWarning,
        stacklevel=2,
    )
    return None


def calibrate(threads: int, progress: Callable[[str], None]) -> tuple[str, dict[str, float]]:
    """Measures this machine, and returns where the table is and its picoseconds. Takes
    at most two minutes. KoilaError where nothing could be measured or written."""
    command = [sys.executable, "-c", _MEASURE, str(threads)]
    environment = {**os.environ, **WARM_HEAP, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as measuring:
        assert measuring.stdout is not None
        last = ""
        for line in measuring.stdout:
            if last:
                progress(last)
            last = line.strip()
    if measuring.returncode:
        raise KoilaError(f"measuring failed with exit status {measuring.returncode}")
    found: dict[str, float] = json.loads(last)
    path = table_path(threads)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise KoilaError(f"cannot write '{path}': {error.strerror}") from None
    table = {"schema": 1, "machine": describe_machine(threads), "picoseconds": found}
    write_text(path, json.dumps(table, indent=2) + "\n")
    return path, found


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _convolutions() -> Iterator[_Kernel]:
    for channels, size, filters, kernel, groups in (
        (64, 56, 64, 3, 1),
        (256, 56, 64, 1, 1),
        (256, 14, 256, 3, 1),
        (3, 112, 64, 7, 1),
        (144, 56, 144, 3, 144),
        (240, 28, 240, 5, 240),
    ):
        x = torch.randn(16, channels, size, size)
        weight = torch.randn(filters, channels // groups, kernel, kernel)
        made = 16 * filters * size * size
        run = functools.partial(F.conv2d, x, weight, padding=kernel // 2, groups=groups)
        yield (
            f"convolution, {kernel} x {kernel}, {channels} channels at {size} x {size}",
            "convolution" if groups == 1 else "depthwise_convolution",
            float(made * weight[0].numel()),
            _bytes(x) + 4 * made,
            run,
        )


def _pools() -> Iterator[_Kernel]:
    x = torch.randn(16, 64, 56, 56)
    yield (
        "max pooling, 3 x 3", "pooling", x.numel() / 4 * 9,
        _bytes(x), lambda: F.max_pool2d(x, 3, 2, 1),
    )  # fmt: skip


def _products() -> Iterator[_Kernel]:
    x, weight = torch.randn(2048, 1024), torch.randn(1024, 1024)
    yield (
        "linear, 2048 rows of 1024", "product", float(x.numel() * 1024),
        2 * _bytes(x), lambda: F.linear(x, weight),
    )  # fmt: skip
    q = torch.randn(8, 8, 256, 64)
    yield (
        "attention, 256 tokens", "product", 2.0 * q.numel() * 256,
        4 * _bytes(q), lambda: F.scaled_dot_product_attention(q, q, q),
    )  # fmt: skip


def _passes() -> Iterator[_Kernel]:
    x = torch.randn(16, 64, 56, 56)
    row = torch.rand(64) + 0.5
    yield "relu", "byte", 0.0, 2 * _bytes(x), lambda: F.relu(x)
    yield "sum of two", "byte", 0.0, 3 * _bytes(x), lambda: x + x
    yield (
        "batch normalisation", "byte", 0.0, 2 * _bytes(x),
        lambda: F.batch_norm(x, row, row, row, row),
    )  # fmt: skip
    one = torch.ones(1)
    yield "an operator", "call", 0.0, 0, lambda: F.relu(one)


def _time(call: Callable[[], object], end: float) -> float:
    """Seconds of a call, the least of those that fit: others may use the processor."""
    for _ in range(3):
        call()
    times: list[float] = []
    stop = min(time.perf_counter() + _EACH, end)
    while len(times) < 3 or time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(threads: int) -> None:
    """Prints what is being measured, and then picoseconds as JSON."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    end = time.perf_counter() + _MOST / 2
    seconds: dict[str, float] = {}
    work: dict[str, float] = {}
    byte = 0.0
    with torch.no_grad():
        for kernels in (_passes, _products, _convolutions, _pools):
            for name, family, operations, moved, call in kernels():
                print(f"measuring {name}", flush=True)
                found = _time(call, end)
                # What is above the bytes that are moved; some of it always is.
                seconds[family] = seconds.get(family, 0.0) + max(found - byte * moved, found / 10)
                work[family] = work.get(family, 0.0) + (operations or moved or 1)
            byte = seconds["byte"] / work["byte"]
    picoseconds = {
        family: float(f"{1e12 * seconds[family] / work[family]:.4g}") for family in seconds
    }
    print(json.dumps(picoseconds), flush=True)
