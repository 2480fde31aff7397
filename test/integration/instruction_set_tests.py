"""The newest instruction set that does not fault, of machines that name others.

In the place of PyTorch is a module whose products die as such machines do.
"""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import instruction_set

TORCH = """
import os, signal

bfloat16, float16, int8 = "bfloat16", "float16", "int8"

class Any:
    def __getattr__(self, name):
        return lambda *arguments, **options: self

ones = lambda *extents, dtype=None: Any()
set_num_threads = conv2d = lambda *arguments: None

def product(*factors):
    if os.environ["ONEDNN_MAX_CPU_ISA"] in {faults}:
        os.kill(os.getpid(), signal.SIGILL)

mm, _int_mm = {products}
"""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes a machine of which these sets fault."""

    def make(faults, products="product, product"):
        (tmp_path / "torch.py").write_text(
            TORCH.replace("{faults}", repr(faults)).replace("{products}", products)
        )

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(instruction_set.VARIABLE, raising=False)
    monkeypatch.setattr(instruction_set, "_names_doubted", lambda: True)
    return make


def test_all_is_used_where_nothing_faults(machine):
    machine([])
    assert instruction_set.find_limit() == instruction_set.FULL


@pytest.mark.parametrize("products", ["product, product", "conv2d, product"])
def test_the_newest_that_does_not_fault(machine, products):
    machine(["DEFAULT", "AVX512_CORE_AMX"], products)
    assert instruction_set.find_limit() == "AVX512_CORE_FP16"


def test_the_last_is_not_asked(machine):
    machine(["DEFAULT", "AVX512_CORE_AMX", "AVX512_CORE_FP16", "AVX512_CORE_BF16"])
    assert instruction_set.find_limit() == "AVX2"


def test_without_doubt_no_process_is_started(machine, monkeypatch):
    machine(["DEFAULT"])
    monkeypatch.setattr(instruction_set, "_names_doubted", lambda: False)
    assert instruction_set.find_limit("/missing/python") == instruction_set.FULL


def test_who_sets_the_variable_decides_for_those_below(machine, monkeypatch):
    machine(["DEFAULT"])
    monkeypatch.setenv(instruction_set.VARIABLE, "AVX512_CORE")
    assert instruction_set.find_limit("/missing/python") == "AVX512_CORE"
    instruction_set.limit()
    assert instruction_set.find_limit("/missing/python") == "AVX512_CORE"
