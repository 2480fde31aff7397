"""When the decorators print: at the end, however the program ends.

memlab_ends.py exit|error|interrupt
"""

import os
import signal
import sys
import time

import torch

import koila

assert koila.lazy and not any(name.startswith("koila.compat") for name in sys.modules)

older = [torch.ones(1000), torch.ones(1000, requires_grad=True)]
older[1].sum().backward()
view = older[0][:10]

from koila.compat.pytorch_memlab import LineProfiler, profile, profile_every  # noqa: E402


@profile
def work():
    held.append(torch.ones(1000))


@profile
def never():
    pass


@profile_every(3)
def often():
    held.append(torch.ones(2000))


@profile
@profile_every(2)
def both():
    held.append(torch.ones(500))


def release():
    """What was there before the first profiler."""
    older.clear()
    view.resize_(5000)


held: list = []
with LineProfiler(work) as profiler:
    work()
assert "3.91K" in str(profiler.display())
with LineProfiler(release) as profiler:
    release()
(table,) = profiler.display(columns=["active_bytes.all.increment"])._tables
assert [row.figures[0] for row in table.rows][2:] == [-8000, 16000], table
for _ in range(4):
    often()
both()
both()
print("---", flush=True)
if sys.argv[1] == "error":
    raise ValueError("an error")
if sys.argv[1] == "interrupt":
    # Ignored, where whoever started this does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
