import json

import pytest

import koila
import networks


@pytest.fixture(scope="module")
def report():
    return koila.analyze(networks.mlp(), networks.batch()[0])


def test_text(report):
    text = str(report)
    assert "peak         128.00 KiB (131,072 bytes)" in text
    assert "functional.py" in text
    assert "131072" not in repr(report)
    assert "128.00 KiB" in repr(report)


def test_bounds(report):
    def title(**changes):
        return str(koila.Report({**report.data, "exact": False, **changes})).splitlines()[0]

    doubt = {"op": "koila.relu", "location": None, "reason": "", "bound": True}
    assert title(inexact=[doubt]).endswith(", not exact, an upper bound")
    assert title(inexact=[doubt, {**doubt, "bound": False}]).endswith(", not exact")
    # Without a batch there is no figure that could be one.
    assert title(inexact=[], peak_bytes=None).endswith(", not exact")


def test_diff(report):
    smaller = koila.analyze(networks.mlp(), networks.batch()[0], batch=32)
    difference = report.diff(smaller)
    assert difference.peak == -65536
    assert difference.by_module == {"0": -32768, "1": -32768}
    assert "peak         -64.00 KiB" in str(difference)
    assert report.diff(report).by_line == {}


def test_page(report):
    page = report.to_html()
    assert page.startswith("<!doctype html>")
    assert '"peak_bytes": 131072' in page
    assert "KOILA_REPORT_JSON" not in page
    assert "srcdoc=" in report._repr_html_()
    report.data["function"] = "</script>"
    assert "</script>" not in report.to_html().split('id="report"')[1].split("</script>")[0]
    report.data["function"] = "forward"


def test_files(report, tmp_path):
    path = tmp_path / "report.json"
    report.save(path)
    again = koila.Report.load(path)
    assert again.peak == report.peak
    # Without the program there is what the report says.
    assert again.max_batch(50 * 2048) == 50
    assert again.min_budget(10) == 20480
    with pytest.raises(koila.KoilaError, match="ends at a batch of 64"):
        again.max_batch("1GiB")
    with pytest.raises(koila.KoilaError, match="nothing of a batch of 500"):
        again.min_budget(500)
    path.write_text(json.dumps({"schema": 2}))
    with pytest.raises(koila.KoilaError, match="no report of schema 1"):
        koila.Report.load(path)
    with pytest.raises(koila.KoilaError, match="no report"):
        koila.Report.load(tmp_path / "nope.json")


def test_plot(report):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = report.plot()
    assert "forward" in axes.get_title()
