"""tools/dev/check_diagnostics.py finds the diagnostics that no test expects."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "dev" / "check_diagnostics.py"
sys.path.insert(0, str(SCRIPT.parent))

import pytest

import check_diagnostics

# What is planted must not stand in a literal of a test.
TEXT = " ".join(["needs", "a", "purple", "elephant"])
PASS = "lib/Dialect/Koila/Transforms/VerifyStage.cpp"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what the script reads."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("lib", "test"):
        shutil.copytree(ROOT / folder, root / folder)
    return root


def run(root):
    command = [sys.executable, SCRIPT, "--root", root]
    result = subprocess.run(command, capture_output=True, text=True)
    assert not result.stderr
    return result.returncode, result.stdout.splitlines()


def plant(path, text):
    path.write_text(path.read_text() + text)


def test_a_new_diagnostic_needs_a_test(tree):
    known = tree / "test" / "UntestedDiagnostics.txt"
    plant(tree / PASS, f'static void fail(Operation *op) {{ op->emitError() << "{TEXT}"; }}\n')
    code, lines = run(tree)
    assert code == 1
    assert len(lines) == 1 and lines[0].endswith(f": no test expects: {TEXT}")
    assert lines[0].startswith(PASS + ":")
    plant(known, f"\n# A reason.\n{PASS}: {TEXT}\n")
    assert run(tree)[0] == 0
    (tree / "test" / "new.mlir").write_text(f"// expected-error @below {{{{{TEXT}}}}}\n")
    assert run(tree) == (1, [f"test/UntestedDiagnostics.txt: no untested site is: {PASS}: {TEXT}"])


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ('op->emitError() << "has rank " << rank << ", not " << other;', ("has rank", "not")),
        ('return fail("dim " + Twine(i) +\n  " is a "\n  "list");', ("dim", "is a list")),
        ('emitError() << (a ? "one" : "two") << " of them";', ("of them",)),
        ('problem = ("\'" + name + "\' is unknown").str();', ("is unknown",)),
        ('op->emitError() << problem; // "no text"', ()),
        ('LogicalResult fail(const Twine &text) { return s("no text"); }', ()),
    ],
)
def test_parts_of_messages(source, parts):
    found = [site.parts for site in check_diagnostics.find_sites("a.cpp", source)]
    assert found == ([parts] if parts else [])


@pytest.mark.parametrize(
    ("expected", "is_tested"),
    [
        ("argument 3 has rank 4; give it rank 2", True),
        ("ment 3 has rank 4; give it rank 2", True),
        ("argument 3 has rank 4; give", True),
        ("argument 3 has rank 4 and more; not rank 2", False),
        ("has rank 4; give it rank 2", False),
        ("rank", False),
    ],
)
def test_what_a_text_says(expected, is_tested):
    site = check_diagnostics.Site("a.cpp", 1, ("argument", "has rank", "give it rank"))
    assert site.is_in(expected) == is_tested


def test_expected_texts():
    text = """
// RUN: koila-opt %s | FileCheck %s --check-prefix=NEAR
// NEAR: file.mlir:3:1: error: near
// NEAR-SAME: and far
// expected-error-re @+1 {{in {{.*}} braces}}
"""
    found = list(check_diagnostics.find_expected("a.mlir", text))
    assert "near and far" in found
    assert "in {{.*}} braces" in found
    assert list(check_diagnostics.find_expected("a.py", 'match = r"a\\.b"')) == ["a.b"]
    assert list(check_diagnostics.find_expected("a.cpp", 'f("a "\n  "b")')) == ["a b"]


def test_what_no_input_reaches_has_a_reason():
    known = check_diagnostics.read_known(
        "# Head.\n\n# A reason,\n# longer.\na.cpp: one\nb.cpp: two\n"
    )
    assert known == {"a.cpp: one", "b.cpp: two"}
    with pytest.raises(SystemExit, match="no reason above: b"):
        check_diagnostics.read_known("# A reason.\na.cpp: one\n\nb.cpp: two\n")
