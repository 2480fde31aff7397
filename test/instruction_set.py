"""The newest instruction set that oneDNN can use on this machine.

Some virtual machines name AMX, and fault where it is used: a program that runs a
kernel of bfloat16 there dies. Whoever measures PyTorch calls

    instruction_set.limit()

before PyTorch is loaded. The kernels run once in a process of its own; where that
dies by a signal, ONEDNN_MAX_CPU_ISA is set to the newest set that does not, and to
DEFAULT where all is well. The variable is inherited, so that processes below need
not ask again, and who sets it decides.
"""

import os
import platform
import subprocess
import sys

VARIABLE = "ONEDNN_MAX_CPU_ISA"
#: All that the processor has, in oneDNN's words.
FULL = "DEFAULT"
#: What to fall back to, newest first. The last is not asked.
_OLDER = ("AVX512_CORE_AMX", "AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX2")
#: What Linux calls instructions that were seen to be named where they fault.
_DOUBTED = {"amx_tile", "amx_bf16", "amx_int8", "amx_fp16", "avx512_fp16", "avx512_bf16"}
_SECONDS = 60

# Each set is tried in a process forked off one that has loaded PyTorch: oneDNN
# reads its variable when it is first used.
_PROBE = f"""
import os, sys, torch

def run():
    x = torch.ones(32, 64)
    for dtype in (torch.bfloat16, torch.float16):
        image = torch.ones(2, 32, 6, 6, dtype=dtype)
        torch.mm(x.to(dtype), x.to(dtype).t())
        try:
            torch.conv2d(image, torch.ones(32, 32, 3, 3, dtype=dtype))
        except RuntimeError:
            pass  # No convolution of float16 without instructions for it.
    torch._int_mm(x.to(torch.int8), x.t().to(torch.int8))

torch.set_num_threads(1)
for isa in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.environ["{VARIABLE}"] = isa
        run()
        os._exit(0)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        print(isa)
        break
"""


def _names_doubted() -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return True
    return not _DOUBTED.isdisjoint(flags.split())


def find_limit(python: str = sys.executable) -> str:
    """A value of ONEDNN_MAX_CPU_ISA with which kernels of PYTHON's PyTorch run."""
    if chosen := os.environ.get(VARIABLE):
        return chosen
    if not _names_doubted():
        return FULL
    done = subprocess.run(
        [python, "-c", _PROBE, FULL, *_OLDER[:-1]],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    # Without a PyTorch there is nothing to fault.
    if done.returncode:
        return FULL
    return done.stdout.strip() or _OLDER[-1]


def limit() -> None:
    """Lets this process, and those below, use what runs."""
    os.environ[VARIABLE] = find_limit()
