"""A page that differs from what a run makes is seen, with what differs."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / "compare_page.py"
PAGE = """# Programs

2 equal.

| verdict | programs |
|---|---|
| equal | 2 |

| program | verdict | peak | why |
|---|---|---|---|
| `a` | equal | 12 | |
| `b` | equal | 13 | one \\| two |
"""


@pytest.fixture
def check(tmp_path):
    def run(made, *options):
        for name, text in (("page.md", PAGE), ("made.md", made)):
            (tmp_path / name).write_text(text)
        files = [tmp_path / "page.md", tmp_path / "made.md"]
        done = subprocess.run(
            [sys.executable, SCRIPT, *files, *options], stderr=subprocess.PIPE, text=True
        )
        assert done.returncode in (0, 1) and bool(done.stderr) == bool(done.returncode)
        return done.stderr

    return run


WAYS = [[], ["--part"], ["--columns", "program", "verdict"]]


@pytest.mark.parametrize("options", WAYS)
def test_the_same_page(check, options):
    assert not check(PAGE, *options)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("`b` | equal", "`b` | refused"),
        ("# Programs", "# Others"),
        ("| peak |", "| bytes |"),
        ("| `b` |", "| `c` |"),
        ("| program |", "| name |"),
    ],
)
def test_what_differs_in_every_way(check, options, old, new):
    assert old in PAGE
    assert "page.md is stale" in check(PAGE.replace(old, new), *options)


def test_other_columns(check):
    made = PAGE.replace("13", "14")
    assert "in the page: | `b` | equal | 13 |" in check(made)
    assert "`b`, peak: 14; in the page 13" in check(made, "--part")
    assert not check(made, "--columns", "program", "verdict")
    assert "there is no column 'size'" in check(PAGE, "--columns", "size")


def test_missing_programs(check):
    made = PAGE.replace("| `b` | equal | 13 | one \\| two |\n", "")
    assert check(made)
    assert not check(made, "--part")
    assert "`b` is in the page only" in check(made, "--columns", "program")
    made = PAGE + "| `c` | equal | 13 | |\n"
    assert "`c` is not in the page" in check(made, "--part")


def test_the_text_around(check):
    made = PAGE.replace("2 equal", "3 equal")
    assert check(made)
    assert not check(made, "--columns", "program")
