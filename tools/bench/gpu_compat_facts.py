"""What the groups of gpu_compat.py share: facts, limits of memory, a stand-in."""

import contextlib
import ctypes
import gc
import importlib
import io
import pathlib
import re
import sys
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "test" / "python"
MIB, GIB = 1 << 20, 1 << 30
DEVICE = "cuda"


def install_stand_in():
    """koila's C++ part, where it is not built: it counts nothing and analyses nothing.
    Says whether it was needed."""
    import koila

    try:
        importlib.import_module("koila._C")
        return False
    except ImportError:
        stand_in = types.ModuleType("koila._C")

    def read_host_memory():
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return (next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvail")),)

    def refuse(name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments, **options):
            raise koila.CompileError(f"{name}: koila's C++ part is not built here")

        return call

    vars(stand_in).update(
        count_cpu_memory=lambda tensors: None,
        cpu_memory=lambda: (0, 0),
        take_cpu_lap=lambda: (0,) * 8,
        free_host_memory=read_host_memory,
        __getattr__=refuse,
    )
    sys.modules["koila._C"] = koila._C = stand_in
    return True


class Facts(list):
    """What was seen: a row for each statement, and whether it holds."""

    def say(self, what, holds, figure=""):
        row = {"what": what, "holds": bool(holds), "figure": str(figure)}
        self.append(row)
        print(f"{'ok  ' if row['holds'] else 'NOT '} {what}: {figure}", flush=True)


GROUPS = {}


def group(title):
    def add(function):
        GROUPS[function.__name__] = title, function
        return function

    return add


# --- Memory -----------------------------------------------------------------------------------


def format_bytes(count):
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


@contextlib.contextmanager
def limited(count):
    """The process may take so many bytes more than it has reserved."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + count) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


class Hoard:
    """What the driver has left, but for ``leave`` bytes, taken beside PyTorch's allocator:
    as another process would. What PyTorch has in its cache stays there."""

    def __init__(self, leave=0):
        maps = pathlib.Path("/proc/self/maps").read_text()
        self._library = ctypes.CDLL(re.findall(r"\S*libcudart\S*", maps)[0])
        self._taken = []
        size = GIB
        while size >= 4096:
            left = torch.cuda.mem_get_info()[0] - leave
            pointer = ctypes.c_void_p()
            if left < size or self._library.cudaMalloc(
                ctypes.byref(pointer), ctypes.c_size_t(size)
            ):
                # Or the next that asks is told of it.
                self._library.cudaGetLastError()
                size //= 2
                continue
            self._taken.append(pointer)

    def release(self):
        for pointer in self._taken:
            self._library.cudaFree(pointer)
        self._taken = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()


def measure_peak(function):
    """Bytes above what is there before the call."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def describe_error(error):
    """Its class and what it says, in a line."""
    lines = str(error).strip().splitlines() or [""]
    # Of a run of TorchScript the last line says what happened.
    said = lines[-1] if "TorchScript" in lines[0] else lines[0]
    return f"`{type(error).__qualname__}`: {shorten(said)}"


def shorten(text):
    """The first sentence, or its beginning."""
    return text.splitlines()[0].split(". ")[0][:100]


def clear_workspaces():
    """Those of cuBLAS, which PyTorch keeps for each handle and stream."""
    torch._C._cuda_clearCublasWorkspaces()


def release_all():
    """What is not in use goes back to the driver. A workspace would keep all of the
    segment that it was cut out of."""
    gc.collect()
    clear_workspaces()
    torch.cuda.empty_cache()


# --- Suites of others -------------------------------------------------------------------------


def run_pytest(arguments, plugins=()):
    """Exit code and output."""
    import pytest

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments], plugins)
    return int(code), out.getvalue()


def summarize(text):
    last = (text.strip().splitlines() or [""])[-1].strip("= ")
    return re.sub(r" in [\d.]+s( \(.*\))?$", "", last)
