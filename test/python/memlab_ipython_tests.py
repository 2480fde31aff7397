"""koila.compat.pytorch_memlab: %mlrun and %%mlrun."""

import re
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


NET = """class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10)

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x)
        return self.second(x)

def unused():
    return 1

net, x = Net(), torch.randn(48, 64)
"""


def test_predictions(shell):
    """Of a statement, and of a class of an earlier cell."""
    run(shell, NET)
    shown = run(shell, "%koila y = net(x)")
    text = str(shown)
    assert shell.user_ns["y"].shape == (48, 10)
    assert "## Net.forward" in text and "unused" not in text and "Net.__init__" not in text
    assert re.search(r"96.00K +96.00K +0.00B +0.00B +8 +x = torch.relu\(x\)", text)
    assert "predicted: Net(float32[48,64]), forward-with-grad" in text
    assert re.search(r"96.00K +96.00K +49.88K +49.88K +1  y = net\(x\)", text)
    assert "predicted_bytes.call.peak" in shown._repr_html_()
    # With -f these functions alone; another name of the extension.
    text = str(run(shell, "%koila -f Net.forward net(x)"))
    assert "## Net.forward" in text and "<module>" not in text and "predicted: " in text
    run(shell, "%reload_ext koila")
    run(shell, "%koila --wrong net(x)", (Exception, "koila: unrecognized arguments: --wrong"))
    # Measured alone, as ever.
    assert "predicted" not in str(run(shell, "%mlrun -f Net.forward net(x)"))


def test_predictions_of_a_cell(shell):
    shown = run(shell, f"%%koila\n{NET}with torch.no_grad():\n    y = net(x)")
    text = str(shown)
    assert re.search(r"96.00K +96.00K +1.88K +1.88K +16      y = net\(x\)", text)
    assert re.search(r"96.00K +96.00K +0.00B +0.00B +8 +x = torch.relu\(x\)", text)
    assert shell.user_ns["y"].shape == (48, 10)
