"""Reports: what is measured beside what is predicted, and the source by line."""

import html
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

import koila
import networks


def analyze(module, x, mode="inference"):
    return koila.analyze(module, x, mode=mode)


class Chain(nn.Module):
    """Whose variables hold no more than TorchScript does."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x)
        x = torch.tanh(x)
        return x.mean([2, 3])


class Holding(nn.Module):
    """Whose variable holds what TorchScript frees."""

    def forward(self, x):
        first = torch.exp(x)
        second = torch.exp(first)
        return torch.exp(second)


class Three(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.cos(torch.exp(x)))


class Four(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.cos(torch.sin(torch.exp(x))))


@pytest.mark.parametrize("mode", ["inference", "forward-with-grad"])
@pytest.mark.parametrize("is_script", [False, True], ids=["python", "script"])
@pytest.mark.parametrize("name", ["mlp", "Chain"])
def test_as_predicted(name, is_script, mode, tmp_path):
    if name == "mlp":
        module, (x, _) = networks.mlp(), networks.batch()
    else:
        module, x = Chain().train(mode != "inference"), torch.randn(4, 3, 9, 9)
    module = torch.jit.script(module) if is_script else module
    before = {key: value.clone() for key, value in module.state_dict().items()}
    state = torch.get_rng_state()
    report = analyze(module, x, mode)
    assert report.measure(module, x) is report
    measured = report.data["measured"]
    assert measured["peak_bytes"] == report.peak > 0
    assert measured["program"] == ("TorchScript" if is_script else "Python")
    assert len(measured["timeline"]) >= 3
    assert all(step["entry"] is not None for step in measured["timeline"])
    assert "as predicted at every operation" in str(report)
    # The module and the generator are what they were.
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(p.grad is None for p in module.parameters())
    # It is part of what is saved.
    report.save(tmp_path / "report.json")
    assert str(koila.Report.load(tmp_path / "report.json")) == str(report)


def test_what_python_holds():
    x = torch.randn(100)
    report = analyze(Holding(), x).measure(Holding(), x)
    assert report.peak == 800 and report.data["measured"]["peak_bytes"] == 1200
    line = Holding.forward.__code__.co_firstlineno + 3
    text = (
        rf"measured +1.17 KiB \(1,200 bytes\), at most 400 bytes more than predicted, .*:{line}\b"
    )
    assert re.search(text, str(report))


@pytest.mark.parametrize("wrong", [8, -8])
def test_a_wrong_prediction_is_seen(wrong):
    module, (x, _) = networks.mlp(), networks.batch()
    report = analyze(module, x).measure(module, x)
    report.data["timeline"][2]["transient_bytes"] += wrong
    how = "less" if wrong > 0 else "more"
    assert f"at most 8 bytes {how} than predicted, by koila.linear" in str(report)
    report.data["timeline"][2]["transient_bytes"] -= wrong
    report.data["peak_bytes"] += 2 * wrong
    assert f"at most 16 bytes {how} than predicted, at the peak" in str(report)


def test_of_a_file_and_by_name(tmp_path):
    torch.jit.script(networks.mlp()).save(tmp_path / "model.pt")
    x = networks.batch()[0]
    report = koila.analyze(tmp_path / "model.pt", "float32[B,64]", batch=64)
    report.measure(tmp_path / "model.pt", input=x)
    assert report.data["measured"]["peak_bytes"] == report.peak


def test_refusals():
    module, (x, target) = networks.mlp(), networks.batch()
    report = analyze(module, x)
    with pytest.raises(koila.KoilaError, match=r"16,384 bytes \(B = 64\), and these have 8,192"):
        report.measure(module, x[:32])
    with pytest.raises(koila.KoilaError, match="of a training step"):
        koila.analyze(module, x, target, mode="train", loss="cross_entropy").measure(module, x)
    with pytest.raises(koila.KoilaError, match="no figures to compare with"):
        koila.analyze(module, "float32[B,64]").measure(module, x)
    with pytest.raises(koila.KoilaError, match="not meta"):
        report.measure(module, x.to("meta"))
    assert "measured" not in report.data
    # What the call raises is raised, and nothing counts on.
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        report.measure(module, x.reshape(32, 128))
    assert "measured" not in report.data
    assert report.measure(module, x).data["measured"]["peak_bytes"] == report.peak


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    x = torch.randn(1 << 18)
    report = analyze(Holding(), x)
    assert not report.plot().lines
    axes = report.measure(Holding(), x).plot()
    (line,) = axes.lines
    assert list(line.get_xdata()) == [0, 1, 2]
    assert list(line.get_ydata()) == [1, 2, 3]
    areas = [
        max(path.vertices[:, 1].max() for path in area.get_paths()) for area in axes.collections
    ]
    assert areas == [2, 2]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["inside of operators", "tensors", "measured"]


def test_operators_that_the_report_has_not():
    """They are drawn between their neighbours."""
    x = torch.randn(100)
    report = analyze(Three(), x).measure(Four(), x)
    assert [step["entry"] for step in report.data["measured"]["timeline"]] == [0, None, 1, 2]
    assert "1 operations are not in the report" in str(report)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    (line,) = report.plot().lines
    assert list(line.get_xdata()) == [0, 0.5, 1, 2]


def run_page(page, tmp_path):
    """What the page says of the measured call, and the corners of what it draws."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    (tmp_path / "page.html").write_text(page)
    script = pathlib.Path(__file__).with_name("page_script.js")
    done = subprocess.run(
        [node, script, tmp_path / "page.html"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_page(tmp_path):
    x = torch.randn(100)
    report = analyze(Holding(), x)
    plain = report.to_html()
    report.measure(Holding(), x)
    page = report.to_html()
    data = json.loads(re.search(r'id="report">(.*?)</script>', page, re.S)[1])
    totals = [
        [step["live_bytes"] + step["transient_bytes"] for step in steps]
        for steps in (data["timeline"], data["measured"]["timeline"])
    ]
    assert totals == [[400, 800, 800], [400, 800, 1200]]
    assert run_page(plain, tmp_path)["said"] is None
    shown = run_page(page, tmp_path)
    assert "1.17 KiB at most, and up to 400 B more than predicted" in shown["said"]
    # The line of the measured bytes, in columns of a third, of the most of both.
    assert shown["line"] == [[0, 400], [1, 400], [1, 800], [2, 800], [2, 1200], [3, 1200]]


SOURCE = """\
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        x = torch.exp(x)  # <script>"&
        x = torch.cat([x, x], 1)
        return torch.tanh(x)
"""


def load(path):
    spec = importlib.util.spec_from_file_location("net_of_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Net()


def get_rows(page):
    """Bytes at the peak and made, by line, with the text and the colour."""
    rows = {}
    for row in re.findall(r"<tr[^>]*>(?:(?!</tr>).)*class='code'.*?</tr>", page):
        cells = re.findall(r"<td class='[^']*'>(.*?)</td>", row)
        sizes = [re.search(r"title='([\d,]+) bytes'", cell) for cell in cells[:2]]
        heat = re.search(r"rgba\([^)]*,([\d.]+)\)", row)
        rows[int(cells[2])] = (
            *(int(size[1].replace(",", "")) if size else None for size in sizes),
            html.unescape(cells[3]),
            float(heat[1]) if heat else None,
        )
    return rows


def test_source(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    x = torch.randn(10, 10)
    report = koila.analyze(load(path), x)
    page = report.to_html()
    rows = get_rows(page)
    assert [rows[line][2] for line in sorted(rows)] == SOURCE.splitlines()
    assert rows[5][:2] == (None, None) and rows[5][3] is None
    assert rows[6][:2] == (None, 400) and rows[6][3] is None
    # At the peak, of the last line.
    assert rows[7][:2] == (800, 800) and rows[8][:2] == (800, 800)
    assert rows[7][3] == rows[8][3] == 0.6
    assert "<script>&quot;" not in page and "&lt;script&gt;&quot;&amp;" in page
    assert str(path) in page
    # A line more: figures go with the source of today.
    path.write_text(SOURCE + "# more\n")
    assert get_rows(report.to_html())[9][2] == "# more"


def test_source_that_cannot_be_read(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    report = koila.analyze(load(path), torch.randn(10, 10))
    path.write_text("import torch\n")
    page = report.to_html()
    assert "The source has 1 lines, and is not the one that was analysed." in page
    assert get_rows(page)[7][:3] == (800, 800, "")
    path.unlink()
    assert "The source cannot be read here." in report.to_html()
    # Other files than sources are not read into a page.
    secret = tmp_path / "secret"
    secret.write_text(SOURCE)
    text = json.dumps(report.data).replace(str(path), str(secret))
    page = koila.Report(json.loads(text)).to_html()
    assert "cannot be read here" in page and "torch.cat" not in page


def test_long_sources_are_cut(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("# above\n" * 500 + SOURCE + "# below\n" * 500)
    rows = get_rows(koila.analyze(load(path), torch.randn(10, 10)).to_html())
    assert sorted(rows) == list(range(506 - 8, 508 + 9))
