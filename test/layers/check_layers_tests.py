"""tools/dev/check_layers.py finds what goes upwards: each check, with a violation."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import pytest

import check_layers
from check_layers import Layer

LAYERS = [
    Layer("Low", "lib/Low"),
    Layer("Middle", "lib/Middle", ("Low",)),
    Layer("High", "lib/High", ("Middle",)),
]
FILES = {
    "lib/Low/Low.cpp": '#include "koila/Low/Low.h"\n#include "Private.h"\n',
    "lib/Low/Private.h": "",
    "include/koila/Low/Low.h": "#include <vector>\n",
    "include/koila/Low/Ops.td": 'include "koila/Low/Base.td"\n',
    "include/koila/Low/Base.td": "",
    "lib/Middle/Middle.cpp": '#include "koila/Low/Ops.h.inc"\n',
    "include/koila/Middle/Middle.h": "",
    "lib/High/High.cpp": '#include "koila/Low/Low.h"\n#include "koila/Middle/Middle.h"\n',
    "include/koila/High/High.h": "",
}


def find(**changes):
    files = FILES | changes
    return [(x.source, x.target) for x in check_layers.check_includes(LAYERS, files)]


def test_includes_that_go_downwards_are_fine():
    assert find() == []


@pytest.mark.parametrize(
    ("source", "include", "target"),
    [
        ("lib/Low/Low.cpp", '"koila/Middle/Middle.h"', "include/koila/Middle/Middle.h"),
        ("include/koila/Low/Low.h", '"koila/High/High.h"', "include/koila/High/High.h"),
        ("lib/Middle/Middle.cpp", '"../Low/Private.h"', "lib/Low/Private.h"),
    ],
)
def test_includes_that_go_upwards_or_into_a_layer_are_found(source, include, target):
    assert find(**{source: FILES[source] + f"#include {include}\n"}) == [(source, target)]


def test_a_layer_depends_on_layers_below():
    with pytest.raises(SystemExit, match="Low depends on High, which is not below it"):
        check_layers.close([Layer("Low", "lib/Low", ("High",)), Layer("High", "lib/High")])


def test_symbols_of_a_higher_layer_are_found(tmp_path):
    sources = {
        "low": "int high(); inline int both() { return 1; } int low() { return high() + both(); }",
        "high": "int low(); inline int both() { return 1; } int high() { return low() + both(); }",
    }
    objects = {}
    for name, text in sources.items():
        (tmp_path / f"{name}.cpp").write_text(text)
        objects[name] = str(tmp_path / f"{name}.cpp.o")
        subprocess.run(["c++", "-c", tmp_path / f"{name}.cpp", "-o", objects[name]], check=True)
    layers = [
        Layer("Low", "lib/Low", (), (objects["low"],)),
        Layer("High", "lib/High", ("Low",), (objects["high"],)),
    ]
    symbols = check_layers.read_symbols(objects.values())
    found = check_layers.check_symbols(layers, symbols)
    assert [(x.target, x.why) for x in found] == [("High", "uses _Z4highv of High")]


def test_a_header_that_needs_another_is_found(tmp_path):
    (tmp_path / "alone.h").write_text("#include <string>\ninline std::string f() { return {}; }\n")
    (tmp_path / "needy.h").write_text("inline std::string f() { return {}; }\n")
    flags = ["c++", f"-I{tmp_path}"]
    (tmp_path / "alone.h").write_text("#pragma once\n" + (tmp_path / "alone.h").read_text())
    found = check_layers.check_headers(lambda _: flags, ["alone.h", "needy.h"])
    assert [x.source for x in found] == ["needy.h"]


def test_headers_that_no_source_includes_first_are_never_left_out():
    headers = [f"include/koila/Low/{name}.h" for name in "ABCDE"]
    files = {
        f"lib/Low/{name}.cpp": f'// Of it.\n#include "koila/Low/{name}.h"\n#include <map>\n'
        for name in "ABCD"
    } | {"lib/Low/Other.cpp": '#include <map>\n#include "koila/Low/E.h"\n'}
    chosen = check_layers.choose_headers(headers, files, 3)
    assert [header[-3] for header in chosen] == ["A", "D", "E"]
    assert check_layers.choose_headers(headers, files, 1) == headers


def test_the_list_of_known_violations_shrinks():
    found = check_layers.check_includes(
        LAYERS, FILES | {"lib/Low/Low.cpp": '#include "koila/High/High.h"\n'}
    )
    key = "includes lib/Low/Low.cpp include/koila/High/High.h"
    assert check_layers.compare(found, {key}, {"includes"}) == []
    assert check_layers.compare(found, set(), {"includes"}) != []
    assert "is gone" in check_layers.compare([], {key}, {"includes"})[0]
    assert check_layers.compare([], {key}, {"symbols"}) == []
    assert check_layers.read_known(f"# text\n{key}  # why\n\n") == {key}
