"""koila.compat.pytorch_memlab: %mlrun and %%mlrun."""

import sys

import pytest

InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell


@pytest.fixture
def shell():
    shell = InteractiveShell()
    shell.run_cell("import torch\n%load_ext koila.compat.pytorch_memlab")
    shell.run_cell("def func(n, *more):\n    a = torch.ones(n * 1000)\n    return a\n")
    yield shell
    assert sys.gettrace() is None


def run(shell, cell, raises=None):
    result = shell.run_cell(cell)
    if raises is None:
        result.raise_error()
        return result.result
    with pytest.raises(raises[0], match=raises[1]):
        result.raise_error()
    return None


def test_statements(shell):
    shown = run(shell, "%mlrun -f func func(1)")
    assert "a = torch.ones(n * 1000)" in str(shown) and "3.91K" in str(shown)
    assert "<table>" in shown._repr_html_()
    # With blanks, strings and what looks like options.
    shown = run(shell, "%mlrun -f func y = func(2, 'a  b', \"-q\", 1 -2)")
    assert "7.81K" in str(shown) and shell.user_ns["y"].shape == (2000,)
    shown = run(shell, "%mlrun -f func z = [func(n) for n in (1, 2)]; w = len(z)")
    assert "11.72K" in str(shown) and shell.user_ns["w"] == 2


def test_cells(shell):
    """The README's own: the function is defined by the cell."""
    shown = run(
        shell,
        """%%mlrun -f inner -f func -f Net.forward
def inner(n):
    b = torch.ones(n)
    return b
class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1
kept = inner(1000), func(1), Net()(torch.ones(500))
""",
    )
    text = str(shown)
    assert "## inner" in text and "    b = torch.ones(n)" in text and "3.91K" in text
    assert "## func" in text and "## Net.forward" in text and "return x + 1" in text
    # Defined anew: it is the new one that runs.
    shown = run(shell, "%%mlrun -f func\ndef func():\n    return torch.ones(5)\nfunc()")
    assert "20.00B" in str(shown)


def test_flags(shell, tmp_path):
    assert run(shell, "%mlrun -q -f func func(1)") is None
    path = tmp_path / "figures of it.txt"
    assert run(shell, f"%mlrun -q -T '{path}' -f func func(1)") is None
    assert "3.91K" in path.read_text()
    profiler = run(shell, "%mlrun -r -g 0 -f func func(1)")
    assert type(profiler).__name__ == "LineProfiler" and not profiler.enabled
    shown = run(shell, "%mlrun -D -c allocation.all.allocated -c active.all.peak -f func func(1)")
    assert shown._columns == ("allocation.all.allocated", "active.all.peak")
    shown = run(shell, "%mlrun --column=active_bytes.all.freed --function func func(1)")
    assert shown._columns[-1] == "active_bytes.all.freed" and len(shown._columns) == 3
    for line, message in (
        ("%mlrun -f nobody func(1)", "no function 'nobody'"),
        ("%mlrun --wrong func(1)", "unrecognized arguments: --wrong"),
        ("%mlrun -g one func(1)", "invalid int value"),
    ):
        run(shell, line, (Exception, message))
    run(shell, "%mlrun -f func -c no.such.column func(1)", (ValueError, "there are: "))
    run(shell, "%mlrun -f func func(undefined)", (NameError, "undefined"))


def test_local_variables(shell):
    shell.user_ns["get_shell"] = shell
    shown = run(
        shell,
        """def outer():
    n = 3
    def local(n):
        return torch.ones(n * 1000)
    return get_shell.run_line_magic("mlrun", "-f local local(n)")
outer()
""",
    )
    assert "11.72K" in str(shown)
