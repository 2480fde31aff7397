"""tools/dev/check_tidy.py finds what .clang-tidy asks for, and where it is."""

import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import pytest

import check_tidy

HEADER = "inline int BadName(int value) { return value; }\n"


def source(name, value, include=""):
    return f"{include}namespace {{\nstruct {name} {{ int value = {value}; }};\n}} // namespace\n"


INCLUDE = '#include "koila/Names.h"\n'
SOURCES = {
    "lib/One.cpp": source("One", "BadName(1)", INCLUDE),
    "lib/Two.cpp": source("Two", "BadName(2)", INCLUDE),
    "lib/Clean.cpp": source("Three", "3"),
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Three sources with a header, as a build folder and git know them."""
    for name, text in {**SOURCES, "include/koila/Names.h": HEADER}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    gcc = f"c++ -I{tmp_path}/include -Wno-maybe-uninitialized -Winvalid-pch"
    gcc += f" -include {tmp_path}/build/cmake_pch.hxx"
    files = [f"{tmp_path}/{name}" for name in (*SOURCES, "build/generated.cpp")]
    commands = [
        {"directory": f"{tmp_path}/build", "file": file, "command": f"{gcc} -c {file}"}
        for file in files
    ]
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "compile_commands.json").write_text(json.dumps(commands))
    monkeypatch.setattr(check_tidy, "_ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def check(tree, monkeypatch, capsys):
    """Runs it: the exit code and what it printed."""

    def run(*arguments):
        tidy = pathlib.Path(sys.executable).with_name("clang-tidy")
        monkeypatch.setattr(
            sys,
            "argv",
            ["check_tidy.py", "--build", f"{tree}/build", "--clang-tidy", str(tidy), *arguments],
        )
        with pytest.raises(SystemExit) as end:
            check_tidy.main()
        return end.value.code, capsys.readouterr().out

    return run


def git(tree, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *arguments], cwd=tree, check=True, capture_output=True)


def test_a_finding_of_a_header_is_told_once(check):
    code, out = check("--jobs", "1")
    assert code == 1
    assert out.count("invalid case style for function 'BadName'") == 1
    assert "include/koila/Names.h:1:12: " in out
    assert "3 sources: 1 findings" in out


def test_clean_sources(check, tree):
    assert check(f"{tree}/lib/Clean.cpp") == (0, "1 sources: 0 findings\n")


def test_a_source_that_does_not_compile(check, tree):
    (tree / "lib/Clean.cpp").write_text(source("Three", "missing"))
    code, out = check(f"{tree}/lib/Clean.cpp")
    assert code == 1 and "lib/Clean.cpp:2:28: error: " in out


def test_a_header_is_read_with_a_source(check, tree):
    code, out = check(f"{tree}/include/koila/Names.h")
    assert code == 1 and "1 sources: 1 findings" in out
    (tree / "include/koila/Alone.h").touch()
    code, out = check(f"{tree}/include/koila/Alone.h")
    assert code == 0 and "include/koila/Alone.h: not checked" in out


def test_what_changed(check, tree):
    git(tree, "init", "-q")
    git(tree, "add", "lib/One.cpp", "lib/Clean.cpp", "include")
    git(tree, "commit", "-qm", "1")
    # Nothing that is known: an error, and not no findings.
    assert "knows no commit" in str(check("--changed")[0])
    (tree / "lib/Clean.cpp").write_text(source("Three", "4"))
    git(tree, "add", "lib/Clean.cpp")
    git(tree, "commit", "-qm", "2")
    # The last commit, and lib/Two.cpp, which is new.
    assert check_tidy.changed_files("") == ["lib/Clean.cpp", "lib/Two.cpp"]
    assert check_tidy.changed_files("HEAD") == ["lib/Two.cpp"]
    code, out = check("--changed", "HEAD")
    assert code == 1 and "1 sources: 1 findings" in out
    # What the branch has that origin/main has not.
    git(tree, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(tree, "add", "lib/Two.cpp")
    git(tree, "commit", "-qm", "3")
    (tree / "lib/One.cpp").write_text(SOURCES["lib/One.cpp"] + "\n")
    assert check_tidy.changed_files("") == ["lib/One.cpp", "lib/Two.cpp"]
