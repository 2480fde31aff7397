"""A test that writes a file of the checkout is seen."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "dev" / "tree_state.py"


def git(tree, *arguments):
    identity = ["-c", "user.name=koila", "-c", "user.email=koila@localhost"]
    subprocess.run(["git", "-C", tree, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs" / "page.md").write_text("committed\n")
    (tree / "docs" / "edited.md").write_text("committed\n")
    (tree / ".gitignore").write_text("/build/\n")
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "--message=all")
    (tree / "docs" / "edited.md").write_text("by hand\n")
    return tree


def run(command, tree):
    return subprocess.run(
        [sys.executable, SCRIPT, command, tree.parent / "state.json", "--root", tree],
        capture_output=True,
        text=True,
    )


def append(path):
    path.write_text(path.read_text() + "more\n")


def ignore(tree):
    (tree / "build").mkdir()
    (tree / "build" / "page.md").write_text("new\n")


def test_nothing_written(tree):
    assert run("write", tree).returncode == 0
    ignore(tree)
    assert run("compare", tree).returncode == 0


@pytest.mark.parametrize(
    ("path", "write"),
    [
        ("docs/page.md", append),
        # It differs from the commit before the tests run, too.
        ("docs/edited.md", append),
        ("docs/new page.md", pathlib.Path.touch),
        ("docs/page.md", pathlib.Path.unlink),
    ],
)
def test_what_was_written_is_named(tree, path, write):
    run("write", tree)
    write(tree / path)
    seen = run("compare", tree)
    assert seen.returncode == 1
    assert seen.stderr == (f"koila: error: files of the tree changed while the tests ran: {path}\n")


def test_without_git(tmp_path):
    folder = tmp_path / "archive"
    folder.mkdir()
    assert run("write", folder).returncode == 0
    (folder / "page.md").touch()
    assert run("compare", folder).returncode == 0
